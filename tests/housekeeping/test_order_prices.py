"""Tests of the drain order ``cost`` in the daemon: which prices are used, and how often they are requested."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

import pytest

from rescheduler.errors import Retryable
from rescheduler.housekeeping.order_finder import LIFETIME
from rescheduler.observe.events import Planned
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.policy import DrainOrder
from rescheduler.providers.base import NodeRef
from rescheduler.providers.none import NoProvider
from tests.housekeeping.world import LoopWorld, world
from tests.planning.builders import ON_DEMAND, Manifest, node, pod

TYPE = "node.kubernetes.io/instance-type"
#: The pods have no controller, so no node is drained, and each round plans the same nodes.
CLUSTER: tuple[Manifest, ...] = (
    *(node(f"od-{number}", ON_DEMAND, labels={TYPE: f"m{number}"}) for number in (1, 2, 3)),
    node("spot-1", cpu="16"),
    *(pod(f"web-{number}", f"od-{number}", owner=None) for number in (1, 2, 3)),
)


class PricedProvider(NoProvider):
    """A provider that has the prices of some nodes."""

    def __init__(self, prices: Mapping[str, float]) -> None:
        self.prices = prices
        self.asked: list[str] = []

    def node_price(self, node: NodeRef, start: datetime, end: datetime, *, deadline: float) -> float:  # noqa: ARG002
        self.asked.append(node.name)
        if node.name not in self.prices:
            raise Retryable("no response")
        return self.prices[node.name]


def order(here: LoopWorld) -> list[str]:
    return [verdict.node for verdict in here.of(Planned)[-1].planning.verdicts]


CASES: dict[str, tuple[PriceList, Mapping[str, float], list[str], list[str]]] = {
    "the provider knows all": (
        PriceList(),
        {"od-1": 1, "od-2": 3, "od-3": 2},
        ["od-2", "od-3", "od-1"],
        ["od-1", "od-2", "od-3"],
    ),
    "the provider fails for one node": (
        PriceList(),
        {"od-1": 1, "od-3": 2},
        ["od-3", "od-1", "od-2"],
        ["od-1", "od-2", "od-3"],
    ),
    "the file comes first": (
        PriceList(by_type={("m2", "", False): Decimal(9)}),
        {"od-1": 1, "od-2": 0, "od-3": 2},
        ["od-2", "od-3", "od-1"],
        ["od-1", "od-3"],
    ),
    "a price per vCPU is for nodes that the provider does not know": (
        PriceList(per_vcpu=Decimal("0.5")),
        {"od-1": 1, "od-3": 3},
        ["od-3", "od-2", "od-1"],
        ["od-1", "od-2", "od-3"],
    ),
}


@pytest.mark.parametrize(("prices", "answers", "expected", "asked"), CASES.values(), ids=CASES)
def test_the_most_expensive_node_is_first(
    prices: PriceList, answers: Mapping[str, float], expected: list[str], asked: list[str]
) -> None:
    with world(*CLUSTER) as here:
        provider = PricedProvider(answers)
        here.loop(prices=prices, provider=provider, drain_order=DrainOrder.COST).round()
        assert (order(here), provider.asked) == (expected, asked)


def test_the_price_of_each_node_is_requested_once_an_hour() -> None:
    with world(*CLUSTER) as here:
        provider = PricedProvider({"od-1": 1, "od-2": 3})
        loop = here.loop(prices=PriceList(), provider=provider, drain_order=DrainOrder.COST)
        for _ in range(3):
            loop.round()
            here.pass_time(10)
        assert provider.asked == ["od-1", "od-2", "od-3"]
        here.add(node("od-4", ON_DEMAND))
        loop.round()
        assert provider.asked[3:] == ["od-4"]
        here.pass_time(LIFETIME.total_seconds())
        loop.round()
        assert provider.asked[4:] == ["od-1", "od-2", "od-3", "od-4"]


@pytest.mark.parametrize("other", [DrainOrder.AGE, DrainOrder.LEAST_REQUESTED])
def test_other_drain_orders_request_no_prices(other: DrainOrder) -> None:
    with world(*CLUSTER) as here:
        provider = PricedProvider({})
        here.loop(prices=PriceList(), provider=provider, drain_order=other).round()
        assert provider.asked == []
