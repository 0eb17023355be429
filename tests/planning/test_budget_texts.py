"""Tests of budgets that never allow an eviction, and of the texts that say why and whom to ask."""

from typing import Any, Final

import pytest

from rescheduler.planning.outcome import Plan, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.what_if.changes import BudgetChange, changed
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, budget, node, pod, snapshot

FAILED: Final = [
    {
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "SyncFailed",
        "message": 'found no controllers for pod "a"',
    }
]
ZERO: Final[dict[str, Any]] = {"allowed": 0, "healthy": 0, "desired": 0, "conditions": FAILED}
ONE_OF_ONE: Final[dict[str, Any]] = {"allowed": 0, "expected": 1, "minAvailable": 1}
CAN_NEVER: Final = "PodDisruptionBudget default/b can never allow an eviction: "


def owned(api_version: str, kind: str, name: str = "db") -> dict[str, Any]:
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": True}
    return {"meta": {"ownerReferences": [reference]}}


TEXTS: dict[str, tuple[dict[str, Any], str]] = {
    "it requires the only pod": (ONE_OF_ONE, f"{CAN_NEVER}minAvailable 1 requires 1 of 1 pods"),
    "it requires all pods": (
        {"allowed": 0, "expected": 3, "desired": 3, "maxUnavailable": 0},
        f"{CAN_NEVER}maxUnavailable 0 requires 3 of 3 pods",
    ),
    "it requires more pods than there are": (
        {"allowed": 0, "expected": 2, "desired": 3, "minAvailable": 3},
        f"{CAN_NEVER}minAvailable 3 requires 3 of 2 pods",
    ),
    "a pod is missing, so waiting may help": (
        {"allowed": 0, "expected": 3, "desired": 2, "healthy": 2, "minAvailable": 2},
        "PodDisruptionBudget default/b allows 0 evictions now, one of its pods is on this node",
    ),
    "its controller has no scale": (
        ZERO | {"maxUnavailable": "50%"},
        (
            "PodDisruptionBudget default/b allows no eviction, and waiting does not help: the disruption controller "
            'cannot compute it (SyncFailed: found no controllers for pod "a"); an integer minAvailable works without it'
        ),
    ),
    "another failure of the disruption controller": (
        ZERO | {"minAvailable": 1},
        (
            "PodDisruptionBudget default/b allows no eviction: the disruption controller cannot "
            'compute it (SyncFailed: found no controllers for pod "a")'
        ),
    ),
    "CloudNativePG restores it": (
        ONE_OF_ONE | owned("postgresql.cnpg.io/v1", "Cluster"),
        (
            f"{CAN_NEVER}minAvailable 1 requires 1 of 1 pods; CloudNativePG manages it: change spec.enablePDB: false "
            "of Cluster db"
        ),
    ),
    "Zalando's operator restores it": (
        ONE_OF_ONE | {"meta": {"labels": {"application": "spilo", "cluster-name": "db"}}},
        (
            f"{CAN_NEVER}minAvailable 1 requires 1 of 1 pods; Zalando's Postgres operator manages it: change "
            "enable_pod_disruption_budget"
        ),
    ),
    "Strimzi restores it": (
        ONE_OF_ONE | owned("kafka.strimzi.io/v1beta2", "Kafka"),
        (
            f"{CAN_NEVER}minAvailable 1 requires 1 of 1 pods; Strimzi manages it: change "
            "template.podDisruptionBudget.maxUnavailable of Kafka db"
        ),
    ),
    "an operator that is not known may restore it": (
        ONE_OF_ONE | owned("example.com/v1", "Database"),
        (
            f"{CAN_NEVER}minAvailable 1 requires 1 of 1 pods; it belongs to Database db, whose operator may restore it "
            "after an edit"
        ),
    ),
    "Helm created it": (
        ONE_OF_ONE | {"meta": {"annotations": {"meta.helm.sh/release-name": "web"}}},
        f"{CAN_NEVER}minAvailable 1 requires 1 of 1 pods; it belongs to the Helm release web",
    ),
}


def cluster(fields: dict[str, Any]) -> list[Manifest]:
    return [node("od", ON_DEMAND), node("s"), pod("a", "od"), budget("b", "a", **fields)]


@pytest.mark.parametrize(("fields", "text"), TEXTS.values(), ids=TEXTS)
def test_a_budget_is_reported_with_the_change_that_helps(fields: dict[str, Any], text: str) -> None:
    [verdict] = Planner(snapshot(cluster(fields)), Policy()).plan_all(CIRCUMSTANCES).verdicts
    assert isinstance(verdict, Rejected)
    assert [blocker.detail for blocker in verdict.blockers] == [text]


@pytest.mark.parametrize(
    ("field", "value", "drainable"),
    [
        ("minAvailable", 0, True),
        ("minAvailable", 1, False),
        ("minAvailable", "0%", False),
        ("maxUnavailable", 1, False),
        ("maxUnavailable", "100%", False),
    ],
)
def test_only_an_integer_min_available_helps_if_the_pods_cannot_be_counted(
    field: str, value: int | str, *, drainable: bool
) -> None:
    before = snapshot(cluster(ZERO | {"maxUnavailable": "50%"}))
    after, policy = changed(before, Policy(), [BudgetChange("default/b", field, value)])
    [verdict] = Planner(after, policy).plan_all(CIRCUMSTANCES).verdicts
    assert isinstance(verdict, Plan) is drainable
