"""How the filter plugins are asked, in the scheduler's order, and what they answer.

A plugin is asked once for a pod class and answers for many nodes at once. Its :class:`Scope` tells for how long
an answer holds, and so what may be kept: an answer about node facts until that node changes, one about the
pods of a node until that node's pods change, one about the cluster until any pod moves.
"""

import enum
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.nodes import ALL, Flags, Rows
from predicates.objects import PodClass
from predicates.snapshot import DRAIN_TAINT, Snapshot
from predicates.tolerations import tolerated

Codes: TypeAlias = npt.NDArray[np.int64]
Reasons: TypeAlias = tuple[str, ...]


#: How many candidates are asked about before all the others.
_FEW: Final = 32


class Scope(enum.Enum):
    """What an answer depends on, beside the pod class."""

    NODE = enum.auto()  #: the facts of the node itself (and of volumes, claims and classes of storage)
    PODS = enum.auto()  #: also the pods on that node; more pods never make it better
    CLUSTER = enum.auto()  #: pods on other nodes too


@dataclass(frozen=True, slots=True)
class Refusal:
    """Which of the asked rows are refused, and why.

    ``codes`` has one entry an asked row: 0 where the plugin has nothing against it. ``sentences`` gives the
    scheduler's own words for a code, and is called only for what somebody reads. A code means the same in
    every answer about the same pod.
    """

    codes: Codes
    sentences: Callable[[int], Reasons]
    prefilter: bool = False  #: the pod itself is refused, before any node is looked at


@dataclass(frozen=True, slots=True)
class Plugin:
    """A filter plugin of the kube-scheduler, called as there.

    ``reads`` gives the part of a class that the answer depends on, None where the plugin has nothing to say
    about such pods (Skip). ``refuse`` gets that part and the rows asked about; None = refuses none of them.
    """

    name: str
    scope: Scope
    reads: Callable[[PodClass], Hashable | None]
    refuse: Callable[[Any, Snapshot, Rows], Refusal | None]


@dataclass(frozen=True, slots=True)
class Refused:
    """One plugin's refusals among the rows asked about; ``codes`` and ``sentences`` as in :class:`Refusal`."""

    plugin: str
    codes: Codes
    sentences: Callable[[int], Reasons]
    prefilter: bool = False


class _Local:
    """What the plugins that look at single nodes say, for all pods that read alike: kept between questions."""

    __slots__ = ("candidates", "changed", "dirty", "epoch", "facts", "mask", "parts", "targets")

    def __init__(self, parts: tuple[Hashable | None, ...]) -> None:
        self.parts = parts
        self.epoch = -1
        self.facts = 0
        self.changed = 0
        self.dirty: tuple[int, ...] = ()
        self.mask: Flags = np.zeros(0, np.bool_)
        self.targets: Targets | None = None
        self.candidates: tuple[npt.NDArray[np.intp], ...] = ()


class Targets:
    """Rows where pods may go, in order of preference."""

    __slots__ = ("rows",)

    def __init__(self, rows: Sequence[int] | npt.NDArray[np.intp]) -> None:
        self.rows = np.asarray(rows, np.intp)


