"""Terminate machines of a pool: send orders, and repeat them only if that is safe. Separate from the provider,
because its orders have a state of their own.
"""

import contextlib
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rescheduler import errors
from rescheduler.cloudpool import pool
from rescheduler.cloudpool.client import PoolObservation, from_pool
from rescheduler.cloudpool.matching import Machine, Membership
from rescheduler.cloudpool.pool import CloudPool, Ending, KeepWaiting, Send, TerminationOrder
from rescheduler.durations import Backoff
from rescheduler.errors import DeadlineExceeded, NoTurn
from rescheduler.providers.base import (
    ON_CONTROL_PLANE,
    Accepted,
    AlreadyGone,
    Deleted,
    DeleteOutcome,
    Failed,
    MayEnd,
    NodeRef,
    Refusal,
    Refused,
    any_may_end,
    below_minimum,
)
from rescheduler.providers.deleting import delete_until_confirmed
from rescheduler.providers.order_life import LONGEST_BACKOFF, OrderResult, OrderTimeouts, result_of, without_answer

# Send the orders that terminate machines of a pool, one at a time, and record their results.


class PoolOrders:
    """The orders for machines of a pool, all with the same *ending*. Calls may run concurrently."""

    def __init__(self, pool: CloudPool, ending: Ending) -> None:
        self._pool, self._clock, self._ending = pool, pool.clock, ending
        self._ledger = pool.ledger

    def cost(self, machine: Machine) -> int:
        """Return by how much removing the machine should lower the desired size (0 or 1)."""
        return int(self._ending is Ending.SHRINK and machine.active)

    def below_minimum(self, left: int) -> Refused | None:
        return below_minimum(self._pool.group.id, self._pool.group.min_size, left)

    def order(
        self,
        node: NodeRef,
        machine: Machine,
        judged: TerminationOrder | None,
        view: PoolObservation,
        deadline: float,
        may_end: MayEnd,
    ) -> DeleteOutcome | None:
        """Send an order if the last order is still *judged*; return an outcome if repeating the order cannot help."""
        try:
            with self._pool.changing(deadline=deadline):
                current = self._ledger.order(machine.id)
                if current is not None and current != judged:
                    return None  # another thread gave an order meanwhile; decide again after the next read
                return self._order_alone(node, machine, judged, view, deadline, may_end)
        except (DeadlineExceeded, NoTurn) as error:
            return Failed(str(error), retryable=True)

    def _order_alone(
        self,
        node: NodeRef,
        machine: Machine,
        last: TerminationOrder | None,
        view: PoolObservation,
        deadline: float,
        may_end: MayEnd,
    ) -> DeleteOutcome | None:
        order = _next_attempt(last, self._clock.now())
        try:
            desired = self._pool.desired_size(deadline=deadline)
        except errors.ReschedulerError as error:
            self._record_unsent(machine, order, node, error)
            return None
        decrement = bool(self.cost(machine)) and desired > 0 and pool.lowers(machine, last, desired)
        left = desired - decrement - self._pool.unsettled(view, without=machine.id)
        if decrement and (refusal := self.below_minimum(left)):
            return refusal
        try:
            self._pool.ask(may_end, node)
        except errors.Withheld as error:  # no earlier order can take effect any more: see `pool.judge`
            return Refused(Refusal.WITHHELD, str(error))
        except errors.ReschedulerError as error:
            self._record_unsent(machine, order, node, error)
            return None
        order = replace(
            order,
            at=self._clock.now(),
            result=OrderResult.PENDING,
            desired=desired if order.desired is None else order.desired,
            lowering=order.lowering or decrement,
        )
        self._ledger.record(machine.id, order, node)
        result, error_text, outcome = self._send(node, machine.id, may_end, decrement=decrement, deadline=deadline)
        lowered = order.lowered or (decrement and self._is_lowered(result, desired, deadline))
        lowering = order.lowering if result is not OrderResult.UNSENT else last is not None and last.lowering
        ended = replace(
            order, at=self._clock.now(), result=result, error_text=error_text, lowering=lowering, lowered=lowered
        )
        self._ledger.record(machine.id, ended, node)
        return outcome

    def _record_unsent(self, machine: Machine, order: TerminationOrder, node: NodeRef, error: Exception) -> None:
        """Record that the order was not sent because of *error*. It is repeated later."""
        unsent = replace(order, at=self._clock.now(), result=OrderResult.UNSENT, error_text=str(error))
        self._ledger.record(machine.id, unsent, node)

    def _is_lowered(self, result: OrderResult, before: int, deadline: float) -> bool:
        """Return whether a completed order lowered the desired size, which was *before*.

        If the order succeeded and the size cannot be read, assume that it did.
        """
        if result not in {OrderResult.DONE, OrderResult.FAULT}:
            return False
        try:
            return self._pool.desired_size(deadline=deadline) < before
        except errors.ReschedulerError:
            return result is OrderResult.DONE

    def _send(
        self, node: NodeRef, machine: str, may_end: MayEnd, *, decrement: bool, deadline: float
    ) -> tuple[OrderResult, str, Failed | None]:
        """Send the order; return its result, the error text, and the outcome if repeating it cannot help."""
        try:
            if self._ending is Ending.DISPOSE:
                self._dispose(node, machine, may_end, deadline)
            else:
                self._pool.client.terminate(machine, decrement=decrement, deadline=deadline)
        except errors.ReschedulerError as error:
            result, failed = result_of(error, from_pool)
            return result, str(error), failed
        return OrderResult.DONE, "", None

    def _dispose(self, node: NodeRef, machine: str, may_end: MayEnd, deadline: float) -> None:
        """Make a machine disposable. The termination only speeds up the pool's own, so its failure is ignored."""
        client = self._pool.client
        client.set_membership(machine, Membership(active=False, evictable=True), deadline=deadline)
        with contextlib.suppress(errors.ReschedulerError):
            self._pool.ask(may_end, node)
            client.terminate(machine, decrement=False, deadline=deadline)


