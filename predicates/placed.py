"""The pods placed on each node, the resources they leave free, and the indexes that follow every placement."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from msgspec.structs import replace

from predicates.bound_labels import LabelPairs, as_bound
from predicates.nodes import NodeTable, Numbers
from predicates.objects import Amounts, Pod, PodClass
from predicates.requests import load_rule
from predicates.scheduler import Scheduler

#: The maximum length of a change log. If it is exceeded, all caches are invalidated instead.
_LOG_LIMIT: Final = 200_000

#: Called with a row and the change in the number of pods of a class on it (+n or -n).
Watcher: TypeAlias = Callable[[int, int], None]


class Watchers:
    """The callbacks for the pods of one class. The index that returned the object may change them at any time."""

    __slots__ = ("callbacks",)

    def __init__(self, *callbacks: Watcher) -> None:
        self.callbacks = callbacks


class PlacementIndex(Protocol):
    """A view of the placed pods that is updated with every placement: ports, volumes, counts by topology domain."""

    def watch(self, pod: PodClass) -> Watchers | None:
        """Return the callbacks for pods of the class, or None if such pods do not affect the index."""
        ...


_I = TypeVar("_I", bound=PlacementIndex)


class Effects:
    """The state that changes when a pod of a class is placed."""

    __slots__ = ("pod", "rows", "vector", "watchers")

    def __init__(self, pod: PodClass, watchers: list[Watchers], vector: Numbers) -> None:
        self.pod = pod
        self.watchers = watchers
        self.vector = vector  #: the requests of a pod of the class
        self.rows: dict[int, int] = {}  #: the number of pods of the class on each row


class PlacementState:
    """The nodes and the pods on them, by class.

    Caches compare ``revision`` to detect any change, or read the change logs to update only the affected rows.
    """

    def __init__(self, scheduler: Scheduler | None = None) -> None:
        self.scheduler = scheduler or Scheduler()
        self.nodes = NodeTable()
        self.revision = 0  #: incremented by each change, except for changes in a trial that are not kept
        self.epoch = 0  #: incremented when all caches are invalid
        self.node_changes: list[int] = []  #: log of this epoch: rows whose Node, CSINode or VolumeAttachments changed
        self.pod_changes: list[int] = []  #: log of this epoch: rows whose pods changed
        self.pod_removals: list[int] = []  #: log of this epoch: rows from which pods were removed
        self._effects: dict[PodClass, Effects] = {}  #: by class, with the labels of placed pods
        #: The effects of bound pods to which the API server added labels, by class and added labels.
        self._bound_effects: defaultdict[PodClass, dict[LabelPairs, Effects]] = defaultdict(dict)
        self._vectors: dict[Amounts, Numbers] = {}
        self._indexes: list[PlacementIndex] = []
        self._indexes_by_kind: dict[object, Any] = {}

    def invalidate(self) -> None:
        """Invalidate all caches."""
        self.revision += 1
        self.epoch += 1
        self.node_changes.clear()
        self.pod_changes.clear()
        self.pod_removals.clear()

    def add_index(self, index: PlacementIndex) -> None:
        """Notify *index* of all placed pods, and of every later change."""
        self._indexes.append(index)
        for pod, effects in self._effects.items():
            if (watchers := index.watch(pod)) is not None:
                effects.watchers.append(watchers)
                self.replay_placements(watchers, pod)

    def index(self, kind: Callable[[Self], _I]) -> _I:
        """Return the index of this *kind*; it is created and added on first use."""
        index: _I | None = self._indexes_by_kind.get(kind)
        if index is None:
            index = self._indexes_by_kind[kind] = kind(self)
            self.add_index(index)
        return index

    def classes(self) -> Iterable[PodClass]:
        """Return the classes of pods that are or were placed."""
        return self._effects.keys()

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

    def replay_placements(self, watchers: Watchers, pod: PodClass) -> None:
        """Notify *watchers* of the pods of the class that are placed."""
        for callback in watchers.callbacks:
            for row, count in self.rows_of(pod).items():
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
        load = self.load_of(pod)
        return effects, effects.vector if load is pod.cls.requests else self.vector(load)

    def load_of(self, pod: Pod) -> Amounts:
        """Return the requests that *pod* is charged with, by the rules of the cluster's scheduler."""
        if not pod.older_loads:
            return pod.load
        return dict(pod.older_loads).get(load_rule(self.scheduler.version), pod.load)

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
            watchers = [watchers for index in self._indexes if (watchers := index.watch(pod)) is not None]
            effects = self._effects[pod] = Effects(pod, watchers, self.vector(pod.requests))
        return effects

    def _drop_effects(self, used: set[PodClass], pods: Iterable[Pod]) -> None:
        """Drop the effects of classes other than *used*, and of added labels that none of *pods* has."""
        bound: defaultdict[PodClass, dict[LabelPairs, Effects]] = defaultdict(dict)
        for pod in pods:
            if pod.added_labels:
                bound[pod.cls][pod.added_labels] = self._effects_of(pod.cls, pod.added_labels)
        kept = {effects.pod for by_labels in bound.values() for effects in by_labels.values()}
        self._effects = {pod: effects for pod, effects in self._effects.items() if pod in used or pod in kept}
        self._bound_effects = bound

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
        """Add pods with a total request of *load* to *row* (delta = +1), or remove them from it (delta = -1)."""
        free = self.nodes.free_rows[row]
        if delta > 0:
            free -= load
        else:
            free += load
        for effects in pods:
            rows = effects.rows
            if count := rows.get(row, 0) + delta:
                rows[row] = count
            else:
                rows.pop(row, None)
            for watchers in effects.watchers:
                for callback in watchers.callbacks:
                    callback(row, delta)
