"""Decide when to order a machine's termination, when to wait, and when the termination is confirmed. No I/O, no clock.

The pool responds from a cache, and its responses do not prove what happened to the machine: a termination may succeed
although the response is an error or was lost. So an order is given only while no other can take effect, and the desired
size is lowered once per machine.
"""

import datetime as dt
import enum
from dataclasses import dataclass
from typing import TypeAlias

from rescheduler.backoff import Backoff
from rescheduler.providers.base import Accepted, AlreadyGone, Deleted, DeleteOutcome, Failed, Refusal, Refused
from rescheduler.providers.cloudpool.messages import Machine

NO_MACHINE = "the pool has no machine for this node"


class Ending(enum.StrEnum):
    """How a machine is removed. The values are suffixes of group IDs, and so part of the intents on Nodes."""

    SHRINK = ""  #: terminated, and the desired size is lowered by one
    REPLACE = "+replace"  #: terminated, and the pool launches a replacement
    #: Made disposable even if protected: the pool terminates it at its next resize, and replaces it if it was active.
    DISPOSE = "+dispose"

    @property
    def takes_protected(self) -> bool:
        return self is Ending.DISPOSE


class OrderResult(enum.Enum):
    """The result of an order."""

    PENDING = enum.auto()  #: no response yet
    DONE = enum.auto()  #: 2xx
    MISSING = enum.auto()  #: 404: no allocated member has that id
    FAULT = enum.auto()  #: the pool reports a failure
    NONE = enum.auto()  #: sent, without a response
    UNSENT = enum.auto()  #: never reached the pool


@dataclass(frozen=True, slots=True)
class TerminationOrder:
    """The last order for a machine. An order of an earlier process has `result` NONE and the intent's time."""

    at: dt.datetime  #: when it ended, or when it began while pending
    result: OrderResult
    error_text: str = ""  #: the error
    attempts: int = 1  #: including this one
    desired: int | None = None  #: the pool's desired size before the first order
    lowering: bool = False  #: an order requested a lower desired size
    lowered: bool = False  #: the desired size was lower after such an order
    ours: bool = True  #: given by this process

    @property
    def decrement_lost(self) -> bool:
        """Whether the pool probably terminated the machine without lowering its desired size."""
        return self.ours and self.lowering and not self.lowered


@dataclass(frozen=True, slots=True)
class OrderTimeouts:
    settle: dt.timedelta  #: how long an order without a response may take effect
    backoff: Backoff  #: of orders that failed


@dataclass(frozen=True, slots=True)
class Send:
    """Send the order, for the first time or again."""


@dataclass(frozen=True, slots=True)
class KeepWaiting:
    """Wait, and read the pool again later."""


Verdict: TypeAlias = Send | KeepWaiting | DeleteOutcome


def judge(
    machine: Machine | None,
    order: TerminationOrder | None,
    *,
    observed_at: dt.datetime,
    not_before: dt.datetime,
    now: dt.datetime,
    limits: OrderTimeouts,
    ending: Ending = Ending.SHRINK,
) -> Verdict:
    """Decide what to do about a machine of the pool as observed at *observed_at* or later.

    *machine* is `None` if the pool does not list it. For a machine without an order, an observation older than
    *not_before* is not sufficient: an earlier process may have ordered its termination.
    """
    if machine is None or machine.gone:
        return _gone_outcome(machine, order)
    if order is None:
        verdict: Verdict = KeepWaiting() if observed_at < not_before else Send()
    elif order.result is not OrderResult.UNSENT and observed_at < order.at:
        verdict = KeepWaiting()
    else:
        verdict = _decide_repeat(machine, order, now, limits)
    return (protection(machine, ending) or verdict) if isinstance(verdict, Send) else verdict


