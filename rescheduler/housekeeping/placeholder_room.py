"""Orders of spot room: placeholders that make the cluster's autoscaler add spot nodes for one on-demand node at
a time.
"""

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final

from predicates.objects import Pod
from predicates.snapshot import ROOM_NAMESPACE
from rescheduler.clock import Clock
from rescheduler.draining.state import Drain, Why
from rescheduler.errors import Conflict, Forbidden, NotFound, NotLeading, Permanent, ReschedulerError, Retryable
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import PlaceholderApi
from rescheduler.housekeeping.drain_history import DrainHistory
from rescheduler.housekeeping.order_finder import OrderFinder, ending_of
from rescheduler.observe.events import (
    ErrorKind,
    Held,
    InvolvedNode,
    PlaceholdersObserved,
    Report,
    RoomEnded,
    RoomEnding,
    RoomOrdered,
    Trouble,
    Waiting,
)
from rescheduler.planning.outcome import Planning, Verdict
from rescheduler.planning.room.manifests import PlaceholderTerms, label_keys_of, manifest, volume_terms, why_not_served
from rescheduler.planning.room.orders import RoomOrder, candidates
from rescheduler.planning.room.placeholders import OrderProgress, Placeholder, progress
from rescheduler.settings import RoomSettings

# Create and delete the placeholders of orders.

#: Seconds after a failed deletion until the next attempt.
_RETRY_SECONDS: Final = 30.0

_COMPONENT: Final = "deploy/components/make-room contains the namespace, the PriorityClass and the permissions"


class PlaceholderWrites:
    """The writes to placeholders of one installation. Used by the loop's thread only."""

    def __init__(
        self,
        api: PlaceholderApi,
        view: ClusterView,
        settings: RoomSettings,
        identity: str,
        clock: Clock,
        report: Report,
    ) -> None:
        self._api = api
        self._view = view
        self._settings = settings
        self._identity = identity
        self._clock = clock
        self._report = report
        self._deleted: frozenset[str] = frozenset()  # UIDs of placeholders that the watch may still report
        self._retry_at = clock.monotonic()

    def remaining(self, placeholders: Iterable[Placeholder]) -> list[Placeholder]:
        """Return the *placeholders* that are not being deleted."""
        return [
            placeholder
            for placeholder in placeholders
            if not placeholder.leaving and placeholder.ref.uid not in self._deleted
        ]

    def why_not(self) -> str:
        """Return why placeholders cannot be created, or ""."""
        if self._view.facts.namespace_uid(ROOM_NAMESPACE):
            return ""
        return f"namespace {ROOM_NAMESPACE} does not exist; {_COMPONENT}"

    def serves(self, pods: Collection[Pod], total: int) -> bool:
        """Return whether placeholders can represent *pods*, and an order may have *total* placeholders."""
        return total <= self._settings.most and not any(why_not_served(pod.cls) for pod in pods)

    def create(self, pods: Collection[Pod], node: str, until: datetime) -> None:
        """Create placeholders for *pods* of *node*.

        Raises Permanent with advice if the API server rejects them, and the errors of requests.
        """
        known = self._view.facts.node(node)
        assert known is not None
        terms = PlaceholderTerms(
            self._identity,
            self._view.facts.policy.spot_label,
            until,
            known.metadata.uid,
            self._view.facts.namespace_uid(ROOM_NAMESPACE),
            self._settings.image,
            self._settings.life_seconds,
        )
        keys = label_keys_of(pod.cls for pod in self._view.must_move(node))
        for pod in pods:
            try:
                self._api.create(manifest(pod, terms, volume_terms(self._view.snapshot, pod), keys))
            except (Forbidden, NotFound) as error:
                raise Permanent(f"{error}; {_COMPONENT}") from error

    def delete(self, placeholders: Collection[Placeholder]) -> list[Placeholder]:
        """Delete *placeholders* unless a recent attempt failed. Return the placeholders that were deleted now.

        Raises the errors of requests.
        """
        if self._clock.monotonic() < self._retry_at:
            return []
        new = self.remaining(placeholders)
        for placeholder in new:
            self._api.delete(placeholder.ref)
            self._deleted |= {placeholder.ref.uid}
        present = {placeholder.ref.uid for placeholder in self._view.facts.placeholders()}
        self._deleted &= present
        return new

    def failed(self, error: ReschedulerError, node: str) -> None:
        """Report that placeholders could not be deleted. The next attempt is made later."""
        self._retry_at = self._clock.monotonic() + _RETRY_SECONDS
        self._report(Trouble(ErrorKind.WRITE, f"placeholders could not be deleted: {error}; {_COMPONENT}", node))


