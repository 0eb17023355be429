"""Tests of PodDisruptionBudgets in plans."""

from typing import Any

import pytest

from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, budget, node, pod, short, snapshot, summary

UNREADY: dict[str, Any] = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
ONE_POD = [pod("w-1", "od", labels={"app": "w"})]
TWO_PODS = [*ONE_POD, pod("w-2", "od", labels={"app": "w"})]
MOVED = {"w-1": "s"}
BOTH = {"w-1": "s", "w-2": "s"}

CASES: dict[str, tuple[list[Any], list[Any], Policy, Any]] = {
    "none allowed": (ONE_POD, [budget("b", "w", allowed=0)], Policy(), ["pod-disruption-budget"]),
    "one allowed, one pod on the node": (ONE_POD, [budget("b", "w", allowed=1)], Policy(), MOVED),
    "one allowed, two pods on the node": (TWO_PODS, [budget("b", "w", allowed=1)], Policy(), ["pod-disruption-budget"]),
    "one allowed, two pods on the node, in steps": (
        TWO_PODS,
        [budget("b", "w", allowed=1)],
        Policy(budgets_in_steps=True),
        BOTH,
    ),
    "none allowed, in steps": (
        ONE_POD,
        [budget("b", "w", allowed=0)],
        Policy(budgets_in_steps=True),
        ["pod-disruption-budget"],
    ),
    "another namespace": (ONE_POD, [budget("b", "w", allowed=0, namespace="other")], Policy(), MOVED),
    "another app": (ONE_POD, [budget("b", "x", allowed=0)], Policy(), MOVED),
    "a selector of a label that the API server adds to bound pods": (
        [pod("w-1", "od", labels={"app": "w", "topology.kubernetes.io/zone": "a"})],
        [budget("b", "", allowed=0, selector={"matchLabels": {"topology.kubernetes.io/zone": "a"}})],
        Policy(),
        ["pod-disruption-budget"],
    ),
    "two budgets": (ONE_POD, [budget("b", "w", allowed=5), budget("c", "w", allowed=5)], Policy(), ["several-budgets"]),
    "an unready pod while enough are healthy": (
        [pod("w-1", "od", labels={"app": "w"}, **UNREADY)],
        [budget("b", "w", allowed=0, healthy=2, desired=2)],
        Policy(),
        MOVED,
    ),
    "an unready pod while too few are healthy": (
        [pod("w-1", "od", labels={"app": "w"}, **UNREADY)],
        [budget("b", "w", allowed=0, healthy=1, desired=2)],
        Policy(),
        ["pod-disruption-budget"],
    ),
    "an unready pod that may always be evicted": (
        [pod("w-1", "od", labels={"app": "w"}, **UNREADY)],
        [budget("b", "w", allowed=0, healthy=1, desired=2, policy="AlwaysAllow")],
        Policy(),
        MOVED,
    ),
    "a pod that never ran": (
        [pod("w-1", "od", labels={"app": "w"}, status={"phase": "Pending"})],
        [budget("b", "w", allowed=0)],
        Policy(),
        MOVED,
    ),
}


@pytest.mark.parametrize(("pods", "budgets", "policy", "expected"), CASES.values(), ids=CASES)
def test_a_node_is_drained_only_if_its_budgets_allow_it(
    pods: list[Any], budgets: list[Any], policy: Policy, expected: Any
) -> None:
    cluster = snapshot([node("od", ON_DEMAND), node("s"), *pods, *budgets])
    assert short(Planner(cluster, policy).plan_node("od", CIRCUMSTANCES)) == expected


def test_evictions_for_one_node_are_not_available_for_the_next() -> None:
    pods = [pod("w-1", "od1", labels={"app": "w"}), pod("w-2", "od2", labels={"app": "w"})]
    cluster = snapshot([node("od1", ON_DEMAND), node("od2", ON_DEMAND), node("s"), *pods, budget("b", "w", allowed=1)])
    planner = Planner(cluster, Policy())
    assert summary(planner.plan_each(CIRCUMSTANCES)) == {"od1": {"w-1": "s"}, "od2": {"w-2": "s"}}
    assert summary(planner.plan_all(CIRCUMSTANCES)) == {"od1": {"w-1": "s"}, "od2": ["pod-disruption-budget"]}
