"""The state machine of a drain: events and times in, actions out. No I/O, no clock.

The order is fixed (DESIGN.md 4): ask the provider → write taint and annotation → read the cluster consistently and
plan again → count what will be owed and write it down → try all evictions in a dry run → evict in steps and track the
replacement pods → all owed pods run → plan again → request machine termination and delete the Node, or remove the
taint. Every exit performs :class:`Release`, with three exceptions: machine termination was requested, or may have been
by an earlier process; the node is gone; or the annotation now belongs to another process, which continues or rolls
back.

Another tool may start to remove the node during a drain. Then nothing more is evicted. If all pods were already
evicted, the drain is handed over: it did not fail, and pods that are still owed are tracked after it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from rescheduler.draining import evicting, exits, marking, preparing, removing
from rescheduler.draining.messages import (
    AskProvider,
    ControllersRead,
    ControllersUnread,
    Event,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    EvictionSkipped,
    LookAgain,
    Looked,
    LookFailed,
    Marked,
    MarkFailed,
    NodeDeleted,
    NodeDeletionFailed,
    PlannedAgain,
    PodGone,
    ProviderAnswered,
    Released,
    ReleaseFailed,
    RemovalFailed,
    RemovalPending,
    Removed,
    Seen,
    Stop,
)
from rescheduler.draining.retrying import try_later
from rescheduler.draining.state import (
    NEVER,
    RENEW_INTERVAL,
    Drain,
    Failure,
    Limits,
    Phase,
    Result,
    Why,
    leaving,
    requesting,
    targets,
    victims,
)
from rescheduler.planning.debts import Debt
from rescheduler.planning.outcome import Placement, Plan, PodRef, Rejected, is_removal

#: How often pods that were scheduled to the node in spite of the taint are evicted before the drain fails.
RETURNS: Final = 2

#: Phases that may last long. In all others the mark is about to be written or removed anyway.
_RENEWED: Final = frozenset({Phase.TRYING, Phase.EVICTING, Phase.REMOVING, Phase.DELETING})


def start(plan: Plan, limits: Limits) -> Result:
    """Start to drain the plan's node."""
    pods = tuple(placement.pod.uid for placement in plan.placements)
    return Drain(plan.node, limits, Phase.ASKING, intended=pods, targets=targets(plan)), (AskProvider(),)


def resume(node: str, limits: Limits, pods: tuple[str, ...], debts: tuple[Debt, ...] = ()) -> Result:
    """Continue a drain that another process started. The node has our taint, and *pods* (UIDs) may have left."""
    owed = {debt.controller: debt for debt in debts}
    drain = Drain(node, limits, Phase.ASKING, intended=pods, marked=True, resumed=True, debts=owed)
    return drain, (AskProvider(),)


def resume_removal(
    node: str, limits: Limits, group: str, ordered_at: datetime, debts: tuple[Debt, ...] = (), *, absent: bool = False
) -> Result:
    """Continue a removal that an earlier process or round may have requested.

    The node is planned again first, so that all rules apply to pods that were scheduled to it since. *debts* are
    those written there by earlier attempts. *absent*: the provider did not know the machine at the last request.
    """
    owed = {debt.controller: debt for debt in debts}
    drain = Drain(node, limits, Phase.MARKING, marked=True, resumed=True, debts=owed)
    drain = replace(drain, group=group, ordered_at=ordered_at, absent=absent)
    return drain, (marking.mark(drain),)


def roll_back(node: str, limits: Limits, debts: tuple[Debt, ...], now: float) -> Result:
    """Remove our marks from a node whose intent is unknown. *debts* are those written there."""
    owed = {debt.controller: debt for debt in debts}
    return exits.release(Drain(node, limits, Phase.RELEASING, marked=True, rolled_back=True, debts=owed), now)


def step(drain: Drain, event: Event, now: float) -> Result:
    """Return the drain after *event* at time *now*, and the actions to perform. Late responses are ignored."""
    transition = _TRANSITIONS.get((drain.phase, type(event))) or _EVERYWHERE.get(type(event))
    if drain.done or transition is None:
        return drain, ()
    return _renewed(*transition(drain, event, now), now)