def _next_attempt(last: TerminationOrder | None, now: dt.datetime) -> TerminationOrder:
    if last is None:
        return TerminationOrder(now, OrderResult.UNSENT)
    return replace(last, attempts=last.attempts + 1, ours=True)


@dataclass(frozen=True, slots=True)
class _Target:
    """A node's machine, `None` if the pool does not list it, and the last order for it."""

    machine: Machine | None
    order: TerminationOrder | None


class PoolRemoval:
    """The removals of a pool, all with the same *ending*.

    Calls may run concurrently; orders are serialized. With *prompt*, a call that gives an order returns when the pool
    has accepted it, and a later call waits for the termination.
    """

    def __init__(self, pool: CloudPool, ending: Ending = Ending.SHRINK, *, prompt: bool = False) -> None:
        self._pool, self._clock, self._ending, self._prompt = pool, pool.clock, ending, prompt
        self._ledger = pool.ledger
        self._orders = PoolOrders(pool, ending)
        self._began = pool.clock.now()
        settle = dt.timedelta(seconds=pool.config.settle_time)
        backoff = Backoff(dt.timedelta(seconds=pool.config.poll_interval), LONGEST_BACKOFF)
        self._limits = OrderTimeouts(settle, backoff)
        #: intent times in the future → when they were first seen
        self._ahead: dict[tuple[str, dt.datetime], dt.datetime] = {}

    def delete(
        self, nodes: Sequence[NodeRef], *, deadline: float, may_end: MayEnd = any_may_end
    ) -> Mapping[str, DeleteOutcome]:
        """Remove the nodes' machines. Never raises: errors and timeouts become outcomes."""
        began = self._clock.now()
        view: PoolObservation | None = None

        def advance(done: dict[str, DeleteOutcome]) -> None:
            nonlocal view
            view = self._pool.read(deadline=deadline)
            for node, target in self._targets(view, nodes):
                if node.name not in done and (outcome := self._advance(node, target, view, deadline, may_end)):
                    done[node.name] = outcome

        return delete_until_confirmed(
            nodes,
            advance,
            wait=lambda: self._pool.wait_poll_interval(deadline),
            give_up=lambda last_error: self._give_up(view, nodes, last_error),
            is_accepted=lambda node: self._is_accepted(node, began),
        )

    def _is_accepted(self, node: NodeRef, began: dt.datetime) -> bool:
        """Return whether, with *prompt*, the pool accepted an order for the node's machine since *began*."""
        machine = self._ledger.machine_of(node) if self._prompt else None
        order = self._ledger.order(machine) if machine is not None else None
        return order is not None and order.result is OrderResult.DONE and order.at >= began

    def refusals(self, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        """Return the nodes that would be refused. Each minimum check assumes that the earlier nodes were removed."""
        self._pool.turns.check()
        view = self._pool.view(deadline=deadline)
        left = self._pool.desired_size(deadline=deadline) - self._pool.unsettled(view)
        refused: dict[str, Refused] = {}
        for node, target in self._targets(view, nodes):
            if isinstance(target, Refused):
                refused[node.name] = target
                continue
            if isinstance(target, Accepted):
                continue
            machine = target.machine
            if target.order is not None or (machine is not None and machine.gone):
                continue
            if machine is None:
                refused[node.name] = Refused(Refusal.NOT_IN_GROUP, pool.NO_MACHINE)
            elif refusal := pool.protection(machine, self._ending) or self._orders.below_minimum(
                left - self._orders.cost(machine)
            ):
                refused[node.name] = refusal
            else:
                left -= self._orders.cost(machine)
        return refused

    def ordered(self, node: NodeRef) -> bool:
        """Return whether this process ordered the termination of the node's machine."""
        return self._ledger.machine_of(node) is not None

    def _targets(
        self, view: PoolObservation, nodes: Sequence[NodeRef]
    ) -> list[tuple[NodeRef, _Target | Refused | Accepted]]:
        matching = view.index.match(nodes)
        listed = {machine.id: machine for machine in view.machines}
        return [
            (node, self._target(node, matching.machines.get(node.name), matching.ambiguous.get(node.name, ""), listed))
            for node in nodes
        ]

    def _target(
        self, node: NodeRef, machine: Machine | None, ambiguous: str, listed: Mapping[str, Machine]
    ) -> _Target | Refused | Accepted:
        if node.on_control_plane:
            return ON_CONTROL_PLANE
        before = None
        if node.ordered_at is not None:
            before = TerminationOrder(
                self._by_our_clock(node.name, node.ordered_at),
                OrderResult.NONE,
                "ordered by an earlier process",
                ours=False,
            )
        if machine is not None:
            return _Target(machine, self._ledger.order(machine.id) or before)
        remembered = self._ledger.machine_of(node)
        if remembered is not None and not (ambiguous and remembered not in listed):
            return _Target(listed.get(remembered), self._ledger.order(remembered))
        if ambiguous and before is not None and self._clock.now() < before.at + self._limits.settle:
            return Accepted(f"{before.error_text}: {ambiguous}")
        return Refused(Refusal.AMBIGUOUS, ambiguous) if ambiguous else _Target(None, before)

    def _by_our_clock(self, node: str, ordered_at: dt.datetime) -> dt.datetime:
        """Return the time of an earlier process's order, or when we first saw it if that process's clock was ahead."""
        now = self._clock.now()
        if ordered_at > now:
            return self._ahead.setdefault((node, ordered_at), now)
        return self._ahead.get((node, ordered_at), ordered_at)

    def _advance(
        self,
        node: NodeRef,
        target: _Target | Refused | Accepted,
        view: PoolObservation,
        deadline: float,
        may_end: MayEnd,
    ) -> DeleteOutcome | None:
        """Give an order if one is due; return `None` while the termination is not confirmed."""
        if isinstance(target, Refused | Accepted):
            return target
        verdict = pool.judge(
            target.machine,
            target.order,
            observed_at=view.observed_at,
            not_before=self._began,
            now=self._clock.now(),
            limits=self._limits,
            ending=self._ending,
        )
        if isinstance(verdict, KeepWaiting):
            return None
        if isinstance(verdict, Send) and target.machine is not None:
            return self._orders.order(node, target.machine, target.order, view, deadline, may_end)
        if isinstance(verdict, Failed) and target.machine is not None:
            self._ledger.forget(target.machine.id)
        if isinstance(verdict, Deleted | AlreadyGone):
            return self._with_size_warning(verdict, target.order, deadline)
        return None if isinstance(verdict, Send) else verdict

    def _with_size_warning(
        self, outcome: Deleted | AlreadyGone, order: TerminationOrder | None, deadline: float
    ) -> DeleteOutcome:
        """Return the outcome, with the reason if the desired size was not lowered."""
        if order is None or not order.decrement_lost:
            return outcome
        try:
            desired = self._pool.desired_size(deadline=deadline)
        except errors.ReschedulerError as error:
            return replace(outcome, unshrunk=f"unknown whether the pool lowered its desired size: {error}")
        return replace(outcome, unshrunk=pool.unshrunk(order, desired))

    def _give_up(
        self, view: PoolObservation | None, nodes: Sequence[NodeRef], last_error: str
    ) -> dict[str, DeleteOutcome]:
        if view is None:
            ordered = {node.name: node.ordered_at is not None or self.ordered(node) for node in nodes}
            return {name: without_answer(last_error, ordered=may_go) for name, may_go in ordered.items()}
        return {
            node.name: target if isinstance(target, Refused | Accepted) else self._give_up_order(node, target, view)
            for node, target in self._targets(view, nodes)
        }

    def _give_up_order(self, node: NodeRef, target: _Target, view: PoolObservation) -> DeleteOutcome:
        """Return the outcome, and reset the back-off of a failed order for the next call."""
        outcome = pool.give_up(target.machine, target.order, observed_at=view.observed_at)
        if isinstance(outcome, Failed) and target.machine is not None and target.order is not None:
            self._ledger.record(target.machine.id, replace(target.order, attempts=1), node)
        return outcome
