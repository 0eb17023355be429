"""Reports of nodes that Karpenter never removes, or not now: a drain of such a node saves nothing."""

from typing import Any

import pytest

from rescheduler.planning.rules.candidates import never_removed
from tests.field.test_plans import cluster
from tests.planning.builders import NOW, Manifest, node, snapshot

SOURCES = (
    "kubernetes-sigs/karpenter#2135, aws/karpenter-provider-aws#6579, #5898; "
    "kubernetes-sigs/karpenter: pkg/apis/v1/nodepool.go, pkg/controllers/disruption/emptiness.go"
)


def pool(name: str = "od", **disruption: Any) -> Manifest:
    return {"kind": "NodePool", "metadata": {"name": name}, "spec": {"disruption": disruption}}


def budget(nodes: str, *reasons: str, **schedule: str) -> Manifest:
    return {"nodes": nodes, **({"reasons": list(reasons)} if reasons else {}), **schedule}


def why(made: Manifest) -> str:
    """Return why the node od of the NodePool od stays at NOW, which is a Thursday at 12:00 UTC; "" if it does not."""
    spot = node("spot", labels={"karpenter.sh/nodepool": "other"})
    owned = node("od", "node-role.kubernetes.io/worker", labels={"karpenter.sh/nodepool": "od"})
    found = never_removed(snapshot([owned, spot, made]), NOW)
    assert found.keys() <= {"od"}
    return found["od"][0].detail.partition("NodePool 'od': ")[2] if found else ""


ZERO = "its disruption budget allows {} nodes"
NOW_CLOSED = "its disruption budget allows 0 nodes now (schedule '{}'); it allows some {}"

CASES: dict[str, tuple[Manifest, str]] = {
    "consolidateAfter: Never": (
        pool(consolidateAfter="Never", consolidationPolicy="WhenEmpty"),
        "consolidateAfter is Never",
    ),
    "the NodePool of other nodes": (pool("another", consolidateAfter="Never"), ""),
    "a budget of 0": (pool(budgets=[budget("0")]), ZERO.format("0")),
    "a budget of 0 %": (pool(budgets=[budget("10%"), budget("0%")]), ZERO.format("0%")),
    "a budget of 0 for empty nodes": (pool(budgets=[budget("0", "Drifted", "Empty")]), ZERO.format("0")),
    "a budget of 0 for others": (pool(budgets=[budget("0", "Drifted", "Underutilized")]), ""),
    "a budget of 0 for no reason": (pool(budgets=[{"nodes": "0", "reasons": []}]), ""),
    "a percentage is rounded up": (pool(budgets=[budget("1%")]), ""),
    "no budgets": (pool(consolidateAfter="0s"), ""),
    "a schedule that is active now": (
        pool(budgets=[budget("0", schedule="0 9 * * mon-fri", duration="8h")]),
        NOW_CLOSED.format("0 9 * * mon-fri", "at 2026-01-01T17:00:00Z"),
    ),
    "a schedule that is not active now": (pool(budgets=[budget("0", schedule="0 22 * * *", duration="8h")]), ""),
    "a schedule that ends right now": (pool(budgets=[budget("0", schedule="@daily", duration="12h")]), ""),
    "two schedules, one after the other": (
        pool(
            budgets=[
                budget("0", schedule="0 8 * * *", duration="6h0m0s"),
                budget("0", "Empty", schedule="30 13 * * *", duration="2h"),
            ]
        ),
        NOW_CLOSED.format("0 8 * * *", "at 2026-01-01T15:30:00Z"),
    ),
    "a schedule over several days": (
        pool(budgets=[budget("0", schedule="0 0 28 12 *", duration="240h")]),
        NOW_CLOSED.format("0 0 28 12 *", "at 2026-01-07T00:00:00Z"),
    ),
    "a day of the month or of the week": (
        pool(budgets=[budget("0", schedule="0 12 13 * thu", duration="1h")]),
        NOW_CLOSED.format("0 12 13 * thu", "at 2026-01-01T13:00:00Z"),
    ),
    "schedules without a gap": (
        pool(budgets=[budget("0", schedule="@hourly", duration="1h")]),
        NOW_CLOSED.format("@hourly", "not within 15 days"),
    ),
    "steps": (
        pool(budgets=[budget("0", schedule="*/30 8-18/2 ? * *", duration="20m")]),
        NOW_CLOSED.format("*/30 8-18/2 ? * *", "at 2026-01-01T12:20:00Z"),
    ),
    "a schedule that cannot be read": (
        pool(budgets=[budget("0", schedule="0 25 * * *", duration="8h")]),
        "the schedule of its disruption budget cannot be read: '25': expected numbers from 0 to 23",
    ),
}


@pytest.mark.parametrize(("made", "expected"), CASES.values(), ids=CASES)
def test_a_node_stays_if_karpenter_does_not_remove_it(made: Manifest, expected: str) -> None:
    assert SOURCES
    assert why(made) == expected


def test_without_karpenter_nothing_is_judged() -> None:
    assert never_removed(snapshot(cluster(pool(consolidateAfter="Never"))), NOW) == {}
