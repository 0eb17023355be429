"""Orders of spot room from the cloud provider: it adds spot nodes for one on-demand node at a time. Separate
from the other parts: it is the second supplier of spot room.

The open order is stored in the memory, so that after a restart or a change of the leader it is continued, or its nodes
are given back. While an order is open, no other node is drained: the room is for the pods of the order's node.
"""

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Final

from predicates.objects import Node
from rescheduler.clock import Clock
from rescheduler.draining.state import Drain, Why
from rescheduler.errors import NotLeading, ReschedulerError, Retryable
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.room import GivenBack, SpotRequests
from rescheduler.housekeeping.drain_history import DrainHistory
from rescheduler.housekeeping.order_finder import OrderFinder, ending_of
from rescheduler.housekeeping.placeholder_room import NoRoomOrders, involved_node
from rescheduler.observe.events import (
    ErrorKind,
    Held,
    InvolvedNode,
    Report,
    RoomEnded,
    RoomEnding,
    RoomOrdered,
    Trouble,
    Waiting,
)
from rescheduler.planning.forms import count
from rescheduler.planning.outcome import Planning, Verdict
from rescheduler.planning.room.increase import IncreaseProgress, SpotOrder, increase_progress, why_not_ordered
from rescheduler.planning.room.orders import RoomOrder, candidates
from rescheduler.settings import MakeRoom, RoomSettings

#: How long after the end of an order machines that arrive late are given back, unless --room-timeout is longer.
LATEST: Final = timedelta(hours=1)


