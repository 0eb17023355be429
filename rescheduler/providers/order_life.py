"""The life of an order to delete a machine, for all systems: what an error means, when the order is repeated, and what
holds without an answer. It sends nothing: separate from `deleting`, whose loop sends the orders.

What a provider adds is what it reads: a cloudpool, the desired size and responses of a known age; a fleet, the matching
machines, once more before each order; an external gRPC service, its own outcome of each node.
"""

import datetime as dt
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rescheduler.durations import Backoff
from rescheduler.errors import AuthError, DeadlineExceeded, Permanent, RateLimited, ReschedulerError
from rescheduler.net.http_errors import Missing, ServerFault, Unsent
from rescheduler.providers.base import Accepted, Failed

#: The longest pause between orders that fail.
LONGEST_BACKOFF: Final = dt.timedelta(seconds=30)


class OrderResult(enum.Enum):
    """The result of an order."""

    PENDING = enum.auto()  #: no response yet
    DONE = enum.auto()  #: the system accepted it
    MISSING = enum.auto()  #: the system has no such machine
    FAULT = enum.auto()  #: the system itself reports a failure
    NONE = enum.auto()  #: sent, without a response of the system: it may still take effect
    UNSENT = enum.auto()  #: never reached the system, or rejected

    @property
    def without_effect(self) -> bool:
        """Whether the order has no effect, now or later."""
        return self in {OrderResult.FAULT, OrderResult.UNSENT}


def result_of(error: ReschedulerError, is_reported: Callable[[ServerFault], bool]) -> tuple[OrderResult, Failed | None]:
    """Return the result of an order that ended with *error*, and the outcome if repeating the order cannot help.

    *is_reported* returns whether the system itself reported the failure, not a gateway while the order may run.
    """
    match error:
        case Missing():
            return OrderResult.MISSING, None
        case ServerFault():
            return OrderResult.FAULT if is_reported(error) else OrderResult.NONE, None
        case Unsent() | RateLimited() | DeadlineExceeded():
            return OrderResult.UNSENT, None
        case Permanent() | AuthError():
            return OrderResult.UNSENT, Failed(str(error), retryable=isinstance(error, AuthError))
    return OrderResult.NONE, None


@dataclass(frozen=True, slots=True)
class OrderTimeouts:
    settle: dt.timedelta  #: how long an order without a response may take effect
    backoff: Backoff  #: of orders that failed
    idempotent: bool = False  #: a second order does no harm: one without a response is repeated like one that failed

    def pause(self, result: OrderResult, attempts: int) -> dt.timedelta:
        """Return how long after an order it is repeated if the machine still runs."""
        failed = result.without_effect or (self.idempotent and result is not OrderResult.DONE)
        return self.backoff.after(attempts) if failed else self.settle

    def pending(self, ordered_at: dt.datetime | None, now: dt.datetime) -> dt.datetime | None:
        """Return the time of an order, given at *ordered_at*, if it may still take effect."""
        return ordered_at if ordered_at is not None and now <= ordered_at + self.settle else None


def without_answer(why: str, *, ordered: bool) -> Accepted | Failed:
    """Return the outcome if nothing was learned until the deadline; an order may be *ordered* before."""
    return Accepted(f"an earlier order may still take effect: {why}") if ordered else Failed(why, retryable=True)
