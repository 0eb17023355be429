"""The pods placed on each node, the resources they leave free, the indexes that follow, and trials that are undone."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from msgspec.structs import replace

from predicates.nodes import NodeTable, Numbers
from predicates.objects import Amounts, Load, Node, Pod, PodClass, Taint
from predicates.pod_classes import LabelPairs, as_bound
from predicates.requests import load_rule
from predicates.scheduler import Scheduler

#: The maximum length of a change log. If it is exceeded, all caches are invalidated instead.
_LOG_LIMIT: Final = 200_000

#: Called with a row and the change in the number of pods of a class on it (+n or -n).
Watcher: TypeAlias = Callable[[int, int], None]


class Watchers:
    """The callbacks for the pods of one class. The index that returned the object may change them at any time."""

    __slots__ = ("callbacks", "first")

    def __init__(self, *callbacks: Watcher, first: bool = False) -> None:
        self.callbacks = callbacks
        #: Whether they have to learn of the class with the next pod: this may change what other classes are counted in.
        self.first = first


class PlacementIndex(Protocol):
    """A view of the placed pods that is updated with every placement: ports, volumes, counts by topology domain."""

    def watch(self, pod: PodClass) -> Watchers | None:
        """Return the callbacks for pods of the class, or None if such pods do not affect the index."""
        ...


_I = TypeVar("_I", bound=PlacementIndex)


class Effects:
    """The state that changes when a pod of a class is placed."""

    __slots__ = ("pod", "rows", "vector", "watched", "watchers")

    def __init__(self, pod: PodClass, vector: Numbers) -> None:
        self.pod = pod
        self.watched = False  #: whether the indexes know the class
        self.watchers: list[Watchers] = []
        self.vector = vector  #: the requests of a pod of the class
        #: The number of pods of the class on each row, without the changes of a trial that are not counted yet: most
        #: trials end before anybody asks for them.
        self.rows: dict[int, int] = {}


class PlacementState:
    """The nodes and the pods on them, by class.

    Caches compare ``revision`` to detect any change, or read the change logs to update only the affected rows.
    """

    def __init__(self, scheduler: Scheduler | None = None) -> None:
        self.scheduler = scheduler or Scheduler()
        self.nodes = NodeTable()
        self.revision = 0  #: incremented by each change, except for changes in a trial that are not kept
        self.epoch = 0  #: incremented when all caches are invalid
        self.ties = 0  #: incremented when pods of more classes may depend on other pods; also by each new epoch
        self.node_changes: list[int] = []  #: log of this epoch: rows whose Node, CSINode or VolumeAttachments changed
        self.pod_changes: list[int] = []  #: log of this epoch: rows whose pods changed
        self.pod_removals: list[int] = []  #: log of this epoch: rows from which pods were removed
        self._effects: dict[PodClass, Effects] = {}  #: by class, with the labels of placed pods
        #: The effects of bound pods to which the API server added labels, by class and added labels.
        self._bound_effects: defaultdict[PodClass, dict[LabelPairs, Effects]] = defaultdict(dict)
        #: The effects of bound pods which have other defaults than a new pod, by class and defaults.
        self._resized_effects: dict[tuple[PodClass, tuple[int, int]], Effects] = {}
        self._vectors: dict[Amounts, Numbers] = {}
        self._indexes: list[PlacementIndex] = []
        self._indexes_by_kind: dict[object, Any] = {}

    def invalidate(self) -> None:
        """Invalidate all caches."""
        self.revision += 1
        self.epoch += 1
        self.ties += 1
        self.node_changes.clear()
        self.pod_changes.clear()
        self.pod_removals.clear()

    def add_index(self, index: PlacementIndex) -> None:
        """Notify *index* of all placed pods, and of every later change."""
        self._indexes.append(index)
        for pod, effects in self._effects.items():
            if effects.watched and (watchers := index.watch(pod)) is not None:
                effects.watchers.append(watchers)
                self.replay_placements(watchers, pod)

    def expect(self, pods: Iterable[PodClass]) -> None:
        """Let the indexes know these classes now. They know others once a pod is placed: many pending ones never are.

        For many classes, this is faster than one after the other.
        """
        for pod in pods:
            if not (effects := self._effects_of(pod)).watched:
                self._watch(effects)

    def _watch(self, effects: Effects) -> None:
        effects.watched = True
        effects.watchers = [watchers for index in self._indexes if (watchers := index.watch(effects.pod)) is not None]

    def _place_first(self, effects: Effects, row: int, delta: int) -> None:
        """Let the indexes know the class of a pod that has been placed, and count the pod."""
        self._watch(effects)
        for watchers in effects.watchers:
            for callback in watchers.callbacks:
                callback(row, delta)

    def index(self, kind: Callable[[Self], _I]) -> _I:
        """Return the index of this *kind*; it is created and added on first use."""
        index: _I | None = self._indexes_by_kind.get(kind)
        if index is None:
            index = self._indexes_by_kind[kind] = kind(self)
            self.add_index(index)
        return index

    def classes(self) -> Iterable[PodClass]:
        """Return the classes of all pods, also of pending ones."""
        return self._effects.keys()

    def watched_classes(self) -> Iterator[PodClass]:
        """Yield the classes that the indexes know: of pods that are or were placed, or were expected."""
        return (pod for pod, effects in self._effects.items() if effects.watched)

    def rows_of(self, pod: PodClass) -> Mapping[int, int]:
        """Return the number of pods of the class on each row; rows without such pods are left out."""
        effects = self._effects.get(pod)
        return effects.rows if effects else {}

    def labels_added_on(self, row: int) -> LabelPairs:
        """Return the labels that the API server adds to a pod that is bound to *row*.

        There are none while no pod has such labels: the feature is then disabled, as before Kubernetes 1.35.
        """
        return self.nodes.bound_labels[row] if self._bound_effects else ()

    def bound_to(self, pod: Pod, node: str) -> Pod:
        """Return *pod* as it would be if it were bound to the existing *node*, or unbound if *node* is ""."""
        return replace(pod, node_name=node, added_labels=self.labels_added_on(self.nodes.row[node]) if node else ())

    def labeled(self, pod: PodClass, added: LabelPairs) -> PodClass:
        """Return the class of pods with the labels that the API server *added* to them, by which they are counted."""
        return self._effects_of(pod, added).pod if added else pod

    def replay_placements(self, watchers: Watchers, pod: PodClass) -> None:
        """Notify *watchers* of the pods of the class that are placed."""
        rows = self.rows_of(pod) if watchers.callbacks else {}
        for callback in watchers.callbacks:
            for row, count in rows.items():
                callback(row, count)

    def vector(self, amounts: Amounts) -> Numbers:
        """Return *amounts*, the requests of one pod, as a row of the node table."""
        width = len(self.nodes.resources)
        vector = self._vectors.get(amounts)
        if vector is None or len(vector) != width:
            vector = self._vectors[amounts] = self.nodes.vector(amounts)
            if len(vector) != width:
                self._widen()
        return vector

    def _effects_and_load(self, pod: Pod) -> tuple[Effects, Numbers]:
        effects = self._effects_of(pod.cls, pod.added_labels)
        if not pod.loads:
            return effects, effects.vector
        load = self.load_of(pod)
        if load.defaults != pod.cls.defaults:
            effects = self._resized_effects_of(effects.pod, load.defaults)
        return effects, self.vector(load.amounts)

    def load_of(self, pod: Pod) -> Load:
        """Return what *pod* is charged by the rules of the cluster's scheduler."""
        return pod.loads[load_rule(self.scheduler.version)] if pod.loads else Load(pod.cls.requests, pod.cls.defaults)

    def _effects_of(self, pod: PodClass, added: LabelPairs = ()) -> Effects:
        """Return the effects of pods of the class to which the API server *added* labels.

        Columns for its resources are added here, and so never within a trial.
        """
        if added:
            bound = self._bound_effects[pod]
            if (effects := bound.get(added)) is None:
                effects = bound[added] = self._effects_of(as_bound(pod, added))
            return effects
        if (effects := self._effects.get(pod)) is None:
            effects = self._effects[pod] = Effects(pod, self.vector(pod.requests))
            effects.watchers.append(Watchers(partial(self._place_first, effects), first=True))
        return effects

    def _resized_effects_of(self, pod: PodClass, defaults: tuple[int, int]) -> Effects:
        """Return the effects of pods of the class which have other *defaults* because they are resized."""
        if (effects := self._resized_effects.get((pod, defaults))) is None:
            effects = self._resized_effects[pod, defaults] = self._effects_of(replace(pod, defaults=defaults))
        return effects

    def _drop_effects(self, used: set[PodClass], pods: Iterable[Pod]) -> None:
        """Drop the effects of classes other than *used*, and of added labels and defaults that none of *pods* has."""
        bound: defaultdict[PodClass, dict[LabelPairs, Effects]] = defaultdict(dict)
        resized = {}
        for pod in pods:
            if not pod.added_labels and not pod.loads:
                continue
            effects = self._effects_of(pod.cls, pod.added_labels)
            if pod.added_labels:
                bound[pod.cls][pod.added_labels] = effects
            if pod.loads and (defaults := self.load_of(pod).defaults) != pod.cls.defaults:
                resized[effects.pod, defaults] = self._resized_effects_of(effects.pod, defaults)
        derived = [*resized.values(), *(effects for by_labels in bound.values() for effects in by_labels.values())]
        kept = used.union(effects.pod for effects in derived)
        self._effects = {pod: effects for pod, effects in self._effects.items() if pod in kept}
        self._bound_effects, self._resized_effects = bound, resized

    def _log(self, log: list[int], rows: Iterable[int]) -> None:
        self.revision += 1
        log.extend(rows)
        if len(log) > _LOG_LIMIT:
            self.invalidate()

    def _widen(self) -> None:
        """Recompute the vectors of all classes after a column was added for a resource."""
        for pod, effects in self._effects.items():
            effects.vector = self.vector(pod.requests)
        self.invalidate()

    def _subtract_all_requests(self) -> None:
        """Subtract the requests of all pods from the free resources of their nodes, after pods were added in bulk."""
        if not (placed := [effects for effects in self._effects.values() if effects.rows]):
            return
        rows = [row for effects in placed for row in effects.rows]
        counts = np.array([count for effects in placed for count in effects.rows.values()])
        classes = np.repeat(np.arange(len(placed)), [len(effects.rows) for effects in placed])
        vectors = np.array([effects.vector for effects in placed])
        np.subtract.at(self.nodes.free, rows, counts[:, np.newaxis] * vectors[classes])

    def _shift(self, pods: Sequence[Effects], load: Numbers, row: int, delta: int) -> None:
        """Add pods with a total request of *load* to *row* (delta = +1), or remove them from it (delta = -1).

        They are not counted in their classes: :meth:`_count_by_class`.
        """
        free = self.nodes.free_rows[row]
        if delta > 0:
            free -= load
        else:
            free += load
        for effects in pods:
            for watchers in effects.watchers:
                for callback in watchers.callbacks:
                    callback(row, delta)

    def _count_by_class(self, pods: Sequence[Effects], row: int, delta: int) -> None:
        """Count pods that were added to *row* (delta = +1), or removed from it (delta = -1)."""
        for effects in pods:
            rows = effects.rows
            if count := rows.get(row, 0) + delta:
                rows[row] = count
            else:
                rows.pop(row, None)


