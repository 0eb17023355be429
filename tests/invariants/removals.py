"""Invariant 6: a machine is terminated only when its node has no movable pods and the moved pods are Ready."""

from collections.abc import Iterator
from datetime import datetime

from tests.invariants.history import ObservedTermination, seconds
from tests.invariants.judging import JudgedMoment
from tests.invariants.moments import HistoryMoment, MachineTerminated, Wrote, ours
from tests.invariants.objects import SeenNode, SeenPod
from tests.invariants.replay import SeenDrain, named
from tests.invariants.rules import Violation


class MovedBeforeRemoval:
    """Checks the termination, which has no revision, and the mark before the termination, which has one."""

    def check(self, moment: HistoryMoment, scene: JudgedMoment) -> Iterator[Violation]:
        match moment:
            case Wrote(revision) if isinstance(revision.object, SeenNode):
                drain = scene.now.drains.get(revision.object.metadata.name)
                if drain is not None and drain.removing and drain.draining_ended == revision.number:
                    yield from _moved(drain, "was marked for removal", moment.at, scene)
            case MachineTerminated(termination):
                yield from _ordered(termination, scene)

    def end(self, scene: JudgedMoment) -> Iterator[Violation]:
        removed = {drain.node for drain in scene.now.all_drains if drain.removing}
        for write in ours(scene.history.writes, scene.rules):
            if write.kind == "nodes" and write.verb == "delete" and write.accepted and write.name not in removed:
                yield Violation(6, write.handled, f"node {write.name} was deleted without a removal mark")


def _ordered(termination: ObservedTermination, scene: JudgedMoment) -> Iterator[Violation]:
    drain = next((drain for drain in reversed(scene.now.all_drains) if drain.node == termination.node), None)
    if drain is None or not drain.removing:
        what = f"the machine of node {termination.node} was terminated without a removal mark"
        yield Violation(6, termination.at, what)
    elif drain.ended is None:
        yield from _moved(drain, "was terminated", termination.at, scene)


def _moved(drain: SeenDrain, action: str, at: datetime, scene: JudgedMoment) -> Iterator[Violation]:
    for owner, shortage in scene.ready.shortages.items():
        if shortage.drain is drain and shortage.missing:
            missing = f"{shortage.missing} evicted pods of {named(owner)} had no Ready successor"
            yield Violation(6, at, f"node {drain.node} {action} while {missing}")
    staying = [pod.key for pod in scene.now.pods_on(drain.node) if _stays(pod, at, scene)]
    if staying:
        yield Violation(6, at, f"node {drain.node} {action} with pods on it: {', '.join(sorted(staying)[:3])}")


def _stays(pod: SeenPod, at: datetime, scene: JudgedMoment) -> bool:
    """Return whether *pod* was already on the node at the daemon's last check of the node."""
    if not pod.keeps_node:
        return False
    states = scene.now.states[pod.metadata.uid]
    bound = next(state.at for state in states if isinstance(state.object, SeenPod) and state.object.spec.node_name)
    return bound < at - seconds(scene.rules.look)
