"""Forecasts before the real scheduler's plugins: each pod goes to one of the nodes that score highest."""

from copy import deepcopy

from rescheduler.planning.outcome import Plan
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances
from tests.conformance import ours
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle
from tests.conformance.plans import NOW, POLICY, TAINT
from tests.conformance.scores import scored_cluster, with_known_owners

CLUSTERS = 40


def test_every_pod_of_a_forecast_goes_where_the_scheduler_would_put_it(oracle: Oracle) -> None:
    """The first play, pod after pod; nodes that score alike are as good as one another."""
    asked, chosen = 0, 0
    for seed in range(CLUSTERS):
        given = with_known_owners(scored_cluster(seed, "plannable"))
        planner = Planner(ours.load(given), POLICY)
        for plan in planner.plan_each(Circumstances(NOW)).plans[:2]:
            for key, went, best in _steps(oracle, given, plan):
                assert went in best, f"seed {seed}: {key} of {plan.node}"
                asked += 1
                chosen += len(best) == 1
    assert asked > 100
    assert chosen > asked // 2


def _steps(oracle: Oracle, given: Json, plan: Plan) -> list[tuple[str, str, set[str]]]:
    """By pod, as they arrive: where the forecast puts it, and the scheduler's highest nodes."""
    items = deepcopy(given["items"])
    pods = {f"{one['metadata']['namespace']}/{one['metadata']['name']}": one for one in items if one["kind"] == "Pod"}
    for one in items:
        if one["kind"] == "Node" and one["metadata"]["name"] == plan.node:
            one["spec"]["taints"] = [*(one["spec"].get("taints") or ()), TAINT]
    for moved in plan.placements:
        _bind(pods[str(moved.pod)], "")
    found = []
    for step in plan.forecast:
        key = str(step.pod)
        answer = oracle.ask({"mode": "score", "snapshot": {**given, "items": items}, "pods": [key]})
        totals = answer["scores"][0]["total"]
        found.append((key, step.node, {node for node, total in totals.items() if total == max(totals.values())}))
        _bind(pods[key], step.node)
    return found


def _bind(pod: Json, node: str) -> None:
    """The pod as it is made anew, on *node*; "" while it has none."""
    pod["metadata"].pop("deletionTimestamp", None)
    pod["metadata"]["uid"] += "-again"
    pod["status"] = {"phase": "Running" if node else "Pending"}
    pod["spec"]["nodeName"] = node
