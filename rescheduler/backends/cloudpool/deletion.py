"""When a machine may be ordered away, when to wait, and when to believe that it is gone. No I/O and no clock.

The pool answers from a cache, and no answer of it proves what happened to the machine: an error may follow a
termination, and a lost answer may precede one. So one rule stands above all: an order is given only while none can
be at work, and the desired size is lowered once for a machine.
"""

import datetime as dt
import enum
from dataclasses import dataclass
from typing import TypeAlias

from rescheduler.backends.base import Accepted, AlreadyGone, Deleted, DeleteOutcome, Failed, Refusal, Refused
from rescheduler.backends.cloudpool.messages import Machine

NO_MACHINE = "no machine of the pool is its machine"
_MAX_BACK_OFF = dt.timedelta(seconds=30)


class Ending(enum.StrEnum):
    """How a machine is given away. The values end the ids of groups, and so the intents on Nodes."""

    SHRINK = ""  #: terminated, and the pool is one smaller
    REPLACE = "+replace"  #: terminated, and the pool makes another one
    #: Made disposable, whatever protected it: the pool ends it at its next resize, and replaces it if it counted.
    DISPOSE = "+dispose"

    @property
    def takes_protected(self) -> bool:
        return self is Ending.DISPOSE


class Answer(enum.Enum):
    """How an order ended."""

    PENDING = enum.auto()  #: not yet
    DONE = enum.auto()  #: 2xx
    MISSING = enum.auto()  #: 404: no allocated member of that id
    FAULT = enum.auto()  #: the pool reports a failure
    NONE = enum.auto()  #: sent, and nothing came back
    UNSENT = enum.auto()  #: never reached the pool


@dataclass(frozen=True, slots=True)
class Order:
    """The last order for a machine; an earlier process's has `answer` NONE and the intent's time."""

    at: dt.datetime  #: when it ended, or began while it is pending
    answer: Answer
    words: str = ""  #: what went wrong
    attempts: int = 1  #: this one included
    desired: int | None = None  #: the pool's desired size before the first order
    lowering: bool = False  #: an order was to lower the desired size
    lowered: bool = False  #: the desired size was seen to be lower after such an order
    ours: bool = True  #: given by this process

    @property
    def lost(self) -> bool:
        """Whether the pool ended the machine, as far as is known, and did not lower its desired size."""
        return self.ours and self.lowering and not self.lowered


@dataclass(frozen=True, slots=True)
class Limits:
    settle: dt.timedelta  #: how long an order without an answer may be at work
    back_off: dt.timedelta  #: before the second order; doubles for each further one


@dataclass(frozen=True, slots=True)
class Send:
    """Give the order (again)."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again later."""


Verdict: TypeAlias = Send | Wait | DeleteOutcome


def judge(
    machine: Machine | None,
    order: Order | None,
    *,
    observed_at: dt.datetime,
    not_before: dt.datetime,
    now: dt.datetime,
    limits: Limits,
    ending: Ending = Ending.SHRINK,
) -> Verdict:
    """What to do about a machine of the pool as observed at *observed_at* or later.

    *machine* is `None` when the pool does not list it. An observation older than *not_before* proves nothing for a
    machine that nobody ordered away yet: an earlier process may have.
    """
    if machine is None or machine.gone:
        return _gone(machine, order)
    if order is None:
        verdict: Verdict = Wait() if observed_at < not_before else Send()
    elif order.answer is not Answer.UNSENT and observed_at < order.at:
        verdict = Wait()
    else:
        verdict = _again(machine, order, now, limits)
    return (protection(machine, ending) or verdict) if isinstance(verdict, Send) else verdict


def give_up(machine: Machine | None, order: Order | None, *, observed_at: dt.datetime) -> DeleteOutcome:
    """The outcome for a machine whose end was not seen when time ran out."""
    if order is None:
        return Accepted("an earlier process may have ordered it; the pool's answers are older than this process")
    known = machine is not None and observed_at >= order.at
    unheard = order.answer is Answer.UNSENT and order.ours
    doomed = machine is not None and machine.disposable
    if (unheard or (order.answer is Answer.FAULT and known)) and not doomed:
        return Failed(order.words, retryable=True)
    state = f"the pool lists it as {machine.machine_state}" if machine else "the pool was not seen without it"
    return Accepted(f"{_SAID[order.answer]}; {state}{': ' if order.words else ''}{order.words}")


def lowers(machine: Machine, order: Order | None, desired: int) -> bool:
    """Whether the next order should lower the desired size, which is *desired* now.

    An inactive machine does not count for it. A size that fell since the first order may have been lowered by it;
    then it is not lowered again: a machine too many costs money, an undrained one costs pods.
    """
    if not machine.active:
        return False
    if order is None:
        return True
    fell = order.desired is not None and desired < order.desired and order.answer is not Answer.UNSENT
    return not (order.lowered or fell)


def unshrunk(order: Order | None, desired: int) -> str:
    """Why the desired size, which is *desired* now, was not lowered for a machine that is gone; "" where it was.

    The pool lowers it after the cloud has ended the machine. Where that fails in between, or somebody sets another
    size meanwhile, it keeps the number, and launches another machine in its place.
    """
    if order is None or not order.lost:
        return ""
    unknown = order.answer in {Answer.NONE, Answer.MISSING}  # the size was not read right after it
    if unknown and order.desired is not None and desired < order.desired:
        return ""
    words = f": {order.words}" if order.words else ""
    return f"{_SAID[order.answer]}{words}; its desired size is still {desired}, so it launches another machine"


def protection(machine: Machine, ending: Ending) -> Refused | None:
    """Why a machine that is there must not be ordered away."""
    if not machine.allocated:
        return Refused(Refusal.PROTECTED, f"its state {machine.machine_state!r} is not known")
    if not machine.membership.evictable and not ending.takes_protected:
        return Refused(Refusal.PROTECTED, "its membership status says that it is not evictable")
    return None


_SAID = {
    Answer.PENDING: "the order has no answer yet",
    Answer.DONE: "the pool took the order",
    Answer.MISSING: "the pool does not know it any more",
    Answer.FAULT: "the pool reported a failure",
    Answer.NONE: "the order got no answer",
    Answer.UNSENT: "the order was not sent",
}


def _gone(machine: Machine | None, order: Order | None) -> DeleteOutcome:
    how = "no longer in the pool" if machine is None else machine.machine_state
    if order is None and machine is None:
        return Refused(Refusal.NOT_IN_GROUP, NO_MACHINE)
    if order is None or not order.ours or order.answer in {Answer.MISSING, Answer.UNSENT}:
        return AlreadyGone(how)
    return Deleted(how)


def _again(machine: Machine, order: Order, now: dt.datetime, limits: Limits) -> Verdict:
    """The machine is there after the order ended; order it again once the last one cannot be at work."""
    match order.answer:
        case Answer.PENDING:
            return Wait()
        case Answer.MISSING:
            return _missing(machine)
        case Answer.DONE | Answer.NONE:
            pause = limits.settle
        case Answer.UNSENT | Answer.FAULT:
            pause = min(limits.back_off * 2 ** min(order.attempts - 1, 16), _MAX_BACK_OFF)
    return Wait() if now < order.at + pause else Send()


def _missing(machine: Machine) -> Failed:
    return Failed(
        f"the pool answers 404 to its termination, and lists it as {machine.machine_state}: "
        "is this the right API (v5 or multipool) below the right URL?",
        retryable=True,
    )
