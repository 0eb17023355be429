"""Transitions that end a drain: its taint is removed, or nothing is left to do."""

from dataclasses import replace
from typing import Final

from rescheduler.draining.actions import OrderRemoval, Release
from rescheduler.draining.events import Cause, MarkFailed, NodeGone, Released, ReleaseFailed, Seen, Stop
from rescheduler.draining.eviction_outcomes import (
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    EvictionSkipped,
    PodGone,
)
from rescheduler.draining.failures import Failure, Why
from rescheduler.draining.retrying import requesting
from rescheduler.draining.state import Drain, Phase, Result, with_victim, without
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt
from rescheduler.planning.outcome import Blocker

#: Seconds between attempts to remove our taint.
RELEASE_INTERVAL: Final = 2.0


def give_up(drain: Drain, failure: Failure, now: float) -> Result:
    """End a drain that failed.

    If an earlier process may have requested machine termination and nothing was evicted, the provider is asked first
    whether the machine ends. If it may still end, the node keeps its mark, and a later round asks again.
    """
    in_flight = any(not victim.accepted for victim in drain.victims.values())
    if drain.ordered_at is not None and not (drain.evicted or in_flight):
        assert drain.group is not None
        asking = replace(requesting(drain, Phase.REMOVING), doubt=failure, deadline=now + drain.limits.removal)
        return asking, (OrderRemoval(drain.group, drain.ordered_at, again=True, doubt=failure.detail),)
    return reopen(drain, failure, now)


def reopen(drain: Drain, failure: Failure, now: float) -> Result:
    """Remove the marks, so that the node accepts pods again. Drop debts that are paid, and those without a loss."""
    requested = drain.victims if drain.phase is Phase.EVICTING else {}  # earlier requests were dry runs
    drain = replace(drain, failure=failure, debts=_owed(drain), victims=requested)
    if not drain.marked:
        return replace(drain, phase=Phase.DONE, released=True), ()
    return release(drain, now)


def _owed(drain: Drain) -> dict[Controller, Debt]:
    return {controller: debt for controller, debt in drain.owed.items() if drain.has_taken_from(controller)}


def hand_over(drain: Drain, removed_by: str, now: float) -> Result:
    """Release a node whose pods were all evicted, because another tool is removing it."""
    return release(replace(drain, debts=_owed(drain), removed_by=removed_by), now)


def plan_changed(drain: Drain, blockers: tuple[Blocker, ...], now: float) -> Result:
    """Give up because the remaining pods may no longer be moved."""
    rest = f" (and {len(blockers) - 1} more)" if len(blockers) > 1 else ""
    why = f"the plan is no longer valid: {blockers[0]}{rest}"
    return give_up(drain, Failure(Why.PLAN_CHANGED, why), now)


def release(drain: Drain, now: float) -> Result:
    """Start removing the marks."""
    deadline = now + drain.limits.release
    return replace(drain, phase=Phase.RELEASING, deadline=deadline, retry_at=None), (Release(),)


def released(drain: Drain, _: Released, __: float) -> Result:
    """Record that the marks are removed."""
    return _end_if_settled(replace(drain, released=True))


def _end_if_settled(drain: Drain) -> Result:
    """End the drain once the marks are removed and no eviction that could still succeed is in flight."""
    return (replace(drain, phase=Phase.DONE) if drain.released and not drain.unanswered else drain), ()


def release_failed(drain: Drain, event: ReleaseFailed, now: float) -> Result:
    """Retry until the deadline. After that, the marks stay until a later round or the next leader removes them."""
    final = event.lost and not drain.unanswered
    if not final and now + RELEASE_INTERVAL < drain.deadline:
        return replace(drain, retry_at=now + RELEASE_INTERVAL), ()
    failure = drain.failure or Failure(Why.MARK_LOST if event.lost else Why.API_ERROR, event.why)
    return replace(drain, phase=Phase.DONE, failure=failure), ()


def release_tick(drain: Drain, _: Seen, now: float) -> Result:
    """Retry the release, or end the drain at the deadline."""
    if drain.released:
        return (replace(drain, phase=Phase.DONE) if now >= drain.deadline else drain), ()
    return (replace(drain, retry_at=None), (Release(),)) if drain.is_due(now) else (drain, ())


def mark_failed_late(drain: Drain, event: MarkFailed, _: float) -> Result:
    """End the drain if the node is gone, because there are no marks to remove."""
    return _end_if_settled(replace(drain, released=True)) if event.node_gone else (drain, ())


def gone_while_released(drain: Drain, _: NodeGone, now: float) -> Result:
    """End the drain once no eviction is in flight, or at the deadline. There are no marks to remove."""
    drain = replace(drain, released=True)
    return _end_if_settled(drain) if now < drain.deadline else (replace(drain, phase=Phase.DONE), ())


def accepted_late(drain: Drain, event: EvictionAccepted, now: float) -> Result:
    """Record the acceptance of an eviction that was in flight when the drain failed."""
    victim = drain.victims.get(event.uid)
    if victim is None or victim.accepted:
        return drain, ()
    drain = with_victim(drain, replace(victim, leaves_by=now))
    return _end_if_settled(replace(drain, evicted=(*drain.evicted, victim.pod), last_eviction_at=now))


def answered_late(
    drain: Drain, event: EvictionRefused | EvictionFailed | EvictionSkipped | PodGone, _: float
) -> Result:
    """Drop a pod whose eviction was in flight when the drain failed and was not accepted."""
    return _end_if_settled(without(drain, frozenset({event.uid})))


def mark_lost(drain: Drain, now: float) -> Result:
    """Give up because the mark belongs to another process."""
    why = "another client removed or replaced our taint or annotation"
    return give_up(drain, Failure(Why.MARK_LOST, why), now)


def node_gone(drain: Drain, why: str) -> Result:
    """End the drain. If all pods were already evicted, the deletion of the Node completed the drain."""
    if drain.evicted_all:
        drain = replace(drain, debts=_owed(drain), removed_by=why)
    else:
        drain = replace(drain, failure=Failure(Why.NODE_GONE, why))
    return replace(drain, phase=Phase.DONE, released=True), ()


def stop(drain: Drain, event: Stop, now: float) -> Result:
    """Roll back. This drain has not requested machine termination."""
    if is_leadership_lost(event):
        return leadership_lost(drain)
    if drain.ordered_at is not None:
        return replace(drain, phase=Phase.DONE), ()
    asking = tuple(victim.pod for victim in drain.victims.values() if not victim.accepted)
    pods = (*asking, *(victim.pod for victim in drain.waiting))
    why = Why.PAUSED if event.cause is Cause.PAUSED else Why.STOPPED
    return give_up(drain, Failure(why, event.detail or "stop requested during the drain", pods), now)


def stop_release(drain: Drain, event: Stop, _: float) -> Result:
    """Complete the release, unless another replica is the leader."""
    return leadership_lost(drain) if is_leadership_lost(event) else (drain, ())


def is_leadership_lost(event: Stop) -> bool:
    """Return whether the drain must end without any further write."""
    return event.cause is Cause.LEADERSHIP_LOST


def leadership_lost(drain: Drain) -> Result:
    """End the drain at once. The node keeps its marks."""
    lost = Failure(Why.LEADERSHIP_LOST, "another replica is the leader now: it continues or rolls back this drain")
    return replace(drain, phase=Phase.DONE, failure=lost), ()