def _renewed(drain: Drain, actions: tuple[Any, ...], now: float) -> Result:
    if now < drain.renew_at or drain.phase not in _RENEWED:
        return drain, actions
    return replace(drain, renew_at=now + RENEW_INTERVAL), (*actions, marking.renew(drain))


# Before the first eviction


def _provider_answered(drain: Drain, event: ProviderAnswered, now: float) -> Result:
    if event.refusal:
        why = Why.PROVIDER if event.group is None else Why.REFUSED
        return exits.give_up(drain, Failure(why, event.refusal), now)
    drain = replace(drain, phase=Phase.MARKING, group=event.group, marked=True)
    return drain, (marking.mark(drain),)


def _marked(drain: Drain, _: Marked, now: float) -> Result:
    drain = replace(requesting(drain, Phase.LOOKING), tainted_at=now, renew_at=now + RENEW_INTERVAL)
    return drain, (LookAgain(drain.targets),)


def _mark_failed(drain: Drain, event: MarkFailed, now: float) -> Result:
    """Give up. The mark is removed anyway, because it may be unknown whether the PATCH was applied."""
    if event.node_gone:
        return exits.node_gone(drain, event.why)
    if event.retryable and (later := try_later(drain, now)) is not None:
        return later, ()
    why = Why.MARK_LOST if event.lost else Why.API_ERROR
    return exits.give_up(drain, Failure(why, event.why), now)


def _request_tick(drain: Drain, _: Seen, now: float) -> Result:
    """Make the phase's request again where it has failed."""
    if now < drain.retry_at:
        return drain, ()
    drain = replace(drain, retry_at=NEVER)
    match drain.phase:
        case Phase.LOOKING:
            return drain, (LookAgain(drain.targets),)
        case Phase.ORDERING:
            return drain, (marking.removing(drain),)
        case _:
            return drain, (marking.mark(drain),)


def _renewal_failed(drain: Drain, event: MarkFailed, now: float) -> Result:
    """Keep draining after a failed renewal, which is retried, unless the mark is no longer ours."""
    if event.node_gone:
        return exits.node_gone(drain, event.why)
    return exits.mark_lost(drain, now) if event.lost else (drain, ())


def _looked(drain: Drain, event: Looked, now: float) -> Result:
    """Continue with the plan for the tainted node. Later calls include pods that were scheduled there since."""
    if isinstance(event.verdict, Rejected):
        blockers = event.verdict.blockers
        if drain.evicted_all and is_removal(blockers):
            return exits.hand_over(drain, blockers[0].detail, now)
        return exits.plan_changed(drain, blockers, now)
    plan = event.verdict
    waiting, gone = victims(plan, drain.limits), leaving(plan, drain.limits, now)
    if not waiting and not gone and not drain.debts:
        return _nothing_left(drain, now)
    if (waiting or gone) and drain.looks > RETURNS:
        why = f"pods were scheduled to the node {drain.looks} times during the drain: they tolerate its taint"
        return exits.give_up(drain, Failure(Why.PODS_RETURN, why, _pods(plan)), now)
    drain = replace(
        drain,
        waiting=waiting,
        victims=gone,
        targets=targets(plan),
        looks=drain.looks + bool(waiting or gone),
        landed_at=None,
        placements=drain.placements + _new(plan, drain),
    )
    return preparing.count(drain)


def _nothing_left(drain: Drain, now: float) -> Result:
    """Proceed with an empty node.

    A machine is removed only after the node was planned again at a time when late pods must have been observed.
    """
    if drain.group is None or drain.landed_at is not None:
        return removing.emptied(drain, now)
    return replace(drain, phase=Phase.EVICTING, waiting=(), victims={}), ()


def _look_failed(drain: Drain, event: LookFailed, now: float) -> Result:
    if event.node_gone:
        return exits.node_gone(drain, event.why)
    if event.retryable and (later := try_later(drain, now)) is not None:
        return later, ()
    return exits.give_up(drain, Failure(Why.API_ERROR, event.why), now)


