"""Giving machines away through an external gRPC service: one order a node, its end seen in the list of instances.

The order of verbs is Cluster Autoscaler's: Refresh, NodeGroups, NodeGroupForNode, NodeGroupTargetSize,
NodeGroupDeleteNodes, then NodeGroupNodes until the machine is gone or going.
"""

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rescheduler import errors
from rescheduler.backends.base import (
    AlreadyGone,
    Deleted,
    DeleteOutcome,
    Failed,
    Instance,
    NodeGroup,
    NodeRef,
    Refusal,
    Refused,
    UnknownGroup,
)
from rescheduler.backends.externalgrpc import codec, orders, outcomes, wire
from rescheduler.backends.externalgrpc.channel import Channel
from rescheduler.backends.externalgrpc.orders import Ledger, Order
from rescheduler.backends.externalgrpc.verbs import Verbs
from rescheduler.clock import Clock


@dataclass(frozen=True, slots=True)
class _Group:
    """What the service says before an order."""

    limits: NodeGroup
    owners: Mapping[str, NodeGroup | None]  #: by the name of the node
    listed: Mapping[str, Instance]  #: by provider ID


class Removal:
    """The removals of all groups. Any number may run at once; orders of a group are given one after the other."""

    def __init__(self, channel: Channel, verbs: Verbs, clock: Clock, poll_interval: float) -> None:
        self._channel, self._verbs, self._clock, self._poll = channel, verbs, clock, poll_interval
        self._ledger = Ledger()
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def delete(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, DeleteOutcome]:
        """Raises UnknownGroup; all else that cannot be known or done in time is an outcome, too."""
        done: dict[str, DeleteOutcome] = {node.name: refused for node in nodes if (refused := _unfit(node))}
        before = {node.name: self._ledger.order(node) for node in nodes}
        owners: dict[str, NodeGroup | None] = {}
        why = "time is out"
        while True:
            try:
                seen = self._look(group, [node for node in nodes if node.name not in done], owners, deadline)
                for node in nodes:
                    if node.name not in done:
                        outcome = self._advance(node, seen, before[node.name], deadline)
                        done |= {node.name: outcome} if outcome else {}
            except errors.ReschedulerError as error:
                if isinstance(error, UnknownGroup) and not self._ordered(nodes, before):
                    raise
                why = str(error)
                if not isinstance(error, errors.Retryable):
                    break
            if len(done) == len(nodes) or not self._wait(deadline):
                break
        late = {node.name: orders.give_up(node, self._ledger.order(node), before[node.name], why) for node in nodes}
        return late | done

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        """What would be refused at once; nodes before a node count against the minimum as if they went."""
        limits = self._verbs.group(group, deadline=deadline)
        left = self._verbs.target_size(group, deadline=deadline) - self._unsure(group)
        refused: dict[str, Refused] = {}
        for node in nodes:
            order = self._ledger.order(node)
            if order is not None and order.at_work:
                continue
            why = _unfit(node)
            why = why or _foreign(self._verbs.group_for(node, deadline=deadline), group)
            why = why or _below_minimum(limits, left - 1)
            if why:
                refused[node.name] = why
            else:
                left -= 1
        return refused

    def _ordered(self, nodes: Sequence[NodeRef], before: Mapping[str, Order | None]) -> bool:
        return any(self._ledger.order(node) != before[node.name] for node in nodes)

    def _look(
        self, group: str, nodes: Sequence[NodeRef], known: dict[str, NodeGroup | None], deadline: float
    ) -> _Group:
        """The owners go before the instances: some services learn from the question which Node a machine is."""
        self._verbs.refresh(deadline=deadline)
        limits = self._verbs.group(group, deadline=deadline)
        for node in nodes:
            if node.name not in known:
                known[node.name] = self._verbs.group_for(node, deadline=deadline)
        listed = {one.id: one for one in self._verbs.instances(group, deadline=deadline)}
        return _Group(limits, known, listed)

    def _wait(self, deadline: float) -> bool:
        """Until the next look; False where there is no time for one, or no use in it."""
        left = deadline - self._clock.monotonic()
        return left > self._poll and not self._channel.pause(self._poll)

    def _advance(self, node: NodeRef, seen: _Group, before: Order | None, deadline: float) -> DeleteOutcome | None:
        """One judgement, and one order where it is due; `None` while the end is open."""
        order = self._ledger.order(node)
        instance = seen.listed.get(node.provider_id)
        if (outcome := orders.end(node, instance, order, before=before)) is not None:
            if order is not None and order.unsure and isinstance(outcome, Deleted | AlreadyGone):
                self._ledger.record(seen.limits.id, node, replace(order, unsure=False))
            return outcome
        if not _due(order, before, self._clock):
            return None
        lock = self._turns[seen.limits.id]
        if not lock.acquire(timeout=max(0.0, deadline - self._clock.monotonic())):
            return Failed("other orders took all the time", retryable=True)
        try:
            if self._ledger.order(node) != order:
                return None  # another thread was faster; what it did is judged next
            return self._order(node, seen, order, deadline)
        finally:
            lock.release()

    def _order(self, node: NodeRef, seen: _Group, last: Order | None, deadline: float) -> DeleteOutcome | None:
        group = seen.limits.id
        if last is None or not last.at_work:
            # Of a machine whose order may be at work the target may be lower already, and the group unknown.
            left = self._verbs.target_size(group, deadline=deadline) - self._unsure(group, but=node) - 1
            if refused := _foreign(seen.owners[node.name], group) or _below_minimum(seen.limits, left):
                return refused
        order = self._send(node, group, deadline)
        attempts = last.attempts + 1 if last is not None and order.at - last.at < orders.SETTLED else 1
        self._ledger.record(group, node, replace(order, attempts=attempts))
        # A machine that is not listed is gone, unless the service keeps it: the next look says so.
        return order.outcome if order.keeps or (order.final and node.provider_id in seen.listed) else None

    def _unsure(self, group: str, *, but: NodeRef | None = None) -> int:
        """By how many machines the target may yet be lowered, or is already."""
        return self._ledger.unsure(group, self._clock.now() - orders.SETTLED, but)

    def _send(self, node: NodeRef, group: str, deadline: float) -> Order:
        rpc = "NodeGroupDeleteNodes"
        request = wire.NodeGroupDeleteNodesRequest(id=group, nodes=[codec.node_message(node)])
        ordered = ((outcomes.ORDERED_AT, node.ordered_at.isoformat()),) if node.ordered_at else ()
        answer = self._channel.attempt(rpc, request, deadline=deadline, metadata=ordered)
        return orders.order_of(node.name, answer, str(self._channel.error_of(rpc, answer)), self._clock.now())


def _unfit(node: NodeRef) -> Refused | None:
    if node.on_control_plane:
        return Refused(Refusal.CONTROL_PLANE, "the node belongs to the control plane")
    if not node.provider_id:
        return Refused(Refusal.NOT_IN_GROUP, "the node has no provider ID, by which the service would know it")
    return None


def _foreign(owner: NodeGroup | None, group: str) -> Refused | None:
    if owner is not None and owner.id == group:
        return None
    belongs = f"belongs to group {owner.id}" if owner else "belongs to no group"
    return Refused(Refusal.NOT_IN_GROUP, f"the service says that the node {belongs}")


def _below_minimum(group: NodeGroup, left: int) -> Refused | None:
    if left >= group.min_size:
        return None
    return Refused(Refusal.BELOW_MINIMUM, f"group {group.id} must keep {group.min_size}, {left} would be left")


def _due(order: Order | None, before: Order | None, clock: Clock) -> bool:
    """Whether an order is to be given; one that failed before the caller came holds nothing back."""
    return order is None or (order == before and not order.at_work) or clock.now() >= order.again_at
