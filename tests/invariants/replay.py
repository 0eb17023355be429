"""The state of the cluster at each revision: observed writes are applied in order."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from tests.invariants.history import Revision, seconds
from tests.invariants.marks import DRAINING, NodeMark, mark_on
from tests.invariants.objects import SeenBudget, SeenNode, SeenObject, SeenPod, SeenWorkload

#: Kind, namespace, name and UID of the topmost controller of a pod.
OwnerKey: TypeAlias = tuple[str, str, str, str]


def named(owner: OwnerKey) -> str:
    return f"{owner[0]} {owner[1]}/{owner[2]}"


@dataclass(slots=True)
class SeenDrain:
    """A drain: a period in which a node has marks of the observed installation. Times are the watchdog's."""

    node: str
    began: datetime
    number: int  #: the first revision with the mark
    holders: list[str]
    evicted: list[SeenPod] = field(default_factory=list)
    acted: datetime | None = None  #: time of the last eviction, or of the last change of the holder
    draining_ended: int | None = None  #: the first revision whose step is no longer `draining`
    removing: bool = False
    restored: bool = False  #: another client created the Node with the marks of an earlier one
    moved_before: bool = False  #: pods were moved by a roll-out, or from an earlier Node of the same name
    rolled_out: set[str] = field(default_factory=set)  #: the namespaces of Deployments that it rolls out
    ended: datetime | None = None
    node_gone: bool = False
    left: int = 0  #: movable pods on the node at the end

    @property
    def outcome(self) -> str:
        if self.ended is None:
            return "open"
        if self.node_gone:
            return "removed" if self.evicted else "removed empty"
        if not self.evicted:
            return "nothing evicted"
        return "rolled back" if self.left else "emptied"


