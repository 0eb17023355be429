"""The prices for the drain order ``cost``: those of the user, and those that the cloud provider knows."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Final

from rescheduler.clock import Clock
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.housekeeping.bookkeeping import Pricing

#: How long the prices of the provider are used before it is asked again. New nodes are asked for at once.
LIFETIME: Final = timedelta(hours=1)


class OrderPrices:
    """Keeps the prices of *view* up to date. For the loop's thread."""

    def __init__(self, view: ClusterView, pricing: Pricing, clock: Clock) -> None:
        self._view = view
        self._pricing = pricing
        self._clock = clock
        self._asked_at: float | None = None
        self._known: dict[str, Decimal | None] = {}  # by node UID; None if the provider does not know the price

    def refresh(self) -> None:
        """Set the prices of the view. The provider is asked for on-demand nodes that it has not been asked for."""
        now = self._clock.monotonic()
        if self._asked_at is None or now - self._asked_at >= LIFETIME.total_seconds():
            self._asked_at, self._known = now, {}
        nodes = [info.node for info in self._view.node_infos().on_demand.values()]
        unasked = [node for node in nodes if node.metadata.uid not in self._known]
        facts = self._view.facts_of(node.name for node in unasked)
        answers = self._pricing.of((node, facts[node.name]) for node in unasked).by_node
        self._known = {node.metadata.uid: self._known.get(node.metadata.uid, answers.get(node.name)) for node in nodes}
        known = {node.name: price for node in nodes if (price := self._known[node.metadata.uid]) is not None}
        self._view.prices = replace(self._pricing.prices, by_node=known)
