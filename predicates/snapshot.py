"""The cluster as the filters see it: the node table, the pods on it, volumes, namespaces, and trials on top.

A snapshot lives from round to round. Events change it (:meth:`Snapshot.upsert`, :meth:`Snapshot.delete`),
each at the cost of what it touches; a trial changes it and takes everything back.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from predicates.changes import alike, node_of
from predicates.nodes import NodeTable, Numbers
from predicates.objects import Amounts, Node, Object, Pod, PodClass, Taint

#: The taint of ours that a node carries while it is drained. Cluster Autoscaler leaves taints of this prefix
#: out of node templates, so ours cannot poison a scale-up from zero (kubernetes/autoscaler#6452).
DRAIN_TAINT: Final = Taint(
    key="status-taint.cluster-autoscaler.kubernetes.io/spot-rescheduler-draining", effect="NoSchedule"
)

#: Kinds that no filter reads.
_UNFILTERED: Final = ("PodDisruptionBudget",)

#: The longest list of changes that is kept; past it everything cached is computed anew.
_LOG_LIMIT = 200_000


#: Is told on which row how many pods of a class came (+n) or went (-n).
Watcher: TypeAlias = Callable[[int, int], None]


class Watchers:
    """Who is told of the pods of one class. The index that gave it may change it at any time."""

    __slots__ = ("told",)

    def __init__(self, *told: Watcher) -> None:
        self.told = told


class Index(Protocol):
    """A view of the placed pods that is kept right by every placement: ports, volumes, counts by domain."""

    def watch(self, pod: PodClass) -> Watchers | None:
        """Who is told of pods of the class; None where they do not matter."""
        ...


_I = TypeVar("_I", bound=Index)


class _Effects:
    """What placing one pod of a class changes."""

    __slots__ = ("pod", "rows", "vector", "watchers")

    def __init__(self, pod: PodClass, watchers: list[Watchers], vector: Numbers) -> None:
        self.pod = pod
        self.watchers = watchers
        self.vector = vector  #: what a pod of the class requests
        self.rows: dict[int, int] = {}  #: how many pods of the class stand on each row


#: Of which classes, what they take together, row, +1 or -1, and whether it counts in ``claimants``.
Step: TypeAlias = tuple[Sequence[_Effects], Numbers, int, int, bool]


class Snapshot:
    """All that is known of a cluster. Single-threaded.

    Costs: ``upsert`` of a pod O(its indexes); of a node O(columns + its pods); ``place`` and ``evict``
    O(indexes of the class); leaving a trial O(what was done in it); anything about volumes and namespaces
    O(that object), and what was cached is computed anew.
    """

    def __init__(self) -> None:
        self.nodes = NodeTable()
        self.pods: dict[str, Pod] = {}  #: by ``namespace/name``; finished ones are left out
        self.pods_on: defaultdict[str, dict[str, Pod]] = defaultdict(dict)  #: by node name ("" = no node yet)
        self.objects: defaultdict[str, dict[str, Object]] = defaultdict(dict)  #: other kinds, by kind and key
        self.versions: defaultdict[str, int] = defaultdict(int)  #: by kind, for all but pods and nodes
        self.generation = 0  #: grows when classes were forgotten
        self.moment = 0  #: grows with each change but those of a trial that are not kept
        self.epoch = 0  #: grows when nothing cached may be kept
        self.facts: list[int] = []  #: rows whose node changed, or what its CSINode says or is attached, in this epoch
        self.changed: list[int] = []  #: rows whose pods changed, in this epoch
        self.touched: dict[int, None] = {}  #: rows changed by the trial under way, as far as not kept
        self.ghosts: dict[int, None] = {}  #: rows drained by the trial under way: they carry DRAIN_TAINT
        #: By class and row: pods with claims that the trial under way has placed.
        self.claimants: dict[tuple[PodClass, int], int] = {}
        self._effects: dict[PodClass, _Effects] = {}
        self._vectors: dict[Amounts, Numbers] = {}
        self._indexes: list[Index] = []
        self._singletons: dict[object, Any] = {}
        self._journal: list[Step] | None = None
        self._kept = 0

    # What the cluster says

    def replace(self, kind: str, objects: Iterable[Object]) -> None:
        """*objects* are all there are of *kind*; others of it are gone."""
        fresh = {key_of(one): one for one in objects}
        if kind == "Pod" and not self.pods and not self._indexes:
            self._fill(cast("dict[str, Pod]", fresh))
            return
        for key in [key for key in self._all(kind) if key not in fresh]:
            self.delete(kind, key)
        for one in fresh.values():
            self.upsert(kind, one)

    def upsert(self, kind: str, one: Object) -> None:
        """*one* is new or has changed."""
        if isinstance(one, Pod):
            self._put_pod(one)
        elif isinstance(one, Node):
            self._put_node(one)
        else:
            before = self.objects[kind].get(key_of(one))
            self.objects[kind][key_of(one)] = one
            if before is None or not alike(before, one):
                self._changed(kind, before or one, one)

    def delete(self, kind: str, key: str) -> None:
        """The object called *key* (``namespace/name``, or ``name``) is gone; one that never was is no error."""
        if kind == "Pod":
            self._drop_pod(key)
        elif kind == "Node":
            self._drop_node(key)
        elif (gone := self.objects[kind].pop(key, None)) is not None:
            self._changed(kind, gone)

    def of(self, kind: str) -> Mapping[str, Object]:
        """All objects of *kind* but pods and nodes, by key."""
        return self.objects[kind]

    def compact(self) -> set[PodClass]:
        """Forget the classes of which there is no pod any more; those that there are.

        Needed now and then where a snapshot lives long: each roll-out of each workload makes new classes. What is
        kept by class elsewhere must go when ``generation`` has grown.
        """
        used = {pod.cls for pod in self.pods.values()}
        self._effects = {pod: effects for pod, effects in self._effects.items() if pod in used}
        self._vectors.clear()
        self.generation += 1
        self.invalidate()
        return used

    def _changed(self, kind: str, *objects: Object) -> None:
        self.versions[kind] += 1
        nodes = [] if kind in _UNFILTERED else [node_of(one) for one in objects]
        if None in nodes:
            self.invalidate()
        else:
            self._log(self.facts, (row for name in nodes if (row := self.nodes.row.get(name or "")) is not None))

    def invalidate(self) -> None:
        """Forget all that was cached of this snapshot."""
        self.moment += 1
        self.epoch += 1
        self.facts.clear()
        self.changed.clear()

    # Trials

    @contextmanager
    def trial(self) -> Iterator["Trial"]:
        """What is placed and evicted inside is undone on the way out, unless kept for the trial around it."""
        outermost = self._journal is None
        if self._journal is None:
            self._journal = []
        trial = Trial(self, len(self._journal))
        ghosts = dict(self.ghosts)
        try:
            yield trial
        finally:
            self._undo(trial.start)
            self.ghosts = ghosts
            if outermost:
                self._journal, self._kept = None, 0
                self.touched.clear()

    def _mark(self) -> int:
        assert self._journal is not None
        return len(self._journal)

    def _undo(self, start: int) -> None:
        journal = self._journal
        assert journal is not None
        settled: dict[int, None] = {}
        while len(journal) > start:
            pods, taken, row, by, claims = journal.pop()
            self._shift(pods, taken, row, -by)
            if claims:
                self._claim(pods[0].pod, row, -by)
            if len(journal) < self._kept:
                settled[row] = None
        if settled:
            self._log(self.changed, settled)
        self._kept = min(self._kept, start)
        self.touched = dict.fromkeys(row for _, _, row, _, _ in journal[self._kept :])

    def _make(self, pod: PodClass, row: int, by: int) -> None:
        """A pod of the class comes to *row* (+1), as its controller makes it, or is taken back (-1)."""
        effects, claims = self._effects_of(pod), bool(pod.claims)
        if claims:
            self._claim(pod, row, by)
        self._move((effects,), effects.vector, row, by, claims=claims)

    def _evict(self, pods: Sequence[Pod]) -> None:
        """The pods, which all stand on one node, leave it."""
        effects, taken = zip(*map(self._taken_by, pods), strict=True)
        self._move(effects, np.add.reduce(taken), self.nodes.row[pods[0].node_name], -1, claims=False)

    def _move(self, pods: Sequence[_Effects], taken: Numbers, row: int, by: int, *, claims: bool) -> None:
        assert self._journal is not None
        self._shift(pods, taken, row, by)
        self._journal.append((pods, taken, row, by, claims))
        self.touched[row] = None

    def _claim(self, pod: PodClass, row: int, by: int) -> None:
        if count := self.claimants.get((pod, row), 0) + by:
            self.claimants[pod, row] = count
        else:
            del self.claimants[pod, row]

    def _keep(self) -> None:
        assert self._journal is not None
        self._log(self.changed, self.touched)
        self._kept = len(self._journal)
        self.touched.clear()

    # Indexes

    def add_index(self, index: Index) -> None:
        """Keep *index* right from here on; it is told of all pods placed already."""
        self._indexes.append(index)
        for pod, effects in self._effects.items():
            if (watchers := index.watch(pod)) is not None:
                effects.watchers.append(watchers)
                self.catch_up(watchers, pod)

    def index(self, kind: Callable[["Snapshot"], _I]) -> _I:
        """The snapshot's own index of this *kind*: made and registered when first asked for, the same ever after."""
        found: _I | None = self._singletons.get(kind)
        if found is None:
            found = self._singletons[kind] = kind(self)
            self.add_index(found)
        return found

    def classes(self) -> Iterable[PodClass]:
        """The classes of which a pod is, or was, placed."""
        return self._effects.keys()

    def rows_of(self, pod: PodClass) -> Mapping[int, int]:
        """How many pods of the class stand on each row; rows without any are left out."""
        effects = self._effects.get(pod)
        return effects.rows if effects else {}

    def catch_up(self, watchers: Watchers, pod: PodClass) -> None:
        """Tell them of the pods of the class that are placed."""
        for told in watchers.told:
            for row, count in self.rows_of(pod).items():
                told(row, count)

    def vector(self, amounts: Amounts) -> Numbers:
        """*amounts* and one pod, as a row of the node table."""
        width = len(self.nodes.resources)
        vector = self._vectors.get(amounts)
        if vector is None or len(vector) != width:
            vector = self._vectors[amounts] = self.nodes.vector(amounts)
            if len(vector) != width:
                self._widen()
        return vector

    # How events land

    def _all(self, kind: str) -> Iterable[str]:
        if kind == "Pod":
            return self.pods
        return self.nodes.row if kind == "Node" else self.objects[kind]

    def _put_pod(self, pod: Pod) -> None:
        key = pod.key
        before = self.pods.get(key)
        if before == pod:
            return
        if pod.finished:
            self._drop_pod(key)
            return
        same_place = before is not None and (before.node_name, before.cls, before.load) == (
            pod.node_name,
            pod.cls,
            pod.load,
        )
        if before is not None and not same_place:
            self._drop_pod(key)
        self._effects_of(pod.cls)
        self.pods[key] = self.pods_on[pod.node_name][key] = pod
        if not same_place and (row := self.nodes.row.get(pod.node_name)) is not None:
            self._settle(pod, row, +1)

    def _fill(self, pods: Mapping[str, Pod]) -> None:
        """The first pods there are, all at once: what is free is reckoned by class, and nobody has to be told."""
        unlike = []
        for key, pod in pods.items():
            if pod.finished:
                continue
            effects = self._effects_of(pod.cls)
            self.pods[key] = self.pods_on[pod.node_name][key] = pod
            if (row := self.nodes.row.get(pod.node_name)) is None:
                continue
            if pod.load is pod.cls.requests:
                effects.rows[row] = effects.rows.get(row, 0) + 1
            else:
                unlike.append((pod, row))
        for effects in self._effects.values():
            if effects.rows:
                self.nodes.free[[*effects.rows]] -= np.outer([*effects.rows.values()], effects.vector)
        self.invalidate()
        for pod, row in unlike:
            self._settle(pod, row, +1)

    def _drop_pod(self, key: str) -> None:
        if (pod := self.pods.pop(key, None)) is None:
            return
        del self.pods_on[pod.node_name][key]
        if (row := self.nodes.row.get(pod.node_name)) is not None:
            self._settle(pod, row, -1)

    def _put_node(self, node: Node) -> None:
        row = self.nodes.row.get(node.name)
        if row is not None and (before := self.nodes.nodes[row]) is not None and alike(before, node):
            self.nodes.nodes[row] = node
            return
        rows, columns = self.nodes.free.shape
        row_is_new = row is None
        row = self.nodes.put(node)
        if columns != len(self.nodes.resources):
            self._widen()
        if rows != len(self.nodes):
            self.invalidate()
        if row_is_new:
            for pod in self.pods_on[node.name].values():
                self._settle(pod, row, +1)
        self._log(self.facts, (row,))

    def _drop_node(self, name: str) -> None:
        if (row := self.nodes.row.get(name)) is None:
            return
        for pod in self.pods_on[name].values():
            self._settle(pod, row, -1)
        self.nodes.remove(name)
        self._log(self.facts, (row,))

    def _settle(self, pod: Pod, row: int, by: int) -> None:
        effects, taken = self._taken_by(pod)
        self._shift((effects,), taken, row, by)
        self._log(self.changed, (row,))

    def _taken_by(self, pod: Pod) -> tuple[_Effects, Numbers]:
        effects = self._effects_of(pod.cls)
        return effects, effects.vector if pod.load is pod.cls.requests else self.vector(pod.load)

    def _effects_of(self, pod: PodClass) -> _Effects:
        """What a pod of the class changes; its resources get their columns here, never within a trial."""
        if (effects := self._effects.get(pod)) is None:
            watchers = [some for index in self._indexes if (some := index.watch(pod)) is not None]
            effects = self._effects[pod] = _Effects(pod, watchers, self.vector(pod.requests))
        return effects

    def _log(self, log: list[int], rows: Iterable[int]) -> None:
        self.moment += 1
        log.extend(rows)
        if len(log) > _LOG_LIMIT:
            self.invalidate()

    def _widen(self) -> None:
        """A resource was met for the first time."""
        for pod, effects in self._effects.items():
            effects.vector = self.vector(pod.requests)
        self.invalidate()

    def _shift(self, pods: Sequence[_Effects], taken: Numbers, row: int, by: int) -> None:
        """Pods that take so much together come to *row* (+1) or leave it (-1)."""
        free = self.nodes.lines[row]
        if by > 0:
            free -= taken
        else:
            free += taken
        for effects in pods:
            rows = effects.rows
            if count := rows.get(row, 0) + by:
                rows[row] = count
            else:
                rows.pop(row, None)
            for watchers in effects.watchers:
                for told in watchers.told:
                    told(row, by)


