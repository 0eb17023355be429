"""The trade-off of a plan: what its drains save, and the losses that are survived after them."""

from decimal import Decimal
from typing import Any

from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import FallbackHeadroom, Policy, Survive
from rescheduler.planning.what_if.overview import Tradeoff, overview, tradeoff
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, node, pod, snapshot

TYPE = "node.kubernetes.io/instance-type"
NO_PRICES = PriceList()
PRICES = PriceList(per_vcpu=Decimal("0.05"), per_gib=Decimal(0))

#: Six nodes whose pods fit two pools. Once the last one is drained, the loss of a pool is not survived.
CLUSTER: list[Manifest] = [
    node("s1", labels={TYPE: "m"}, cpu="16"),
    node("s2", labels={TYPE: "m"}, zone="b", cpu="16"),
    *(node(f"o{number}", ON_DEMAND) for number in range(6)),
    *(pod(f"p{number}", f"o{number}", cpu="3") for number in range(6)),
]


def of(objects: list[Manifest], prices: PriceList = NO_PRICES, **fields: Any) -> Tradeoff | None:
    table = snapshot(objects)
    planner = Planner(table, Policy(**fields))
    planning = planner.plan_all(CIRCUMSTANCES)
    found = overview(planning, table, prices, now=CIRCUMSTANCES.now)
    return tradeoff(planner, CIRCUMSTANCES, found, Survive.POOL)


def test_the_points_lead_from_no_drain_to_all() -> None:
    found = of(CLUSTER, PRICES)
    assert found is not None
    assert [point.nodes for point in found.points] == [0, 1, 2, 3, 4, 5, 6]
    assert (found.losses, found.plan) == (2, found.points[-1])
    survived = [point.survived for point in found.points]
    assert survived[:6] == [2] * 6
    assert survived[6] < 2
    assert [bool(point.homeless) for point in found.points] == [False] * 6 + [True]
    assert found.points[0].room is None
    rooms = [point.room for point in found.points if point.room is not None]
    assert rooms == sorted(rooms, reverse=True)
    assert rooms[0] == (29 + 5) / 3
    assert found.points[0].per_month == 0


def test_a_limited_plan_is_shown_beside_all_possible_drains() -> None:
    for limit in ({"survive": Survive.POOL}, {"fallback_headroom": FallbackHeadroom(95)}):
        found = of(CLUSTER, **limit)
        assert found is not None
        assert found.points[-1].nodes == 6
        assert (found.plan.nodes, found.plan.survived) == (5, 2)


def test_nothing_to_drain_or_to_lose() -> None:
    assert of([each for each in CLUSTER if each["metadata"]["name"] not in ("s1", "s2")]) is None
    assert of(CLUSTER[:2]) is None


def test_large_plans_have_few_points() -> None:
    objects = [
        *(node(f"s{number}", labels={TYPE: "m"}, zone="ab"[number % 2], cpu="32") for number in range(4)),
        *(node(f"o{number:02}", ON_DEMAND) for number in range(30)),
        *(pod(f"p{number}", f"o{number:02}", cpu="100m") for number in range(30)),
    ]
    found = of(objects)
    assert found is not None
    assert [point.nodes for point in found.points] == [0, 4, 8, 11, 15, 19, 22, 26, 30]
    assert {point.survived for point in found.points} == {2}
