"""Send the orders that terminate machines of a pool, one at a time, and record their results."""

import contextlib
import datetime as dt
from collections.abc import Set as AbstractSet
from dataclasses import replace

from rescheduler import errors
from rescheduler.errors import AuthError, DeadlineExceeded, RateLimited
from rescheduler.net.http_errors import Missing, ServerFault, Unsent
from rescheduler.providers.base import DeleteOutcome, Failed, MayEnd, NodeRef, Refusal, Refused, below_minimum
from rescheduler.providers.cloudpool import deletion
from rescheduler.providers.cloudpool.client import PoolObservation, from_pool
from rescheduler.providers.cloudpool.deletion import Ending, OrderResult, TerminationOrder
from rescheduler.providers.cloudpool.messages import Machine, Membership
from rescheduler.providers.cloudpool.pool import CloudPool


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

    def unsettled(self, view: PoolObservation, without: AbstractSet[str] = frozenset()) -> int:
        """Count the other orders that may still lower the desired size."""
        orders = self._ledger.orders()
        open_ = {OrderResult.NONE, OrderResult.PENDING}
        return sum(
            machine.active and machine.id not in without and orders[machine.id].result in open_
            for machine in view.machines
            if machine.id in orders
        )

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
        except DeadlineExceeded as error:
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
        decrement = bool(self.cost(machine)) and desired > 0 and deletion.lowers(machine, last, desired)
        left = desired - decrement - self.unsettled(view, {machine.id})
        if decrement and (refusal := self.below_minimum(left)):
            return refusal
        try:
            may_end(node)
        except errors.Withheld as error:  # no earlier order can take effect any more: see `deletion.judge`
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
        except Missing as error:
            return OrderResult.MISSING, str(error), None
        except ServerFault as error:
            return (OrderResult.FAULT if from_pool(error) else OrderResult.NONE), str(error), None
        except (Unsent, RateLimited, DeadlineExceeded) as error:
            return OrderResult.UNSENT, str(error), None
        except (errors.Permanent, AuthError) as error:
            failed = Failed(str(error), retryable=isinstance(error, AuthError))
            return OrderResult.UNSENT, str(error), failed
        except errors.ReschedulerError as error:
            return OrderResult.NONE, str(error), None
        return OrderResult.DONE, "", None

    def _dispose(self, node: NodeRef, machine: str, may_end: MayEnd, deadline: float) -> None:
        """Make a machine disposable. The termination only speeds up the pool's own, so its failure is ignored."""
        client = self._pool.client
        client.set_membership(machine, Membership(active=False, evictable=True), deadline=deadline)
        with contextlib.suppress(errors.ReschedulerError):
            may_end(node)
            client.terminate(machine, decrement=False, deadline=deadline)


def _next_attempt(last: TerminationOrder | None, now: dt.datetime) -> TerminationOrder:
    if last is None:
        return TerminationOrder(now, OrderResult.UNSENT)
    return replace(last, attempts=last.attempts + 1, ours=True)
