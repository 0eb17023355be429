"""The rehearsal of another scheduler: the pods and nodes whose verdict it changes, and why."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from predicates.objects import PodClass
from predicates.scheduler import Scheduler
from predicates.snapshot import Snapshot
from rescheduler.planning.explain import Explanation
from rescheduler.planning.outcome import Blocker, Planning, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.what_if.changes import copied


@dataclass(frozen=True, slots=True)
class ChangedNode:
    """An on-demand node that drains under one of the two schedulers only."""

    node: str
    drains: bool  #: under the other scheduler
    why: tuple[Blocker, ...]  #: why it stays under the one where it does not drain


@dataclass(frozen=True, slots=True)
class ChangedPod:
    """A pod on an on-demand node that other spot nodes accept under the other scheduler."""

    pod: str
    node: str
    #: The spot nodes that accept it today and not under the other scheduler, with the plugin's reasons.
    rejected: Mapping[str, str]
    accepted: Mapping[str, str]  #: those that reject it today, with today's reasons, and accept it then


def changed_nodes(before: Planning, after: Planning) -> list[ChangedNode]:
    """Return the nodes that only one of two plans drains, in the order of the second one."""
    earlier = {verdict.node: verdict for verdict in before.verdicts}
    changes = []
    for verdict in after.verdicts:
        other = earlier.get(verdict.node)
        if isinstance(verdict, Rejected) is isinstance(other, Rejected) or other is None:
            continue
        stays = verdict if isinstance(verdict, Rejected) else other
        assert isinstance(stays, Rejected)
        changes.append(ChangedNode(verdict.node, stays is other, stays.blockers))
    return changes


def changed_pods(
    snapshot: Snapshot, policy: Policy, circumstances: Circumstances, scheduler: Scheduler
) -> list[ChangedPod]:
    """Return the pods that would have to move whose possible spot nodes differ under *scheduler*.

    Each pod is judged as if it alone were evicted now. Pods of the same class on the same node are judged once.
    """
    other = copied(snapshot)
    other.use(scheduler)
    here, there = Planner(snapshot, policy), Planner(other, policy)
    judged: dict[tuple[str, PodClass], tuple[Mapping[str, str], Mapping[str, str]]] = {}
    changes = []
    for node in here.on_demand(circumstances):
        for pod in here.must_move(node, circumstances):
            if (found := judged.get((node, pod.cls))) is None:
                now, then = here.explain(pod, circumstances), there.explain(pod, circumstances)
                found = judged[node, pod.cls] = _refused(then, now), _refused(now, then)
            if any(found):
                changes.append(ChangedPod(pod.key, node, *found))
    return changes


def _refused(by: Explanation, unlike: Explanation) -> dict[str, str]:
    """Return the nodes that reject the pod in *by* but not in *unlike*, with the reasons."""
    accepting = frozenset(unlike.feasible)
    return {
        node: "; ".join(f"{plugin}: {', '.join(reasons)}" for plugin, reasons in refusals)
        for node, refusals in _refusals(by)
        if node in accepting
    }


def _refusals(explanation: Explanation) -> Iterator[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]]:
    for nodes, refusals in explanation.rejecting():
        for node in nodes:
            yield node, refusals
