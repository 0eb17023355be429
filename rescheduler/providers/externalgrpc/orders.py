"""Decide the outcome of a deletion order from the service's response and its list of instances.

Our own service is recognized by its responses: it sends an outcome per node (see `outcomes`) and accepts repeated
orders. Other services only return the status of the call.
"""

import datetime as dt
from dataclasses import dataclass
from typing import Final

from grpc import StatusCode

from rescheduler.backoff import Backoff
from rescheduler.providers.base import (
    Accepted,
    AlreadyGone,
    Deleted,
    DeleteOutcome,
    Failed,
    Instance,
    InstanceState,
    NodeRef,
    Refusal,
    Refused,
)
from rescheduler.providers.externalgrpc import outcomes
from rescheduler.providers.externalgrpc.channel import CallResult
from rescheduler.providers.ledger import Ledger

#: How long Cluster Autoscaler considers a deletion to be in progress. After that it repeats the order, and so do we.
SETTLED: Final = dt.timedelta(minutes=5)

#: Maximum number of failed orders per machine and process, each given after the machine was seen running.
_ATTEMPTS: Final = 12
_BACKOFF: Final = Backoff(dt.timedelta(seconds=2), dt.timedelta(seconds=60))

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

    @property
    def may_take_effect(self) -> bool:
        """Whether the order may still delete the machine."""
        return not isinstance(self.outcome, Failed | Refused)

    @property
    def repeat_at(self) -> dt.datetime:
        """When the order may be repeated, if the machine still runs."""
        if self.may_take_effect and not self.reported:
            return self.at + SETTLED
        return self.at + _BACKOFF.after(self.attempts)

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
    outcome = outcomes.read(response.trailers.items()).get(node)
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


def give_up(node: NodeRef, order: DeletionOrder | None, before: DeletionOrder | None, why: str) -> DeleteOutcome:
    """Return the outcome when the deadline has passed."""
    if order is not None and order.may_take_effect:
        return Accepted(f"the machine is still listed: {why}")
    if order is not None and order != before:
        return order.outcome
    if node.ordered_at is not None:
        return Accepted(f"an earlier process may have ordered it: {why}")
    return Failed(why, retryable=True)


class DeletionLedger:
    """The deletion orders that this process has given, by provider ID, each with its group. Thread-safe."""

    def __init__(self) -> None:
        self._ledger: Ledger[tuple[str, DeletionOrder]] = Ledger()

    def order(self, node: NodeRef) -> DeletionOrder | None:
        given = self._ledger.order(node.provider_id)
        return given[1] if given is not None else None

    def record(self, group: str, node: NodeRef, order: DeletionOrder) -> None:
        self._ledger.record(node.provider_id, (group, order))

    def count_uncertain(self, group: str, since: dt.datetime, excluded: NodeRef | None = None) -> int:
        """Count the orders in *group* after *since* that may still lower its target size, except for *excluded*."""
        return sum(
            owner == group and order.uncertain and order.at > since
            for provider_id, (owner, order) in self._ledger.orders().items()
            if excluded is None or provider_id != excluded.provider_id
        )
