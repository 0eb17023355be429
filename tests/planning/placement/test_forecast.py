"""Tests of simulations of plans with the scheduler's scoring: which succeed, which fail, and where pods would land."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescheduler.planning.outcome import Landing, Plan, Reason, Rejected
from rescheduler.planning.placement.forecast import nodes_to_find
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, node, pod, seeks, short, snapshot, summary

SOFT = [{"key": "rescheduler", "effect": "PreferNoSchedule"}]
POOL: dict[str, Any] = {"labels": {"pool": "spot"}}
STAYS_ON_SPOT: dict[str, Any] = {"nodeSelector": {"pool": "spot"}}

#: There is room for ``b`` only if ``a`` runs on s2; the scheduler prefers the node with more free resources for ``a``.
TIGHT = [node("s1", cpu="3", **POOL), node("s2", cpu="2", **POOL)]
#: Spot nodes have little free capacity; the other on-demand node is empty.
TEMPTING = [node("s", cpu="8"), pod("x", "s", cpu="4")]


def two(on: str) -> list[Manifest]:
    """Return pods that fill TIGHT and fit nowhere else."""
    return [pod(f"a-{on}", on, cpu="2", **STAYS_ON_SPOT), pod(f"b-{on}", on, cpu="3", **STAYS_ON_SPOT)]


def forecast(objects: list[Manifest], on: str = "od") -> Plan:
    planner = Planner(snapshot([node(on, ON_DEMAND, cpu="32"), *objects]), Policy())
    [plan] = (plan for plan in planner.plan_each(CIRCUMSTANCES).plans if plan.node == on)
    assert plan.robust is not None
    return plan


CASES: dict[str, tuple[list[Manifest], bool, Landing]] = {
    "plenty of room": ([node("s1"), node("s2"), pod("a", "od"), pod("b", "od")], True, Landing(2, 0)),
    # In plan order, with the larger pod first, both fit; in reverse order they do not.
    "a tight plan depends on the choice of nodes": ([*TIGHT, *two("od")], False, Landing(2, 0)),
    # The drain ends when no spot node accepts a pod that is left, although the scheduler would bind it elsewhere.
    "a tight plan, with room on another on-demand node": (
        [
            node("stay", ON_DEMAND, cpu="32", taints=SOFT),
            *TIGHT,
            pod("a", "od", cpu="2", **STAYS_ON_SPOT),
            pod("b", "od", cpu="3"),
        ],
        False,
        Landing(1, 1),
    ),
    "the pod with the higher priority is scheduled first": (
        [
            node("s1", cpu="3"),
            node("s2", cpu="1"),
            pod("a", "od", cpu="1", priority=1),
            pod("b", "od", cpu="3", priority=9),
        ],
        True,
        Landing(2, 0),
    ),
    "a pod with pod affinity is scheduled after its neighbour": (
        [node("s1", cpu="8"), node("s2"), pod("a", "od", affinity=seeks("z")), pod("z", "od")],
        True,
        Landing(2, 0),
    ),
    "free room on an on-demand node attracts pods": (
        [node("stay", ON_DEMAND, cpu="32"), *TEMPTING, pod("a", "od"), pod("b", "od")],
        True,
        Landing(0, 2),
    ),
    "a soft taint keeps pods away from it": (
        [node("stay", ON_DEMAND, cpu="32", taints=SOFT), *TEMPTING, pod("a", "od"), pod("b", "od")],
        True,
        Landing(2, 0),
    ),
    "the drained node accepts no pods": ([*TEMPTING, pod("a", "od")], True, Landing(1, 0)),
    "a node without either label is not a spot node": (
        [node("other", "pool", cpu="32"), *TEMPTING, pod("a", "od")],
        True,
        Landing(0, 1),
    ),
    "no pods to move": ([node("s")], True, Landing(0, 0)),
}


@pytest.mark.parametrize(("objects", "robust", "landing"), CASES.values(), ids=CASES)
def test_a_forecast_shows_where_pods_would_land(objects: list[Manifest], *, robust: bool, landing: Landing) -> None:
    plan = forecast(objects)
    assert (plan.robust, plan.landing, len(plan.forecast)) == (robust, landing, landing.spot + landing.on_demand)


def test_a_forecast_has_a_node_for_each_pod() -> None:
    plan = forecast([node("stay", ON_DEMAND, cpu="32"), *TEMPTING, pod("a", "od")])
    assert [(placement.pod.name, placement.node) for placement in plan.placements] == [("a", "s")]
    assert [(placement.pod, placement.node) for placement in plan.forecast] == [(plan.placements[0].pod, "stay")]


def test_ties_are_broken_at_random_but_reproducibly() -> None:
    objects = [*(node(f"s{n}") for n in range(8)), *(pod(f"p{n}", "od") for n in range(12))]
    once, again = forecast(objects), forecast(objects)
    assert once == again
    elsewhere = forecast([manifest | _moved(manifest) for manifest in objects], on="od2")
    assert [placement.node for placement in once.forecast] != [placement.node for placement in elsewhere.forecast]


def _moved(manifest: Manifest) -> Manifest:
    spec = manifest["spec"] | ({"nodeName": "od2"} if manifest["spec"].get("nodeName") else {})
    return {"spec": spec}


def test_a_fragile_plan_is_rejected_and_the_next_node_is_planned() -> None:
    """The plan of the first node is fragile; that of the other node is not."""
    objects = [node("od1", ON_DEMAND), node("od2", ON_DEMAND), *TIGHT, *two("od1")]
    objects += [pod("agent", "od2", cpu="9", owner="DaemonSet"), pod("c", "od2", **STAYS_ON_SPOT)]
    planner = Planner(snapshot(objects), Policy())
    planning = planner.first_plan(CIRCUMSTANCES)
    assert [short(verdict) for verdict in planning.verdicts][:1] == [["fragile-plan"]]
    assert [(plan.node, plan.robust) for plan in planning.plans] == [("od2", True)]
    (blocker,) = planning.rejected[0].blockers
    assert blocker.detail == (
        "the scheduler would probably choose other nodes than the plan: 1 of 2 pods (default/b-od1) "
        "fit no spot node in up to 1 of 2 simulations"
    )
    assert planner.look_again("od1", CIRCUMSTANCES) == planning.rejected[0]
    shown = {verdict.node: verdict for verdict in planner.plan_each(CIRCUMSTANCES).verdicts}["od1"]
    assert isinstance(shown, Plan)
    assert shown.robust is False


def test_a_fragile_plan_is_accepted_if_allowed() -> None:
    cluster = snapshot([node("od", ON_DEMAND), *TIGHT, *two("od")])
    planning = Planner(cluster, Policy(allow_fragile_plans=True)).first_plan(CIRCUMSTANCES)
    assert [(plan.node, plan.robust) for plan in planning.plans] == [("od", False)]


RETURNS = [node("od", ON_DEMAND), *TEMPTING, pod("a", "od"), pod("b", "od")]


@pytest.mark.parametrize(
    ("taints", "expected"),
    [([], ["returns-to-on-demand"]), (SOFT, {"a": "s", "b": "s"})],
    ids=["mostly back to on-demand", "a soft taint keeps them away"],
)
def test_plans_that_move_pods_between_on_demand_nodes_are_rejected(taints: list[Manifest], expected: Any) -> None:
    cluster = snapshot([*RETURNS, node("stay", ON_DEMAND, cpu="32", taints=taints)])
    planner = Planner(cluster, Policy())
    assert summary(planner.first_plan(CIRCUMSTANCES))["od"] == expected
    assert short(planner.look_again("od", CIRCUMSTANCES)) == expected


def test_the_detail_recommends_a_soft_taint() -> None:
    planner = Planner(snapshot([*RETURNS, node("stay", ON_DEMAND, cpu="32")]), Policy())
    verdict = planner.look_again("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    assert verdict.blockers[0].reason is Reason.RETURNS_TO_ON_DEMAND
    assert verdict.blockers[0].detail == (
        "2 of 2 pods would return to nodes that are not spot, on average of 5 simulations; a PreferNoSchedule taint on "
        "on-demand nodes (--manage-soft-taint) keeps them away"
    )


@pytest.mark.parametrize(("pods", "spot", "others"), [(1, 1, 3), (1, 2, 2), (2, 1, 2), (3, 2, 2), (4, 2, 3)])
@pytest.mark.parametrize("name", [f"od-{number}" for number in range(6)])
def test_no_node_is_drained_of_which_most_pods_would_return_on_average(
    name: str, pods: int, spot: int, others: int
) -> None:
    """The scheduler breaks ties between equal nodes at random: one lucky simulation does not count as the result."""
    objects = [node(name, ON_DEMAND), *(pod(f"p{number}", name, cpu="1") for number in range(pods))]
    objects += [node(f"s{number}") for number in range(spot)]
    objects += [node(f"other-{number}", "pool") for number in range(others)]
    planner = Planner(snapshot(objects), Policy())
    [shown] = planner.plan_all(CIRCUMSTANCES).plans
    verdict = planner.look_again(name, CIRCUMSTANCES)
    assert shown.landing is not None
    assert 2 * shown.landing.on_demand <= pods or isinstance(verdict, Rejected)
    assert isinstance(verdict, Rejected) or verdict.landing == shown.landing


def test_half_of_the_pods_may_return() -> None:
    """Pod ``a`` may only run on on-demand nodes or s1, pod ``b`` only on spot nodes."""
    objects = [*RETURNS[:3], node("stay", ON_DEMAND, cpu="32"), pod("a", "od")]
    objects += [node("t", **POOL), pod("b", "od", **STAYS_ON_SPOT)]
    plan = Planner(snapshot(objects), Policy()).look_again("od", CIRCUMSTANCES)
    assert isinstance(plan, Plan)
    assert plan.landing == Landing(1, 1)


def test_a_drained_node_attracts_no_pods_of_later_drains() -> None:
    """If one node were drained, its pods would go to the other on-demand node, which has the most room."""
    objects = [node("s", cpu="8"), pod("x", "s", cpu="4")]
    objects += [
        manifest for name in ("od1", "od2") for manifest in (node(name, ON_DEMAND, cpu="32"), pod(f"p-{name}", name))
    ]
    planner = Planner(snapshot(objects), Policy())
    alone = {plan.node: plan.landing for plan in planner.plan_each(CIRCUMSTANCES).plans}
    assert alone == {"od1": Landing(0, 1), "od2": Landing(0, 1)}
    together = {plan.node: plan.landing for plan in planner.plan_all(CIRCUMSTANCES).plans}
    assert together == {"od1": Landing(0, 1), "od2": Landing(1, 0)}


def test_the_number_of_forecasts_for_display_is_limited() -> None:
    objects = [node("s", cpu="1000", pods=1000)]
    for name in (f"od{n:02}" for n in range(48)):
        objects += [node(name, ON_DEMAND, taints=SOFT), *(pod(f"p{n}-{name}", name, cpu="100m") for n in range(10))]
    robust = [plan.robust for plan in Planner(snapshot(objects), Policy()).plan_each(CIRCUMSTANCES).plans]
    assert (robust[0], robust[-1]) == (True, None)


def test_every_node_gets_a_forecast_in_some_round_even_with_little_time() -> None:
    """Each round has time for one forecast; objections to earlier nodes are kept until all have one."""
    objects = [*TIGHT, *(node(f"od{n}", ON_DEMAND) for n in (1, 2, 3)), *two("od1"), *two("od2")]
    objects += [pod("agent", "od3", cpu="9", owner="DaemonSet"), pod("c", "od3", **STAYS_ON_SPOT)]
    planner = Planner(snapshot(objects), Policy(planning_timeout=0))
    rounds = [list(summary(planner.first_plan(CIRCUMSTANCES)).values()) for _ in range(3)]
    fragile, later = ["fragile-plan"], ["planning-timeout"]
    assert rounds[:2] == [[fragile, later, later], [fragile, fragile, later]]
    assert rounds[2][:2] == [fragile, fragile]
    assert list(rounds[2][2]) == ["c"]


@pytest.mark.parametrize(("nodes", "sampled"), [(1, 1), (99, 99), (100, 100), (1000, 420), (5000, 500), (6000, 300)])
def test_the_scheduler_scores_a_subset_of_many_nodes(nodes: int, sampled: int) -> None:
    assert nodes_to_find(nodes) == sampled


def test_on_many_nodes_placements_vary_but_all_pods_fit() -> None:
    objects = [*(node(f"s{n}", cpu="1") for n in range(250)), *(pod(f"p{n}", "od") for n in range(20))]
    plan = forecast(objects)
    assert (plan.robust, plan.landing) == (True, Landing(20, 0))
    assert len({placement.node for placement in plan.forecast}) == 20


@settings(max_examples=40)
@given(
    cpus=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    pods=st.lists(st.integers(1, 4), max_size=8),
    stay=st.integers(0, 8),
)
def test_a_forecast_leaves_the_snapshot_unchanged_and_respects_capacity(
    cpus: list[int], pods: list[int], stay: int
) -> None:
    """No node is filled beyond its capacity, and the snapshot is unchanged afterwards."""
    objects = [node("od", ON_DEMAND, cpu="99"), *(node(f"s{n}", cpu=str(cpu)) for n, cpu in enumerate(cpus))]
    objects += [pod(f"p{n}", "od", cpu=str(cpu)) for n, cpu in enumerate(pods)]
    objects += [node("stay", ON_DEMAND, cpu=str(stay))]
    cluster = snapshot(objects)
    before = cluster.nodes.requested.copy()
    result = next(plan for plan in Planner(cluster, Policy()).plan_each(CIRCUMSTANCES).verdicts if plan.node == "od")
    if isinstance(result, Rejected):
        return
    assert np.array_equal(cluster.nodes.requested, before)
    assert (dict(cluster.touched), dict(cluster.draining_rows)) == ({}, {})
    used = dict.fromkeys(cluster.nodes.row, 0)
    for placement in result.forecast:
        used[placement.node] += pods[int(placement.pod.name[1:])]
    room = {f"s{n}": cpu for n, cpu in enumerate(cpus)} | {"stay": stay, "od": 0}
    assert all(used[name] <= room[name] for name in used)
    assert result.robust is False or len(result.forecast) == len(result.placements)