# Trials: placements and evictions that are undone when the trial ends.

#: The taint of a node that is being drained. Cluster Autoscaler ignores taints with this prefix in node templates,
#: so the taint cannot prevent a scale-up from zero (kubernetes/autoscaler#6452).
DRAIN_TAINT: Final = Taint(
    key="status-taint.cluster-autoscaler.kubernetes.io/spot-rescheduler-draining", effect="NoSchedule"
)

#: The classes of the pods, their total requests, the row, +1 or -1, and whether it counts in ``assumed_claims``.
#: Without pods, it is the loss of the node in the row (+1), or its drain (0).
JournalEntry: TypeAlias = tuple[Sequence[Effects], Numbers, int, int, bool]

_NO_LOAD: Final = np.zeros(0, np.int64)


class TrialState(PlacementState):
    """The placed pods, with the changes of the current trial applied."""

    def __init__(self, scheduler: Scheduler | None = None) -> None:
        super().__init__(scheduler)
        #: Rows changed by the current trial since the last ``keep``, each with its number of changes in the journal.
        self.touched: dict[int, int] = {}
        self.draining_rows: dict[int, None] = {}  #: rows that the current trial drains: they have DRAIN_TAINT
        self.drains = 0  #: number of changes of these rows
        #: By class and row: how many pods with claims the current trial has placed (``AssumePodVolumes``).
        self.assumed_claims: dict[tuple[PodClass, int], int] = {}
        self.releases = 0  #: number of times that a trial has removed pods, also by undoing their placement
        self.released: dict[int, int] = {}  #: by row: ``releases`` after a trial last removed pods from it
        self._journal: list[JournalEntry] | None = None
        self._kept = 0  #: how many entries of the journal are kept
        self._counted = 0  #: how many of these are counted in their classes, which is done when somebody asks
        self._filled = defaultdict[int, list[Effects]](list)  #: by row: pods that are not in the journal yet
        self._lost: dict[int, Node] = {}  #: by row: the nodes that the current trial has taken away
        self._changes_at: tuple[int, ...] = ()  #: the state of the journal for which the next is valid
        self._changes_by_class: Mapping[Effects, Sequence[tuple[int, int]]] = {}

    @contextmanager
    def trial(self) -> Iterator["Trial"]:
        """Start a trial. All of its changes are undone on exit. Trials can be nested."""
        outermost = self._journal is None
        if self._journal is None:
            self._journal = []
        trial = Trial(self, len(self._journal))
        try:
            yield trial
        finally:
            self._undo(trial.start)
            if outermost:
                self._journal, self._kept, self._counted = None, 0, 0
                self.touched.clear()

    def rows_of(self, pod: PodClass) -> Mapping[int, int]:
        """Return the number of pods of the class on each row; rows without such pods are left out."""
        self._count_kept()
        rows, effects = super().rows_of(pod), self._effects.get(pod)
        if effects is None or self._journal is None or not (changes := self._changes().get(effects)):
            return rows
        changed = Counter(rows)
        for row, count in changes:
            changed[row] += count
        return {row: count for row, count in changed.items() if count}

    def _changes(self) -> Mapping[Effects, Sequence[tuple[int, int]]]:
        """Return the changes of the trial that are not kept: rows and numbers of pods by class.

        They are the same until the next change. Many classes are asked for one after the other when an index is added.
        """
        assert self._journal is not None
        state = len(self._journal), self._kept, self.releases, sum(map(len, self._filled.values()))
        if self._changes_at != state:
            changes = defaultdict[Effects, list[tuple[int, int]]](list)
            for pods, _, row, delta, _ in self._journal[self._kept :]:
                for effects in pods:
                    changes[effects].append((row, delta))
            for row, pods in self._filled.items():
                for effects in pods:
                    changes[effects].append((row, 1))
            self._changes_at, self._changes_by_class = state, changes
        return self._changes_by_class

    def _savepoint(self) -> int:
        assert self._journal is not None
        return len(self._journal)

    def _undo(self, start: int) -> None:
        journal = self._journal
        assert journal is not None
        kept_rows: dict[int, None] = {}
        self.releases += len(journal) > start
        if start <= self._kept:
            self.touched.clear()
        while len(journal) > start:
            pods, load, row, delta, has_claims = journal.pop()
            if not pods:
                self._bring_back(row, lost=bool(delta))
                continue
            self._shift(pods, load, row, -delta)
            self.released[row] = self.releases
            if has_claims:
                self._assume(pods[0].pod, row, -delta)
            if len(journal) < self._counted:
                self._count_by_class(pods, row, -delta)
            if len(journal) < self._kept:
                kept_rows[row] = None
                if delta > 0:
                    self.pod_removals.append(row)
            elif self.touched:
                self._touch(row, -1)
        if kept_rows:
            self._log(self.pod_changes, kept_rows)
        self._kept, self._counted = min(self._kept, start), min(self._counted, start)

    def _touch(self, row: int, changes: int) -> None:
        if count := self.touched.get(row, 0) + changes:
            self.touched[row] = count
        else:
            del self.touched[row]

    def _effects_on(self, pod: PodClass, row: int) -> Effects:
        """Return the effects of a new pod of the class on *row*."""
        effects = None if self._bound_effects else self._effects.get(pod)
        return effects or self._effects_of(pod, self.labels_added_on(row))

    def _place(self, pod: PodClass, row: int, delta: int) -> None:
        """Add a new pod of the class to *row* (delta = +1), or remove it again (delta = -1)."""
        effects = self._effects_on(pod, row)
        has_claims = bool(pod.claims)
        if has_claims:
            self._assume(effects.pod, row, delta)
        self._move((effects,), effects.vector, row, delta, has_claims=has_claims)

    def _place_all(self, pods: Sequence[PodClass], row: int) -> None:
        """Add new pods of these classes to *row*: all at once, except for those that are counted one by one.

        These are pods with claims, and the first ones of classes that an index does not know.
        """
        labels, plain = self.labels_added_on(row), list[Effects]()
        for pod in pods:
            effects = self._effects_of(pod, labels)
            if pod.claims or any(watchers.first for watchers in effects.watchers):
                self._place(pod, row, +1)
            else:
                plain.append(effects)
        if plain:
            self._move(plain, np.add.reduce([effects.vector for effects in plain]), row, +1, has_claims=False)

    def _evict(self, pods: Sequence[Pod], delta: int = -1) -> None:
        """Remove *pods*, which must all be on the same node, or put them back (delta = +1)."""
        effects: list[Effects] = []
        loads: list[Numbers] = []
        for pod in pods:
            found = None if pod.loads or pod.added_labels else self._effects.get(pod.cls)
            if found is not None:
                load = found.vector
            else:
                found, load = self._effects_and_load(pod)
            effects.append(found)
            loads.append(load)
        self._move(effects, np.add.reduce(loads), self.nodes.row[pods[0].node_name], delta, has_claims=False)

    def _move(self, pods: Sequence[Effects], load: Numbers, row: int, delta: int, *, has_claims: bool) -> None:
        assert self._journal is not None
        if delta < 0:
            self.releases += 1
            self.released[row] = self.releases
        self._shift(pods, load, row, delta)
        self._journal.append((pods, load, row, delta, has_claims))
        self._touch(row, +1)

    def _fill(self, pod: PodClass, row: int) -> None:
        """Add a new pod of the class to *row*, as far as indexes are concerned."""
        effects = self._effects_on(pod, row)
        for watchers in effects.watchers:
            for callback in watchers.callbacks:
                callback(row, 1)
        self._filled[row].append(effects)
        self.touched.setdefault(row, 0)

    def _finish_filling(self, free: Mapping[int, Sequence[int]]) -> None:
        """Complete the placement of the pods that were added to the indexes. They leave *free* on their rows."""
        for row, pods in self._filled.items():
            assert self._journal is not None
            before, after = self.nodes.free_rows[row], np.array(free[row])
            self._journal.append((pods, before - after, row, +1, False))
            self._touch(row, +1)
            before[:] = after
        self._filled.clear()

    def _drain(self, row: int) -> None:
        assert self._journal is not None
        if row not in self.draining_rows:
            self.draining_rows[row] = None
            self.drains += 1
            self._journal.append(((), _NO_LOAD, row, 0, False))

    def _lose(self, row: int) -> None:
        assert self._journal is not None
        if (node := self.nodes.hide(row)) is not None:
            self._lost[row] = node
            self._journal.append(((), _NO_LOAD, row, +1, False))
            self._log(self.node_changes, (row,))

    def _bring_back(self, row: int, *, lost: bool) -> None:
        """Undo that the node in *row* was *lost*, or else drained."""
        if lost:
            self.nodes.show(row, self._lost.pop(row))
            self._log(self.node_changes, (row,))
        else:
            del self.draining_rows[row]
            self.drains += 1

    def _assume(self, pod: PodClass, row: int, delta: int) -> None:
        if count := self.assumed_claims.get((pod, row), 0) + delta:
            self.assumed_claims[pod, row] = count
        else:
            del self.assumed_claims[pod, row]

    def _keep(self) -> None:
        assert self._journal is not None
        self.pod_removals += [row for _, _, row, delta, _ in self._journal[self._kept :] if delta < 0]
        self._log(self.pod_changes, self.touched)
        self._kept = len(self._journal)
        self.touched.clear()

    def _count_kept(self) -> None:
        """Count the pods of the changes that are kept in their classes, if this was not done yet."""
        if self._journal is not None and self._counted < self._kept:
            for pods, _, row, delta, _ in self._journal[self._counted : self._kept]:
                self._count_by_class(pods, row, delta)
            self._counted = self._kept


