"""Transitions of a drain after its tainted node was planned again from a consistent read."""

from dataclasses import replace
from typing import Final

from rescheduler.draining import exits, preparing, removing
from rescheduler.draining.actions import LookAgain
from rescheduler.draining.events import Looked, LookFailed, Seen
from rescheduler.draining.failures import Failure, Why
from rescheduler.draining.retrying import try_later
from rescheduler.draining.state import Drain, Phase, Result
from rescheduler.draining.victims import leaving, targets, victims
from rescheduler.planning.outcome import Placement, Plan, PodRef, Rejected, is_removal

#: How many times pods that were scheduled to the node despite the taint are evicted before the drain fails.
RETURNS: Final = 2


def looked(drain: Drain, event: Looked, now: float) -> Result:
    """Continue with the new plan of the node, which includes pods that were scheduled there since the last read."""
    if isinstance(event.verdict, Rejected):
        blockers = event.verdict.blockers
        if drain.evicted_all and is_removal(blockers):
            return exits.hand_over(drain, blockers[0].detail, now)
        return exits.plan_changed(drain, blockers, now)
    empty = not (event.verdict.placements or event.verdict.leaving)
    if empty and (drain.landed_at is not None or not drain.debts):
        return _nothing_left(drain, now)
    return _counting(drain, event.verdict, now)


def _counting(drain: Drain, plan: Plan, now: float) -> Result:
    """Read the controllers of the pods to move, unless pods were scheduled to the node too often."""
    pods = _pods(plan)
    if pods and drain.looks > RETURNS:
        why = f"pods were scheduled to the node {drain.looks} times during the drain: they tolerate its taint"
        return exits.give_up(drain, Failure(Why.PODS_RETURN, why, pods), now)
    limits = drain.limits
    drain = replace(
        drain,
        waiting=victims(plan, limits.grace),
        victims=leaving(plan, limits.grace, min(now + limits.grace + limits.headroom, drain.due_at)),
        targets=targets(plan),
        looks=drain.looks + bool(pods and (drain.landed_at is not None or not drain.looks)),
        landed_at=None,
        placements=drain.placements + _new(plan, drain),
    )
    return preparing.count(drain)


def _nothing_left(drain: Drain, now: float) -> Result:
    """Proceed with an empty node.

    A machine is removed only after a plan that was made late enough to include any pod bound during the drain.
    """
    if drain.group is None or drain.landed_at is not None:
        return removing.emptied(drain, now)
    return replace(drain, phase=Phase.EVICTING, waiting=(), victims={}), ()


def look_failed(drain: Drain, event: LookFailed, now: float) -> Result:
    """Retry, or give up after the time limit or a permanent error."""
    if event.node_gone:
        return exits.node_gone(drain, event.why)
    if event.retryable and (later := try_later(drain, now)) is not None:
        return later, ()
    return exits.give_up(drain, Failure(Why.API_ERROR, event.why), now)


def look_tick(drain: Drain, _: Seen, now: float) -> Result:
    """Read and plan again when a retry is due."""
    return (replace(drain, retry_at=None), (LookAgain(drain.targets),)) if drain.is_due(now) else (drain, ())


def _new(plan: Plan, drain: Drain) -> tuple[Placement, ...]:
    known = {placement.pod.uid for placement in drain.placements}
    return tuple(placement for placement in plan.placements if placement.pod.uid not in known)


def _pods(plan: Plan) -> tuple[PodRef, ...]:
    return (*(placement.pod for placement in plan.placements), *plan.leaving)
