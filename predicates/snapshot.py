"""The cluster state that the plugins read: nodes, placed pods, volumes, namespaces, and the current trial."""

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final, TypeAlias, cast

from msgspec.structs import replace

from predicates.nodes import LearnedRefusals
from predicates.objects import (
    CSINode,
    GangWorkload,
    Load,
    Node,
    Object,
    OwnerReference,
    Pod,
    PodClass,
    PodGroup,
    Unreadable,
    VolumeAttachment,
)
from predicates.placed import DRAIN_TAINT, Trial, TrialState
from predicates.pod_classes import LabelPairs
from predicates.scheduler import Scheduler

__all__ = ["DRAIN_TAINT", "Snapshot", "Trial", "key_of", "same_content"]

# The effect of a changed object on its node and on the results of filters.


def same_content(old: Object, new: Object) -> bool:
    """Return whether two objects are equal except for the resource version, which every heartbeat changes."""
    if old == new:
        return True
    if isinstance(old, Pod) or isinstance(new, Pod) or type(old) is not type(new):
        return False
    meta = replace(new.metadata, resource_version=old.metadata.resource_version)
    return meta == old.metadata and old == replace(new, metadata=meta)


def affected_node(changed: Object) -> str | None:
    """Return the name of the only node that *changed* affects, or None if it can affect others."""
    if isinstance(changed, CSINode):
        return changed.metadata.name
    return changed.spec.node_name if isinstance(changed, VolumeAttachment) else None


#: Annotations with which a pod says that it belongs to its node, or to a group of pods. Such pods are counted apart.
_COUNTED_APART: Final = (
    "cluster-autoscaler.kubernetes.io/daemonset-pod",
    "gang.scheduling.koordinator.sh/",
    "kueue.x-k8s.io/pod-group-",
    "leaderworkerset.sigs.k8s.io/size",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
)


def counted_apart(pod: Pod) -> tuple[tuple[str, str], ...]:
    """Return the annotations of *pod* because of which it is counted apart from equal pods."""
    if not pod.annotations:
        return ()
    return tuple(sorted(item for item in pod.annotations.items() if item[0].startswith(_COUNTED_APART)))


def same_placement(old: Pod, new: Pod) -> bool:
    """Return whether neither a filter nor a count of the pods of a controller or group can distinguish two versions."""
    if old.annotations != new.annotations and counted_apart(old) != counted_apart(new):
        return False
    return (
        old.node_name,
        old.cls,
        old.added_labels,
        old.loads,
        old.uid,
        old.owner,
        old.owner_fault,
    ) == (
        new.node_name,
        new.cls,
        new.added_labels,
        new.loads,
        new.uid,
        new.owner,
        new.owner_fault,
    )


# Detection of replaced pods that leave the results of filters and the counts of pods unchanged.
#
# After a pod of a DaemonSet or StatefulSet is deleted, or a node restarts, a pod of the same class is often created on
# the same node.

_Kind: TypeAlias = tuple[str, PodClass, LabelPairs, tuple[Load, ...], OwnerReference | str, str, object]


class PlacementBalance:
    """Counts the pods of each kind that were added and removed since the last call of :meth:`version`."""

    def __init__(self) -> None:
        self._balance: dict[_Kind, int] = {}
        self._version = 0

    def note(self, pod: Pod, delta: int) -> None:
        """Record that *pod* was added (delta = +1) or removed (delta = -1)."""
        # A pod without a controller is counted as its own controller. One with claims is counted by name: the pods that
        # share a claim are told by their names.
        named = pod.key if pod.cls.claims else ""
        kind = pod.node_name, pod.cls, pod.added_labels, pod.loads, pod.owner or pod.uid, named, counted_apart(pod)
        if count := self._balance.get(kind, 0) + delta:
            self._balance[kind] = count
        else:
            del self._balance[kind]

    def replaced_all(self) -> None:
        """Record that any pod may have been replaced by a different one."""
        self._balance.clear()
        self._version += 1

    def version(self) -> int:
        """Return a number that changes if the pods on any node are no longer equal to those at the last call."""
        if self._balance:
            self.replaced_all()
        return self._version


# Placeholders: pods that this program creates to reserve room on spot nodes for pods that will move there.
#
# A snapshot stores them separately from all other pods: they use no resources, and they do not count as pending.

#: The namespace of all placeholders. It contains nothing else.
ROOM_NAMESPACE: Final = "spot-rescheduler-room"

#: The label of placeholders.
PLACEHOLDER: Final = "spot-rescheduler/placeholder"


def is_placeholder(pod: Pod) -> bool:
    """Return whether *pod* is a placeholder."""
    return pod.namespace == ROOM_NAMESPACE and PLACEHOLDER in pod.cls.labels


