"""Transitions of a drain while its pods are evicted in steps and their replacement pods are tracked. Separate
from the table, as every phase.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from rescheduler.draining import exits, requests, stepping
from rescheduler.draining.actions import Action, LookAgain, PlanAgain, ReadControllers
from rescheduler.draining.events import (
    ControllersRead,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    EvictionSkipped,
    NodeSeen,
    NotDone,
    PodGone,
)
from rescheduler.draining.exits import again_later, requesting, requesting_again, sooner
from rescheduler.draining.following import (
    READ_INTERVAL,
    controllers_of,
    due,
    failure,
    follow,
    merged_states,
    needs_reasons,
    read_interval,
    too_slow,
    waited,
)
from rescheduler.draining.state import Drain, Failure, Phase, Result, Victim, Why, without
from rescheduler.draining.stepping import dropped, next_step, observed, placeholder_overdue
from rescheduler.planning.forms import shortened
from rescheduler.planning.outcome import PodRef

#: A failure message names at most this many pods.
_PODS_NAMED: Final = 5

#: An eviction is requested without a new plan only for so many seconds after its last one.
PLANNED_SECONDS: Final = 5.0


def eviction_accepted(drain: Drain, event: EvictionAccepted, now: float) -> Result:
    """Record an accepted eviction."""
    victim = drain.victims.get(event.uid)
    if victim is None or victim.accepted:
        return drain, ()
    return exits.accept(drain, victim, now + victim.patience + drain.limits.headroom, now), ()


def eviction_refused(drain: Drain, event: EvictionRefused, now: float) -> Result:
    """Schedule a retry of an eviction that a budget rejected."""
    return again_later(drain, event.uid, event.why, event.retry_after, now), ()


def eviction_failed(drain: Drain, event: EvictionFailed, now: float) -> Result:
    """Schedule a retry, or give up if the error is permanent."""
    victim = drain.victims.get(event.uid)
    if victim is None:
        return drain, ()
    if event.migrating and drain.limits.migrations:
        return _migrating(drain, victim, now), ()
    if not event.retryable:
        answered = without(drain, frozenset({event.uid}))
        return exits.give_up(answered, Failure(Why.EVICTION_FAILED, event.why, (victim.pod,)), now)
    return again_later(drain, event.uid, event.why, event.retry_after, now), ()


def _migrating(drain: Drain, victim: Victim, now: float) -> Drain:
    """Record that an admission webhook moves the pod by itself. It has as long as a replacement to run."""
    if victim.accepted:
        return drain
    return exits.accept(drain, victim, now + (drain.limits.landing or drain.limits.eviction), now)


def pod_gone(drain: Drain, event: PodGone, now: float) -> Result:
    """Schedule another eviction request, unless the watch shows by then that the pod has left."""
    return again_later(drain, event.uid, "the pod is gone", None, now), ()


def eviction_skipped(drain: Drain, event: EvictionSkipped, now: float) -> Result:
    """Record that the eviction request was not sent."""
    return again_later(drain, event.uid, event.why, None, now), ()


def controllers_read(drain: Drain, event: ControllersRead, now: float) -> Result:
    """Store the states of the controllers, or give up if pods must not be evicted."""
    if event.blockers:
        return exits.plan_changed(drain, event.blockers, now)
    uncertain = {controller: before for controller, before in drain.before_step.items() if before.at >= drain.known_at}
    return replace(
        drain, states=merged_states(drain, event), read_at=now, known_at=drain.asked_at, before_step=uncertain
    ), ()


def controllers_unread(drain: Drain, event: NotDone[ReadControllers], now: float) -> Result:
    """Retry later, or give up if the error is permanent."""
    if not event.retryable:
        return exits.give_up(drain, Failure(Why.API_ERROR, event.why), now)
    return replace(drain, read_at=now), ()


def seen(drain: Drain, event: NodeSeen, now: float) -> Result:
    """Take the next step according to the watched state.

    If another tool is removing the node, that tool evicts the remaining pods, and this drain stops evicting.
    """
    if not event.tainted:
        return exits.mark_lost(drain, now)
    drain = exits.accept_requested(drain, event, now)
    if (ended := exits.disturbed(drain, event, now)) is not None:
        return ended
    gone = {*drain.victims, *(victim.pod.uid for victim in drain.waiting)} - event.present
    if gone:
        drain = sooner(dropped(drain, frozenset(gone)), now)
    if unowned := drain.unowned or stepping.unowned(drain, drain.waiting):
        return _look_again(drain, unowned, now)
    drain = waited(follow(replace(drain, replicas=event.replicas, detaching=event.detaching), now), now)
    if event.removed_by and drain.evicted_all:
        return exits.hand_over(drain, event.removed_by, now)
    if (failed := _overdue(drain, now) or failure(drain, now, event.removed_by)) is not None:
        return exits.give_up(drain, failed, now)
    return _continued(drain, event, now)


def _continued(drain: Drain, event: NodeSeen, now: float) -> Result:
    drain, reading = _read(drain, now)
    drain, following = requests.follow(drain, now)
    reading += following
    if event.stale:
        return drain, reading
    if not (drain.waiting or drain.victims or drain.owed or drain.planning_at is not None):
        return _landed(drain, now)
    drain = replace(drain, landed_at=None)
    if event.removed_by:
        return drain, reading
    drain, deletions = observed(drain, event, now)
    drain, again = (drain, ()) if event.lost else _ask_again(drain, now)
    drain, step = _step(drain, now, lost=event.lost)
    return drain, (*reading, *deletions, *again, *step)


def _look_again(drain: Drain, unowned: str, now: float) -> Result:
    """Wait for a pod without a controller that replaces it, and plan the node again once no request is in flight.

    The pod may be deleted together with its controller, or another controller may adopt it. If neither happens, it
    blocks its node like any pod without a controller.
    """
    since = now if drain.unowned_at is None else drain.unowned_at
    drain = replace(drain, unowned_at=since)
    if now >= since + drain.limits.creation:
        return exits.give_up(drain, Failure(Why.PLAN_CHANGED, f"the plan is no longer valid: {unowned}"), now)
    if drain.unanswered or drain.planning_at is not None or not drain.reads_again(now, READ_INTERVAL):
        return drain, ()
    return replace(requesting(drain, Phase.LOOKING), unowned="", read_at=None), (LookAgain(drain.targets),)


def _landed(drain: Drain, now: float) -> Result:
    """Plan the node again after all owed pods run, once any pod that was bound to it late must have been observed."""
    drain = drain if drain.landed_at is not None else replace(drain, landed_at=now)
    if now < drain.tainted_at + drain.limits.exposure:
        return drain, ()
    return replace(requesting(drain, Phase.LOOKING), read_at=None), (LookAgain(),)


def _read(drain: Drain, now: float) -> tuple[Drain, tuple[Action, ...]]:
    if not drain.debts or not drain.reads_again(now, read_interval(drain)):
        return drain, ()
    reading = controllers_of(drain, read_refusals=needs_reasons(drain, now))
    return replace(drain, read_at=None, asked_at=now), (reading,)


def _ask_again(drain: Drain, now: float) -> tuple[Drain, tuple[Action, ...]]:
    """Request the evictions again that are due. Minutes after their step, they are planned again like a step."""
    due_again = [victim for victim in drain.victims.values() if victim.is_due(now)]
    old = tuple(victim for victim in due_again if now > victim.planned_at + PLANNED_SECONDS)
    if not old:
        return requests.evictions(*requesting_again(drain, now))
    if drain.planning_at is not None or (drain.retry_at is not None and now < drain.retry_at):
        return drain, ()
    return replace(drain, step=old, planning_at=now), (_plan_again(drain, old),)


def _step(drain: Drain, now: float, *, lost: str) -> tuple[Drain, tuple[Action, ...]]:
    """Plan again before each step, and as soon as a target node of remaining pods is lost."""
    if drain.planning_at is not None or (drain.vacating and not lost):
        return drain, ()
    if drain.retry_at is not None and now < drain.retry_at:
        return drain, ()
    step = next_step(drain)
    if (slow := too_slow(drain, step)) is not None:
        return exits.give_up(drain, slow, now)
    asking = any(not victim.accepted for victim in drain.victims.values())
    if not step and not (lost and (drain.waiting or asking or due(drain))):
        return drain, ()
    return replace(drain, step=step, planning_at=now), (_plan_again(drain, step),)


def _plan_again(drain: Drain, step: tuple[Victim, ...]) -> PlanAgain:
    pods = {victim.pod.uid for victim in step}
    return PlanAgain(
        due=_due_pods(drain),
        targets=frozenset(placement.node for placement in drain.placements if placement.pod.uid in pods),
        owners=frozenset((victim.pod.namespace, victim.owner) for victim in step if victim.owner is not None),
        controllers=frozenset(drain.debts),
    )


def _due_pods(drain: Drain) -> tuple[PodRef, ...]:
    """Return one evicted pod for each unbound replacement pod: the most recently evicted pods of each controller."""
    pods: list[PodRef] = []
    for controller, missing in Counter(due(drain)).items():
        evicted = [pod for pod in drain.evicted if drain.controllers.get(pod.uid) == controller]
        pods += evicted[-missing:]
    return tuple(pods)


def _overdue(drain: Drain, now: float) -> Failure | None:
    overdue = [victim for victim in drain.victims.values() if victim.leaves_by is not None and victim.leaves_by <= now]
    if overdue:
        why = f"{_pods(overdue)} did not terminate within the grace period and {drain.limits.headroom:g} s"
        return Failure(Why.TERMINATION_TIMEOUT, why, tuple(victim.pod for victim in overdue))
    if (late := placeholder_overdue(drain, now) or requests.overdue(drain, now)) is not None:
        return late
    refused = [victim for victim in drain.victims.values() if not victim.accepted and now >= victim.ask_until]
    if refused:
        rejection = next((f": {victim.last_rejection}" for victim in refused if victim.last_rejection), "")
        why = f"{_pods(refused)} could not be evicted within {drain.limits.eviction:g} s{rejection}"
        return Failure(Why.EVICTION_TIMEOUT, why, tuple(victim.pod for victim in refused))
    return None


def _pods(victims: Iterable[Victim]) -> str:
    names = [str(victim.pod) for victim in victims]
    return f"pod{'s' if len(names) > 1 else ''} {shortened(names, _PODS_NAMED)}"
