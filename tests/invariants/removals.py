"""Invariant 6: a machine is terminated only when its node has no movable pods and the moved pods are Ready.

Pods on other nodes that were preempted during the drain must have a place again as well.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.invariants.history import ObservedTermination, seconds
from tests.invariants.judging import JudgedMoment
from tests.invariants.moments import HistoryMoment, MachineTerminated, Wrote, ours
from tests.invariants.objects import SeenNode, SeenPod
from tests.invariants.replay import OwnerKey, SeenDrain, named
from tests.invariants.rules import Violation


@dataclass(slots=True)
class MovedBeforeRemoval:
    """Checks the termination, which has no revision, and the mark before the termination, which has one."""

    #: By drain: the owner, the node and the priority of each preempted pod.
    _preempted: defaultdict[int, set[tuple[OwnerKey, str, int]]] = field(default_factory=lambda: defaultdict(set))

    def check(self, moment: HistoryMoment, scene: JudgedMoment) -> Iterator[Violation]:
        match moment:
            case Wrote(revision) if isinstance(revision.object, SeenPod):
                self._note(revision.object, scene)
            case Wrote(revision) if isinstance(revision.object, SeenNode):
                drain = scene.now.drains.get(revision.object.metadata.name)
                if drain is not None and drain.removing and drain.draining_ended == revision.number:
                    yield from _moved(drain, "was marked for removal", moment.at, scene.rules.look, scene)
            case MachineTerminated(termination):
                yield from _ordered(termination, scene)
                yield from _lost_again(termination, scene)
                yield from self._displaced(termination, scene)

    def _note(self, pod: SeenPod, scene: JudgedMoment) -> None:
        """Record a preempted pod with each drain that has evicted pods. Its own node's drain moves it anyway.

        Pods of a negative priority yield their room: they are meant to be preempted.
        """
        owner = scene.owner(pod) if pod.preempted and pod.spec.priority >= 0 else None
        for drain in scene.now.drains.values():
            if owner is not None and drain.evicted and drain.node != pod.spec.node_name:
                self._preempted[drain.number].add((owner, pod.spec.node_name, pod.spec.priority))

    def _displaced(self, termination: ObservedTermination, scene: JudgedMoment) -> Iterator[Violation]:
        if (drain := _drain_of(termination, scene)) is None:
            return
        known = self._preempted[drain.number]
        owners = {owner for owner, node, priority in known if _took(drain, node, priority, scene)}
        for owner in sorted(owners):
            pending = [pod.key for pod in scene.now.pods_of(owner) if not (pod.bound or pod.deleting or pod.ended)]
            if pending:
                what = f"node {drain.node} was terminated while preempted pods of {named(owner)} had no node"
                yield Violation(6, termination.at, f"{what}: {', '.join(sorted(pending)[:3])}")

    def end(self, scene: JudgedMoment) -> Iterator[Violation]:
        removed = {drain.node for drain in scene.now.all_drains if drain.removing}
        for write in ours(scene.history.writes, scene.rules):
            if write.kind == "nodes" and write.verb == "delete" and write.accepted and write.name not in removed:
                yield Violation(6, write.handled, f"node {write.name} was deleted without a removal mark")


def _drain_of(termination: ObservedTermination, scene: JudgedMoment) -> SeenDrain | None:
    """Return the drain that ended the machine. Its Node may be gone by the time at which a termination is judged."""
    return next((drain for drain in reversed(scene.now.all_drains) if drain.node == termination.node), None)


def _took(drain: SeenDrain, node: str, priority: int, scene: JudgedMoment) -> bool:
    """Return whether a pod on *node* with a higher *priority* replaces a pod that *drain* has evicted."""
    moved = {owner for number, owner in scene.ready.moved if number == drain.number}
    there = (pod for pod in scene.now.pods_on(node) if pod.spec.priority > priority)
    return any(scene.owner(pod) in moved and scene.now.created[pod.metadata.uid] > drain.number for pod in there)


def _ordered(termination: ObservedTermination, scene: JudgedMoment) -> Iterator[Violation]:
    drain = _drain_of(termination, scene)
    if drain is None or not drain.removing:
        what = f"the machine of node {termination.node} was terminated without a removal mark"
        yield Violation(6, termination.at, what)
    elif drain.ended is None:
        yield from _moved(drain, "was terminated", termination.at, termination.look(scene.rules.look), scene)


def _lost_again(termination: ObservedTermination, scene: JudgedMoment) -> Iterator[Violation]:
    """Yield a violation for each owner that the drain moved and that lacked pods at the daemon's last look."""
    drain = _drain_of(termination, scene)
    for (number, owner), moved in scene.ready.moved.items():
        since = moved.lacking_since
        if drain is None or number != drain.number or since is None:
            continue
        shortage = scene.ready.shortages.get(owner)
        if shortage is not None and shortage.drain is drain:
            continue
        if not moved.recovered or since < termination.at - seconds(termination.look(scene.rules.look)):
            again = " again" if moved.recovered else ""
            what = f"node {drain.node} was terminated while {named(owner)} lacked pods{again} since {since:%H:%M:%S}"
            yield Violation(6, termination.at, what)


def _moved(drain: SeenDrain, action: str, at: datetime, look: float, scene: JudgedMoment) -> Iterator[Violation]:
    for owner, shortage in scene.ready.shortages.items():
        if shortage.drain is drain and shortage.missing:
            missing = f"{shortage.missing} evicted pods of {named(owner)} had no Ready successor"
            yield Violation(6, at, f"node {drain.node} {action} while {missing}")
    staying = [pod.key for pod in scene.now.pods_on(drain.node) if _stays(pod, at, look, scene)]
    if staying:
        yield Violation(6, at, f"node {drain.node} {action} with pods on it: {', '.join(sorted(staying)[:3])}")


def _stays(pod: SeenPod, at: datetime, look: float, scene: JudgedMoment) -> bool:
    """Return whether *pod* was already on the node at the daemon's last check of the node."""
    if not pod.keeps_node:
        return False
    states = scene.now.states[pod.metadata.uid]
    bound = next(state.at for state in states if isinstance(state.object, SeenPod) and state.object.spec.node_name)
    return bound < at - seconds(look)
