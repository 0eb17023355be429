"""Forecasts agree with the real scheduler: each pod is placed on one of the nodes with the highest score."""

from copy import deepcopy

from predicates.filters import Filters
from predicates.snapshot import Snapshot
from rescheduler.planning.outcome import Plan
from rescheduler.planning.placement.forecast import may_return
from rescheduler.planning.placement.in_steps import eviction_steps, order_matters
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances
from tests.conformance import ours
from tests.conformance.generate.admission import adds_labels, bind_again, own_labels
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle
from tests.conformance.plans import NOW, POLICY, TAINT
from tests.conformance.scores import scored_cluster, with_known_owners

CLUSTERS = 40


def test_forecast_places_each_pod_as_the_scheduler_would(oracle: Oracle) -> None:
    """Compare the first simulation pod by pod; any of several nodes with equal scores is accepted."""
    compared, unique = 0, 0
    for seed in range(CLUSTERS):
        given = without_pending(with_known_owners(scored_cluster(seed, "plannable")))
        table = ours.load(given, oracle.scheduler)
        planner = Planner(table, POLICY)
        for plan in planner.plan_each(Circumstances(NOW)).plans[:2]:
            for key, node, best in _steps(oracle, given, plan, _evicted_together(table, plan)):
                assert node in best, f"seed {seed}: {key} of {plan.node}"
                compared += 1
                unique += len(best) == 1
    assert compared > 100
    assert unique > compared // 2


def without_pending(given: Json) -> Json:
    """Return the cluster without pending pods: forecasts give them their room, and the scores of one pod do not."""
    items = (item for item in given["items"] if item["kind"] != "Pod" or item["spec"].get("nodeName"))
    return {**given, "items": list(items)}


def _evicted_together(table: Snapshot, plan: Plan) -> list[tuple[str, ...]]:
    """Return the keys of the pods in each step of the drain; all in one step if the order does not matter."""
    pods = [table.pods[str(moved.pod)] for moved in plan.placements]
    if plan.one_by_one:
        return [(pod.key,) for pod in pods]
    filters = Filters(table)
    steps = eviction_steps(pods) if may_return(pods, filters) or order_matters(pods, filters) else [tuple(pods)]
    return [tuple(pod.key for pod in step) for step in steps]


def _steps(
    oracle: Oracle, snapshot: Json, plan: Plan, evicted_together: list[tuple[str, ...]]
) -> list[tuple[str, str, set[str]]]:
    """Return for each pod, in order, the node of the forecast and the nodes with the highest score."""
    items = deepcopy(snapshot["items"])
    pods = {
        f"{item['metadata']['namespace']}/{item['metadata']['name']}": item for item in items if item["kind"] == "Pod"
    }
    for item in items:
        if item["kind"] == "Node" and item["metadata"]["name"] == plan.node:
            item["spec"]["taints"] = [*(item["spec"].get("taints") or ()), TAINT]
    waiting, evicted = iter(evicted_together), set[str]()
    nodes = {item["metadata"]["name"]: item for item in items if item["kind"] == "Node"}
    labels_added = adds_labels(snapshot["items"])
    result = []
    for step in plan.forecast:
        key = str(step.pod)
        while key not in evicted:
            together = next(waiting)
            evicted.update(together)
            for evicted_key in together:
                _create_again(pods[evicted_key])
        response = oracle.ask({"mode": "score", "snapshot": {**snapshot, "items": items}, "pods": [key]})
        totals = response["scores"][0]["total"]
        result.append((key, step.node, {node for node, total in totals.items() if total == max(totals.values())}))
        bind_again(pods[key], nodes[step.node], labels_added=labels_added)
        pods[key]["status"] = {"phase": "Running"}
    return result


def _create_again(pod: Json) -> None:
    """Change the pod as if it was evicted, and its controller has created it again."""
    pod["metadata"].pop("deletionTimestamp", None)
    pod["metadata"]["uid"] += "-again"
    pod["metadata"]["labels"] = own_labels(pod["metadata"].get("labels") or {})
    pod["status"] = {"phase": "Pending"}
    pod["spec"]["nodeName"] = ""
