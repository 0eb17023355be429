"""Tests of the smallest change that would let a pod fit."""

from typing import Any

import pytest

from rescheduler.planning.placement.explain import smallest_change
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, node, pod, snapshot

TAINT = [{"key": "gpu", "effect": "NoSchedule"}]

CASES: dict[str, tuple[list[Any], dict[str, Any], str | None]] = {
    "the node that lacks least": (
        [node("s1", cpu="1"), node("s2", cpu="1700m")],
        {"cpu": "2"},
        "0.3 vCPU less requested on s2, or as much additional capacity there",
    ),
    "memory, rounded up": (
        [node("s1")],
        {"containers": [{"name": "main", "resources": {"requests": {"memory": str((17 << 30) + 1)}}}]},
        "1,025 MiB less memory requested on s1, or as much additional capacity there",
    ),
    "a taint on most nodes": (
        [node("s1", taints=TAINT), node("s2", taints=TAINT), node("s3", unschedulable=True)],
        {},
        "a toleration for the taints of s1 (the same for 1 more node)",
    ),
    "a selector": ([node("s1")], {"nodeSelector": {"disk": "ssd"}}, "a node selector or affinity that matches s1"),
    "two plugins on the only node": ([node("s1", taints=TAINT, cpu="1")], {"cpu": "2"}, None),
    "it fits alone": (
        [node("s1")],
        {},
        "it fits if it moves alone; one more spot node, or fewer pods on its node, would make room for all of them",
    ),
}


@pytest.mark.parametrize(("nodes", "fields", "expected"), CASES.values(), ids=CASES)
def test_the_smallest_change_is_described(nodes: list[Any], fields: dict[str, Any], expected: str | None) -> None:
    cluster = snapshot([node("od", ON_DEMAND), *nodes, pod("p", "od", **fields)])
    explanation = Planner(cluster, Policy()).explain(cluster.pods["default/p"], CIRCUMSTANCES)
    assert smallest_change(explanation, cluster) == expected
