"""Delete machines through an external gRPC service: one order per node, confirmed by the list of instances.
Separate from the provider, because its orders have a state of their own.
"""

import datetime as dt
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from grpc import StatusCode

from rescheduler import errors
from rescheduler.clock import Clock
from rescheduler.durations import Backoff
from rescheduler.providers.base import (
    ON_CONTROL_PLANE,
    Accepted,
    AlreadyGone,
    Deleted,
    DeleteOutcome,
    Failed,
    Instance,
    InstanceState,
    MayEnd,
    NodeGroup,
    NodeRef,
    Refusal,
    Refused,
    any_may_end,
    below_minimum,
)
from rescheduler.providers.deleting import Ledger, delete_until_confirmed
from rescheduler.providers.externalgrpc import channel, codec, wire
from rescheduler.providers.externalgrpc.channel import CallResult, Channel
from rescheduler.providers.externalgrpc.codec import Verbs
from rescheduler.providers.order_life import OrderResult, OrderTimeouts, without_answer

# Decide the outcome of a deletion order from the service's response and its list of instances.
#
# Our own service is recognized by its responses: it sends an outcome per node (see `outcomes`) and accepts repeated
# orders. Other services only return the status of the call.

#: How long Cluster Autoscaler considers a deletion to be in progress. After that it repeats the order, and so do we.
SETTLED: Final = dt.timedelta(minutes=5)

#: Maximum number of failed orders per machine and process, each given after the machine was seen running.
_ATTEMPTS: Final = 12
_TIMEOUTS: Final = OrderTimeouts(SETTLED, Backoff(dt.timedelta(seconds=2), dt.timedelta(seconds=60)))

#: Codes that a repeated order would get again, each with the reason to report if the service sends none. A service may
#: use FAILED_PRECONDITION for any refusal; the message contains the reason.
_REFUSALS: Final = {
    StatusCode.FAILED_PRECONDITION: Refusal.PROTECTED,
    StatusCode.INVALID_ARGUMENT: Refusal.NOT_IN_GROUP,
    StatusCode.NOT_FOUND: Refusal.NOT_IN_GROUP,
}
_FINAL: Final = (StatusCode.UNIMPLEMENTED, StatusCode.PERMISSION_DENIED, StatusCode.OUT_OF_RANGE)


@dataclass(frozen=True, slots=True)
class DeletionOrder:
    """The last deletion order for a machine."""

    at: dt.datetime
    outcome: DeleteOutcome  #: the result of the order
    reported: bool = False  #: whether the service itself sent that outcome
    uncertain: bool = False  #: whether the service may not have received it
    attempts: int = 1
    group: str = ""

    @property
    def may_take_effect(self) -> bool:
        """Whether the order may still delete the machine."""
        return not isinstance(self.outcome, Failed | Refused)

    @property
    def repeat_at(self) -> dt.datetime:
        """When the order may be repeated, if the machine still runs."""
        settles = self.may_take_effect and not self.reported
        return self.at + _TIMEOUTS.pause(OrderResult.DONE if settles else OrderResult.FAULT, self.attempts)

    @property
    def machine_kept(self) -> bool:
        """Whether the service refused to delete the machine; then the machine exists even if it is not listed."""
        return isinstance(self.outcome, Refused) and self.outcome.reason is not Refusal.NOT_IN_GROUP

    @property
    def final(self) -> bool:
        """Whether repeating the order would give the same result."""
        match self.outcome:
            case Refused():
                return True
            case Failed(retryable=retryable):
                return not retryable or self.attempts >= _ATTEMPTS
        return False


def order_of(node: str, response: CallResult, error_text: str, at: dt.datetime) -> DeletionOrder:
    """Return the order with its result; *error_text* is the error that the service returned, as text."""
    outcome = channel.read(response.trailers.items()).get(node)
    if outcome is not None:
        return DeletionOrder(at, outcome, reported=True)
    if response.code is StatusCode.OK:
        return DeletionOrder(at, Accepted("ordered"))
    if response.uncertain:
        return DeletionOrder(at, Accepted(f"unknown whether the order takes effect: {error_text}"), uncertain=True)
    if reason := _REFUSALS.get(response.code):
        return DeletionOrder(at, Refused(reason, error_text))
    return DeletionOrder(at, Failed(error_text, retryable=response.code not in _FINAL))


