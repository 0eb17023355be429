"""Reports of nodes that Karpenter never removes, or not now: a drain of such a node saves nothing."""

from functools import partial
from typing import Any

import pytest

from rescheduler.facts.round_facts import FactsReader, Known
from rescheduler.planning.outcome import Reason
from rescheduler.planning.policy import LeaderFacts, Policy
from rescheduler.planning.rules.candidates import budgets_in_use, never_removed
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


def in_use(made: Manifest, nodes: int = 4, *, leaving: int = 0, unready: int = 0, joining: int = 0) -> str:
    """Return why a node of the NodePool od waits. Some are being removed, are not Ready, or have not been Ready yet."""
    owned = [node(f"new-{number}", labels={"karpenter.sh/nodepool": "od"}, ready="False") for number in range(joining)]
    for number in range(nodes):
        taints = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}] if number < leaving else []
        ready = "False" if leaving <= number < leaving + unready else "True"
        labels = {"karpenter.sh/nodepool": "od", "karpenter.sh/initialized": "true"}
        owned.append(node(f"od-{number}", "node-role.kubernetes.io/worker", labels=labels, taints=taints, ready=ready))
    other = node("other", labels={"karpenter.sh/nodepool": "other"}, ready="False")
    found = budgets_in_use(snapshot([*owned, other, made]), NOW)
    assert found.keys() in (set(), {f"od-{number}" for number in range(nodes)})
    return found["od-0"][0].detail if found else ""


BUDGETS: dict[str, tuple[Manifest, dict[str, int], str]] = {
    "as many as are allowed": (pool(budgets=[budget("2")]), {"leaving": 2}, "2 nodes at a time, and 2 are"),
    "those that are not Ready count": (pool(budgets=[budget("2")]), {"leaving": 1, "unready": 1}, "and 2 are"),
    "fewer than are allowed": (pool(budgets=[budget("2")]), {"leaving": 1}, ""),
    "those that join do not count": (pool(budgets=[budget("50%")]), {"leaving": 1, "joining": 4}, ""),
    "nor for the share": (pool(budgets=[budget("50%")]), {"leaving": 2, "joining": 4}, "2 nodes at a time, and 2 are"),
    "a number that is far too long": (pool(budgets=[budget("1" * 5000)]), {"leaving": 1}, ""),
    "a number with zeros": (pool(budgets=[budget("0" * 5000 + "1")]), {"leaving": 1}, "1 node at a time"),
    "a long 0": (pool(budgets=[budget("0" * 5000)]), {"leaving": 1}, ""),
    "a percent sign alone": (pool(budgets=[budget("%")]), {"leaving": 1}, ""),
    "none is disrupted": (pool(budgets=[budget("1")]), {}, ""),
    "a percentage is rounded up": (pool(budgets=[budget("30%")]), {"leaving": 2}, "2 nodes at a time, and 2 are"),
    "a percentage that allows more": (pool(budgets=[budget("30%")]), {"leaving": 1}, ""),
    "the smallest of several": (
        pool(budgets=[budget("3"), budget("1")]),
        {"leaving": 1},
        "1 node at a time, and 1 are",
    ),
    "a budget for other reasons": (pool(budgets=[budget("1", "Drifted")]), {"leaving": 1}, ""),
    "a budget that is not active": (
        pool(budgets=[budget("1", schedule="0 22 * * *", duration="8h")]),
        {"leaving": 1},
        "",
    ),
    "a budget that is active": (
        pool(budgets=[budget("1", schedule="0 9 * * *", duration="8h")]),
        {"leaving": 1},
        "1 node at a time, and 1 are",
    ),
    "a budget of 0 limits only Karpenter": (pool(budgets=[budget("0")]), {"leaving": 1}, ""),
    "a budget of 0 beside another": (pool(budgets=[budget("0"), budget("1")]), {"leaving": 1}, "1 node at a time"),
    "a schedule that cannot be read": (
        pool(budgets=[budget("1", schedule="0 25 * * *", duration="8h")]),
        {"leaving": 1},
        "",
    ),
    "a number that cannot be read": (pool(budgets=[budget("some")]), {"leaving": 1}, ""),
    "no budgets": (pool(), {"leaving": 4}, ""),
}


@pytest.mark.parametrize(("made", "state", "expected"), BUDGETS.values(), ids=BUDGETS)
def test_a_node_waits_while_a_budget_of_its_node_pool_is_in_use(
    made: Manifest, state: dict[str, int], expected: str
) -> None:
    found = in_use(made, **state)
    assert expected in found
    assert bool(found) == bool(expected)


@pytest.mark.parametrize("ends", [False, True])
def test_with_a_provider_a_budget_of_0_does_not_keep_a_node_and_one_in_use_does(ends: bool) -> None:
    known = Known(leader=LeaderFacts(ends_machines=ends))
    of = partial(node, role="node-role.kubernetes.io/worker")
    busy = {"karpenter.sh/nodepool": "busy", "karpenter.sh/initialized": "true"}
    here = snapshot(
        [
            of("never", labels={"karpenter.sh/nodepool": "od"}),
            of("busy", labels=busy),
            of("gone", taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}], labels=busy),
            pool(consolidateAfter="Never"),
            pool("busy", budgets=[budget("1")]),
        ]
    )
    vetoes = FactsReader(Policy()).facts(here, known, NOW).circumstances.vetoes
    reasons = {name: blocker.reason for name, [blocker] in vetoes.items()}
    in_use = {"busy": Reason.DISRUPTION_BUDGET, "gone": Reason.DISRUPTION_BUDGET}
    assert reasons == (in_use if ends else {"never": Reason.NEVER_REMOVED})
