"""The prices for the drain order ``cost`` and for orders of spot room, from the user and from the cloud provider."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Final

from predicates.objects import Node
from rescheduler.clock import Clock
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.housekeeping.bookkeeping import Pricing
from rescheduler.planning.money.prices import NodeFacts, PriceList

#: How long the prices of the provider are used before they are requested again. Prices of new nodes are requested at
#: once.
LIFETIME: Final = timedelta(hours=1)


class KnownPrices:
    """The user's prices, and the provider's prices from the last hour. Used by the loop's thread only."""

    def __init__(self, pricing: Pricing, clock: Clock) -> None:
        self._pricing = pricing
        self._clock = clock
        self._asked_at: float | None = None
        self._known: dict[str, Decimal | None] = {}  # by node UID; None if the provider has no price

    def of(self, nodes: Iterable[tuple[Node, NodeFacts]]) -> PriceList:
        """Return the prices of *nodes*. Only prices that were not requested before are requested from the provider."""
        now = self._clock.monotonic()
        if self._asked_at is None or now - self._asked_at >= LIFETIME.total_seconds():
            self._asked_at, self._known = now, {}
        requested = list(nodes)
        unasked = [(node, facts) for node, facts in requested if _key(node) not in self._known]
        answers = self._pricing.of(unasked).by_node
        self._known |= {_key(node): answers.get(node.name) for node, _ in unasked}
        known = {node.name: price for node, _ in requested if (price := self._known[_key(node)]) is not None}
        return replace(self._pricing.prices, by_node=known)


class OrderPrices:
    """Keeps the prices of *view* up to date. Used by the loop's thread only."""

    def __init__(self, view: ClusterView, prices: KnownPrices) -> None:
        self._view = view
        self._prices = prices

    def refresh(self) -> None:
        """Update the prices of the view for its current nodes."""
        nodes = [info.node for info in self._view.node_infos().on_demand.values()]
        facts = self._view.facts_of(node.name for node in nodes)
        self._view.prices = self._prices.of((node, facts[node.name]) for node in nodes)


def _key(node: Node) -> str:
    """Return the UID of *node*, or the name of a provider's template."""
    return node.metadata.uid or node.name
