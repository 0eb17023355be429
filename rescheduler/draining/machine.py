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
from datetime import datetime

from rescheduler.draining import exits, marking, removing
from rescheduler.draining.actions import AskProvider
from rescheduler.draining.events import Event
from rescheduler.draining.state import RENEW_INTERVAL, Drain, Limits, Phase, Result
from rescheduler.draining.transitions import EVICTIONS_SENT, RENEWED, check_change, rule_for
from rescheduler.draining.victims import targets
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt
from rescheduler.planning.outcome import Plan


def start(plan: Plan, limits: Limits) -> Result:
    """Start draining the node of *plan*."""
    pods = tuple(placement.pod.uid for placement in plan.placements)
    return Drain(plan.node, limits, Phase.ASKING, intended=pods, targets=targets(plan)), (AskProvider(),)


def resume(node: str, limits: Limits, pods: tuple[str, ...], debts: tuple[Debt, ...] = ()) -> Result:
    """Continue a drain that another process started. The node has our taint, and *pods* (UIDs) may have left."""
    drain = Drain(node, limits, Phase.ASKING, intended=pods, marked=True, resumed=True, debts=_by_controller(debts))
    return drain, (AskProvider(),)


def resume_removal(
    node: str, limits: Limits, group: str, ordered_at: datetime, debts: tuple[Debt, ...] = (), *, absent: bool = False
) -> Result:
    """Continue a removal that an earlier process or round may have requested.

    The node is planned again first, so that all rules apply to pods that were scheduled to it since. *debts* are the
    debts that earlier attempts recorded on the node. *absent*: the machine was unknown to the provider at the last
    request.
    """
    drain = Drain(node, limits, Phase.MARKING, marked=True, resumed=True, debts=_by_controller(debts))
    drain = replace(drain, group=group, ordered_at=ordered_at, absent=absent)
    return drain, (marking.mark(drain),)


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
