"""The daemon without one of its safeguards: ``python -m tests.invariants.broken NAME run …``.

Only for tests of the watchdog, which has to detect the loss of each safeguard.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from rescheduler import cli
from rescheduler.cloudpool.client import CloudPoolClient
from rescheduler.draining import evicting, removing, stepping, transitions
from rescheduler.draining.actions import Action, LookAgain, PlanAgain
from rescheduler.draining.events import EvictionAccepted, Looked, NodeSeen, PlannedAgain
from rescheduler.draining.state import Drain, Phase, Result
from rescheduler.execution import landings, machine_orders, running_pods
from rescheduler.execution.context import ActionResult
from rescheduler.execution.drain_execution import DrainExecution
from rescheduler.execution.observation import FreshPlanning, Observation
from rescheduler.facts import round_facts
from rescheduler.kube import cluster
from rescheduler.kube.cluster import KubeCluster, NodeEdit
from rescheduler.kube.elector import Elector
from rescheduler.planning import debts, last_look, movements, planning_round
from rescheduler.planning.outcome import Verdict
from rescheduler.planning.placement.pending import PendingRoom
from rescheduler.planning.rules import pod_rules
from rescheduler.planning.rules.minimum import Minimum


def without_waves() -> None:
    """Evict all pods at once."""
    _patch(evicting, "next_step", lambda drain: drain.waiting)
    _patch(stepping, "_paced", lambda _, pods: tuple(pods))


def without_landing() -> None:
    """Ignore owed replacement pods: a drain is complete when the evicted pods are gone."""
    _patch(evicting, "follow", lambda drain, _: replace(drain, debts={}, timers={}))


def without_debts() -> None:
    """Start drains although replacement pods of earlier drains are owed."""
    _patch(landings.Landings, "settle", lambda _: None)


def without_targets() -> None:
    """Do not check whether the target nodes of the plan are still usable."""
    _patch(round_facts.RoundFacts, "lost", lambda *_: "")
    _patch(round_facts.RoundFacts, "going", lambda *_: "")
    plans: list[Verdict] = []
    start = DrainExecution._dispatch

    def started(execution: DrainExecution, action: Action) -> None:
        if isinstance(action, PlanAgain) and plans:
            execution._results.put(ActionResult(PlannedAgain(plans[-1])))
        else:
            start(execution, action)

    planned = FreshPlanning._planned

    def kept(planning: FreshPlanning, reading: Any, drain: Drain) -> Any:
        event = planned(planning, reading, drain)
        if isinstance(event, Looked):
            plans.append(event.verdict)
        return event

    _patch(DrainExecution, "_dispatch", started)
    _patch(FreshPlanning, "_planned", kept)


def without_minimum() -> None:
    """Ignore --min-on-demand-nodes."""
    _patch(Minimum, "blocker", lambda *_, **__: None)


def without_leadership() -> None:
    """Let every replica act as the leader."""
    _patch(Elector, "leading", property(lambda _: True))
    _patch(Elector, "seconds_left", lambda _: 10.0)


def without_release() -> None:
    """Do not remove the taint at the end of a drain."""
    edit = KubeCluster.edit_node

    def kept(cluster: KubeCluster, name: str, uid: str, wanted: NodeEdit) -> None:
        edit(cluster, name, uid, replace(wanted, untaint=()))

    _patch(KubeCluster, "edit_node", kept)


def without_opt_outs() -> None:
    """Ignore `safe-to-evict: "false"`."""
    kept = tuple(rule for rule in pod_rules.RULES if rule is not pod_rules._not_safe_to_evict)
    _patch(planning_round, "RULES", kept)


def without_move_limit() -> None:
    """Ignore the limit of moves per pod."""
    _patch(movements, "_too_often", lambda *_: "")


def without_decrement() -> None:
    """Terminate machines without decrementing the desired size, so that the pool replaces them."""
    terminate = CloudPoolClient.terminate

    def kept(client: CloudPoolClient, machine: str, *, decrement: bool, deadline: float) -> None:
        terminate(client, machine, decrement=False, deadline=deadline)

    _patch(CloudPoolClient, "terminate", kept)


def without_taint() -> None:
    """Mark nodes only with the annotation, so that the scheduler still binds pods to these nodes."""
    edit = KubeCluster.edit_node

    def untainted(cluster: KubeCluster, name: str, uid: str, wanted: NodeEdit) -> None:
        edit(cluster, name, uid, replace(wanted, taint=()))

    _patch(KubeCluster, "edit_node", untainted)
    _patch(round_facts.RoundFacts, "is_ours", lambda *_: True)


def without_dry_runs() -> None:
    """Send dry runs of evictions as real evictions."""
    body = cluster.body

    def real(*arguments: Any, dry_run: bool) -> dict[str, Any]:
        return body(*arguments, dry_run=False)

    _patch(cluster, "body", real)
    _patch(cluster, "query", lambda **_: {})


def without_evictions() -> None:
    """Delete pods instead of evicting them, which bypasses disruption budgets."""

    def delete(
        cluster: KubeCluster,
        namespace: str,
        name: str,
        uid: str,
        grace_seconds: int | None = None,
        *,
        dry_run: bool = False,
    ) -> EvictionAccepted:
        if not dry_run:
            path = f"/api/v1/namespaces/{namespace}/pods/{name}"
            cluster._client.request(f"delete pod {name}", "DELETE", path, body={"preconditions": {"uid": uid}})
        return EvictionAccepted(uid)

    _patch(KubeCluster, "evict", delete)


def without_last_look() -> None:
    """Terminate the machine as soon as the moved pods run, without the last check of the node."""
    landed = evicting._landed

    def ordered(drain: Drain, now: float) -> Result:
        drain, actions = landed(drain, now)
        return (
            removing.emptied(drain, now) if any(isinstance(each, LookAgain) for each in actions) else (drain, actions)
        )

    _patch(evicting, "_landed", ordered)
    # Otherwise the table of transitions would raise: no machine is terminated in this phase.
    rules = transitions.TABLE[Phase.EVICTING]
    permitted = replace(rules[NodeSeen], next=rules[NodeSeen].next | {Phase.ORDERING})
    _patch(transitions, "TABLE", {**transitions.TABLE, Phase.EVICTING: {**rules, NodeSeen: permitted}})


def without_patience() -> None:
    """Treat all debts as young, so that each one keeps all nodes from being drained until it is paid."""
    _patch(landings.Landings, "_age", lambda *_: timedelta())


def without_second_look() -> None:
    """Pay debts for good: pods that are lost again before the machine is ordered away do not matter."""
    _patch(last_look, "_owed", lambda *_: None)


def without_ledger() -> None:
    """Forget what a drain owes when it has ended: the next drain of its node ends the machine."""
    _patch(round_facts, "blockers_by_node", lambda *_: {})
    terms = running_pods.RunningPods.order_terms

    def nothing_owed(pods: running_pods.RunningPods, *arguments: Any) -> last_look.OrderTerms:
        return replace(terms(pods, *arguments), debts=())

    _patch(running_pods.RunningPods, "order_terms", nothing_owed)


def without_staying() -> None:
    """Count pods as running as soon as they are Ready."""
    _patch(debts, "STAYING", timedelta())


def without_notices() -> None:
    """Ignore that the nodes of moved pods are about to go."""
    _patch(last_look, "why_at_risk", lambda *_: "")
    _patch(machine_orders, "why_at_risk", lambda *_: "")
    _patch(round_facts.RoundFacts, "going", lambda *_: "")


def without_rest() -> None:
    """Forget which leftovers have moved."""
    _patch(movements.LeftoverMoves, "resting", lambda *_: {})


def without_preemption() -> None:
    """Ignore the pods that replacement pods preempt, and pending pods that only the drained node accepts."""
    _patch(Observation, "_preemption", lambda *_: None)
    _patch(PendingRoom, "blockers", lambda *_: ())


SAFEGUARDS: Final[Mapping[str, Callable[[], None]]] = {
    "waves": without_waves,
    "landing": without_landing,
    "debts": without_debts,
    "targets": without_targets,
    "minimum": without_minimum,
    "leadership": without_leadership,
    "release": without_release,
    "opt-outs": without_opt_outs,
    "move limit": without_move_limit,
    "decrement": without_decrement,
    "taint": without_taint,
    "dry runs": without_dry_runs,
    "evictions": without_evictions,
    "last look": without_last_look,
    "patience": without_patience,
    "second look": without_second_look,
    "preemption": without_preemption,
    "ledger": without_ledger,
    "staying": without_staying,
    "notices": without_notices,
    "rest": without_rest,
}


def _patch(owner: Any, name: str, value: object) -> None:
    assert hasattr(owner, name), f"{owner} has no {name}: the safeguard is implemented elsewhere now"
    setattr(owner, name, value)


if __name__ == "__main__":
    SAFEGUARDS[sys.argv.pop(1)]()
    cli.main()
