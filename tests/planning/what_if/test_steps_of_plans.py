"""What is computed after a plan counts the pods that make room on nodes that stay, as well as the pods of the node."""

from dataclasses import replace
from decimal import Decimal
from typing import Final

import pytest

from predicates.nodes import CPU
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.money.worth import summed
from rescheduler.planning.outcome import Planning
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Leftovers, Policy, Survive
from rescheduler.planning.room.additions import Additions
from rescheduler.planning.what_if.added_spot import AddSpot
from rescheduler.planning.what_if.comparison import LoseEachPool, LoseSpot, added_nodes, levers_of, what_if
from rescheduler.planning.what_if.overview import overview, tradeoff, worths_of
from rescheduler.planning.what_if.worth_curve import worth_curve
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, budget, node, pod, snapshot
from tests.planning.room.test_purchases import of_type, priced
from tests.planning.test_leftovers import FULL, PIN, SPOT

MOVE: Final = Policy(leftovers=Leftovers.MOVE, budgets_in_steps=True)
STAYS: Final = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
PRICES: Final = PriceList(
    per_vcpu=Decimal("0.05"), per_gib=Decimal(0), spot_per_vcpu=Decimal("0.01"), spot_per_gib=Decimal(0)
)


def plan(objects: list[Manifest], policy: Policy = MOVE) -> tuple[Planner, Planning]:
    planner = Planner(snapshot(objects), policy)
    planning = planner.plan_all(CIRCUMSTANCES)
    assert [(each.node, each.empties) for each in planning.steps] == [("od-2", False), ("od-1", True)]
    return planner, planning


def test_steps_are_in_the_order_in_which_they_are_carried_out() -> None:
    _, planning = plan(FULL)
    moved = [placement.pod.name for step in planning.steps for placement in step.placements]
    assert set(moved) == {"d-2", "a-1", "b-1"}
    assert moved[0] == "d-2"
    assert planning.moved_pods == len(moved)


def test_lost_pools_take_the_pods_that_made_room() -> None:
    after = what_if(snapshot(FULL), MOVE, CIRCUMSTANCES, [LoseEachPool(), LoseSpot(node="s")])
    assert after.each_pool is not None
    assert after.lost is not None
    [pool] = after.each_pool[1].pools
    assert {str(each.controller) for each in pool.homeless} == {"ReplicaSet default/a", "ReplicaSet default/d"}
    assert {each.pod for each in after.lost.unplaced_after_drains} == {"default/a-1", "default/d-2"}


def test_a_tradeoff_is_of_the_states_after_all_steps() -> None:
    planner, planning = plan(FULL)
    known = overview(planning, snapshot(FULL), PRICES)
    found = tradeoff(planner, CIRCUMSTANCES, known, Survive.POOL)
    assert found is not None
    [pool] = planner.certificate(CIRCUMSTANCES, Survive.POOL, planning.steps).pools
    assert (found.points[-1].nodes, found.points[-1].homeless) == (1, pool.homeless_pods)
    assert found.points[-1].room == planner.fallback_room(CIRCUMSTANCES, planning.steps).share


def frees(objects: list[Manifest], policy: Policy = MOVE) -> set[str]:
    cluster = snapshot(objects)
    planner = Planner(cluster, policy)
    planning = planner.plan_all(CIRCUMSTANCES)
    assert "od-1" in {each.node for each in planning.plans}
    levers = levers_of(planning, planner, cluster, policy, CIRCUMSTANCES, PRICES, lambda: False)
    return {name for lever in levers.levers for name in (*lever.frees, *lever.frees_together)}


@pytest.mark.parametrize(("cpu", "freed"), [("4", set()), ("5", {"od-3"})], ids=["taken", "free"])
def test_a_lever_frees_nothing_in_the_room_that_given_pods_take(cpu: str, freed: set[str]) -> None:
    third = [node("od-3", ON_DEMAND, cpu="1500m"), pod("e-1", "od-3", annotations=STAYS)]
    objects = [each if each is not SPOT else node("s", cpu=cpu) for each in FULL]
    assert frees([*objects, *third]) == freed


def test_a_lever_does_not_free_a_node_that_a_plan_counts_on() -> None:
    """od-2 takes the leftover of od-1, which no other node could take."""
    objects = [
        *(node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), SPOT),
        *(pod("a-1", "od-1"), pod("b-1", "od-1", **PIN), pod("c-1", "od-2", annotations=STAYS)),
    ]
    assert frees(objects) == set()


