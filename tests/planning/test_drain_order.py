"""Tests of --drain-order and --max-node-age: which nodes come first, and that nothing else depends on them."""

from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest

from predicates.filters import Filters
from predicates.plugins import DEFAULT
from rescheduler.planning.money.commitments import Commitment
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import FOREVER, Circumstances, DrainOrder, Policy
from tests.planning.builders import NOW, ON_DEMAND, Manifest, node, pod, snapshot
from tests.planning.test_planner import random_cluster

TYPE = "node.kubernetes.io/instance-type"
DAY = timedelta(days=1).total_seconds()


def machine(name: str, kind: str, cpu: str, created: str | None) -> Manifest:
    return node(name, ON_DEMAND, cpu=cpu, labels={TYPE: kind}, created=created)


#: Requested CPU: od-1 1, od-2 2, od-3 3, od-4 4.
CLUSTER = [
    machine("od-1", "small", "4", "2025-12-31T12:00:00Z"),
    machine("od-2", "large", "16", "2025-12-01T00:00:00Z"),
    machine("od-3", "small", "4", None),
    machine("od-4", "other", "8", "2025-12-30T12:00:00Z"),
    node("s", cpu="32"),
    *(pod(f"p{number}", f"od-{number}", cpu=str(number)) for number in (1, 2, 3, 4)),
]
LISTED = PriceList(by_type={("small", "", False): Decimal("0.2"), ("large", "", False): Decimal("0.1")})
OF_PROVIDER = PriceList(by_node={"od-3": Decimal(9), "od-4": Decimal(8)})

ORDERS: dict[str, tuple[dict[str, Any], PriceList, str]] = {
    "the least requested CPU": ({}, LISTED, "1234"),
    "cost, by type; nodes without a price come last": ({"drain_order": DrainOrder.COST}, LISTED, "1324"),
    "cost, with prices of the provider": ({"drain_order": DrainOrder.COST}, OF_PROVIDER, "3421"),
    "cost, per vCPU": ({"drain_order": DrainOrder.COST}, PriceList(per_vcpu=Decimal(1)), "2413"),
    "cost, without prices: by vCPU, then the least requested": ({"drain_order": DrainOrder.COST}, PriceList(), "2413"),
    "age; a node without a creation time is the newest": ({"drain_order": DrainOrder.AGE}, LISTED, "2413"),
    "a maximum age that one node has reached": ({"max_node_age": 3 * DAY}, LISTED, "2134"),
    "a maximum age that a node reaches now": ({"max_node_age": 2 * DAY}, LISTED, "2413"),
    "a maximum age that no node has reached": ({"max_node_age": 900 * DAY}, LISTED, "1234"),
    "a maximum age and cost": ({"max_node_age": 3 * DAY, "drain_order": DrainOrder.COST}, LISTED, "2134"),
    "a maximum age and age": ({"max_node_age": DAY, "drain_order": DrainOrder.AGE}, LISTED, "2413"),
}


@pytest.mark.parametrize(("fields", "expected"), [({}, "3412"), ({"drain_order": DrainOrder.AGE}, "4312")])
def test_nodes_with_pods_of_restless_namespaces_come_last(fields: dict[str, Any], expected: str) -> None:
    restless = pod("a/p0", "od-1", cpu="10m"), pod("b/p1", "od-2", cpu="10m"), pod("a/p2", "od-2", cpu="10m")
    planner = Planner(snapshot([*CLUSTER, *restless]), Policy(**fields))
    names = [f"od-{number}" for number in expected]
    assert list(planner.on_demand(Circumstances(NOW, last={"a": 1, "b": 2}))) == names


@pytest.mark.parametrize(("fields", "prices", "expected"), ORDERS.values(), ids=ORDERS)
def test_every_result_has_the_order(fields: dict[str, Any], prices: PriceList, expected: str) -> None:
    planner, circumstances = Planner(snapshot(CLUSTER), Policy(**fields)), Circumstances(NOW, prices=prices)
    names = [f"od-{number}" for number in expected]
    assert list(planner.on_demand(circumstances)) == names
    assert [verdict.node for verdict in planner.plan_each(circumstances).verdicts] == names
    assert [verdict.node for verdict in planner.plan_all(circumstances).verdicts] == names
    assert [verdict.node for verdict in planner.first_plan(circumstances).verdicts] == names[:1]
    assert [pod.node_name for pod in planner.relevant_pods(circumstances)] == names


def test_nodes_with_equal_amounts_of_cpu_are_compared_by_memory() -> None:
    large = node("od-2", ON_DEMAND)
    large["status"]["allocatable"]["memory"] = "64Gi"
    cluster = snapshot([node("od-1", ON_DEMAND), large, node("s")])
    planner = Planner(cluster, Policy(drain_order=DrainOrder.COST))
    assert list(planner.on_demand(Circumstances(NOW))) == ["od-2", "od-1"]


def test_room_for_one_node_is_used_for_the_first() -> None:
    cluster = [*CLUSTER[:4], node("s", cpu="4"), *CLUSTER[5:]]
    freed = {
        order: [plan.node for plan in planner.plan_all(Circumstances(NOW, prices=LISTED)).plans]
        for order in DrainOrder
        for planner in [Planner(snapshot(cluster), Policy(drain_order=order, min_on_demand_nodes=3))]
    }
    assert freed == {
        DrainOrder.LEAST_REQUESTED: ["od-1"],
        DrainOrder.COST: ["od-1"],
        DrainOrder.AGE: ["od-2"],
        DrainOrder.WORTH: ["od-1"],
    }


