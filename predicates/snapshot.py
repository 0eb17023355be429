"""The cluster as the filters see it: the node table, the pods on it, volumes, namespaces, and trials on top.

A snapshot lives from round to round. Events change it (:meth:`Snapshot.upsert`, :meth:`Snapshot.delete`),
each at the cost of what it touches; a trial changes it and takes everything back.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, cast

import numpy as np

from predicates.changes import alike, node_of
from predicates.objects import Node, Object, Pod, PodClass
from predicates.trials import DRAIN_TAINT, Trial, Tried
from predicates.unreadable import Unreadable

__all__ = ["DRAIN_TAINT", "Snapshot", "Trial", "key_of"]

#: Kinds that no filter reads.
_UNFILTERED: Final = ("PodDisruptionBudget",)


class Snapshot(Tried):
    """All that is known of a cluster. Single-threaded.

    Costs: ``upsert`` of a pod O(its indexes); of a node O(columns + its pods); ``place`` and ``evict``
    O(indexes of the class); leaving a trial O(what was done in it); anything about volumes and namespaces
    O(that object), and what was cached is computed anew.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pods: dict[str, Pod] = {}  #: by ``namespace/name``; finished ones are left out
        self.pods_on: defaultdict[str, dict[str, Pod]] = defaultdict(dict)  #: by node name ("" = no node yet)
        self.objects: defaultdict[str, dict[str, Object]] = defaultdict(dict)  #: other kinds, by kind and key
        self.versions: defaultdict[str, int] = defaultdict(int)  #: by kind, for all but pods and nodes
        self.generation = 0  #: grows when classes were forgotten
        self.unreadable: tuple[Unreadable, ...] = ()  #: objects that are missing here, as they cannot be decoded

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


def key_of(one: Object) -> str:
    """``namespace/name``, or the name alone for what has no namespace."""
    if isinstance(one, Pod):
        return one.key
    meta = one.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