def give_up(machine: Machine | None, order: TerminationOrder | None, *, observed_at: dt.datetime) -> DeleteOutcome:
    """Return the outcome for a machine whose termination was not confirmed in time."""
    if order is None:
        return Accepted("an earlier process may have ordered it; the pool's responses predate this process")
    known = machine is not None and observed_at >= order.at
    unheard = order.result is OrderResult.UNSENT and order.ours
    doomed = machine is not None and machine.disposable
    if (unheard or (order.result is OrderResult.FAULT and known)) and not doomed:
        return Failed(order.error_text, retryable=True)
    state = f"the pool lists it as {machine.machine_state}" if machine else "the pool still listed it"
    return Accepted(f"{_RESULT_TEXTS[order.result]}; {state}{': ' if order.error_text else ''}{order.error_text}")


def lowers(machine: Machine, order: TerminationOrder | None, desired: int) -> bool:
    """Return whether the next order should lower the desired size, which is now *desired*.

    An inactive machine does not count towards the size. If the size has fallen since the first order, that order may
    have lowered it. Then it is not lowered again: a surplus machine costs money, but a missing one terminates a node
    with its pods.
    """
    if not machine.active:
        return False
    if order is None:
        return True
    fell = order.desired is not None and desired < order.desired and order.result is not OrderResult.UNSENT
    return not (order.lowered or fell)


def unshrunk(order: TerminationOrder | None, desired: int) -> str:
    """Return why the desired size, now *desired*, was not lowered for a terminated machine; "" if it was.

    The pool lowers it after the cloud has terminated the machine. If that fails, or another client sets a size in
    between, the size stays and the pool launches a replacement.
    """
    if order is None or not order.decrement_lost:
        return ""
    unknown = order.result in {OrderResult.NONE, OrderResult.MISSING}  # the size was not read right after such an order
    if unknown and order.desired is not None and desired < order.desired:
        return ""
    reason = f": {order.error_text}" if order.error_text else ""
    return f"{_RESULT_TEXTS[order.result]}{reason}; its desired size is still {desired}, so it launches a replacement"


def protection(machine: Machine, ending: Ending) -> Refused | None:
    """Return why an existing machine must not be terminated; `None` if it may be."""
    if not machine.allocated:
        return Refused(Refusal.PROTECTED, f"its state {machine.machine_state!r} is not known")
    if not machine.membership.evictable and not ending.takes_protected:
        return Refused(Refusal.PROTECTED, "its membership status is not evictable")
    return None


_RESULT_TEXTS = {
    OrderResult.PENDING: "the order has no response yet",
    OrderResult.DONE: "the pool accepted the order",
    OrderResult.MISSING: "the machine is no longer a member of the pool",
    OrderResult.FAULT: "the pool reported a failure",
    OrderResult.NONE: "the order got no response",
    OrderResult.UNSENT: "the order was not sent",
}


def _gone_outcome(machine: Machine | None, order: TerminationOrder | None) -> DeleteOutcome:
    how = "no longer in the pool" if machine is None else machine.machine_state
    if order is None and machine is None:
        return Refused(Refusal.NOT_IN_GROUP, NO_MACHINE)
    if order is None or not order.ours or order.result in {OrderResult.MISSING, OrderResult.UNSENT}:
        return AlreadyGone(how)
    return Deleted(how)


def _decide_repeat(machine: Machine, order: TerminationOrder, now: dt.datetime, limits: OrderTimeouts) -> Verdict:
    """Return the verdict on a machine that exists after an order: repeat the order once it can have no more effect."""
    match order.result:
        case OrderResult.PENDING:
            return KeepWaiting()
        case OrderResult.MISSING:
            return _decide_unlisted(machine)
        case OrderResult.DONE | OrderResult.NONE:
            pause = limits.settle
        case OrderResult.UNSENT | OrderResult.FAULT:
            pause = limits.backoff.after(order.attempts)
    return KeepWaiting() if now < order.at + pause else Send()


def _decide_unlisted(machine: Machine) -> Failed:
    return Failed(
        f"the pool returns 404 for its termination but lists it as {machine.machine_state}: "
        "check the URL and the API (v5 or multipool)",
        retryable=True,
    )