class Trial:
    """Placements that are being tried; made by :meth:`Snapshot.trial`."""

    __slots__ = ("_snapshot", "start")

    def __init__(self, snapshot: Snapshot, start: int) -> None:
        self._snapshot = snapshot
        self.start = start

    def place(self, pod: PodClass, row: int) -> None:
        """A pod of the class, as its controller makes it anew, comes to *row*."""
        self._snapshot._make(pod, row, +1)

    def displace(self, pod: PodClass, row: int) -> None:
        """Take back one :meth:`place`, whatever was placed in between."""
        self._snapshot._make(pod, row, -1)

    def evict(self, *pods: Pod) -> None:
        """Pods leave their node; it must be the same of all."""
        if pods:
            self._snapshot._evict(pods)  # noqa: SLF001

    def mark(self) -> int:
        """A point to come back to with :meth:`back`."""
        return self._snapshot._mark()  # noqa: SLF001

    def back(self, mark: int) -> None:
        """Undo what was done since *mark*; nothing may have been kept in between."""
        self._snapshot._undo(mark)  # noqa: SLF001

    def drain(self, row: int) -> None:
        """The node stands from here on as a ghost: it carries :data:`DRAIN_TAINT`, its domain still counts.

        A node that vanished would take its topology domain along (kubernetes/autoscaler#9287).
        """
        self._snapshot.ghosts[row] = None

    def undrain(self, row: int) -> None:
        """Take back one :meth:`drain`."""
        self._snapshot.ghosts.pop(row, None)

    def keep(self) -> None:
        """What was done so far is the ground that further questions stand on, until the outermost trial ends.

        Cached answers are brought up to date once, instead of being corrected at each question.
        """
        self._snapshot._keep()  # noqa: SLF001


def key_of(one: Object) -> str:
    """``namespace/name``, or the name alone for what has no namespace."""
    if isinstance(one, Pod):
        return one.key
    meta = one.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