class Replay:
    """All objects at one revision, and the drains so far."""

    def __init__(self, identity: str, spot: str) -> None:
        self._identity, self._spot = identity, spot
        self.pods: dict[str, SeenPod] = {}  #: pods by UID
        self.workloads: dict[str, SeenWorkload] = {}
        self.budgets: dict[str, SeenBudget] = {}
        self.nodes: dict[str, SeenNode] = {}  #: nodes by name
        self.failing: set[OwnerKey] = set()  #: owners with pods that have failed: a kubelet may have refused them
        self.lost_nodes: set[str] = set()  #: names of nodes that are gone
        self.marks: dict[str, NodeMark] = {}  #: marks by node
        self.drains: dict[str, SeenDrain] = {}  #: open drains by node
        self.all_drains: list[SeenDrain] = []
        self.created: dict[str, int] = {}  #: first revision by pod UID
        self.states: defaultdict[str, list[Revision]] = defaultdict(list)  #: all revisions of pods and nodes, by UID
        self.spot_uids: set[str] = set()  #: UIDs of current and former spot nodes
        self.owners: dict[str, OwnerKey | None] = {}  #: pods by UID
        self.adopted: tuple[str, OwnerKey, OwnerKey] | None = (
            None  #: the ReplicaSet (UID) with another owner than before
        )
        self._edited: set[str] = set()  # UIDs of workloads whose template has changed
        self._by_node: defaultdict[str, set[str]] = defaultdict(set)
        self._by_owner: defaultdict[OwnerKey, set[str]] = defaultdict(set)

    def apply(self, revision: Revision) -> None:
        self.adopted = None
        match revision.object:
            case SeenPod() as pod:
                self._pod(pod, revision)
            case SeenNode() as node:
                self._node(node, revision)
            case SeenWorkload() as workload:
                self._workload(workload, revision)
            case SeenBudget() as budget:
                _keep(self.budgets, budget.metadata.uid, budget, gone=revision.gone)

    def _workload(self, workload: SeenWorkload, revision: Revision) -> None:
        uid = workload.metadata.uid
        before = self.workloads.get(uid)
        if before is not None and before.spec.template != workload.spec.template:
            self._edited.add(uid)
        _keep(self.workloads, uid, workload, gone=revision.gone)
        if before is not None and not revision.gone and before.controller != workload.controller:
            self._adopt(before, workload)

    def _adopt(self, before: SeenWorkload, workload: SeenWorkload) -> None:
        """Count the pods of a ReplicaSet that was orphaned or adopted for its new owner."""
        old, new = _top(before), _top(workload)
        for uid in [uid for uid in self._by_owner[old] if _is_owned(self.pods[uid], workload)]:
            self._by_owner[old].discard(uid)
            self._by_owner[new].add(uid)
            self.owners[uid] = new
        self.adopted = workload.metadata.uid, old, new

    def recent(self, uid: str, at: datetime, lag: float) -> list[SeenObject]:
        """Return the states of a pod or node since *lag* seconds before *at*."""
        states, begin = self.states[uid], at - seconds(lag)
        first = next((index for index in reversed(range(len(states))) if states[index].at <= begin), 0)
        return [state.object for state in states[first:] if not state.gone]

    def is_younger(self, uid: str, at: datetime, lag: float) -> bool:
        """Return whether a pod or node was created within *lag* seconds before *at*."""
        first = self.states[uid][0]
        return not first.initial and first.at > at - seconds(lag)

    def pods_on(self, node: str) -> Iterator[SeenPod]:
        return (self.pods[uid] for uid in self._by_node[node])

    def is_spot(self, node: str) -> bool:
        return node in self.nodes and self.nodes[node].has(self._spot)

    def keeps_pods(self, node: str) -> bool:
        return any(pod.keeps_node for pod in self.pods_on(node))

    def pods_of(self, owner: OwnerKey) -> Iterator[SeenPod]:
        return (self.pods[uid] for uid in self._by_owner[owner])

    def lost(self, owner: OwnerKey, since: datetime) -> Iterator[SeenPod]:
        """Yield the pods of *owner* that are gone, but were not at *since*, in their last states."""
        for uid in [uid for uid, known in self.owners.items() if known == owner and uid not in self.pods]:
            last = self.states[uid][-1]
            if last.at >= since and isinstance(last.object, SeenPod):
                yield last.object

    def wanted(self, owner: OwnerKey) -> int | None:
        """Return the desired number of pods of *owner*, or None if its kind is not watched."""
        workload = self.workloads.get(owner[3])
        if workload is None:
            return 0 if owner[0] in ("Deployment", "ReplicaSet", "StatefulSet", "Job") else None
        adopted = owner[0] == "ReplicaSet" and workload.controller is not None
        return 0 if adopted else workload.wanted

    def template(self, owner: OwnerKey) -> object:
        workload = self.workloads.get(owner[3])
        return workload.spec.template if workload is not None else None

    def may_lack(self, owner: OwnerKey) -> int:
        """Return how many pods of *owner* may be unavailable because a new template rolls out."""
        workload = self.workloads.get(owner[3])
        return workload.may_lack if workload is not None and owner[3] in self._edited else 0

    def succeeded(self, owner: OwnerKey) -> int:
        workload = self.workloads.get(owner[3])
        return workload.status.succeeded if workload is not None else 0

    def _pod(self, pod: SeenPod, revision: Revision) -> None:
        uid = pod.metadata.uid
        before = self.pods.get(uid)
        if before is None:
            self.created.setdefault(uid, revision.number)
            self.owners.setdefault(uid, self._topmost(pod))
        self.states[uid].append(revision)
        owner = self.owners[uid]
        if owner is not None and pod.status.phase == "Failed":
            self.failing.add(owner)
        if revision.gone:
            self.pods.pop(uid, None)
            self._by_node[pod.spec.node_name].discard(uid)
            if owner is not None:
                self._by_owner[owner].discard(uid)
            return
        self.pods[uid] = pod
        self._by_node[pod.spec.node_name].add(uid)
        if before is not None and before.spec.node_name != pod.spec.node_name:
            self._by_node[before.spec.node_name].discard(uid)
        if owner is not None:
            self._by_owner[owner].add(uid)

    def _topmost(self, pod: SeenPod) -> OwnerKey | None:
        owner, namespace = pod.controller, pod.metadata.namespace
        if owner is None:
            return None
        if owner.kind == "ReplicaSet" and owner.uid in self.workloads:
            return _top(self.workloads[owner.uid])
        return owner.kind, namespace, owner.name, owner.uid

    def _node(self, node: SeenNode, revision: Revision) -> None:
        name = node.metadata.name
        if node.has(self._spot):
            self.spot_uids.add(node.metadata.uid)
        self.states[node.metadata.uid].append(revision)
        _keep(self.nodes, name, node, gone=revision.gone)
        self.lost_nodes = self.lost_nodes | {name} if revision.gone else self.lost_nodes - {name}
        mark = None if revision.gone else mark_on(node, self._identity)
        if mark is None:
            self.marks.pop(name, None)
        else:
            self.marks[name] = mark
        self._note_drain(name, mark, revision)

    def _note_drain(self, name: str, mark: NodeMark | None, revision: Revision) -> None:
        drain = self.drains.get(name)
        if drain is None:
            if mark is not None and mark.annotated:
                drain = SeenDrain(name, revision.at, revision.number, [mark.holder])
                self.drains[name] = drain
                self.all_drains.append(drain)
                drain.removing = mark.step != DRAINING
                drain.restored = len(self.states[revision.object.metadata.uid]) == 1
                earlier = (each for each in self.all_drains if each.node == name and each.node_gone)
                drain.moved_before = bool(mark.surges) or any(each.evicted for each in earlier)
                drain.rolled_out |= {mark.surges} - {""}
            return
        if mark is None:
            drain.ended, drain.node_gone = revision.at, revision.gone
            drain.left = sum(pod.keeps_node for pod in self.pods_on(name))
            drain.draining_ended = drain.draining_ended or revision.number
            del self.drains[name]
            return
        drain.moved_before |= bool(mark.surges)
        drain.rolled_out |= {mark.surges} - {""}
        if mark.holder and mark.holder != drain.holders[-1]:
            drain.holders.append(mark.holder)
            drain.acted = revision.at
        if mark.annotated and mark.step != DRAINING and drain.draining_ended is None:
            drain.draining_ended, drain.removing = revision.number, True


def _top(workload: SeenWorkload) -> OwnerKey:
    """Return the controller of *workload*, or *workload* if it has none."""
    above, metadata = workload.controller, workload.metadata
    if above is None:
        return workload.kind, metadata.namespace, metadata.name, metadata.uid
    return above.kind, metadata.namespace, above.name, above.uid


def _is_owned(pod: SeenPod, workload: SeenWorkload) -> bool:
    return pod.controller is not None and pod.controller.uid == workload.metadata.uid


def _keep(objects: dict, key: str, item: object, *, gone: bool) -> None:  # type: ignore[type-arg]
    if gone:
        objects.pop(key, None)
    else:
        objects[key] = item