# A snapshot is long-lived. Watch events update it (:meth:`Snapshot.upsert`, :meth:`Snapshot.delete`) at a cost that
# depends only on the objects that they affect; trials modify it and undo all of their changes.

#: Kinds that no filter reads.
_UNFILTERED: Final = (
    "PodDisruptionBudget",
    "Deployment",
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
    "Job",
    "LimitRange",
    "ResourceQuota",
    "VerticalPodAutoscaler",
    "PodGroup",
    "CompositePodGroup",
    "Workload",
    "LeaderWorkerSet",
    "NodePool",
    "MachineSet",
    "MachineDeployment",
    "CapacityBuffer",
    "PodTemplate",
    "AutoscalerGroups",
)


#: The name of a PriorityClass, and the priority.
Priority: TypeAlias = tuple[str, int | None]


def _priority(cls: PodClass) -> Priority:
    return cls.spec.priority_class_name, cls.spec.priority


#: The number of preempted pods, and of refused ones, that are kept.
_NOTED: Final = 1000


class Snapshot(TrialState):
    """The state of a cluster. Not thread-safe.

    Costs: ``upsert`` of a pod O(indexes that its class affects); of a node O(columns + its pods); placements and
    evictions O(indexes that the class affects); the end of a trial O(its changes); a change of volumes or namespaces
    O(the object), and all caches are invalidated.
    """

    def __init__(self, scheduler: Scheduler | None = None) -> None:
        super().__init__(scheduler)
        self.pods: dict[str, Pod] = {}  #: by ``namespace/name``; without finished pods
        self._owned: dict[tuple[str, str], dict[str, Pod]] | None = None  # by namespace and UID of the controller
        self._priorities: Counter[Priority] | None = None  # the numbers of pods
        self.pods_on: defaultdict[str, dict[str, Pod]] = defaultdict(dict)  #: by node name; "" for unbound pods
        self.placeholders: dict[str, Pod] = {}  #: by ``namespace/name``; they are not in ``pods`` and use no resources
        self.objects: defaultdict[str, dict[str, Object]] = defaultdict(dict)  #: other kinds, by kind and key
        self.versions: Counter[str] = Counter()  #: by kind, except pods and nodes: number of changes
        self.generation = 0  #: incremented when pod classes are dropped
        self.changes = 0  #: number of changes of any object, including fields that no filter reads
        self.unplaced = 0  #: number of changes of pods that are not on a known node
        self.node_versions = 0  #: number of changes of nodes
        self.balance = PlacementBalance()  #: of all pods, placed or not
        #: The value of ``changes`` after a pod was last edited, by node, and by class and added labels. An edit changes
        #: only fields that no filter reads, such as annotations and the status. In ``edited_of``, the addition and the
        #: removal of a pod count as well.
        self.edited_on: dict[str, int] = {}
        self.edited_of: dict[tuple[PodClass, LabelPairs], int] = {}
        #: By node: the value of ``changes`` after a pod was last added or removed, or the node itself was added.
        self.placed_on: dict[str, int] = {}
        #: By UID: the last pods that the scheduler has preempted, also after they are gone.
        self.preempted: dict[str, Pod] = {}
        self.refused: dict[str, Pod] = {}  #: likewise, those that the kubelets of their nodes did not admit
        self.learned: LearnedRefusals = {}  #: which nodes are expected to refuse which pods again
        self.unreadable: tuple[Unreadable, ...] = ()  #: objects that cannot be decoded and so are missing here
        self.watched_to: Mapping[str, str] = {}  #: the resource version up to which each kind was watched

    # Changes in the cluster

    def replace(self, kind: str, objects: Iterable[Object]) -> None:
        """Replace all objects of *kind* with *objects*."""
        self.replace_by_key(kind, {key_of(obj): obj for obj in objects})

    def replace_by_key(self, kind: str, objects: Mapping[str, Object]) -> None:
        """Replace all objects of *kind* with *objects*, whose keys are those of :func:`key_of`."""
        if kind == "Pod" and not self.pods and not self._indexes:
            self._load_pods(cast("Mapping[str, Pod]", objects))
            return
        for key in [key for key in self._keys(kind) if key not in objects]:
            self.delete(kind, key)
        for obj in objects.values():
            self.upsert(kind, obj)

    def upsert(self, kind: str, obj: Object) -> None:
        """Add or update an object."""
        if isinstance(obj, Pod):
            self._put_pod(obj)
        elif isinstance(obj, Node):
            self._put_node(obj)
        else:
            before = self.objects[kind].get(key_of(obj))
            self.objects[kind][key_of(obj)] = obj
            if before is None or not same_content(before, obj):
                self._changed(kind, before or obj, obj)

    def delete(self, kind: str, key: str) -> None:
        """Remove the object with this *key* (``namespace/name``, or ``name``), if it exists."""
        if kind == "Pod":
            self._drop_pod(key)
        elif kind == "Node":
            self._drop_node(key)
        elif (obj := self.objects[kind].pop(key, None)) is not None:
            self._changed(kind, obj)

    def note(self, pod: Pod) -> None:
        """Keep *pod*, which was preempted or refused, among the last :data:`_NOTED`."""
        kept = self.refused if pod.refused else self.preempted
        kept[pod.uid] = pod
        while len(kept) > _NOTED:
            del kept[next(iter(kept))]

    def learn(self, refusals: LearnedRefusals) -> None:
        """Expect the same *refusals* of kubelets from now on. All caches are invalidated if they have changed."""
        if refusals != self.learned:
            self.learned = refusals
            self.compact()

    def owned_by(self, owner: tuple[str, str]) -> Collection[Pod]:
        """Return the pods that name *owner*, a namespace and a UID, as their controller.

        The first call builds an index, which later changes update: a drain asks several times in a second.
        """
        return self._by_owner().get(owner, {}).values()

    def owned_in(self, namespaces: Container[str]) -> Iterator[Pod]:
        """Yield the pods in *namespaces* that name a controller."""
        for (namespace, _), pods in self._by_owner().items():
            if namespace in namespaces:
                yield from pods.values()

    def _by_owner(self) -> Mapping[tuple[str, str], Mapping[str, Pod]]:
        if self._owned is None:
            self._owned = {}
            for pod in self.pods.values():
                self._note_owner(None, pod)
        return self._owned

    def _note_owner(self, before: Pod | None, after: Pod | None) -> None:
        """Update the index of owners after a change of a pod."""
        if self._owned is None:
            return
        if before is not None and before.owner is not None and (after is None or after.owner != before.owner):
            owner = before.namespace, before.owner.uid
            del self._owned[owner][before.key]
            if not self._owned[owner]:
                del self._owned[owner]
        if after is not None and after.owner is not None:
            self._owned.setdefault((after.namespace, after.owner.uid), {})[after.key] = after

    def priorities(self) -> Collection[Priority]:
        """Return the priorities that pods have. The first call counts the pods, and later changes update the counts."""
        if self._priorities is None:
            self._priorities = Counter()
            for cls, number in Counter(map(attrgetter("cls"), self.pods.values())).items():
                self._priorities[_priority(cls)] += number
        return self._priorities.keys()

    def of(self, kind: str) -> Mapping[str, Object]:
        """Return all objects of *kind* by key; not for pods and nodes."""
        return self.objects[kind]

    def compact(self) -> set[PodClass]:
        """Drop the pod classes that no pod uses any more, and return the others.

        Call this method periodically on a long-lived snapshot, because every roll-out creates new classes. Caches by
        class elsewhere must be dropped when ``generation`` has changed.
        """
        used = {pod.cls for pod in self.pods.values()}
        self._drop_effects(used, self.pods.values())
        self.edited_of = {key: change for key, change in self.edited_of.items() if key[0] in used}
        self._vectors.clear()
        self.generation += 1
        self.changes += 1
        self.invalidate()
        return used

    def use(self, scheduler: Scheduler) -> None:
        """Evaluate everything by the rules of *scheduler* from now on. All caches are invalidated."""
        resizing = [pod for pod in self.pods.values() if pod.loads and pod.node_name in self.nodes.row]
        for pod in resizing:
            self._account(pod, self.nodes.row[pod.node_name], -1)
        self.scheduler = scheduler
        for pod in resizing:
            self._account(pod, self.nodes.row[pod.node_name], +1)
        self.compact()

    def _changed(self, kind: str, *objects: Object) -> None:
        self.versions[kind] += 1
        self.changes += 1
        if kind in _UNFILTERED:
            return
        nodes = [affected_node(obj) for obj in objects]
        if None in nodes:
            self.invalidate()
        else:
            rows = (row for name in nodes if (row := self.nodes.row.get(name or "")) is not None)
            self._log(self.node_changes, rows)

    # Pods and nodes

    def _keys(self, kind: str) -> Iterable[str]:
        if kind == "Pod":
            return [*self.pods, *self.placeholders]
        return self.nodes.row if kind == "Node" else self.objects[kind]

    def _put_pod(self, pod: Pod) -> None:
        key = pod.key
        before = self.pods.get(key)
        if before == pod:
            return
        if pod.noted:
            self.note(pod)
        if is_placeholder(pod):
            self._drop_pod(key)
            self.placeholders[key] = pod
            return
        self.placeholders.pop(key, None)
        if pod.finished:
            self._drop_pod(key)
            return
        edited = before is not None and same_placement(before, pod)
        if before is not None and not edited:
            self._drop_pod(key)
        self._effects_of(pod.cls, pod.added_labels)
        self.pods[key] = self.pods_on[pod.node_name][key] = pod
        self._note_owner(before if edited else None, pod)
        self.changes += 1
        row = self.nodes.row.get(pod.node_name)
        if edited:
            self.edited_of[pod.cls, pod.added_labels] = self.changes
            if row is not None:
                self.edited_on[pod.node_name] = self.changes
        else:
            self._count(pod, row, +1)

    def _load_pods(self, pods: Mapping[str, Pod]) -> None:
        """Add the first pods in bulk: their requests are subtracted together, and there are no indexes to notify."""
        resizing = []
        self._owned = self._priorities = None
        self.changes += 1
        self.balance.replaced_all()
        row_of, effects_of = self.nodes.row.get, self._effects_of
        for key, pod in pods.items():
            if pod.noted:
                self.note(pod)
            if is_placeholder(pod):
                self.placeholders[key] = pod
                continue
            if pod.finished:
                continue
            effects = effects_of(pod.cls, pod.added_labels)
            self.pods[key] = self.pods_on[pod.node_name][key] = pod
            if (row := row_of(pod.node_name)) is None:
                continue
            if not effects.watched:
                self._watch(effects)
            if not pod.loads:
                effects.rows[row] = effects.rows.get(row, 0) + 1
            else:
                resizing.append((pod, row))
        self.placed_on.update(dict.fromkeys(self.pods_on, self.changes))
        self._subtract_all_requests()
        self.invalidate()
        for pod, row in resizing:
            self._account(pod, row, +1)

    def _drop_pod(self, key: str) -> None:
        self.placeholders.pop(key, None)
        if (pod := self.pods.pop(key, None)) is None:
            return
        self.changes += 1
        self._note_owner(pod, None)
        del self.pods_on[pod.node_name][key]
        self._count(pod, self.nodes.row.get(pod.node_name), -1)

    def _put_node(self, node: Node) -> None:
        row = self.nodes.row.get(node.name)
        if row is not None and (before := self.nodes.nodes[row]) is not None and same_content(before, node):
            self.nodes.nodes[row] = node
            return
        self.changes += 1
        self.node_versions += 1
        rows, columns = self.nodes.free.shape
        row_is_new = row is None
        row = self.nodes.put(node)
        if columns != len(self.nodes.resources):
            self._widen()
        if rows != len(self.nodes):
            self.invalidate()
        if row_is_new:
            self.placed_on[node.name] = self.changes
            for pod in self.pods_on[node.name].values():
                self._account(pod, row, +1)
        self._log(self.node_changes, (row,))

    def _drop_node(self, name: str) -> None:
        if (row := self.nodes.row.get(name)) is None:
            return
        for pod in self.pods_on[name].values():
            self._account(pod, row, -1)
        self.nodes.remove(name)
        self.edited_on.pop(name, None)
        self.placed_on.pop(name, None)
        self.changes += 1
        self.node_versions += 1
        self._log(self.node_changes, (row,))

    def _count(self, pod: Pod, row: int | None, delta: int) -> None:
        """Record that *pod* was added (delta = +1) or removed (delta = -1); *row* is its node, if that is known."""
        self.balance.note(pod, delta)
        if self._priorities is not None:
            priority = _priority(pod.cls)
            self._priorities[priority] += delta
            if not self._priorities[priority]:
                del self._priorities[priority]
        self.placed_on[pod.node_name] = self.edited_of[pod.cls, pod.added_labels] = self.changes
        if row is not None:
            self._account(pod, row, delta)
        else:
            self.unplaced += 1

    def _account(self, pod: Pod, row: int, delta: int) -> None:
        effects, load = self._effects_and_load(pod)
        self._shift((effects,), load, row, delta)
        self._count_by_class((effects,), row, delta)
        if delta < 0:
            self.pod_removals.append(row)
        self._log(self.pod_changes, (row,))


def key_of(obj: Object) -> str:
    """Return ``namespace/name``, or ``name`` for objects without a namespace.

    The key of a PodGroup or Workload begins with its API group, because several schedulers have such objects.
    """
    if isinstance(obj, Pod):
        return obj.key
    meta = obj.metadata
    if isinstance(obj, PodGroup | GangWorkload):
        return f"{obj.api_version.rpartition('/')[0]}/{meta.namespace}/{meta.name}"
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