class Filters:
    """The plugins, asked together about one snapshot. Keeps their answers as long as they hold."""

    def __init__(self, snapshot: Snapshot, plugins: Sequence[Plugin]) -> None:
        self._snapshot = snapshot
        self._plugins = tuple(plugins)
        self._near = tuple(one for one in plugins if one.scope is not Scope.CLUSTER)
        self._far = tuple(one for one in plugins if one.scope is Scope.CLUSTER)
        self._generation = snapshot.generation
        self._locals: dict[PodClass, _Local] = {}
        self._by_parts: dict[tuple[Hashable | None, ...], _Local] = {}

    def feasible(self, pod: PodClass) -> Flags:
        """All rows that take a pod of the class as things are, trial included, as an array of the caller's own."""
        snapshot = self._snapshot
        mask = self._local(pod).mask & snapshot.nodes.alive
        if snapshot.touched:
            rows = np.fromiter(snapshot.touched, np.intp, len(snapshot.touched))
            mask[rows] = snapshot.nodes.alive[rows] & self._near_mask(self._local(pod).parts, rows)
        self._refuse_ghosts(pod, mask)
        for plugin in self._far:
            if (part := plugin.reads(pod)) is None:
                continue
            rows = np.flatnonzero(mask)
            if (refusal := plugin.refuse(part, snapshot, rows)) is not None:
                mask[rows[refusal.codes != 0]] = False
        return mask

    def first(self, pod: PodClass, targets: Targets) -> int | None:
        """The first of *targets* that takes a pod of the class, as things are; None where none does."""
        return next(self.fitting(pod, targets), None)

    def fitting(self, pod: PodClass, targets: Targets) -> Iterator[int]:
        """The rows among *targets* that take a pod of the class, in order; found as they are read.

        The plugins that look at the whole cluster are asked about the first few candidates first: mostly one
        of them will do. Rows that the trial has touched are judged again by the others when their turn comes.
        """
        local = self._local(pod)
        if local.targets is not targets:
            local.targets = targets
            candidates = targets.rows[local.mask[targets.rows]]
            local.candidates = tuple(part for part in np.split(candidates, [_FEW]) if len(part))
        asked = [(plugin, part) for plugin in self._far if (part := plugin.reads(pod)) is not None]
        touched = self._snapshot.touched
        for some in local.candidates:
            for row in self._far_rows(asked, some).tolist():
                if row not in touched or self._has_room(local, row):
                    yield row

    def settle(self, pods: Iterable[PodClass]) -> None:
        """Bring what is kept for these classes up to date; cheapest while nothing is touched by a trial."""
        for pod in pods:
            self._local(pod)

    def fits(self, pod: PodClass, row: int) -> bool:
        """Whether *row* takes a pod of the class, as things are, by all plugins."""
        rows = slice(row, row + 1)
        for plugin in self._plugins:
            if (part := plugin.reads(pod)) is None:
                continue
            if (refusal := plugin.refuse(part, self._snapshot, rows)) is not None and refusal.codes[0]:
                return False
        return True

    def could_fit(self, pod: PodClass, targets: Targets) -> bool:
        """Whether any of *targets*, were it empty, would take a pod of the class, as far as node facts tell."""
        table, rows = self._snapshot.nodes, targets.rows
        vector = self._snapshot.vector(pod.requests)
        rows = rows[(vector <= table.allocatable[rows]).all(axis=1)]
        for plugin in self._near:
            if plugin.scope is not Scope.NODE or (part := plugin.reads(pod)) is None:
                continue
            if (refusal := plugin.refuse(part, self._snapshot, rows)) is not None:
                rows = rows[refusal.codes == 0]
        return bool(len(rows))

    def refusals(self, pod: PodClass, rows: npt.NDArray[np.intp]) -> list[Refused]:
        """Every plugin that refuses any of *rows*; the first that refuses a row is whom the scheduler names.

        In the scheduler's order: those that refuse the pod before looking at nodes, then the filters.
        """
        early: list[Refused] = []
        late: list[Refused] = []
        for plugin in self._plugins:
            if (part := plugin.reads(pod)) is None:
                continue
            refusal = plugin.refuse(part, self._snapshot, rows)
            if refusal is not None and refusal.codes.any():
                refused = Refused(plugin.name, refusal.codes, refusal.sentences, refusal.prefilter)
                (early if refusal.prefilter else late).append(refused)
        return early + late

    def _far_rows(self, asked: list[tuple[Plugin, Hashable]], rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        for plugin, part in asked:
            if (refusal := plugin.refuse(part, self._snapshot, rows)) is not None:
                rows = rows[refusal.codes == 0]
        return rows

    def _refuse_ghosts(self, pod: PodClass, mask: Flags) -> None:
        ghosts = self._snapshot.ghosts
        if ghosts and not tolerated(DRAIN_TAINT, pod.spec.tolerations):
            mask[list(ghosts)] = False

    def _local(self, pod: PodClass) -> _Local:
        if self._generation != self._snapshot.generation:
            self._generation = self._snapshot.generation
            self._locals.clear()
            self._by_parts.clear()
        if (local := self._locals.get(pod)) is None:
            parts = tuple(plugin.reads(pod) for plugin in self._near)
            local = self._locals[pod] = self._by_parts.setdefault(parts, _Local(parts))
        snapshot = self._snapshot
        if (local.epoch, local.facts, local.changed) != (
            snapshot.epoch,
            len(snapshot.facts),
            len(snapshot.changed),
        ) or local.dirty:
            self._sync(local)
        return local

    def _sync(self, local: _Local) -> None:
        """Bring a kept answer up to date: ask again about the rows that changed, about all if many did."""
        snapshot = self._snapshot
        rows: set[int] = set()
        if local.epoch == snapshot.epoch:
            rows.update(snapshot.facts[local.facts :], snapshot.changed[local.changed :])
            rows.update(row for row in local.dirty if row not in snapshot.touched)
        fresh = local.epoch != snapshot.epoch or 4 * len(rows) > len(snapshot.nodes)
        if fresh:
            local.mask = self._near_mask(local.parts, ALL)
        elif rows:
            some = np.fromiter(rows, np.intp, len(rows))
            local.mask[some] = self._near_mask(local.parts, some)
        if fresh or rows:
            local.targets = None
        # What a trial has touched was judged in its passing state: it is judged again when the trial is over.
        kept = (row for row in local.dirty if row in snapshot.touched)
        local.dirty = tuple(snapshot.touched) if fresh else tuple({*kept, *(rows & snapshot.touched.keys())})
        local.epoch, local.facts, local.changed = snapshot.epoch, len(snapshot.facts), len(snapshot.changed)

    def _has_room(self, local: _Local, row: int) -> bool:
        """Whether the pods on *row* leave room; what is kept about the node itself a trial does not change."""
        rows = slice(row, row + 1)
        for plugin, part in zip(self._near, local.parts, strict=True):
            if part is None or plugin.scope is not Scope.PODS:
                continue
            if (refusal := plugin.refuse(part, self._snapshot, rows)) is not None and refusal.codes[0]:
                return False
        return True

    def _near_mask(self, parts: tuple[Hashable | None, ...], rows: Rows) -> Flags:
        mask = np.array(self._snapshot.nodes.alive[rows])
        for plugin, part in zip(self._near, parts, strict=True):
            if part is not None and (refusal := plugin.refuse(part, self._snapshot, rows)) is not None:
                mask &= refusal.codes == 0
        return mask
