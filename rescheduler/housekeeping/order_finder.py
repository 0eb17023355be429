"""Find orders of spot room, with the prices of nodes, and record the reasons if there are none."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from predicates.objects import Node
from rescheduler.clock import Clock
from rescheduler.errors import InputError
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.room import SpotTemplates
from rescheduler.housekeeping.bookkeeping import Pricing
from rescheduler.housekeeping.candidates import Candidates
from rescheduler.housekeeping.drain_history import DrainHistory
from rescheduler.net import files
from rescheduler.observe.events import Event, InvolvedNode, Planned, RoomEnding, Surveyed
from rescheduler.planning.money.prices import NodeFacts, PriceKey, PriceList, parse, template_facts
from rescheduler.planning.outcome import Planning
from rescheduler.planning.room.orders import (
    MOST_GROUPS,
    Explanations,
    NotOrdered,
    RoomOrder,
    RoomSearch,
    UnmetOrder,
)
from rescheduler.planning.room.placeholders import OrderState
from rescheduler.planning.what_if.added_spot import NewSpot

# The prices for the drain order ``cost`` and for orders of spot room, from the user and from the cloud provider.

log = logging.getLogger(__name__)


class PriceFile:
    """The user's price file, which may be a mounted ConfigMap. Used by the loop's thread only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] | None = None  # of the file that was read last; None: none was

    def changed(self) -> Mapping[PriceKey, Decimal] | None:
        """Return the prices if the file is another than at the last call, or None if it is the same or unusable."""
        file = files.price_file(self._path)
        try:
            status = file.stat()
        except OSError:
            return None  # a ConfigMap that nobody has written yet, or the moment in which it is replaced
        seen = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
        if seen == self._seen:
            return None
        self._seen = seen
        try:
            return parse(files.read_text(file))
        except (OSError, ValueError, InputError) as error:
            log.warning("--prices %s: %s: the prices from before are used", files.printable(file), error)
            return None


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

    @property
    def has_commitments(self) -> bool:
        """Whether the order of drains depends on prices because some nodes are paid anyway."""
        return bool(self._pricing.prices.commitments)

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
        nodes = [info.node for info in self._view.facts.node_infos.on_demand.values()]
        priced = self._view.facts.priced_on_demand(node.name for node in nodes)
        self._view.know(prices=self._prices.of((node, priced[node.name]) for node in nodes))


def _key(node: Node) -> str:
    """Return the UID of *node*, or the name of a provider's template."""
    return node.metadata.uid or node.name


# Find orders of spot room, and record the reasons if there are none. Shared by all kinds of orders.

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
        view: ClusterView,
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
        self._waits = False  # whether the wait until then was logged
        self._explanations = Explanations()
        self._unmet: UnmetOrder | None = None  # the last one, until the next may begin
        self._not_ordered: dict[str, str] = {}  # by node: why the last search found no order

    def find(self, nodes: Collection[str], most_pods: int | None) -> Iterator[RoomOrder]:
        """Yield the orders that are possible for *nodes*, which are in drain order, if a search is due.

        *most_pods* is the limit for placeholders; None if none are needed.
        """
        if (now := self._clock.monotonic()) < self._search_at:
            self._say_wait(self._search_at - now)
            return
        self._waits = False
        self._search_at = now + SEARCH.total_seconds()
        offered = self._templates.nodes()
        offered_facts = ((template, template_facts(template)) for template in offered.values())
        prices = self._prices.of([*self._priced(), *offered_facts])
        search, began = self._search(prices, most_pods, offered.values()), self._clock.monotonic()
        for node in self._nodes_to_consider(nodes):
            order = search.order(node)
            if isinstance(order, RoomOrder) and self._candidates.learn_templates(order.plan):
                search = self._search(prices, most_pods, offered.values())
                order = search.order(node)
            if isinstance(order, NotOrdered):
                self.reject(node, order.why)
            elif not self._candidates.judge(order.plan, templates_known=True):
                yield order
            if self._clock.monotonic() >= began + LONGEST.total_seconds():
                break

    def _search(self, prices: PriceList, most_pods: int | None, offered: Iterable[Node]) -> RoomSearch:
        """Return a search for orders in the current state; *offered* are the provider's own templates."""
        facts = self._view.facts
        return RoomSearch(facts.snapshot, facts.policy, self._view.circumstances, prices, most_pods, offered)

    def _priced(self) -> Iterator[tuple[Node, NodeFacts]]:
        """Yield the nodes whose prices an order depends on: all on-demand nodes, and a spot node of each group."""
        facts = self._view.facts
        on_demand = {name: info.node for name, info in facts.node_infos.on_demand.items()}
        yield from ((on_demand[name], known) for name, known in facts.priced_on_demand(on_demand).items())
        likes = NewSpot(facts.snapshot, facts.policy).like_present(of_pools=True)
        for change in islice(likes, MOST_GROUPS):
            if (node := facts.node(change.like)) is not None and (known := facts.priced(change.like)) is not None:
                yield node, known

    def _say_wait(self, seconds: float) -> None:
        """Log once per wait why no order begins."""
        if not self._waits:
            log.info("the next search for an order of spot room is in %.0f s: at most one a minute", seconds)
        self._waits = True

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


# The cloud provider's prices of on-demand nodes, for the status page.
#
# They are queried in a separate thread, because a provider may respond slowly and neither rounds nor drains need them.

#: Seconds until the price of a node is queried again, if the provider returned a price, and if it did not.
REFRESH: Final = 3600.0
RETRY: Final = 300.0

_Prices: TypeAlias = Mapping[str, Decimal]


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