def test_a_node_that_is_first_but_cannot_be_drained_leaves_the_room_to_the_next() -> None:
    blocked = pod("bare", "od-2", cpu="1m", owner=None)
    planner = Planner(snapshot([*CLUSTER, blocked]), Policy(drain_order=DrainOrder.AGE))
    planning = planner.first_plan(Circumstances(NOW))
    assert [verdict.node for verdict in planning.verdicts] == ["od-2", "od-4"]
    assert [plan.node for plan in planning.plans] == ["od-4"]


POLICIES: dict[str, dict[str, Any]] = {
    "cost": {"drain_order": DrainOrder.COST},
    "age": {"drain_order": DrainOrder.AGE},
    "maximum age": {"max_node_age": 100 * DAY},
}


def aged(objects: list[Manifest]) -> list[Manifest]:
    """Give the on-demand nodes of a cluster creation times in the reverse order of their names."""
    nodes = [each for each in objects if each["kind"] == "Node" and ON_DEMAND in each["metadata"]["labels"]]
    for number, each in enumerate(sorted(nodes, key=lambda each: each["metadata"]["name"], reverse=True)):
        each["metadata"]["creationTimestamp"] = f"2025-{number % 12 + 1:02}-01T00:00:00Z"
    return objects


@pytest.mark.parametrize("fields", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("effort", [0, 0.2])
def test_no_order_frees_fewer_nodes_than_first_fit_by_requested_cpu(
    seed: int, effort: float, fields: dict[str, Any]
) -> None:
    objects = aged(random_cluster(seed))
    baseline = Planner(snapshot(objects), Policy(planning_timeout=0)).plan_all(Circumstances(NOW))
    planning = Planner(snapshot(objects), Policy(planning_timeout=effort, **fields)).plan_all(Circumstances(NOW))
    assert len(planning.plans) >= len(baseline.plans)
    assert planning.upper_bound == baseline.upper_bound


@pytest.mark.parametrize("fields", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("seed", range(10))
def test_the_filters_accept_every_placement_in_every_order(seed: int, fields: dict[str, Any]) -> None:
    cluster = snapshot(aged(random_cluster(seed)))
    planning = Planner(cluster, Policy(planning_timeout=0.2, **fields)).plan_all(Circumstances(NOW))
    filters = Filters(cluster, DEFAULT)
    with cluster.trial() as trial:
        for plan in planning.plans:
            movers = [cluster.pods[str(placement.pod)] for placement in plan.placements]
            trial.evict(*movers)
            trial.drain(cluster.nodes.row[plan.node])
            for mover, placement in zip(movers, plan.placements, strict=True):
                assert filters.fits(mover.cls, cluster.nodes.row[placement.node]), (plan.node, placement)
                trial.place(mover.cls, cluster.nodes.row[placement.node])


def test_an_improved_plan_is_in_drain_order_where_the_pods_can_be_scheduled_in_it() -> None:
    """The search adds nodes in order of their size; the result is sorted again."""
    objects = aged(random_cluster(3))
    planner, circumstances = Planner(snapshot(objects), Policy(drain_order=DrainOrder.AGE)), Circumstances(NOW)
    order = list(planner.on_demand(circumstances))
    plans = [plan.node for plan in planner.plan_all(circumstances).plans]
    assert len(plans) > 1
    assert plans == sorted(plans, key=order.index)


def test_the_order_changes_when_a_node_reaches_the_maximum_age() -> None:
    """The planner keeps its results of an earlier round, but not beyond that moment."""
    planner = Planner(snapshot(CLUSTER), Policy(max_node_age=3 * DAY))
    orders = {}
    for hours in (0, 23, 24, 48):
        circumstances = Circumstances(NOW + timedelta(hours=hours))
        plans = planner.plan_each(circumstances), planner.first_plan(circumstances)
        orders[hours] = [[verdict.node.removeprefix("od-") for verdict in plan.verdicts] for plan in plans]
    assert orders == {
        0: [["2", "1", "3", "4"], ["2"]],
        23: [["2", "1", "3", "4"], ["2"]],
        24: [["2", "4", "1", "3"], ["2"]],
        48: [["1", "2", "4", "3"], ["1"]],
    }


def test_the_order_changes_when_a_commitment_ends() -> None:
    """Nodes that a commitment pays anyway come last, until its last day is over."""
    ends = datetime.combine(NOW.date() + timedelta(days=1), time(), tzinfo=UTC)
    commitments = Commitment("small", nodes=9, until=NOW.date()), Commitment("large", nodes=9, until=date.max)
    prices = replace(LISTED, commitments=(*commitments, Commitment("other", nodes=9, until=date(2020, 1, 1))))
    policy = Policy(min_on_demand_nodes=9)
    planner, orders = Planner(snapshot(CLUSTER), policy), []
    for now in (NOW, ends - timedelta(seconds=1), ends, ends + timedelta(days=900)):
        circumstances = Circumstances(now, prices=prices)
        orders.append([verdict.node.removeprefix("od-") for verdict in planner.first_plan(circumstances).verdicts])
        scratch = Planner(snapshot(CLUSTER), policy)
        assert planner.plan_each(circumstances) == scratch.plan_each(circumstances)
        assert planner.first_until(circumstances) == (ends if now < ends else FOREVER)
    assert orders == [["4", "1", "2", "3"]] * 2 + [["1", "3", "4", "2"]] * 2


def test_the_order_changes_with_the_prices() -> None:
    planner = Planner(snapshot(CLUSTER), Policy(drain_order=DrainOrder.COST))
    orders = [
        [verdict.node for verdict in planner.plan_each(Circumstances(NOW, prices=prices)).verdicts]
        for prices in (LISTED, OF_PROVIDER, LISTED)
    ]
    assert orders == [[f"od-{number}" for number in order] for order in ("1324", "3421", "1324")]
