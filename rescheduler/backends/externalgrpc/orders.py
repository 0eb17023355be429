"""What an order to delete came to, judged by the service's words and by what its list of instances shows.

A service is told from ours by its words: ours tells the outcome of each node (see `outcomes`) and takes the same
order again without harm. Of others nothing is known but a status for the call.
"""

import datetime as dt
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from grpc import StatusCode

from rescheduler.backends.base import (
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
from rescheduler.backends.externalgrpc import outcomes
from rescheduler.backends.externalgrpc.channel import Answer

#: How long Cluster Autoscaler counts a deletion as being at work; then it gives the order again, and so do we.
SETTLED: Final = dt.timedelta(minutes=5)

#: Orders for one machine in one process that failed and that were each given after it was seen to run.
_ATTEMPTS: Final = 12
_PAUSE: Final = dt.timedelta(seconds=2)  #: before the second; each later one is twice as long
_LONGEST_PAUSE: Final = dt.timedelta(seconds=60)

_REMEMBERED: Final = 10_000  #: the oldest orders are forgotten

#: Statuses that the same order meets again, and what they mean where the service has no more to say. It may refuse
#: with FAILED_PRECONDITION for any reason: its words tell which.
_REFUSALS: Final = {
    StatusCode.FAILED_PRECONDITION: Refusal.PROTECTED,
    StatusCode.INVALID_ARGUMENT: Refusal.NOT_IN_GROUP,
    StatusCode.NOT_FOUND: Refusal.NOT_IN_GROUP,
}
_FINAL: Final = (StatusCode.UNIMPLEMENTED, StatusCode.PERMISSION_DENIED, StatusCode.OUT_OF_RANGE)


@dataclass(frozen=True, slots=True)
class Order:
    """The last order for one machine."""

    at: dt.datetime
    outcome: DeleteOutcome  #: what the service made of it
    told: bool = False  #: whether the service told that outcome itself
    unsure: bool = False  #: whether the service may not know of it
    attempts: int = 1

    @property
    def at_work(self) -> bool:
        """Whether the machine may still end by it."""
        return not isinstance(self.outcome, Failed | Refused)

    @property
    def again_at(self) -> dt.datetime:
        """When the order may be given again, if the machine runs."""
        if self.at_work and not self.told:
            return self.at + SETTLED
        return self.at + min(_PAUSE * (1 << self.attempts - 1), _LONGEST_PAUSE)

    @property
    def keeps(self) -> bool:
        """Whether the service has said that it keeps the machine: it is there, even where it is not listed."""
        return isinstance(self.outcome, Refused) and self.outcome.reason is not Refusal.NOT_IN_GROUP

    @property
    def final(self) -> bool:
        """Whether the same order would meet the same answer."""
        match self.outcome:
            case Refused():
                return True
            case Failed(retryable=retryable):
                return not retryable or self.attempts >= _ATTEMPTS
        return False


def order_of(node: str, answer: Answer, words: str, at: dt.datetime) -> Order:
    """What the service made of an order; *words* is its error as a text."""
    told = outcomes.read(answer.trailers.items()).get(node)
    if told is not None:
        return Order(at, told, told=True)
    if answer.code is StatusCode.OK:
        return Order(at, Accepted("ordered"))
    if answer.unsure:
        return Order(at, Accepted(f"it is not known whether the order is at work: {words}"), unsure=True)
    if reason := _REFUSALS.get(answer.code):
        return Order(at, Refused(reason, words))
    return Order(at, Failed(words, retryable=answer.code not in _FINAL))


def end(node: NodeRef, instance: Instance | None, order: Order | None, *, before: Order | None) -> DeleteOutcome | None:
    """The outcome where it is known; `None` while the end is open or nothing was ordered.

    *instance* is what the service lists, *before* the order as it was when the caller came.
    """
    if instance is None or instance.state is InstanceState.DELETING:
        if order is not None and order.at_work:
            return AlreadyGone("ordered before") if order == before else Deleted()
        if instance is not None:
            return AlreadyGone("the service is deleting it")
        if order is None or not order.keeps:
            return AlreadyGone("it is no longer listed") if node.ordered_at or order else None
    if order is not None and order.final and order != before:
        return order.outcome
    return None


def give_up(node: NodeRef, order: Order | None, before: Order | None, why: str) -> DeleteOutcome:
    """The outcome when time is out."""
    if order is not None and order.at_work:
        return Accepted(f"the machine is still listed: {why}")
    if order is not None and order != before:
        return order.outcome
    if node.ordered_at is not None:
        return Accepted(f"an earlier process may have ordered it: {why}")
    return Failed(why, retryable=True)


class Ledger:
    """The orders of this process, by provider ID. Safe to use from several threads."""

    def __init__(self) -> None:
        self._orders: OrderedDict[str, tuple[str, Order]] = OrderedDict()
        self._lock = threading.Lock()

    def order(self, node: NodeRef) -> Order | None:
        with self._lock:
            return self._orders.get(node.provider_id, ("", None))[1]

    def record(self, group: str, node: NodeRef, order: Order) -> None:
        with self._lock:
            self._orders.pop(node.provider_id, None)
            self._orders[node.provider_id] = group, order
            while len(self._orders) > _REMEMBERED:
                self._orders.popitem(last=False)

    def unsure(self, group: str, since: dt.datetime, but: NodeRef | None = None) -> int:
        """How many orders of *group* since then, but that for *but*, may yet lower its target."""
        with self._lock:
            return sum(
                of == group and order.unsure and order.at > since
                for provider_id, (of, order) in self._orders.items()
                if but is None or provider_id != but.provider_id
            )