def _by_node(pods: Sequence[Pod]) -> Iterator[Sequence[Pod]]:
    """Yield *pods* in groups of one node."""
    for _, on_node in groupby(pods, key=lambda pod: pod.node_name):
        yield tuple(on_node)


class Trial:
    """Tentative placements and evictions; created by :meth:`TrialState.trial`."""

    __slots__ = ("_state", "start")

    def __init__(self, state: TrialState, start: int) -> None:
        self._state = state
        self.start = start

    def place(self, pod: PodClass, row: int) -> None:
        """Place a new pod of the class, as its controller would create it, on *row*."""
        self._state._place(pod, row, +1)  # noqa: SLF001

    def place_all(self, pods: Sequence[PodClass], row: int) -> None:
        """Place new pods of these classes on *row*, as :meth:`place` one after the other, but faster."""
        self._state._place_all(pods, row)  # noqa: SLF001

    def unplace(self, pod: PodClass, row: int) -> None:
        """Undo one call of :meth:`place`, regardless of later placements."""
        self._state._place(pod, row, -1)  # noqa: SLF001

    def filling(self) -> "Filling":
        """Return an object that places many pods at a lower cost each."""
        return Filling(self._state)

    def evict(self, *pods: Pod) -> None:
        """Remove *pods* from their nodes. Those of one node should follow one another."""
        for on_node in _by_node(pods):
            self._state._evict(on_node)  # noqa: SLF001

    def restore(self, *pods: Pod) -> None:
        """Put *pods* that were evicted back on their nodes."""
        for on_node in _by_node(pods):
            self._state._evict(on_node, +1)  # noqa: SLF001

    def savepoint(self) -> int:
        """Return a savepoint to which :meth:`revert` can return."""
        return self._state._savepoint()  # noqa: SLF001

    def revert(self, savepoint: int) -> None:
        """Undo all changes since *savepoint*. :meth:`keep` must not have been called in between."""
        self._state._undo(savepoint)  # noqa: SLF001

    def drain(self, row: int) -> None:
        """Treat the node as drained: it gets :data:`DRAIN_TAINT`, but its topology domain still exists.

        Without the node, its topology domain would disappear as well (kubernetes/autoscaler#9287).
        """
        self._state._drain(row)  # noqa: SLF001

    def lose(self, row: int) -> None:
        """Take the node away as if it were deleted, with its topology domain. Its pods must have been evicted."""
        self._state._lose(row)  # noqa: SLF001

    def keep(self) -> None:
        """Keep all changes so far until the outermost trial ends.

        Cached results are then updated once to include them, instead of being corrected at every call.
        """
        self._state._keep()  # noqa: SLF001


