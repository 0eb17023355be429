"""Transitions of a drain while a Deployment rolls out: its pods on the node are not evicted, but replaced.

The intent is on the node before the template is changed. A roll-out that fails is undone: the template gets its old
annotation back, so the Deployment returns to its old ReplicaSet, whose pods never stopped. A template that somebody
else has changed meanwhile is left alone.

From the change of the template on, the Deployment is owed its Ready pods. The roll-out may take as long as its own
deadlines allow while they are Ready, and the landing timeout while any of them is missing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rescheduler.draining import exits
from rescheduler.draining.actions import Action, AskSurge, FollowSurge, LookAgain, Mark, ReadSurge, RevertSurge
from rescheduler.draining.events import (
    Done,
    NodeGone,
    NodeSeen,
    NotDone,
    Outcome,
    RolledTemplate,
    SurgeRead,
    SurgeReverted,
    SurgeSeen,
)
from rescheduler.draining.exits import if_due, requesting
from rescheduler.draining.following import READ_INTERVAL, controllers_of, follow, missing_since, waited
from rescheduler.draining.state import RENEW_INTERVAL, Drain, Failure, Phase, Result, Rollout, Victim, Why
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Replicas, paid

# Begin


def begin(drain: Drain, step: Sequence[Victim]) -> Result:
    """Read the Deployment of the pods in *step* before it rolls out."""
    surge = step[0].surge
    assert surge is not None
    return replace(requesting(drain, Phase.SURGE_READING), step=tuple(step)), (ReadSurge(surge),)


def surge_read(drain: Drain, event: SurgeRead, now: float) -> Result:
    """Write the intent to the node, or give up if the Deployment cannot roll out now."""
    if event.fault:
        pods = tuple(victim.pod for victim in drain.step)
        return exits.give_up(drain, Failure(Why.SURGE_FAILED, event.fault, pods), now)
    patience = max(drain.limits.landing or drain.limits.eviction, event.progress_seconds)
    drain = replace(drain, rollout=Rollout(event.mark, until=now + patience + drain.limits.grace))
    return replace(requesting(drain, Phase.SURGE_NOTING), step=()), (exits.mark(drain),)


def read_tick(drain: Drain, event: NodeSeen, now: float) -> Result:
    """Read the Deployment again when a retry is due."""
    if not event.tainted:
        return exits.mark_lost(drain, now)
    surge = drain.step[0].surge
    assert surge is not None
    return if_due(drain, now, ReadSurge(surge))


def noted(drain: Drain, _: Done[Mark], now: float) -> Result:
    """Roll the Deployment out, now that the intent is on the node."""
    assert drain.rollout is not None
    mark, controller = drain.rollout.mark, _controller(drain)
    begun = drain.begun | ({controller} if controller is not None else set())
    return replace(requesting(drain, Phase.SURGING), renew_at=now + RENEW_INTERVAL, begun=begun), (AskSurge(mark),)


def resume(drain: Drain, now: float) -> Result:
    """Follow the roll-out that an earlier process may have begun."""
    assert drain.rollout is not None
    patience = drain.limits.landing or drain.limits.eviction
    rollout = replace(drain.rollout, until=min(drain.due_at, now + patience + drain.limits.grace))
    drain = replace(requesting(drain, Phase.SURGING), rollout=rollout, read_at=now, renew_at=now + RENEW_INTERVAL)
    return drain, (FollowSurge(rollout.mark),)


# Follow


def asked(drain: Drain, _: Done[AskSurge], now: float) -> Result:
    """Follow the roll-out, which has begun."""
    assert drain.rollout is not None
    rollout = replace(drain.rollout, asked=True, read_at=now)
    return replace(drain, rollout=rollout, failing_until=None, retry_at=None), ()


def seen(drain: Drain, event: SurgeSeen, now: float) -> Result:
    """Store the state of the roll-out. Stop if somebody else has changed the template."""
    rollout = drain.rollout
    if rollout is None:
        return drain, ()
    if event.template is RolledTemplate.UNTOUCHED and not rollout.asked:  # the earlier process ended before it asked
        return _looking(replace(drain, rollout=None))
    if event.template is not RolledTemplate.OURS:
        return exits.give_up(replace(drain, rollout=None), _theirs(rollout, event.template), now)
    refused_at = missing_since(rollout.refused_at, now, runs=bool(event.refusal))
    rollout = replace(rollout, asked=True, read_at=now, complete=event.complete, refused_at=refused_at)
    rollout = replace(rollout, refusal=event.refusal, downtime=event.downtime)
    drain = replace(drain, rollout=rollout, failing_until=None, retry_at=None)
    if event.fault:
        return exits.give_up(drain, Failure(Why.SURGE_FAILED, f"Deployment {rollout.mark}: {event.fault}"), now)
    return drain, ()


def _theirs(rollout: Rollout, template: RolledTemplate) -> Failure:
    what = "was deleted" if template is RolledTemplate.GONE else "has a template that another client changed"
    return Failure(Why.SURGE_FAILED, f"Deployment {rollout.mark} {what} during its roll-out: it is left alone")


def tick(drain: Drain, event: NodeSeen, now: float) -> Result:
    """Read the roll-out again, and end it: when it is complete and the old pods are gone, or when it fails."""
    if not event.tainted:
        return exits.mark_lost(drain, now)
    if (ended := exits.disturbed(drain, event, now)) is not None:
        return ended
    return _continued(replace(drain, replicas=event.replicas), event.present, now, event.terminating)


def gone(drain: Drain, event: NodeGone, now: float) -> Result:
    """Follow the roll-out of a node that is gone: its Deployment must not be left in the middle."""
    rollout = drain.rollout
    if rollout is None or rollout.complete:
        return exits.node_gone(replace(drain, rollout=None), event.why)
    return _continued(drain, (), now)


def _continued(drain: Drain, present: Iterable[str], now: float, terminating: frozenset[str] = frozenset()) -> Result:
    rollout = drain.rollout
    if rollout is None:
        return drain, ()
    left = frozenset(rollout.mark.pods) & frozenset(present)
    if rollout.complete:
        if not left:
            return _done(drain, now)
        rollout = replace(rollout, leaves_by=rollout.leaves_by or now + drain.limits.grace + drain.limits.headroom)
    untouched = len(left - terminating) == len(rollout.mark.pods)
    drain, fault = _checked(replace(drain, rollout=rollout), now, untouched=untouched)
    if fault is not None:
        return exits.give_up(drain, fault, now)
    return _requests(drain, now)


def _checked(drain: Drain, now: float, *, untouched: bool) -> tuple[Drain, Failure | None]:
    """Update the timers of the roll-out, and return a failure if it cannot succeed or takes too long.

    *untouched* is whether none of its pods has begun to leave the drained node.
    """
    drain, controller = _timed(drain, now)
    rollout, limits = drain.rollout, drain.limits
    assert rollout is not None
    replicas = drain.replicas.get(controller, Replicas()) if controller is not None else Replicas()
    since = rollout.unschedulable_at
    owners = () if controller is None else (controller,)
    new_pod = f"new pod of Deployment {rollout.mark}"
    if replicas.returned:
        why = f"{new_pod}: it was scheduled to the drained node, because it tolerates the taint"
        return drain, Failure(Why.PODS_RETURN, why)
    if rollout.refused_at is not None and now >= rollout.refused_at + limits.creation:
        return drain, Failure(Why.REPLACEMENT_REFUSED, f"{new_pod}: {rollout.refusal}", owners=owners)
    if since is not None and now >= since + limits.creation:
        pods = ", ".join(replicas.unschedulable[:3])
        return drain, Failure(
            Why.REPLACEMENT_UNSCHEDULABLE, f"{new_pod}: the scheduler cannot place {pods}", owners=owners
        )
    if rollout.leaves_by is not None and now >= rollout.leaves_by:
        why = f"old pods of Deployment {rollout.mark} did not terminate in time"
        return drain, Failure(Why.TERMINATION_TIMEOUT, why)
    if rollout.downtime and untouched and rollout.short_at is None and not rollout.complete:
        # Once old pods have gone, to return to them would end the new ones, which may be about to run.
        return drain, Failure(Why.SURGE_FAILED, f"it changed during its roll-out: {rollout.downtime}")
    if rollout.short_at is not None and now >= rollout.short_at + (limits.landing or limits.eviction):
        why = f"{new_pod}: it is not Ready {now - rollout.short_at:.0f} s after an old pod stopped"
        why += f"; {rollout.downtime}" if rollout.downtime else ""
        return drain, Failure(Why.LANDING_TIMEOUT, why, owners=owners)
    if now >= rollout.until and not rollout.complete:
        return drain, Failure(Why.LANDING_TIMEOUT, f"{new_pod}: it is not available in time", owners=owners)
    return drain, None


def _timed(drain: Drain, now: float) -> tuple[Drain, Controller | None]:
    """Return *drain* with the timers of the roll-out, and whether its Deployment is owed pods, up to date."""
    rollout, controller = drain.rollout, _controller(drain)
    assert rollout is not None
    if controller is None or controller not in drain.states:  # after a resumption, it has not been read yet
        return drain, controller
    replicas = drain.replicas.get(controller, Replicas())
    short = not paid(drain.shortfall(controller, full=True))
    stuck = bool(replicas.unschedulable) and not rollout.complete
    rollout = replace(
        rollout,
        unschedulable_at=missing_since(rollout.unschedulable_at, now, runs=stuck),
        short_at=missing_since(rollout.short_at, now, runs=short),
    )
    others = drain.paid - {controller}
    return replace(drain, rollout=rollout, paid=others if short else others | {controller}), controller


def _requests(drain: Drain, now: float) -> Result:
    rollout, actions = drain.rollout, list[Action]()
    assert rollout is not None
    if drain.is_due(now):
        drain = replace(drain, retry_at=None)
        actions.append(FollowSurge(rollout.mark) if rollout.asked else AskSurge(rollout.mark))
    elif rollout.read_at is not None and now >= rollout.read_at + READ_INTERVAL and drain.in_flight:
        drain = replace(drain, rollout=replace(rollout, read_at=None))
        actions.append(FollowSurge(rollout.mark))
    if drain.debts and drain.reads_again(now, READ_INTERVAL):
        drain = replace(drain, read_at=None, asked_at=now)
        actions.append(controllers_of(drain))
    return drain, tuple(actions)


def _controller(drain: Drain) -> Controller | None:
    """Return the Deployment as a controller with a debt."""
    assert drain.rollout is not None
    return next((controller for controller in drain.debts if controller.uid == drain.rollout.mark.uid), None)


def _done(drain: Drain, now: float) -> Result:
    """Continue after a complete roll-out. Its pods count as evicted, so that their Deployment is owed the new ones."""
    drain = moved(drain, now)
    if not drain.looks:  # resumed: the node was not planned yet
        looking, actions = _looking(drain)
        return looking, (exits.renew(drain), *actions)
    return replace(requesting(drain, Phase.EVICTING), read_at=drain.read_at), (exits.renew(drain),)


def moved(drain: Drain, now: float) -> Drain:
    """Return *drain* with the roll-out complete."""
    assert drain.rollout is not None
    uids, controller = frozenset(drain.rollout.mark.pods), _controller(drain)
    victims = [victim for victim in drain.waiting if victim.pod.uid in uids]
    begun = {controller} if controller is not None else set()
    drain = replace(
        drain,
        rollout=None,
        waiting=tuple(victim for victim in drain.waiting if victim.pod.uid not in uids),
        evicted=(*drain.evicted, *(victim.pod for victim in victims)),
        surged=drain.surged | uids,
        surges=drain.surges + 1,
        last_eviction_at=now,
        begun=drain.begun | begun,
        paid=drain.paid - begun,
        settled=drain.settled - begun,
    )
    drain = waited(drain, now, {victim.pod.namespace for victim in victims})
    return follow(drain, now) if drain.states.keys() >= drain.debts.keys() else drain


def _looking(drain: Drain) -> Result:
    return replace(requesting(drain, Phase.LOOKING), read_at=None), (LookAgain(drain.targets),)


# Undo


def reverted(drain: Drain, event: SurgeReverted, now: float) -> Result:
    """Continue with the end of the drain, once the template is as before, or the roll-out complete."""
    if event.complete and drain.rollout is not None:
        drain = moved(drain, now)
    return _end(replace(drain, rollout=None), now)


def not_reverted(drain: Drain, event: NotDone[RevertSurge], now: float) -> Result:
    """Undo the roll-out again until the deadline. After that, the mark stays until a later round undoes it."""
    if not event.retryable:
        return _end(replace(drain, rollout=None), now)
    if now + exits.RELEASE_INTERVAL < drain.deadline:
        return replace(drain, retry_at=now + exits.RELEASE_INTERVAL), ()
    return replace(drain, phase=Phase.DONE, failure=drain.failure or Failure(Why.API_ERROR, event.why)), ()


def revert_tick(drain: Drain, _: NodeSeen | NodeGone, now: float) -> Result:
    """Undo the roll-out again when a retry is due, although the node may be gone."""
    assert drain.rollout is not None
    return if_due(drain, now, RevertSurge(drain.rollout.mark))


def renewal_failed(drain: Drain, event: NotDone[Mark], now: float) -> Result:
    """Leave the roll-out to the process that the mark belongs to now."""
    lost = event.outcome is Outcome.REFUSED
    return exits.mark_lost(replace(drain, rollout=None), now) if lost else (drain, ())


def _end(drain: Drain, now: float) -> Result:
    return exits.release(drain, now) if drain.failure is None else exits.give_up(drain, drain.failure, now)