def outcome_of(
    node: NodeRef, instance: Instance | None, order: DeletionOrder | None, *, before: DeletionOrder | None
) -> DeleteOutcome | None:
    """Return the outcome if it is known; `None` if the deletion is not confirmed yet or nothing was ordered.

    *instance* is the service's entry, *before* the last order at the start of the call.
    """
    if instance is None or instance.state is InstanceState.DELETING:
        if order is not None and order.may_take_effect:
            return AlreadyGone("ordered before") if order == before else Deleted()
        if instance is not None:
            return AlreadyGone("the service is deleting it")
        if order is None or not order.machine_kept:
            return AlreadyGone("no longer listed") if node.ordered_at or order else None
    if order is not None and order.final and order != before:
        return order.outcome
    return None


def give_up_order(node: NodeRef, order: DeletionOrder | None, before: DeletionOrder | None, why: str) -> DeleteOutcome:
    """Return the outcome when the deadline has passed."""
    if order is not None and order.may_take_effect:
        return Accepted(f"the machine is still listed: {why}")
    if order is not None and order != before:
        return order.outcome
    return without_answer(why, ordered=node.ordered_at is not None)


# The calls have Cluster Autoscaler's order: Refresh, NodeGroups, NodeGroupForNode, NodeGroupTargetSize,
# NodeGroupDeleteNodes, then NodeGroupNodes until the machine is deleted or being deleted.


@dataclass(frozen=True, slots=True)
class _GroupState:
    """The state of a group before an order."""

    limits: NodeGroup
    owners: Mapping[str, NodeGroup | None]  #: by node name
    listed: Mapping[str, Instance]  #: by provider ID


