"""Tests of budgets that allow only some of a node's pods to be evicted at a time, and of the step duration."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rescheduler.planning.outcome import Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, budget, node, pod, short, snapshot

CREATED = datetime(2026, 1, 1, 8, tzinfo=UTC)
MOVED = {"w-1": "s", "w-2": "s"}
SLOW = ["budget-too-slow"]


def taking(name: str, seconds: float | None, on: str = "s", **fields: Any) -> Manifest:
    """Return a pod of the budget that became Ready *seconds* after its creation, or never (None)."""
    ready = {"type": "Ready", "status": "True"}
    if seconds is None:
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": f"{CREATED:%Y-%m-%dT%H:%M:%SZ}"}
    else:
        ready["lastTransitionTime"] = f"{CREATED + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
    return pod(
        name,
        on,
        cpu="10m",
        created=f"{CREATED:%Y-%m-%dT%H:%M:%SZ}",
        status={"phase": "Running", "conditions": [ready]},
        **({"labels": {"app": "w"}} | fields),
    )


def here(seconds: float = 0, count: int = 2, **fields: Any) -> list[Manifest]:
    return [taking(f"w-{n}", seconds, "od", **fields) for n in range(1, count + 1)]


def policy(timeout: float, grace: float = 120, *, in_steps: bool = True) -> Policy:
    return Policy(
        budgets_in_steps=in_steps,
        pod_eviction_timeout=timeout,
        max_graceful_termination=grace,
        shorten_grace_periods=True,
    )


#: With a budget "b" for the pods "w": objects, policy → the plan, or the reasons.
CASES: dict[str, tuple[list[Manifest], Policy, Any]] = {
    "shorter than the time-out": (here(30), policy(100), MOVED),
    "as long as the time-out": (here(70), policy(100), MOVED),
    "a second longer": (here(71), policy(100), SLOW),
    "a longer grace period": (here(70, terminationGracePeriodSeconds=31), policy(100), SLOW),
    "a longer grace period that is limited": (here(70, terminationGracePeriodSeconds=3600), policy(100, 30), MOVED),
    "no grace period": (here(100, terminationGracePeriodSeconds=0), policy(100), MOVED),
    "the longest grace period of the pods here": (
        [*here(70, 1), taking("w-2", 70, "od", terminationGracePeriodSeconds=90)],
        policy(100),
        SLOW,
    ),
    "no data: half a minute": ([pod(f"w-{n}", "od") for n in (1, 2)], policy(60), MOVED),
    "no data: longer than the time-out": ([pod(f"w-{n}", "od") for n in (1, 2)], policy(59), SLOW),
    "one pod of ten is slow": (
        [*here(5), *(taking(f"o-{n}", 5) for n in range(7)), taking("x", 999)],
        policy(40),
        MOVED,
    ),
    "two of ten are": (
        [*here(5), *(taking(f"o-{n}", 5) for n in range(6)), taking("x", 999), taking("y", 999)],
        policy(40),
        SLOW,
    ),
    "pods of the budget elsewhere are slow": (
        [*here(5), *(taking(f"o-{n}", 500) for n in range(9))],
        policy(100),
        SLOW,
    ),
    "slow pods of no budget": (
        [*here(5), *(taking(f"o-{n}", 500, labels={"app": "o"}) for n in range(9))],
        policy(100),
        MOVED,
    ),
    "pods that are not Ready do not count": ([*here(5), taking("x", None), taking("y", None)], policy(35), MOVED),
    "Ready more than an hour later: no data": ([*here(5), taking("x", 3601), taking("y", 3601)], policy(40), MOVED),
    "Ready an hour later: data": ([*here(5), taking("x", 3600), taking("y", 3600)], policy(40), SLOW),
    "Ready before its creation: no data": ([*here(5), taking("x", -9), taking("y", -9)], policy(35), MOVED),
    "one pod needs one step": (here(500, 1), policy(100), {"w-1": "s"}),
    "not in steps": (here(500), policy(100, in_steps=False), ["pod-disruption-budget"]),
}


@pytest.mark.parametrize(("objects", "settings", "expected"), CASES.values(), ids=CASES)
def test_a_budget_that_allows_one_eviction_is_used_in_steps(
    objects: list[Manifest], settings: Policy, expected: Any
) -> None:
    cluster = snapshot([node("od", ON_DEMAND), node("s"), *objects, budget("b", "w", allowed=1)])
    assert short(Planner(cluster, settings).plan_node("od", CIRCUMSTANCES)) == expected


@pytest.mark.parametrize(("allowed", "expected"), [(0, ["pod-disruption-budget"] * 3), (2, SLOW), (3, None)])
def test_only_more_pods_than_are_allowed_at_once_need_steps(allowed: int, expected: Any) -> None:
    cluster = snapshot([node("od", ON_DEMAND), node("s"), *here(500, 3), budget("b", "w", allowed=allowed)])
    verdict = Planner(cluster, policy(100)).plan_node("od", CIRCUMSTANCES)
    assert (short(verdict) if isinstance(verdict, Rejected) else None) == expected


def test_steps_that_another_node_of_the_plan_needs_do_not_count() -> None:
    """Each node has one pod, and the budget allows one: the second node is drained after the first pod runs again."""
    pods = [taking("w-1", 500, "od1"), taking("w-2", 500, "od2")]
    cluster = snapshot([node("od1", ON_DEMAND), node("od2", ON_DEMAND), node("s"), *pods, budget("b", "w", allowed=1)])
    assert len(Planner(cluster, policy(100)).plan_all(CIRCUMSTANCES).plans) == 2


def test_the_detail_contains_the_times() -> None:
    cluster = snapshot([node("od", ON_DEMAND), node("s"), *here(95), budget("b", "w", allowed=1)])
    verdict = Planner(cluster, policy(120)).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    detail = (
        "PodDisruptionBudget default/b allows 1 evictions at a time, 2 of its pods are on this node, and a step "
        "takes 125 s (30 s to terminate, 95 s until the replacement pod is Ready); --pod-eviction-timeout is 120 s"
    )
    assert [(blocker.pod, blocker.detail) for blocker in verdict.blockers] == [("default/w-1", detail)]