#: What a pod takes of a node: columns of the node table, and positive amounts.
Needs: TypeAlias = tuple[tuple[int, int], ...]


class FreeAmounts(dict[int, list[int]]):
    """What is free on each row in the current trial, as plain numbers. Rows are read on first access."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[Numbers]) -> None:
        super().__init__()
        self._rows = rows

    def __missing__(self, row: int) -> list[int]:
        free: list[int] = self._rows[row].tolist()
        self[row] = free
        return free


class Filling:
    """Places pods in a trial, row by row: there is one change of the node table for all pods of a row.

    The indexes follow every placement. The node table and the journal do so when :meth:`finish` is called, which must
    be done before anything else reads or changes them. What is free on a row meanwhile is in ``free``.
    """

    __slots__ = ("_state", "free")

    def __init__(self, state: TrialState) -> None:
        self._state = state
        self.free = FreeAmounts(state.nodes.free_rows)

    def place(self, pod: PodClass, row: int, needs: Needs) -> None:
        """Place a new pod of the class, which has no claims, on *row*, which has what the pod *needs*."""
        free = self.free[row]
        for column, amount in needs:
            free[column] -= amount
        self._state._fill(pod, row)  # noqa: SLF001

    def finish(self) -> None:
        """Complete the placements so far. Pods may be placed by other means, and then here again."""
        self._state._finish_filling(self.free)  # noqa: SLF001
        self.free.clear()