@pytest.mark.parametrize(("allowed", "freed"), [(1, set()), (2, {"od-3"})])
def test_given_pods_use_up_budgets(allowed: int, freed: set[str]) -> None:
    """The budget selects d-2, which makes room, and d-3 on the node of the lever."""
    objects = [
        *(each if each is not SPOT else node("s", cpu="8") for each in FULL if each["metadata"]["name"] != "d-1"),
        *(pod("f-1", "od-2", cpu="2", annotations=STAYS), node("od-3", ON_DEMAND, cpu="1")),
        *(pod("d-3", "od-3", cpu="500m"), pod("e-1", "od-3", cpu="500m", annotations=STAYS)),
        budget("d", "d", allowed=allowed),
    ]
    policy = replace(MOVE, budgets_in_steps=False)
    cluster = snapshot(objects)
    planner = Planner(cluster, policy)
    planning = planner.plan_all(CIRCUMSTANCES)
    levers = levers_of(planning, planner, cluster, policy, CIRCUMSTANCES, PRICES, lambda: False)
    alone = {name for lever in levers.levers if "e" in lever.controller for name in lever.frees}
    assert (len(planning.steps), alone) == (2, freed)


def test_a_node_that_makes_room_is_no_emptied_node() -> None:
    """Of two nodes that may be emptied, one is left for a lever, and for a purchase."""
    third = [node("od-3", ON_DEMAND, cpu="1500m"), pod("e-1", "od-3", annotations=STAYS)]
    policy = replace(MOVE, min_on_demand_nodes=1)
    assert frees([*FULL, *third], policy) == {"od-3"}
    planner, planning = plan(FULL, policy)
    with Additions(snapshot(FULL), policy, CIRCUMSTANCES).after(planning.steps) as attempt:
        assert attempt.emptied == 1
    assert planner.policy is policy


def test_a_purchase_is_searched_after_all_steps() -> None:
    """od-2 has given d-2 and lacks room for d-1; nothing is left on the spot node."""
    objects = [
        *(node("od-1", ON_DEMAND), node("od-2", ON_DEMAND, cpu="5"), node("s", cpu="4")),
        *(pod("a-1", "od-1", cpu="3"), pod("b-1", "od-1", **PIN)),
        *(pod("d-1", "od-2", cpu="4"), pod("d-2", "od-2")),
    ]
    _, planning = plan(objects)
    additions = Additions(snapshot(objects), MOVE, CIRCUMSTANCES)
    with additions.after(planning.steps) as attempt:
        assert attempt.shared.snapshot.nodes.free[additions.snapshot.nodes.row["s"], CPU] == 0
    with additions.of(AddSpot(1, cpu="8", memory="32Gi")):
        [lacking] = additions.lacking_room(["od-2"], planning.steps)
    assert [each.name for each in lacking.must_move] == ["d-1"]


def test_the_money_of_added_nodes_counts_the_pods_that_make_room() -> None:
    """All pods that move go to the added node, of which their share is a part: it is subtracted once."""
    objects = [
        *(of_type("od-1", "od", ON_DEMAND), of_type("od-2", "od", ON_DEMAND), of_type("s", "small", cpu="1")),
        *(pod("full-1", "s"), *(each for each in FULL if each["kind"] == "Pod")),
    ]
    prices = priced("0.2", small="0.02")
    cluster = snapshot(objects)
    outcome = what_if(cluster, MOVE, CIRCUMSTANCES, [AddSpot(1, cpu="4", memory="16Gi", type="small")])
    known, added = added_nodes(cluster, MOVE, outcome, prices)
    assert added is not None
    assert added.cost is not None
    [freed] = outcome.planning.plans
    assert {placement.pod.name for placement in freed.moves} == {"a-1", "b-1", "d-2"}
    assert added.counted == added.cost
    today = CIRCUMSTANCES.now.date()
    balance = summed(worths_of(outcome.planning, outcome.snapshot, known, today).values()).balance_per_month
    assert added.net_change_per_month(Decimal(0), balance) == (Decimal("0.2") - added.cost) * 730


def test_costs_and_curves_count_all_moved_pods() -> None:
    planner, planning = plan(FULL)
    circumstances = replace(CIRCUMSTANCES, prices=PRICES)
    worths = planner.worths(["od-1", "od-2"], circumstances)
    given = planner.move_cost(planning.plans, circumstances) - worths["od-1"].cost
    assert 1 <= given < worths["od-2"].cost
    known = overview(planning, snapshot(FULL), PRICES)
    curve = worth_curve(planner, known, snapshot(FULL), circumstances, lambda: False, whole=True)
    assert curve is not None
    assert (curve.points[0].pods, curve.points[0].cost) == (3, planner.move_cost(planning.plans, circumstances))
