"""Find orders of spot room, and record the reasons if there are none. Shared by all kinds of orders."""

from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Final

from rescheduler.clock import Clock
from rescheduler.execution.room_view import RoomView
from rescheduler.execution.spot_templates import SpotTemplates
from rescheduler.housekeeping.candidates import Candidates
from rescheduler.housekeeping.drain_history import DrainHistory
from rescheduler.housekeeping.order_prices import KnownPrices
from rescheduler.observe.events import RoomEnding
from rescheduler.planning.money.prices import template_facts
from rescheduler.planning.outcome import Planning
from rescheduler.planning.room.explanations import Explanations, UnmetOrder
from rescheduler.planning.room.orders import NotOrdered, RoomOrder
from rescheduler.planning.room.progress import OrderState

#: Pause between two searches for an order. A search copies the snapshot.
SEARCH: Final = timedelta(minutes=1)

#: A search that has lasted this long considers no further nodes.
LONGEST: Final = timedelta(seconds=2)

_ENDINGS: Final = {OrderState.TIMED_OUT: RoomEnding.TIMED_OUT, OrderState.UNUSED: RoomEnding.UNUSED}


def ending_of(state: OrderState, *, wanted: bool) -> RoomEnding:
    """Return the ending of an order in *state*. *wanted* states whether room is still needed."""
    return _ENDINGS.get(state, RoomEnding.WITHDRAWN) if wanted else RoomEnding.WITHDRAWN


class OrderFinder:
    """Finds orders at intervals. Used by the loop's thread only."""

    def __init__(
        self,
        view: RoomView,
        templates: SpotTemplates,
        prices: KnownPrices,
        candidates: Candidates,
        history: DrainHistory,
        clock: Clock,
    ) -> None:
        self._view = view
        self._templates = templates
        self._prices = prices
        self._candidates = candidates
        self._history = history
        self._clock = clock
        self._search_at = clock.monotonic()
        self._explanations = Explanations()
        self._unmet: UnmetOrder | None = None  # the last one, until the next may begin
        self._not_ordered: dict[str, str] = {}  # by node: why the last search found no order

    def find(self, nodes: Collection[str], most_pods: int | None) -> Iterator[RoomOrder]:
        """Yield the orders that are possible for *nodes*, which are in drain order, if a search is due.

        *most_pods* is the limit for placeholders; None if none are needed.
        """
        if (now := self._clock.monotonic()) < self._search_at:
            return
        self._search_at = now + SEARCH.total_seconds()
        offered = self._templates.nodes()
        offered_facts = ((template, template_facts(template)) for template in offered.values())
        prices = self._prices.of([*self._view.priced(), *offered_facts])
        search, began = self._view.search(prices, most_pods, offered), self._clock.monotonic()
        for node in self._nodes_to_consider(nodes):
            order = search.order(node)
            if isinstance(order, RoomOrder) and self._candidates.learn_templates(order.plan):
                search = self._view.search(prices, most_pods, offered)
                order = search.order(node)
            if isinstance(order, NotOrdered):
                self.reject(node, order.why)
            elif not self._candidates.judge(order.plan, templates_known=True):
                yield order
            if self._clock.monotonic() >= began + LONGEST.total_seconds():
                break

    def reject(self, node: str, why: str) -> None:
        """Record why there is no order for *node*."""
        self._not_ordered[node] = why

    def make_due(self) -> None:
        """Make the next search due immediately."""
        self._search_at = self._clock.monotonic()

    def begun(self) -> None:
        """Record that an order began."""
        self._unmet = None

    def ended(self, node: str, ending: RoomEnding) -> None:
        """Record the end of the order for *node*. After a failure, the next order is delayed."""
        if ending is RoomEnding.FILLED:
            self._history.room_succeeded()
        elif ending is not RoomEnding.WITHDRAWN:
            until = self._history.room_failed()
            self._unmet = UnmetOrder(node, until) if ending is RoomEnding.TIMED_OUT else None

    def explained(self, planning: Planning) -> Planning:
        """Return *planning* with the reasons why no room is made for nodes, or *planning* itself if there are none."""
        if self._unmet is not None and self._clock.now() >= self._unmet.until:
            self._unmet = None
        return self._explanations.of(planning, self._unmet, self._not_ordered)

    def _nodes_to_consider(self, nodes: Collection[str]) -> list[str]:
        """Return the *nodes* that are still to be considered, or all *nodes* if each was considered once."""
        remaining = [node for node in nodes if node not in self._not_ordered]
        if not remaining:
            self._not_ordered = {}
        return remaining or list(nodes)
