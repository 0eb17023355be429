"""The filter plugins asked together about one snapshot; what they answer is kept for as long as it holds."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.framework import Judge, Plugin, Refused, Scope
from predicates.nodes import ALL, Flags, Rows
from predicates.objects import PodClass
from predicates.snapshot import DRAIN_TAINT, Snapshot
from predicates.tolerations import tolerated

#: How many candidates are judged one by one before all the others are together: mostly one of them will do.
_FEW: Final = 12

#: What some plugins read of a class; one that has nothing to say about it is left out.
_Parts: TypeAlias = tuple[tuple[Plugin, Any], ...]
_NO_ROWS: Final = np.zeros(0, np.intp)


class Targets:
    """Rows where pods may go, in order of preference."""

    __slots__ = ("rows",)

    def __init__(self, rows: Sequence[int] | npt.NDArray[np.intp]) -> None:
        self.rows = np.asarray(rows, np.intp)


class _Near:
    """What the plugins that look at single nodes say, for all pods that read alike: kept between questions."""

    __slots__ = ("changed", "dirty", "epoch", "facts", "first", "judges", "mask", "moment", "parts", "rest", "targets")

    def __init__(self, parts: _Parts, snapshot: Snapshot) -> None:
        self.parts = parts
        #: Those that look at the pods on a row. What is kept about the node itself a trial does not change.
        self.judges = tuple(plugin.judging(part, snapshot) for plugin, part in parts if plugin.scope is Scope.PODS)
        self.moment = self.epoch = -1
        self.facts = self.changed = 0
        self.dirty: tuple[int, ...] = ()
        self.mask: Flags = np.zeros(0, np.bool_)
        self.targets: Targets | None = None
        self.first: list[int] = []  #: of the targets that the mask takes, the first few …
        self.rest = _NO_ROWS  #: … and the others

    def aim(self, targets: Targets) -> None:
        self.targets = targets
        candidates = targets.rows[self.mask[targets.rows]]
        self.first, self.rest = candidates[:_FEW].tolist(), candidates[_FEW:]


class _Class:
    """What is kept of a class: how its pods are judged by the plugins that look at single nodes, and by the others."""

    __slots__ = ("_judges", "_snapshot", "far", "near")

    def __init__(self, near: _Near, far: _Parts, snapshot: Snapshot) -> None:
        self.near = near
        self.far = far
        self._judges = tuple(plugin.judging(part, snapshot) for plugin, part in far)
        self._snapshot = snapshot

    def takes(self, row: int) -> bool:
        """Whether *row*, of which the mask said so before the trial, takes a pod as things are."""
        if row in self._snapshot.touched and _refused(self.near.judges, row):
            return False
        for refuses in self._judges:  # noqa: SIM110 - as below
            if refuses(row):
                return False
        return True


class Filters:
    """The plugins, asked together about one snapshot. Keeps their answers as long as they hold."""

    def __init__(self, snapshot: Snapshot, plugins: Sequence[Plugin]) -> None:
        self._snapshot = snapshot
        self._plugins = tuple(plugins)
        self._generation = snapshot.generation
        self._classes: dict[PodClass, _Class] = {}
        self._by_parts: dict[_Parts, _Near] = {}

    def feasible(self, pod: PodClass) -> Flags:
        """All rows that take a pod of the class as things are, trial included, as an array of the caller's own."""
        snapshot, known = self._snapshot, self._known(pod)
        mask = known.near.mask & snapshot.nodes.alive
        if snapshot.touched:
            rows = np.fromiter(snapshot.touched, np.intp, len(snapshot.touched))
            mask[rows] = self._near_mask(known.near.parts, rows)
        self._refuse_ghosts(pod, mask)
        for plugin, part in known.far:
            rows = np.flatnonzero(mask)
            if (refusal := plugin.refuse(part, snapshot, rows)) is not None:
                mask[rows[refusal.codes != 0]] = False
        return mask

    def first(self, pod: PodClass, targets: Targets) -> int | None:
        """The first of *targets* that takes a pod of the class, as things are; None where none does."""
        known = self._aimed(pod, targets)
        for row in known.near.first:
            if known.takes(row):
                return row
        return next(self._others(known), None)

    def fitting(self, pod: PodClass, targets: Targets) -> Iterator[int]:
        """The rows among *targets* that take a pod of the class, in order; found as they are read.

        Rows that the trial has touched are judged again, when their turn comes, by the plugins that look at the
        pods there.
        """
        known = self._aimed(pod, targets)
        yield from filter(known.takes, known.near.first)
        yield from self._others(known)

    def settle(self, pods: Iterable[PodClass]) -> None:
        """Bring what is kept for these classes up to date; cheapest while nothing is touched by a trial."""
        classes, moment = self._classes, self._snapshot.moment
        for pod in pods:
            known = classes.get(pod)
            if known is None or known.near.moment != moment:
                self._known(pod)

    def fits(self, pod: PodClass, row: int) -> bool:
        """Whether *row* takes a pod of the class, as things are, by all plugins."""
        judges = (plugin.judging(part, self._snapshot) for plugin, part in _parts(self._plugins, pod))
        return not _refused(judges, row)

    def could_fit(self, pod: PodClass, targets: Targets) -> bool:
        """Whether any of *targets*, were it empty, would take a pod of the class, as far as node facts tell."""
        table, rows = self._snapshot.nodes, targets.rows
        vector = self._snapshot.vector(pod.requests)
        rows = rows[(vector <= table.allocatable[rows]).all(axis=1)]
        by_facts = (plugin for plugin in self._plugins if plugin.scope is Scope.NODE)
        return bool(len(_left(_parts(by_facts, pod), self._snapshot, rows)))

    def refusals(self, pod: PodClass, rows: npt.NDArray[np.intp]) -> list[Refused]:
        """Every plugin that refuses any of *rows*; the first that refuses a row is whom the scheduler names.

        In the scheduler's order: those that refuse the pod before looking at nodes, then the filters.
        """
        early: list[Refused] = []
        late: list[Refused] = []
        for plugin, part in _parts(self._plugins, pod):
            refusal = plugin.refuse(part, self._snapshot, rows)
            if refusal is not None and refusal.codes.any():
                refused = Refused(plugin.name, refusal.codes, refusal.sentences, refusal.prefilter)
                (early if refusal.prefilter else late).append(refused)
        return early + late

    def _aimed(self, pod: PodClass, targets: Targets) -> "_Class":
        known = self._known(pod)
        if known.near.targets is not targets:
            known.near.aim(targets)
        return known

    def _others(self, known: "_Class") -> Iterator[int]:
        """Of the candidates past the first few those that take the pod."""
        near, touched = known.near, self._snapshot.touched
        if len(near.rest):
            for row in _left(known.far, self._snapshot, near.rest).tolist():
                if row not in touched or not _refused(near.judges, row):
                    yield row

    def _refuse_ghosts(self, pod: PodClass, mask: Flags) -> None:
        ghosts = self._snapshot.ghosts
        if ghosts and not tolerated(DRAIN_TAINT, pod.spec.tolerations):
            mask[list(ghosts)] = False

    def _known(self, pod: PodClass) -> _Class:
        """What is kept of the class, as the snapshot is now."""
        snapshot = self._snapshot
        if self._generation != snapshot.generation:
            self._generation = snapshot.generation
            self._classes.clear()
            self._by_parts.clear()
        if (known := self._classes.get(pod)) is None:
            known = self._classes[pod] = self._met(pod)
        if known.near.moment != snapshot.moment or known.near.dirty:
            self._sync(known.near)
        return known

    def _met(self, pod: PodClass) -> _Class:
        parts = _parts(self._plugins, pod)
        far = tuple(one for one in parts if one[0].scope is Scope.CLUSTER)
        near = tuple(one for one in parts if one not in far)
        if (found := self._by_parts.get(near)) is None:
            found = self._by_parts[near] = _Near(near, self._snapshot)
        return _Class(found, far, self._snapshot)

    def _sync(self, near: _Near) -> None:
        """Bring a kept answer up to date: ask again about the rows that changed, about all if many did."""
        snapshot = self._snapshot
        rows: set[int] = set()
        if near.epoch == snapshot.epoch:
            rows.update(snapshot.facts[near.facts :], snapshot.changed[near.changed :])
            rows.update(row for row in near.dirty if row not in snapshot.touched)
        fresh = near.epoch != snapshot.epoch or 4 * len(rows) > len(snapshot.nodes)
        if fresh:
            near.mask = self._near_mask(near.parts, ALL)
        elif rows:
            some = np.fromiter(rows, np.intp, len(rows))
            near.mask[some] = self._near_mask(near.parts, some)
        if fresh or rows:
            near.targets = None
        # What a trial has touched was judged in its passing state: it is judged again when the trial is over.
        kept = (row for row in near.dirty if row in snapshot.touched)
        near.dirty = tuple(snapshot.touched) if fresh else tuple({*kept, *(rows & snapshot.touched.keys())})
        near.moment, near.epoch = snapshot.moment, snapshot.epoch
        near.facts, near.changed = len(snapshot.facts), len(snapshot.changed)

    def _near_mask(self, parts: _Parts, rows: Rows) -> Flags:
        mask = np.array(self._snapshot.nodes.alive[rows])
        for plugin, part in parts:
            if (refusal := plugin.refuse(part, self._snapshot, rows)) is not None:
                mask &= refusal.codes == 0
        return mask


def _parts(plugins: Iterable[Plugin], pod: PodClass) -> _Parts:
    return tuple([(plugin, part) for plugin in plugins if (part := plugin.reads(pod)) is not None])


def _refused(judges: Iterable[Judge], row: int) -> bool:
    for refuses in judges:  # noqa: SIM110 - asked of every pod: a generator costs more than most answers
        if refuses(row):
            return True
    return False


def _left(asked: _Parts, snapshot: Snapshot, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Those of *rows* that none of the plugins refuses."""
    for plugin, part in asked:
        if (refusal := plugin.refuse(part, snapshot, rows)) is not None:
            rows = rows[refusal.codes == 0]
    return rows