def _new(plan: Plan, drain: Drain) -> tuple[Placement, ...]:
    known = {placement.pod.uid for placement in drain.placements}
    return tuple(placement for placement in plan.placements if placement.pod.uid not in known)


def _pods(plan: Plan) -> tuple[PodRef, ...]:
    return (*(placement.pod for placement in plan.placements), *plan.leaving)


Transition: TypeAlias = Callable[[Drain, Any, float], Result]

#: All transitions. An event without an entry for the current phase is a late response and is ignored.
_TRANSITIONS: Final[Mapping[tuple[Phase, type], Transition]] = {
    (Phase.ASKING, ProviderAnswered): _provider_answered,
    (Phase.MARKING, Marked): _marked,
    (Phase.MARKING, MarkFailed): _mark_failed,
    (Phase.MARKING, Seen): _request_tick,
    (Phase.LOOKING, Looked): _looked,
    (Phase.LOOKING, LookFailed): _look_failed,
    (Phase.LOOKING, Seen): _request_tick,
    (Phase.COUNTING, ControllersRead): preparing.counted,
    (Phase.COUNTING, ControllersUnread): preparing.uncounted,
    (Phase.COUNTING, MarkFailed): _renewal_failed,
    (Phase.COUNTING, Seen): preparing.count_tick,
    (Phase.NOTING, Marked): preparing.noted,
    (Phase.NOTING, MarkFailed): _mark_failed,
    (Phase.NOTING, Seen): _request_tick,
    (Phase.TRYING, EvictionAccepted): preparing.try_accepted,
    (Phase.TRYING, EvictionRefused): preparing.try_refused,
    (Phase.TRYING, EvictionFailed): preparing.try_failed,
    (Phase.TRYING, PodGone): preparing.try_accepted,
    (Phase.TRYING, MarkFailed): _renewal_failed,
    (Phase.TRYING, Seen): preparing.try_tick,
    (Phase.EVICTING, EvictionAccepted): evicting.eviction_accepted,
    (Phase.EVICTING, EvictionRefused): evicting.eviction_refused,
    (Phase.EVICTING, EvictionFailed): evicting.eviction_failed,
    (Phase.EVICTING, PodGone): evicting.pod_gone,
    (Phase.EVICTING, ControllersRead): evicting.controllers_read,
    (Phase.EVICTING, ControllersUnread): evicting.controllers_unread,
    (Phase.EVICTING, PlannedAgain): evicting.planned_again,
    (Phase.EVICTING, MarkFailed): _renewal_failed,
    (Phase.EVICTING, Seen): evicting.seen,
    (Phase.ORDERING, Marked): removing.order_marked,
    (Phase.ORDERING, MarkFailed): _mark_failed,
    (Phase.ORDERING, Seen): _request_tick,
    (Phase.REMOVING, Removed): removing.removed,
    (Phase.REMOVING, RemovalPending): removing.removal_pending,
    (Phase.REMOVING, RemovalFailed): removing.removal_failed,
    (Phase.REMOVING, MarkFailed): removing.renewal_failed,
    (Phase.REMOVING, Seen): removing.removal_tick,
    (Phase.DELETING, NodeDeleted): removing.node_deleted,
    (Phase.DELETING, NodeDeletionFailed): removing.node_deletion_failed,
    (Phase.DELETING, MarkFailed): removing.renewal_failed,
    (Phase.DELETING, Seen): removing.removal_tick,
    (Phase.RELEASING, Released): exits.released,
    (Phase.RELEASING, ReleaseFailed): exits.release_failed,
    (Phase.RELEASING, Seen): exits.release_tick,
    (Phase.RELEASING, EvictionAccepted): exits.accepted_late,
    (Phase.RELEASING, EvictionRefused): exits.answered_late,
    (Phase.RELEASING, EvictionFailed): exits.answered_late,
    (Phase.RELEASING, EvictionSkipped): exits.answered_late,
    (Phase.RELEASING, PodGone): exits.answered_late,
    (Phase.RELEASING, MarkFailed): exits.gone_while_released,
}
_EVERYWHERE: Final[Mapping[type, Transition]] = {Stop: exits.stop}
