"""Further failures that were reported in public: the verdict on a node, and its source."""

from typing import Any

import pytest

from rescheduler.planning.planner import Planner
from tests.field.test_plans import ON_DELETE, PLAN, Case, cluster, db_pod, job_pod, stateful
from tests.planning.builders import CIRCUMSTANCES, pod, short, snapshot

GRACE = "rabbitmq/cluster-operator#419, kubernetes/autoscaler#147, kubernetes/kubernetes#94435"


def grace(seconds: int) -> dict[str, Any]:
    return {"terminationGracePeriodSeconds": seconds}


CASES: dict[str, Case] = {
    **{
        f"a grace period of {seconds} s, of a {owner}": Case(
            cluster(pod("a-0", "od", owner=owner, **grace(seconds))), ["grace-period"], GRACE
        )
        for seconds, owner in (
            (604800, "apps/v1/StatefulSet"),
            (3600, "apps/v1/ReplicaSet"),
            (1800, "core.strimzi.io/v1/StrimziPodSet"),
        )
    },
    "a grace period of two minutes": Case(cluster(pod("a-1", "od", **grace(120))), {"a-1": "s-1"}, GRACE),
    "a long grace period of a DaemonSet's pod": Case(
        cluster(pod("a-1", "od", owner="apps/v1/DaemonSet", **grace(3600))), {}, GRACE
    ),
    "a long grace period of the new template only": Case(
        cluster(db_pod("db-0"), stateful(**ON_DELETE, **grace(3600))), {"db-0": "s-1"}, GRACE
    ),
    "a long grace period of the running pod only": Case(
        cluster(db_pod("db-0", **grace(3600)), stateful(**ON_DELETE)), ["grace-period"], GRACE
    ),
    "a long grace period of one of two pods": Case(
        cluster(pod("a-1", "od"), pod("b-1", "od", **grace(600))), ["grace-period"], GRACE
    ),
    "a long grace period of a pod that is already being deleted": Case(
        cluster(pod("a-1", "od", deleted=True, **grace(3600))), ["pod-terminating"], GRACE
    ),
    "a long grace period of a Job's pod": Case(
        cluster(job_pod("j-1", restartPolicy="OnFailure", **grace(3600))), ["grace-period"], GRACE
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_verdict_is_the_right_one(case: Case) -> None:
    planner = Planner(snapshot(case.objects), PLAN)
    assert short(planner.plan_node("od", CIRCUMSTANCES)) == case.right
    [found] = [each for each in planner.plan_all(CIRCUMSTANCES).verdicts if each.node == "od"]
    assert short(found) == case.right, "all nodes in sequence"
