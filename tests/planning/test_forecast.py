"""Plans played through with the scheduler's scoring: what comes true, what does not, and where pods would land."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescheduler.planning.forecast import nodes_to_find
from rescheduler.planning.outcome import Landing, Plan, Reason, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, brief, node, pod, seeks, short, snapshot

SOFT = [{"key": "rescheduler", "effect": "PreferNoSchedule"}]
POOL: dict[str, Any] = {"labels": {"pool": "spot"}}
STAYS_ON_SPOT: dict[str, Any] = {"nodeSelector": {"pool": "spot"}}

#: Only ``a`` on s2 leaves room for ``b``; the scheduler puts ``a`` where more is free.
TIGHT = [node("s1", cpu="3", **POOL), node("s2", cpu="2", **POOL)]
#: Little is free on spot, everything on the on-demand node that stays.
TEMPTING = [node("s", cpu="8"), pod("x", "s", cpu="4")]


def two(on: str) -> list[Manifest]:
    """Pods that fill TIGHT and may go nowhere else."""
    return [pod(f"a-{on}", on, cpu="2", **STAYS_ON_SPOT), pod(f"b-{on}", on, cpu="3", **STAYS_ON_SPOT)]


def forecast(objects: list[Manifest], on: str = "od") -> Plan:
    planner = Planner(snapshot([node(on, ON_DEMAND, cpu="32"), *objects]), Policy())
    plan = planner.plan_node(on, CIRCUMSTANCES)
    assert isinstance(plan, Plan)
    assert plan.robust is None
    return planner.forecast(plan, CIRCUMSTANCES)


CASES: dict[str, tuple[list[Manifest], bool, Landing]] = {
    "plenty of room": ([node("s1"), node("s2"), pod("a", "od"), pod("b", "od")], True, Landing(2, 0)),
    # In the plan's order, the larger pod first, it comes true; the other way round it does not.
    "a tight plan hangs on the choice of nodes": ([*TIGHT, *two("od")], False, Landing(2, 0)),
    "the higher priority comes first and leaves the rest of the room": (
        [
            node("s1", cpu="3"),
            node("s2", cpu="1"),
            pod("a", "od", cpu="1", priority=1),
            pod("b", "od", cpu="3", priority=9),
        ],
        True,
        Landing(2, 0),
    ),
    "who seeks a neighbour waits for it": (
        [node("s1", cpu="8"), node("s2"), pod("a", "od", affinity=seeks("z")), pod("z", "od")],
        True,
        Landing(2, 0),
    ),
    "room on an on-demand node attracts": (
        [node("stay", ON_DEMAND, cpu="32"), *TEMPTING, pod("a", "od"), pod("b", "od")],
        True,
        Landing(0, 2),
    ),
    "a soft taint keeps pods away from it": (
        [node("stay", ON_DEMAND, cpu="32", taints=SOFT), *TEMPTING, pod("a", "od"), pod("b", "od")],
        True,
        Landing(2, 0),
    ),
    "the drained node takes nothing itself": ([*TEMPTING, pod("a", "od")], True, Landing(1, 0)),
    "a node that is neither is not spot": (
        [node("other", "pool", cpu="32"), *TEMPTING, pod("a", "od")],
        True,
        Landing(0, 1),
    ),
    "nothing to move": ([node("s")], True, Landing(0, 0)),
}


@pytest.mark.parametrize(("objects", "robust", "landing"), CASES.values(), ids=CASES)
def test_forecasts(objects: list[Manifest], *, robust: bool, landing: Landing) -> None:
    plan = forecast(objects)
    assert (plan.robust, plan.landing, len(plan.forecast)) == (robust, landing, landing.spot + landing.on_demand)


def test_a_forecast_says_where_each_pod_goes() -> None:
    plan = forecast([node("stay", ON_DEMAND, cpu="32"), *TEMPTING, pod("a", "od")])
    assert [(one.pod.name, one.node) for one in plan.placements] == [("a", "s")]
    assert [(one.pod, one.node) for one in plan.forecast] == [(plan.placements[0].pod, "stay")]


def test_ties_fall_anyhow_but_always_alike() -> None:
    objects = [*(node(f"s{n}") for n in range(8)), *(pod(f"p{n}", "od") for n in range(12))]
    once, again = forecast(objects), forecast(objects)
    assert once == again
    elsewhere = forecast([one | _moved(one) for one in objects], on="od2")
    assert [one.node for one in once.forecast] != [one.node for one in elsewhere.forecast]


def _moved(one: Manifest) -> Manifest:
    spec = one["spec"] | ({"nodeName": "od2"} if one["spec"].get("nodeName") else {})
    return {"spec": spec}


def test_a_fragile_plan_is_not_carried_out_and_the_next_node_is_looked_at() -> None:
    """The emptiest node's plan is fragile; the other node's is not."""
    objects = [node("od1", ON_DEMAND), node("od2", ON_DEMAND), *TIGHT, *two("od1")]
    objects += [pod("agent", "od2", cpu="9", owner="DaemonSet"), pod("c", "od2", **STAYS_ON_SPOT)]
    planner = Planner(snapshot(objects), Policy())
    planning = planner.first_plan(CIRCUMSTANCES)
    assert [short(one) for one in planning.verdicts][:1] == [["fragile-plan"]]
    assert [(plan.node, plan.robust) for plan in planning.plans] == [("od2", True)]
    (blocker,) = planning.rejected[0].blockers
    assert blocker.detail == (
        "the scheduler would not choose the nodes that the plan counts on: 1 of 2 pods (default/b-od1) found no place "
        "in up to 3 of 5 play-throughs"
    )
    assert planner.look_again("od1", CIRCUMSTANCES) == planning.rejected[0]
    shown = {verdict.node: verdict for verdict in planner.plan_each(CIRCUMSTANCES).verdicts}["od1"]
    assert isinstance(shown, Plan)
    assert shown.robust is False


def test_a_fragile_plan_is_carried_out_where_that_is_wanted() -> None:
    cluster = snapshot([node("od", ON_DEMAND), *TIGHT, *two("od")])
    planning = Planner(cluster, Policy(allow_fragile_plans=True)).first_plan(CIRCUMSTANCES)
    assert [(plan.node, plan.robust) for plan in planning.plans] == [("od", False)]


RETURNS = [node("od", ON_DEMAND), *TEMPTING, pod("a", "od"), pod("b", "od")]


@pytest.mark.parametrize(
    ("taints", "expected"),
    [([], ["returns-to-on-demand"]), (SOFT, {"a": "s", "b": "s"})],
    ids=["mostly back to on-demand", "a soft taint keeps them away"],
)
def test_pods_are_not_shuffled_between_on_demand_nodes(taints: list[Manifest], expected: Any) -> None:
    cluster = snapshot([*RETURNS, node("stay", ON_DEMAND, cpu="32", taints=taints)])
    planner = Planner(cluster, Policy())
    assert brief(planner.first_plan(CIRCUMSTANCES))["od"] == expected
    assert short(planner.look_again("od", CIRCUMSTANCES)) == expected


def test_the_advice_is_a_soft_taint() -> None:
    planner = Planner(snapshot([*RETURNS, node("stay", ON_DEMAND, cpu="32")]), Policy())
    verdict = planner.look_again("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    assert verdict.blockers[0].reason is Reason.RETURNS_TO_ON_DEMAND
    assert verdict.blockers[0].detail == (
        "at least 2 of 2 pods would go back to nodes that are not spot; a PreferNoSchedule taint on on-demand nodes "
        "(--manage-soft-taint) keeps them away"
    )


def test_half_of_the_pods_may_return() -> None:
    """``a`` may only go to on-demand nodes or s1, ``b`` only to spot."""
    objects = [*RETURNS[:3], node("stay", ON_DEMAND, cpu="32"), pod("a", "od")]
    objects += [node("t", **POOL), pod("b", "od", **STAYS_ON_SPOT)]
    plan = Planner(snapshot(objects), Policy()).look_again("od", CIRCUMSTANCES)
    assert isinstance(plan, Plan)
    assert plan.landing == Landing(1, 1)


def test_emptied_one_after_the_other_a_drained_node_attracts_nobody() -> None:
    """Alone, the pods of either node would go to the other one, which has more room than spot."""
    objects = [node("s", cpu="8"), pod("x", "s", cpu="4")]
    objects += [one for name in ("od1", "od2") for one in (node(name, ON_DEMAND, cpu="32"), pod(f"p-{name}", name))]
    planner = Planner(snapshot(objects), Policy())
    alone = {plan.node: plan.landing for plan in planner.plan_each(CIRCUMSTANCES).plans}
    assert alone == {"od1": Landing(0, 1), "od2": Landing(0, 1)}
    together = {plan.node: plan.landing for plan in planner.plan_all(CIRCUMSTANCES).plans}
    assert together == {"od1": Landing(0, 1), "od2": Landing(1, 0)}


def test_only_so_many_plans_are_played_through_to_be_shown() -> None:
    objects = [node("s", cpu="1000", pods=1000)]
    for name in (f"od{n:02}" for n in range(48)):
        objects += [node(name, ON_DEMAND, taints=SOFT), *(pod(f"p{n}-{name}", name, cpu="100m") for n in range(10))]
    robust = [plan.robust for plan in Planner(snapshot(objects), Policy()).plan_each(CIRCUMSTANCES).plans]
    assert (robust[0], robust[-1]) == (True, None)


def test_every_node_has_its_turn_however_little_time_there_is() -> None:
    """One plan is weighed a round; what was found of the nodes before it stands until then."""
    objects = [*TIGHT, *(node(f"od{n}", ON_DEMAND) for n in (1, 2, 3)), *two("od1"), *two("od2")]
    objects += [pod("agent", "od3", cpu="9", owner="DaemonSet"), pod("c", "od3", **STAYS_ON_SPOT)]
    planner = Planner(snapshot(objects), Policy(planning_timeout=0))
    rounds = [list(brief(planner.first_plan(CIRCUMSTANCES)).values()) for _ in range(3)]
    fragile, later = ["fragile-plan"], ["planning-timeout"]
    assert rounds[:2] == [[fragile, later, later], [fragile, fragile, later]]
    assert rounds[2][:2] == [fragile, fragile]
    assert list(rounds[2][2]) == ["c"]


@pytest.mark.parametrize(("nodes", "found"), [(1, 1), (99, 99), (100, 100), (1000, 420), (5000, 500), (6000, 300)])
def test_the_scheduler_looks_at_some_of_many_nodes(nodes: int, found: int) -> None:
    assert nodes_to_find(nodes) == found


def test_on_many_nodes_pods_go_anywhere_but_together_they_fit() -> None:
    objects = [*(node(f"s{n}", cpu="1") for n in range(250)), *(pod(f"p{n}", "od") for n in range(20))]
    plan = forecast(objects)
    assert (plan.robust, plan.landing) == (True, Landing(20, 0))
    assert len({one.node for one in plan.forecast}) == 20


@settings(max_examples=40)
@given(
    cpus=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    pods=st.lists(st.integers(1, 4), max_size=8),
    stay=st.integers(0, 8),
)
def test_a_forecast_leaves_no_trace_and_fits(cpus: list[int], pods: list[int], stay: int) -> None:
    """No node is filled above what it has, and the snapshot is as before."""
    objects = [node("od", ON_DEMAND, cpu="99"), *(node(f"s{n}", cpu=str(cpu)) for n, cpu in enumerate(cpus))]
    objects += [pod(f"p{n}", "od", cpu=str(cpu)) for n, cpu in enumerate(pods)]
    objects += [node("stay", ON_DEMAND, cpu=str(stay))]
    cluster = snapshot(objects)
    planner = Planner(cluster, Policy())
    plan = planner.plan_node("od", CIRCUMSTANCES)
    before = cluster.nodes.requested.copy()
    if isinstance(plan, Rejected):
        return
    told = planner.forecast(plan, CIRCUMSTANCES)
    assert np.array_equal(cluster.nodes.requested, before)
    assert (dict(cluster.touched), dict(cluster.draining_rows)) == ({}, {})
    used = dict.fromkeys(cluster.nodes.row, 0)
    for one in told.forecast:
        used[one.node] += pods[int(one.pod.name[1:])]
    room = {f"s{n}": cpu for n, cpu in enumerate(cpus)} | {"stay": stay, "od": 0}
    assert all(used[name] <= room[name] for name in used)
    assert told.robust is False or len(told.forecast) == len(plan.placements)
