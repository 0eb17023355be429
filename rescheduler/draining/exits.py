"""Transitions by which a drain ends: its taint comes off, or there is nothing more to do."""

from dataclasses import replace
from typing import Final

from rescheduler.draining.messages import (
    Cause,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    EvictionSkipped,
    MarkFailed,
    PodGone,
    Release,
    Released,
    ReleaseFailed,
    Seen,
    Stop,
)
from rescheduler.draining.state import NEVER, Drain, Failure, Phase, Result, Why, with_victim, without
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt
from rescheduler.planning.outcome import Blocker

#: Seconds between two tries to get our taint off.
RELEASE_INTERVAL: Final = 2.0


def give_up(drain: Drain, failure: Failure, now: float) -> Result:
    """End a drain that failed.

    A machine that an earlier process may have ordered can be on its way out: as long as nothing was evicted, its node
    keeps the mark, and a later look decides.
    """
    asked = any(not victim.accepted for victim in drain.victims.values())
    if drain.ordered_at is not None and not (drain.evicted or asked):
        return replace(drain, phase=Phase.DONE, postponed=failure), ()
    return reopen(drain, failure, now)


def reopen(drain: Drain, failure: Failure, now: float) -> Result:
    """Remove the marks, so that pods may come back. Controllers that have lost no pod are owed nothing."""
    asked = drain.victims if drain.phase is Phase.EVICTING else {}  # before, evictions were asked for in dry runs only
    drain = replace(drain, failure=failure, debts=_owed(drain), victims=asked)
    if not drain.marked:
        return replace(drain, phase=Phase.DONE, released=True), ()
    return release(drain, now)


def _owed(drain: Drain) -> dict[Controller, Debt]:
    return {each: debt for each, debt in drain.debts.items() if drain.has_taken_from(each)}


def hand_over(drain: Drain, removed_by: str, now: float) -> Result:
    """Leave a node of which all pods were evicted to the tool that removes it, without our marks."""
    return release(replace(drain, debts=_owed(drain), removed_by=removed_by), now)


def plan_changed(drain: Drain, blockers: tuple[Blocker, ...], now: float) -> Result:
    """The pods that are left may not move any more."""
    blocker = blockers[0]
    more = f" (and {len(blockers) - 1} more)" if len(blockers) > 1 else ""
    about = f"pod {blocker.pod}: " if blocker.pod else ""
    why = f"the plan no longer holds: {blocker.reason}: {about}{blocker.detail}{more}"
    return give_up(drain, Failure(Why.PLAN_CHANGED, why), now)


def release(drain: Drain, now: float) -> Result:
    deadline = now + drain.limits.release
    return replace(drain, phase=Phase.RELEASING, deadline=deadline, retry_at=NEVER), (Release(),)


def released(drain: Drain, _: Released, __: float) -> Result:
    return _settled(replace(drain, released=True))


def _settled(drain: Drain) -> Result:
    """Done once the marks are off and no eviction request is unanswered: it may evict a pod still."""
    return (replace(drain, phase=Phase.DONE) if drain.released and not drain.unanswered else drain), ()


def release_failed(drain: Drain, event: ReleaseFailed, now: float) -> Result:
    """Past the deadline the marks stay: they are swept in a later round, or by whoever leads next."""
    final = event.lost and not drain.unanswered
    if not final and now + RELEASE_INTERVAL < drain.deadline:
        return replace(drain, retry_at=now + RELEASE_INTERVAL), ()
    failure = drain.failure or Failure(Why.MARK_LOST if event.lost else Why.API_ERROR, event.why)
    return replace(drain, phase=Phase.DONE, failure=failure), ()


def release_tick(drain: Drain, _: Seen, now: float) -> Result:
    if drain.released:
        return (replace(drain, phase=Phase.DONE) if now >= drain.deadline else drain), ()
    if now < drain.retry_at:
        return drain, ()
    return replace(drain, retry_at=NEVER), (Release(),)


def gone_while_released(drain: Drain, event: MarkFailed, _: float) -> Result:
    """A node that is gone carries no marks; there is nothing to remove any more."""
    return _settled(replace(drain, released=True)) if event.node_gone else (drain, ())


def accepted_late(drain: Drain, event: EvictionAccepted, now: float) -> Result:
    """The request was on its way when the drain failed: the pod is one that the drain has evicted."""
    victim = drain.victims.get(event.uid)
    if victim is None or victim.accepted:
        return drain, ()
    drain = with_victim(drain, replace(victim, leaves_by=now))
    return _settled(replace(drain, evicted=(*drain.evicted, victim.pod), last_eviction_at=now))


def answered_late(
    drain: Drain, event: EvictionRefused | EvictionFailed | EvictionSkipped | PodGone, _: float
) -> Result:
    """The pod was not evicted by the request that was on its way when the drain failed."""
    return _settled(without(drain, frozenset({event.uid})))


def mark_lost(drain: Drain, now: float) -> Result:
    why = "our taint or annotation was removed or replaced by somebody else"
    return give_up(drain, Failure(Why.MARK_LOST, why), now)


def node_gone(drain: Drain, why: str) -> Result:
    """Where all pods were evicted before, whoever deleted the Node has finished the drain."""
    if drain.evicted_all:
        drain = replace(drain, debts=_owed(drain), removed_by=why)
    else:
        drain = replace(drain, failure=Failure(Why.NODE_GONE, why))
    return replace(drain, phase=Phase.DONE, released=True), ()


def stop(drain: Drain, event: Stop, now: float) -> Result:
    if event.cause is Cause.LEADERSHIP_LOST:
        lost = Failure(Why.LEADERSHIP_LOST, "another replica leads now: it goes on from here, or rolls back")
        return replace(drain, phase=Phase.DONE, failure=lost), ()
    if drain.phase is Phase.RELEASING:
        return drain, ()
    if drain.phase in (Phase.REMOVING, Phase.DELETING):
        return replace(drain, stopping=True, deadline=min(drain.deadline, now + drain.limits.release)), ()
    if drain.ordered_at is not None:
        return replace(drain, phase=Phase.DONE), ()
    left = tuple(victim.pod for victim in drain.victims.values() if not victim.accepted)
    pods = (*left, *(victim.pod for victim in drain.waiting))
    return give_up(drain, Failure(Why.STOPPED, "told to stop in the middle of the drain", pods), now)
