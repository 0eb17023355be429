"""The cloud provider's prices on the status page: which nodes are queried, and when."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from predicates.objects import Node, NodeSpec, ObjectMeta
from rescheduler.clock import SystemClock
from rescheduler.execution.context import querying
from rescheduler.housekeeping.bookkeeping import Pricing
from rescheduler.housekeeping.command_reads import provider_prices
from rescheduler.housekeeping.order_finder import REFRESH, RETRY, NodePrices
from rescheduler.observe.events import InvolvedNode, Planned, Surveyed
from rescheduler.observe.status import Status, as_json
from rescheduler.planning.money.prices import NodeFacts, PriceList
from rescheduler.planning.outcome import Plan, Planning
from tests.observe.builders import NOW
from tests.providers import cherry
from tests.providers.clocks import StepClock

LISTED = PriceList(by_type={("listed", "", False): Decimal(9)}, per_vcpu=Decimal(1), currency="EUR")


class PriceClock(SystemClock):
    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


class LaterExecutor(Executor):
    """An executor that runs its tasks when the test requests it."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()

        def task() -> None:
            try:
                done.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - as ThreadPoolExecutor does
                done.set_exception(error)

        self.tasks.append(task)
        return done

    def run(self) -> None:
        while self.tasks:
            self.tasks.pop(0)()


class Prices:
    """The listener with a status page, and its queries to the provider."""

    def __init__(self, known: dict[str, Decimal]) -> None:
        self.known = known
        self.asked: list[list[str]] = []
        self.clock, self.queries, self.status, self.stopping = PriceClock(), LaterExecutor(), Status(LISTED), False
        self.listener = NodePrices(
            Pricing(LISTED, self._ask), node, self.queries, self.clock, lambda: self.stopping, self.status.show_prices
        )

    def _ask(self, nodes: Iterable[Node]) -> Mapping[str, Decimal]:
        self.asked.append([node.name for node in nodes])
        if not self.known:
            raise ValueError("broken")
        return {name: self.known[name] for name in self.asked[-1] if name in self.known}

    def round(self, *names: str, at: float = 0, complete: bool = True, generation: int = 1) -> dict[str, float | None]:
        """Report a plan for the nodes *names*, run the queries, and return the prices on the page."""
        event = plans(*names, complete=complete, generation=generation)
        self.clock.seconds = at
        self.listener(event)
        self.queries.run()
        self.status(event)
        return {entry["node"]: entry["facts"]["pricePerHour"] for entry in as_json(self.status.board)["nodes"]}


def node(name: str) -> Node | None:
    return None if name == "deleted" else Node(metadata=ObjectMeta(name=name))


def plans(*names: str, complete: bool = True, generation: int = 1) -> Planned:
    facts = {name: NodeFacts(name, False, name, "", 4000, 1 << 30, 0, 0, None) for name in names}
    nodes = {name: InvolvedNode(name, f"{name}-{generation}") for name in names}
    planning = Planning(tuple(Plan(name, ()) for name in names), len(names), 0)
    return Planned(NOW, planning, nodes, 0.1, complete, facts)


def test_the_file_is_first_the_provider_second_and_the_flags_are_last() -> None:
    prices = Prices({"listed": Decimal(7), "rented": Decimal("0.5")})
    nodes = ("listed", "rented", "unknown", "deleted")
    assert prices.round(*nodes) == {"listed": 9.0, "rented": 4.0, "unknown": 4.0, "deleted": 4.0}
    assert prices.round(*nodes) == {"listed": 9.0, "rented": 0.5, "unknown": 4.0, "deleted": 4.0}
    assert prices.asked == [["rented", "unknown"]]


def test_prices_are_queried_again_when_they_are_old_or_unknown() -> None:
    prices = Prices({"rented": Decimal("0.5")})
    for at in (0.0, 1.0, RETRY, RETRY + 2, RETRY + 3, REFRESH, REFRESH + 2):
        prices.round("rented", "unknown", at=at)
    assert prices.asked == [["rented", "unknown"], ["unknown"], ["unknown"], ["rented"]]


def test_a_price_that_is_unknown_later_is_still_shown() -> None:
    prices = Prices({"rented": Decimal("0.5"), "other": Decimal(1)})
    for at in (0.0, 1.0):
        prices.round("rented", at=at)
    del prices.known["rented"]
    for at in (REFRESH + 2, REFRESH + 3):
        assert prices.round("rented", at=at) == {"rented": 0.5}


def test_a_new_node_with_the_name_of_an_old_one_is_queried() -> None:
    prices = Prices({"rented": Decimal("0.5")})
    for _ in range(2):
        prices.round("rented")
    prices.known["rented"] = Decimal(2)
    prices.round("rented", generation=2)
    assert prices.round("rented", generation=2) == {"rented": 2.0}


def test_a_slow_query_is_not_repeated() -> None:
    prices = Prices({"rented": Decimal(1)})
    for _ in range(3):
        prices.listener(plans("rented"))
    prices.queries.run()
    assert prices.asked == [["rented"]]


def test_a_query_ends_when_the_program_stops() -> None:
    prices = Prices({"rented": Decimal(1)})
    prices.listener(plans("rented"))
    prices.stopping = True
    prices.queries.run()
    assert prices.asked == [[]]


def test_a_replica_that_does_not_lead_queries_too() -> None:
    prices = Prices({"rented": Decimal("0.5")})
    for _ in range(2):
        prices.listener(Surveyed(plans("rented")))
        prices.queries.run()
    assert dict(prices.status.board.prices.by_node) == {"rented": Decimal("0.5")}


def test_a_plan_of_some_nodes_changes_nothing() -> None:
    prices = Prices({"rented": Decimal("0.5")})
    prices.round("rented", complete=False)
    assert prices.asked == []


def test_prices_of_a_cloud_are_shown() -> None:
    clock = StepClock()
    with cherry.serving(clock) as server, cherry.providing(server, clock) as provider, querying(clock) as queries:
        machine, status = cherry.add(server), Status(PriceList(currency="EUR"))
        rented = Node(
            metadata=ObjectMeta(name=machine.hostname), spec=NodeSpec(provider_id=f"cherryservers://{machine.id}")
        )
        pricing = Pricing(PriceList(), partial(provider_prices, provider, clock=clock))
        listener = NodePrices(pricing, lambda _: rented, queries, clock, lambda: False, status.show_prices)
        for _ in range(2):
            listener(plans(machine.hostname))
            queries.submit(lambda: None).result()  # after the query, because there is one thread
        assert status.board.prices == PriceList(by_node={machine.hostname: Decimal("0.209")}, currency="EUR")


def test_an_unexpected_error_is_logged_and_the_query_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    prices = Prices({})
    for at in (0.0, 1.0, RETRY + 1):
        assert prices.round("rented", at=at) == {"rented": 4.0}
    assert prices.asked == [["rented"], ["rented"]]
    assert [record.message for record in caplog.records] == [
        "cannot query prices for the status page: ValueError: broken"
    ]
