"""Invariants 11 and 12: no machine is ordered while pods that left its node are owed, or about to lose their place.

Whichever drain moved them, pods are owed until their owner has had as many Ready pods again, or wants no more. Those
that the last drain moved must stay: they have been Ready for some seconds when the machine is ordered. And if a node
with moved pods has a notice, another node must take pods; whether it has room for them is not visible from outside.
"""

from collections.abc import Iterator
from typing import Final

from tests.invariants.history import ObservedTermination, seconds
from tests.invariants.judging import JudgedMoment
from tests.invariants.moments import HistoryMoment, MachineTerminated
from tests.invariants.objects import SeenNode, SeenPod
from tests.invariants.replay import OwnerKey, SeenDrain, named
from tests.invariants.rules import Violation

#: Prefixes of the taints of a node that its cloud or an autoscaler will take.
_NOTICES: Final = (
    "aws-node-termination-handler/",
    "aks-node-termination-handler/",
    "cloud.google.com/impending-node-termination",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
)


class NothingOwed:
    """Invariant 11."""

    def check(self, moment: HistoryMoment, scene: JudgedMoment) -> Iterator[Violation]:
        if isinstance(moment, MachineTerminated):
            drains = [drain for drain in scene.now.all_drains if drain.node == moment.termination.node]
            for drain in drains:
                yield from _unpaid(drain, moment.termination, scene)
            yield from _unsettled(drains[-1], moment.termination, scene) if drains else ()

    def end(self, _: JudgedMoment) -> Iterator[Violation]:
        return iter(())


def _unpaid(drain: SeenDrain, termination: ObservedTermination, scene: JudgedMoment) -> Iterator[Violation]:
    for (number, owner), moved in sorted(scene.ready.moved.items()):
        since = moved.lacking_since
        if number != drain.number or moved.recovered or since is None:
            continue
        if since < termination.at - seconds(termination.look(scene.rules.look)):
            what = f"the machine of node {drain.node} ended while {named(owner)} lacked pods since {since:%H:%M:%S}"
            yield Violation(11, termination.at, f"{what}, which a drain at {drain.began:%H:%M:%S} moved")


def _unsettled(drain: SeenDrain, termination: ObservedTermination, scene: JudgedMoment) -> Iterator[Violation]:
    """Report owners without enough pods that had been Ready for a while at the daemon's last look.

    Pods that were lost after that look count.
    """
    latest = termination.at - seconds(scene.rules.staying)

    def stays(pod: SeenPod) -> bool:
        states = scene.now.recent(pod.metadata.uid, termination.at, termination.look(scene.rules.look))
        ready = (state.ready_since for state in (pod, *states) if isinstance(state, SeenPod))
        return any(since is not None and since <= latest for since in ready)

    for (number, owner), moved in sorted(scene.ready.moved.items()) if scene.rules.staying else ():
        if number != drain.number:
            continue
        lost = sum(map(stays, scene.now.lost(owner, termination.at - seconds(termination.look(scene.rules.look)))))
        if scene.ready.lacks(owner, moved, scene.now, stays, lost):
            what = f"the machine of node {drain.node} ended before pods of {named(owner)} were Ready for long"
            yield Violation(11, termination.at, what)


class NoPlaceAtRisk:
    """Invariant 12."""

    def check(self, moment: HistoryMoment, scene: JudgedMoment) -> Iterator[Violation]:
        if isinstance(moment, MachineTerminated):
            yield from _at_risk(moment.termination, scene)

    def end(self, _: JudgedMoment) -> Iterator[Violation]:
        return iter(())


def _at_risk(termination: ObservedTermination, scene: JudgedMoment) -> Iterator[Violation]:
    numbers = {drain.number for drain in scene.now.all_drains if drain.node == termination.node}
    going = {name for name, node in scene.now.nodes.items() if _has_notice(node, termination, scene)}
    left = {name for name, node in scene.now.nodes.items() if node.takes_pods} - going - {termination.node}
    for number, owner in sorted(scene.ready.moved):
        if number in numbers and not left and (places := _places(owner, scene) & going):
            what = f"the machine of node {termination.node} ended while node {min(places)} with pods of {named(owner)}"
            yield Violation(12, termination.at, f"{what} had its notice, and no other node took pods")


def _places(owner: OwnerKey, scene: JudgedMoment) -> set[str]:
    return {pod.spec.node_name for pod in scene.now.pods_of(owner) if pod.ready}


def _has_notice(node: SeenNode, termination: ObservedTermination, scene: JudgedMoment) -> bool:
    """Return whether *node* had a notice at the daemon's last look already."""
    states = [node, *scene.now.recent(node.metadata.uid, termination.at, termination.look(scene.rules.look))]
    taints = [{taint.key for taint in state.spec.taints} for state in states if isinstance(state, SeenNode)]
    return all(any(key.startswith(_NOTICES) for key in keys) for keys in taints)