class ProviderRoomOrders(NoRoomOrders):
    """Orders of spot nodes from the provider, in addition to *placeholders*. Used by the loop's thread only.

    If the provider is not used to make room, only nodes of an earlier order are given back.
    """

    def __init__(
        self,
        placeholders: NoRoomOrders,
        requests: SpotRequests,
        view: ClusterView,
        history: DrainHistory,
        finder: OrderFinder,
        settings: RoomSettings,
        clock: Clock,
        report: Report,
    ) -> None:
        self._placeholders = placeholders
        self._requests = requests
        self._view = view
        self._history = history
        self._finder = finder
        self._settings = settings
        self._clock = clock
        self._report = report
        self._wanted = settings.mode is MakeRoom.PROVIDER

    def keep(self, *, paused: bool) -> None:
        self._placeholders.keep(paused=paused)
        self.order = self._placeholders.order
        order = self._history.spot_orders.open
        if order is None:
            return
        try:
            if order.closing:
                self._give_back(order)
            else:
                self._follow(order, wanted=self._wanted and not paused)
        except NotLeading:
            pass
        except ReschedulerError as error:
            self._report(Trouble(ErrorKind.PROVIDER, f"{self._requests.provider}: {error}", order.node))

    def make(self, verdicts: Iterable[Verdict]) -> Held | None:
        if not self._wanted:
            return self._placeholders.make(verdicts)
        if self.order is not None:
            return Held(Waiting.MAKING_ROOM, f"{self.order}; the order ends at {self.order.until:%Y-%m-%dT%H:%M:%SZ}")
        nodes = candidates(verdicts)
        if not nodes or (held := self._why_not()) is not None:
            return held if nodes else None
        try:
            return self._begin(nodes)
        except NotLeading:
            return None
        except ReschedulerError as error:
            self._report(Trouble(ErrorKind.PROVIDER, f"{self._requests.provider}: {error}"))
            return Held(Waiting.PROVIDER_SILENT, f"spot nodes could not be ordered: {error}")

    def drained(self, drain: Drain) -> None:
        self._placeholders.drained(drain)
        order = self._history.spot_orders.open
        if order is None or order.closing or order.node != drain.node:
            return
        failure, self.order = drain.failure, None
        if failure is None:
            self._end(order, RoomEnding.FILLED, "")
        elif failure.why is not Why.LEADERSHIP_LOST:
            self._end(order, RoomEnding.DRAIN_FAILED, str(failure.detail))

    def explained(self, planning: Planning) -> Planning:
        if not self._wanted:
            return self._placeholders.explained(planning)
        return self._finder.explained(planning)

    def _why_not(self) -> Held | None:
        """Return why no order may begin, or None."""
        if (order := self._history.spot_orders.open) is not None:
            state = "unused spot nodes are being given back" if order.closing else "the provider does not respond"
            return Held(Waiting.MAKING_ROOM, f"order for node {order.node}: {state}")
        if (until := self._history.room_paused_until()) is None:
            return None
        detail = "no spot nodes arrived for the last order, or they were not used"
        return Held(Waiting.NO_SPOT_CAPACITY, f"{detail}; no new order before {until:%Y-%m-%dT%H:%M:%SZ}")

    def _follow(self, order: SpotOrder, *, wanted: bool) -> None:
        """Check the progress of the open order: keep waiting, or end it."""
        current = self._progress(order)
        if wanted and current.open:
            self.order = current
            return
        self._end(order, ending_of(current.state, wanted=wanted), str(current))

    def _progress(self, order: SpotOrder) -> IncreaseProgress:
        node = self._view.facts.node(order.node)
        arrived = [spot.name for spot in self._joined(order) if self._view.facts.is_target(spot.name)]
        return increase_progress(
            order,
            arrived,
            node.metadata.uid if node is not None else None,
            self._clock.now(),
            self._settings.timeout,
            has_pods=bool(node is not None and self._view.must_move(order.node)),
        )

    def _begin(self, nodes: Collection[str]) -> Held | None:
        """Order spot nodes for the first of *nodes*, in drain order, for which an order is possible."""
        why: Held | None = None
        for order in self._finder.find(nodes, None):
            held = self._order(order)
            if held.waiting is Waiting.MAKING_ROOM:
                return held
            self._finder.reject(order.node, held.detail)
            why = why or held
        return why

    def _order(self, room_order: RoomOrder) -> Held:
        """Store the order, then request its nodes from the provider."""
        size, orders, now = self._requests.size_for(room_order.template), self._history.spot_orders, self._clock.now()
        if size is None:
            return Held(Waiting.NO_SPOT_CAPACITY, _no_group(room_order))
        if why := why_not_ordered(room_order.count, size, orders, now, self._settings.per_hour):
            return Held(Waiting.NO_SPOT_CAPACITY, why)
        node = involved_node(self._view, room_order.node)
        order = SpotOrder(room_order.node, node.uid, size.group, room_order.count, size.target, now)
        self._history.note_spot_orders(orders.begun(order))
        if not self._history.save():
            self._history.note_spot_orders(orders)
            return Held(Waiting.MAKING_ROOM, "the order of spot nodes could not be stored yet")
        try:
            self._requests.order(size.group, room_order.count)
        except Retryable as error:  # the provider may have accepted the request, so the order stays open
            self._report(Trouble(ErrorKind.PROVIDER, f"{self._requests.provider}: {error}", room_order.node))
        except ReschedulerError as error:
            self._history.note_spot_orders(orders)
            return self._refused(node, str(error))
        until = now + self._settings.timeout
        pods = len(room_order.plan.placements)
        self._report(
            RoomOrdered(node, pods, room_order.count, room_order.template, str(room_order.exchange), until, size.group)
        )
        return Held(
            Waiting.MAKING_ROOM,
            f"{count(room_order.count, 'spot node')} ordered for the pods of node {room_order.node}",
        )

    def _refused(self, node: InvolvedNode, why: str) -> Held:
        self._finder.ended(node.name, RoomEnding.REFUSED)
        self._report(RoomEnded(node, RoomEnding.REFUSED, why))
        return Held(Waiting.NO_SPOT_CAPACITY, f"{self._requests.provider} adds no spot nodes: {why}")

    def _end(self, order: SpotOrder, ending: RoomEnding, detail: str) -> None:
        """End an order: from now on, its unused nodes are given back."""
        self._history.note_spot_orders(self._history.spot_orders.closing(self._clock.now()))
        self._finder.ended(order.node, ending)
        self._history.save()
        self._report(RoomEnded(involved_node(self._view, order.node), ending, detail))

    def _give_back(self, order: SpotOrder) -> None:
        """Cancel machines that have not arrived, and give back nodes without pods that would have to move."""
        assert order.closing_since is not None
        nodes = self._joined(order)
        if self._clock.now() >= order.closing_since + max(self._settings.timeout, LATEST):
            self._keep(nodes)
            detail = f"{self._requests.provider}: not all spot nodes of group {order.group} could be given back"
            self._report(Trouble(ErrorKind.PROVIDER, detail, order.node))
            return
        if not self._history.save() or (stored := self._history.spot_orders.open) is None:
            return  # tells other leaders which nodes are given back
        complete = self._requests.lower(stored)
        unused = [node for node in nodes if not self._view.must_move(node.name)][-order.count :]
        results = [self._requests.give_back(order, node) for node in unused]
        if complete and GivenBack.PENDING not in results:
            self._keep(node for node in nodes if node not in unused)

    def _keep(self, nodes: Iterable[Node]) -> None:
        """Keep *nodes*, and end the open order."""
        for node in nodes:
            self._requests.keep(node)
        self._history.note_spot_orders(self._history.spot_orders.ended())

    def _joined(self, order: SpotOrder) -> list[Node]:
        """Record and return the nodes that have joined since the open *order*, oldest first."""
        nodes = self._requests.joined(order)
        self._history.note_spot_orders(self._history.spot_orders.arrived(node.metadata.uid for node in nodes))
        return nodes


def _no_group(order: RoomOrder) -> str:
    """Return why no group of the provider can serve *order*."""
    if order.template != order.node:
        return f"no group of the provider has spot nodes like {order.template}"
    return "there is no spot node, and no group of the provider has a template with the labels of spot nodes"
