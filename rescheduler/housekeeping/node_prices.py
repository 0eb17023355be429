"""The cloud provider's prices of on-demand nodes, for the status page.

They are queried in a separate thread, because a provider may respond slowly and neither rounds nor drains need them.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from decimal import Decimal
from typing import Final, TypeAlias

from predicates.objects import Node
from rescheduler.clock import Clock
from rescheduler.housekeeping.bookkeeping import Pricing
from rescheduler.observe.events import Event, InvolvedNode, Planned, Surveyed

#: Seconds until the price of a node is queried again, if the provider returned a price, and if it did not.
REFRESH: Final = 3600.0
RETRY: Final = 300.0

_Prices: TypeAlias = Mapping[str, Decimal]

log = logging.getLogger(__name__)


class NodePrices:
    """Listens for plans, and queries the prices of planned nodes that the user's price file does not contain.

    Used by the loop's thread only. A result is passed on with the next plan.
    """

    def __init__(
        self,
        pricing: Pricing,
        node: Callable[[str], Node | None],
        queries: Executor,
        clock: Clock,
        stopping: Callable[[], bool],
        on_change: Callable[[_Prices], None],
    ) -> None:
        """Create the listener. *node* returns the Node with a given name; *on_change* receives all changed prices.

        A query ends early when *stopping* returns True.
        """
        self._pricing = pricing
        self._node = node
        self._queries = queries
        self._clock = clock
        self._stopping = stopping
        self._on_change = on_change
        self._known: dict[InvolvedNode, Decimal] = {}
        self._due: dict[InvolvedNode, float] = {}  # the next query for each node; monotonic seconds
        self._query: tuple[Sequence[InvolvedNode], Future[_Prices]] | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case Planned() | Surveyed(Planned()):
                planned = event.planned if isinstance(event, Surveyed) else event
                if planned.complete:
                    self._collect()
                    self._forget_all_but(planned.nodes.values())
                    self._ask(planned)
            case _:
                pass

    def _collect(self) -> None:
        """Pass on the result of a completed query."""
        if self._query is None or not self._query[1].done():
            return
        (asked, query), self._query = self._query, None
        if (error := query.exception()) is not None:
            log.warning("cannot query prices for the status page: %s: %s", type(error).__name__, error)
        prices = query.result() if error is None else {}
        now, before = self._clock.monotonic(), dict(self._known)
        for node in asked:
            self._due[node] = now + (REFRESH if node.name in prices else RETRY)
            if node.name in prices:
                self._known[node] = prices[node.name]
        if self._known != before:
            self._on_change({node.name: price for node, price in self._known.items()})

    def _forget_all_but(self, nodes: Iterable[InvolvedNode]) -> None:
        current = set(nodes)
        self._known = {node: price for node, price in self._known.items() if node in current}
        self._due = {node: due for node, due in self._due.items() if node in current}

    def _ask(self, planned: Planned) -> None:
        """Start a query for the nodes that are due, the longest due first."""
        if self._query is not None:
            return
        now = self._clock.monotonic()
        listed = {facts.name for facts in planned.facts.values() if self._pricing.lists(facts)}
        due = [node for node in planned.nodes.values() if self._due.get(node, now) <= now and node.name not in listed]
        due.sort(key=lambda node: self._due.get(node, 0.0))
        nodes = [node for node in (self._node(involved.name) for involved in due) if node is not None]
        if nodes:
            self._query = due, self._queries.submit(self._pricing.ask, self._until_stopped(nodes))

    def _until_stopped(self, nodes: Iterable[Node]) -> Iterator[Node]:
        for node in nodes:
            if self._stopping():
                return
            yield node