class GrpcRemoval:
    """The removals of all groups. Calls may run concurrently; the orders of a group are serialized."""

    def __init__(self, channel: Channel, verbs: Verbs, clock: Clock, poll_interval: float) -> None:
        self._channel, self._verbs, self._clock, self._poll = channel, verbs, clock, poll_interval
        self._ledger: Ledger[DeletionOrder] = Ledger()  #: by provider ID
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def delete(
        self, group: str, nodes: Sequence[NodeRef], *, deadline: float, may_end: MayEnd = any_may_end
    ) -> Mapping[str, DeleteOutcome]:
        """Delete the nodes' machines. Errors other than UnknownGroup, and timeouts, become outcomes."""
        before = {node.name: self._ledger.order(node.provider_id) for node in nodes}
        owners: dict[str, NodeGroup | None] = {}

        def advance(done: dict[str, DeleteOutcome]) -> None:
            done |= {node.name: refused for node in nodes if (refused := _unidentified(node))}
            state = self._read_state(group, [node for node in nodes if node.name not in done], owners, deadline)
            for node in nodes:
                if node.name in done:
                    continue
                if outcome := self._advance(node, state, before[node.name], deadline, may_end):
                    done[node.name] = outcome

        def give_up(last_error: str) -> dict[str, DeleteOutcome]:
            last = {node.name: self._ledger.order(node.provider_id) for node in nodes}
            return {node.name: give_up_order(node, last[node.name], before[node.name], last_error) for node in nodes}

        return delete_until_confirmed(
            nodes,
            advance,
            wait=lambda: self._wait(deadline),
            give_up=give_up,
            is_ordered=lambda: any(self._ledger.order(node.provider_id) != before[node.name] for node in nodes),
        )

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        """Return the nodes that would be refused. Each minimum check assumes that the earlier nodes were deleted."""
        limits = self._verbs.group(group, deadline=deadline)
        left = self._verbs.target_size(group, deadline=deadline) - self._uncertain_orders(group)
        refused: dict[str, Refused] = {}
        for node in nodes:
            order = self._ledger.order(node.provider_id)
            if order.may_take_effect if order is not None else self._is_pending_since_before(node):
                continue
            why = _unidentified(node)
            why = why or _other_group(self._verbs.group_for(node, deadline=deadline), group)
            why = why or below_minimum(limits.id, limits.min_size, left - 1)
            if why:
                refused[node.name] = why
            else:
                left -= 1
        return refused

    def _read_state(
        self, group: str, nodes: Sequence[NodeRef], known: dict[str, NodeGroup | None], deadline: float
    ) -> _GroupState:
        """Read the group's state, the owners first: these calls may tell a service which machine a node has."""
        self._verbs.refresh(deadline=deadline)
        limits = self._verbs.group(group, deadline=deadline)
        for node in nodes:
            if node.name not in known:
                known[node.name] = self._verbs.group_for(node, deadline=deadline)
        listed = {instance.id: instance for instance in self._verbs.instances(group, deadline=deadline)}
        return _GroupState(limits, known, listed)

    def _wait(self, deadline: float) -> bool:
        """Wait until the next read is due; return False if there is no time for one or the provider was closed."""
        left = deadline - self._clock.monotonic()
        return left > self._poll and not self._channel.pause(self._poll)

    def _advance(
        self, node: NodeRef, state: _GroupState, before: DeletionOrder | None, deadline: float, may_end: MayEnd
    ) -> DeleteOutcome | None:
        """Give an order if one is due; return `None` while the deletion is not confirmed."""
        order = self._ledger.order(node.provider_id)
        instance = state.listed.get(node.provider_id)
        if (outcome := outcome_of(node, instance, order, before=before)) is not None:
            if order is not None and order.uncertain and isinstance(outcome, Deleted | AlreadyGone):
                self._ledger.record(node.provider_id, replace(order, uncertain=False))
            return outcome
        if not self._is_due(node, order, before):
            return None
        lock = self._locks[state.limits.id]
        if not lock.acquire(timeout=max(0.0, deadline - self._clock.monotonic())):
            return Failed("timed out while other orders were in progress", retryable=True)
        try:
            if self._ledger.order(node.provider_id) != order:
                return None  # another thread has given an order in the meantime; decide again after the next read
            return self._order(node, state, order, deadline, may_end)
        finally:
            lock.release()

    def _is_due(self, node: NodeRef, order: DeletionOrder | None, before: DeletionOrder | None) -> bool:
        """Return whether an order is due. An order that failed before this call does not delay it."""
        if order is None:
            return not self._is_pending_since_before(node)
        return (order == before and not order.may_take_effect) or self._clock.now() >= order.repeat_at

    def _is_pending_since_before(self, node: NodeRef) -> bool:
        """Return whether an order of an earlier process may still take effect."""
        return _TIMEOUTS.pending(node.ordered_at, self._clock.now()) is not None

    def _order(
        self, node: NodeRef, state: _GroupState, last: DeletionOrder | None, deadline: float, may_end: MayEnd
    ) -> DeleteOutcome | None:
        group = state.limits.id
        if last is None or not last.may_take_effect:
            # If an order is pending, the target size may be lowered already, and the group of the node unknown.
            left = self._verbs.target_size(group, deadline=deadline) - self._uncertain_orders(group, excluded=node) - 1
            if refused := _other_group(state.owners[node.name], group) or below_minimum(
                group, state.limits.min_size, left
            ):
                return refused
        try:
            may_end(node)
        except errors.Withheld as error:
            ordered = last.at if last is not None and last.may_take_effect else node.ordered_at
            pending = _TIMEOUTS.pending(ordered, self._clock.now())
            return None if pending else Refused(Refusal.WITHHELD, str(error))
        order = self._send(node, group, deadline)
        attempts = last.attempts + 1 if last is not None and order.at - last.at < SETTLED else 1
        self._ledger.record(node.provider_id, replace(order, group=group, attempts=attempts))
        # An unlisted machine is gone unless the service refused to delete it: the next read decides.
        return order.outcome if order.machine_kept or (order.final and node.provider_id in state.listed) else None

    def _uncertain_orders(self, group: str, *, excluded: NodeRef | None = None) -> int:
        """Return by how many machines unconfirmed orders may lower, or have lowered, the target size."""
        now = self._clock.now()
        return sum(
            order.group == group and order.uncertain and _TIMEOUTS.pending(order.at, now) is not None
            for provider_id, order in self._ledger.orders().items()
            if excluded is None or provider_id != excluded.provider_id
        )

    def _send(self, node: NodeRef, group: str, deadline: float) -> DeletionOrder:
        rpc = "NodeGroupDeleteNodes"
        request = wire.NodeGroupDeleteNodesRequest(id=group, nodes=[codec.node_message(node)])
        ordered = ((channel.ORDERED_AT, node.ordered_at.isoformat()),) if node.ordered_at else ()
        ordered = (*ordered, (channel.SINGLE, "true"))
        response = self._channel.attempt(rpc, request, deadline=deadline, metadata=ordered)
        return order_of(node.name, response, str(self._channel.error_of(rpc, response)), self._clock.now())


def _unidentified(node: NodeRef) -> Refused | None:
    if node.on_control_plane:
        return ON_CONTROL_PLANE
    if not node.provider_id:
        return Refused(Refusal.NOT_IN_GROUP, "the node has no provider ID, by which the service identifies nodes")
    return None


def _other_group(owner: NodeGroup | None, group: str) -> Refused | None:
    if owner is not None and owner.id == group:
        return None
    belongs = f"belongs to group {owner.id}" if owner else "belongs to no group"
    return Refused(Refusal.NOT_IN_GROUP, f"according to the service, the node {belongs}")