# The placeholders in the cluster are the only state of an order, so that after a restart or a change of the leader it
# is continued or removed. While an order is open, no other node is drained: the room is for the pods of the order's
# node.


class NoRoomOrders:
    """Makes no orders; the base class of all kinds of orders."""

    order: OrderProgress | None = None  #: the open order

    def keep(self, *, paused: bool) -> None:
        """Continue the open order, or remove placeholders without an order. Called in each round of the leader."""

    def make(self, verdicts: Iterable[Verdict]) -> Held | None:  # noqa: ARG002
        """Begin an order if no node can be drained. Return why the round ends without a drain, or None.

        *verdicts* are the verdicts of the round.
        """
        return None

    def drained(self, drain: Drain) -> None:
        """Remove the placeholders that remain after the drain of their node."""

    def explained(self, planning: Planning) -> Planning:
        """Return *planning* with the reasons why no room is made for nodes, or *planning* itself if there are none."""
        return planning


class RoomOrders(NoRoomOrders):
    """Orders by placeholders. Used by the loop's thread only."""

    def __init__(
        self,
        writes: PlaceholderWrites,
        view: ClusterView,
        history: DrainHistory,
        finder: OrderFinder,
        settings: RoomSettings,
        clock: Clock,
        report: Report,
    ) -> None:
        self._writes = writes
        self._view = view
        self._history = history
        self._finder = finder
        self._settings = settings
        self._clock = clock
        self._report = report
        self._observed: tuple[int, int] = (0, 0)

    def keep(self, *, paused: bool) -> None:
        self.order = None
        placeholders = self._writes.remaining(self._view.facts.placeholders())
        self._observe(placeholders)
        by_node: defaultdict[tuple[str, str], list[Placeholder]] = defaultdict(list)
        for placeholder in placeholders:
            by_node[placeholder.for_node, placeholder.for_node_uid].append(placeholder)
        for _, group in sorted(by_node.items()):
            current = self._progress(group)
            wanted = self._settings.wanted and not paused and self.order is None
            if wanted and current.open:
                self.order = current if self._adjust(current) else None
            else:
                self._end(current.node, group, ending_of(current.state, wanted=wanted), str(current))

    def make(self, verdicts: Iterable[Verdict]) -> Held | None:
        if not self._settings.wanted:
            return None
        if self.order is not None:
            return Held(Waiting.MAKING_ROOM, f"{self.order}; {_until(self.order)}")
        nodes = candidates(verdicts)
        if not nodes or self._writes.remaining(self._view.facts.placeholders()):
            return None
        if why := self._why_not():
            return Held(Waiting.NO_SPOT_CAPACITY, why)
        order = next(self._finder.find(nodes, self._settings.most), None)
        return self._order(order) if order is not None else None

    def drained(self, drain: Drain) -> None:
        placeholders = self._writes.remaining(self._view.facts.placeholders(drain.node))
        ordered = self.order is not None and self.order.node == drain.node
        if drain.rolled_back or not (placeholders or ordered):
            return
        failure, self.order = drain.failure, None
        if failure is not None and failure.why is Why.LEADERSHIP_LOST:
            return
        self._finder.make_due()
        ending = RoomEnding.FILLED if failure is None else RoomEnding.DRAIN_FAILED
        self._end(drain.node, placeholders, ending, failure.detail if failure is not None else "")

    def explained(self, planning: Planning) -> Planning:
        return self._finder.explained(planning)

    def _progress(self, group: Collection[Placeholder]) -> OrderProgress:
        node = next(iter(group)).for_node
        known = self._view.facts.node(node)
        uid = known.metadata.uid if known is not None else None
        return progress(
            group,
            uid,
            self._view.must_move(node),
            self._view.facts.is_target,
            self._clock.now(),
            self._settings.timeout,
        )

    def _observe(self, placeholders: Collection[Placeholder]) -> None:
        running = sum(placeholder.running for placeholder in placeholders)
        counts = running, len(placeholders) - running
        if placeholders or counts != self._observed:
            self._observed = counts
            self._report(PlaceholdersObserved(*counts))

    def _adjust(self, order: OrderProgress) -> bool:
        """Create missing placeholders and delete surplus ones. Return whether the order continues."""
        try:
            self._writes.delete(order.surplus)
            if order.missing and self._writes.serves(order.missing, order.total):
                self._writes.create(order.missing, order.node, order.until)
        except (Retryable, Conflict, NotLeading):
            pass  # retried in the next round
        except ReschedulerError as error:
            placeholders = self._writes.remaining(self._view.facts.placeholders(order.node))
            self._end(order.node, placeholders, RoomEnding.REFUSED, str(error))
            return False
        return True

    def _why_not(self) -> str:
        """Return why no order may begin, or ""."""
        if (until := self._history.room_paused_until()) is not None:
            return f"no spot nodes arrived for the last order; no new order before {until:%Y-%m-%dT%H:%M:%SZ}"
        return self._writes.why_not()

    def _order(self, order: RoomOrder) -> Held:
        until = self._clock.now() + self._settings.timeout
        pods = self._view.must_move(order.node)
        involved = involved_node(self._view, order.node)
        try:
            self._writes.create(pods[:1], order.node, until)
        except (Retryable, Conflict, NotLeading) as error:
            return Held(Waiting.MAKING_ROOM, f"placeholders for node {order.node} could not be created: {error}")
        except ReschedulerError as error:
            self._report(RoomEnded(involved, RoomEnding.REFUSED, str(error)))
            self._finder.ended(order.node, RoomEnding.REFUSED)
            return Held(Waiting.NO_SPOT_CAPACITY, f"placeholders for node {order.node} were rejected: {error}")
        with contextlib.suppress(ReschedulerError):  # the next round creates the missing ones
            self._writes.create(pods[1:], order.node, until)
        self._finder.begun()
        self._report(RoomOrdered(involved, len(pods), order.count, order.template, str(order.exchange), until))
        return Held(Waiting.MAKING_ROOM, f"placeholders for the {len(pods)} pods of node {order.node} were created")

    def _end(self, node: str, placeholders: Collection[Placeholder], ending: RoomEnding, detail: str) -> None:
        """Remove *placeholders*, and report the end of the order unless it was reported before."""
        try:
            new = self._writes.delete(placeholders)
        except NotLeading:
            return
        except ReschedulerError as error:
            self._writes.failed(error, node)
            return
        if not new and ending not in (RoomEnding.FILLED, RoomEnding.DRAIN_FAILED):
            return
        self._finder.ended(node, ending)
        self._report(RoomEnded(involved_node(self._view, node), ending, detail))


def involved_node(view: ClusterView, name: str) -> InvolvedNode:
    """Return the node of an order for events; without UID if the node is gone."""
    node = view.facts.node(name)
    return InvolvedNode(name, "") if node is None else InvolvedNode.of(node)


def _until(order: OrderProgress) -> str:
    return f"placeholders that are not running by {order.until:%Y-%m-%dT%H:%M:%SZ} are removed"
