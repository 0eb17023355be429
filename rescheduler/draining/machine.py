"""The state machine of a drain: events and times in, actions out. No I/O, no clock.

The order is fixed (docs/drain.md): ask the provider → write taint and annotation → read the cluster consistently and
plan again → count and record the future debts → try all evictions in a dry run → evict in steps and track the
replacement pods → all owed pods run → plan again → request machine termination and delete the Node, or remove the
taint. Every exit performs :class:`Release`, with three exceptions: machine termination was requested, or may have been
by an earlier process; the node is gone; or the annotation now belongs to another process, which continues or rolls
back.

Another tool may start to remove the node during a drain. Then no more pods are evicted. If all pods were already
evicted, the drain is handed over: it did not fail, and pods that are still owed are tracked after it.

:mod:`~rescheduler.draining.transitions` contains the table of phases, events and next phases.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from rescheduler.draining import exits, marking, removing
from rescheduler.draining.actions import NO_TIMES, AskProvider, DrainTimes
from rescheduler.draining.events import Event
from rescheduler.draining.failures import Failure, Why
from rescheduler.draining.intent import Intent
from rescheduler.draining.state import RENEW_INTERVAL, Drain, Limits, Phase, Result
from rescheduler.draining.transitions import EVICTIONS_SENT, RENEWED, check_change, rule_for
from rescheduler.draining.victims import NEVER, targets
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt
from rescheduler.planning.outcome import Plan
from rescheduler.planning.timestamps import utc

#: How long a drain may prepare its first eviction, in seconds: each of its requests is retried for a few seconds only.
PREPARATION: Final = 60.0


def start(plan: Plan, limits: Limits) -> Result:
    """Start draining the node of *plan*."""
    pods = tuple(placement.pod.uid for placement in plan.placements)
    return Drain(plan.node, limits, Phase.ASKING, intended=pods, targets=targets(plan)), (AskProvider(),)


def resume(
    node: str,
    limits: Limits,
    pods: tuple[str, ...],
    debts: tuple[Debt, ...] = (),
    since: datetime | None = None,
    times: DrainTimes = NO_TIMES,
    tainted_at: float = NEVER,
) -> Result:
    """Continue a drain that another process started at *since*. Its *times* go on.

    The node has had our taint since *tainted_at*, and *pods* (UIDs) may have left.
    """
    drain = Drain(node, limits, Phase.ASKING, intended=pods, marked=True, resumed=True, debts=_by_controller(debts))
    due_at = NEVER if times.due_at is None else times.due_at
    drain = replace(drain, since=since, last_eviction_at=times.evicted_at, due_at=due_at, tainted_at=tainted_at)
    return drain, (AskProvider(),)


def resume_removal(
    node: str,
    limits: Limits,
    group: str,
    ordered_at: datetime,
    debts: tuple[Debt, ...] = (),
    *,
    absent: bool = False,
    tainted_at: float = NEVER,
) -> Result:
    """Continue a removal that an earlier process or round may have requested.

    The node is planned again first, so that all rules apply to pods that were scheduled to it since. *debts* are the
    debts that earlier attempts recorded on the node. *absent*: the machine was unknown to the provider at the last
    request. The node has had our taint since *tainted_at*.
    """
    drain = Drain(node, limits, Phase.MARKING, marked=True, resumed=True, debts=_by_controller(debts))
    drain = replace(drain, group=group, ordered_at=ordered_at, absent=absent, tainted_at=tainted_at)
    return drain, (marking.mark(drain),)


def overdue(written: Intent, limits: Limits, now: datetime) -> str:
    """Return why the drain that *written* describes should have ended by *now*, or ""."""
    if written.due is not None and written.due <= now:
        return f"the pods that it had evicted had to run by {utc(written.due)}"
    if written.evicted is None:
        began, seconds = written.since, limits.eviction + PREPARATION
        what = "started"
    else:
        began, seconds = written.evicted, limits.eviction + limits.grace + limits.headroom + limits.landing
        what = "evicted its last pod"
    if now < began + timedelta(seconds=seconds):
        return ""
    return f"it {what} at {utc(began)}, more than {seconds:g} s ago"


def reopen_overdue(node: str, limits: Limits, debts: tuple[Debt, ...], why: str) -> Drain:
    """Return the end of an interrupted drain that is overdue: its marks must be removed."""
    failure = Failure(Why.OVERDUE, f"an interrupted drain was not finished in time: {why}")
    drain = Drain(node, limits, Phase.RELEASING, marked=True, resumed=True, debts=_by_controller(debts))
    return replace(drain, failure=failure)


def await_end(drain: Drain, limits: Limits, now: float) -> Result:
    """Continue the handed-over *drain* with *limits*: check whether the terminated machine is gone."""
    begun = replace(drain, limits=limits, phase=Phase.REMOVING, retry_at=None, deadline=now + limits.removal)
    return replace(begun, renew_at=now + RENEW_INTERVAL), removing.order(begun, again=True)


def roll_back(node: str, limits: Limits, debts: tuple[Debt, ...], now: float) -> Result:
    """Remove our marks from a node whose intent is unknown. *debts* are the debts recorded on the node."""
    drain = Drain(node, limits, Phase.RELEASING, marked=True, rolled_back=True, debts=_by_controller(debts))
    return exits.release(drain, now)


def step(drain: Drain, event: Event, now: float) -> Result:
    """Return the drain after *event* at time *now*, and the actions to perform.

    Raises UnexpectedEvent if the table does not list the event for the current phase, and UnexpectedPhase if it does
    not list the phase that follows.
    """
    rule = rule_for(drain.phase, event)
    if rule.handler is None:
        return drain, ()
    after, actions = rule.handler(drain, event, now)
    check_change(drain.phase, event, after.phase)
    if now < after.renew_at or after.phase not in RENEWED:
        return after, actions
    return replace(after, renew_at=now + RENEW_INTERVAL), (*actions, marking.renew(after))


def is_stopped_by_pause(drain: Drain) -> bool:
    """Return whether a pause by a user stops the drain.

    A removal that was requested before the pause continues, unless pods were scheduled to the node since then and are
    evicted.
    """
    evicts = drain.phase in EVICTIONS_SENT and bool(drain.waiting or drain.victims)
    return drain.ordered_at is None or evicts


def _by_controller(debts: Iterable[Debt]) -> dict[Controller, Debt]:
    return {debt.controller: debt for debt in debts}
