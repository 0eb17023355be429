"""Transitions of a drain after its node was planned again: count and record its future debts, then try the
evictions. Separate from the table of transitions, as each phase of a drain has a module.
"""

from dataclasses import replace
from typing import Final

import msgspec

from rescheduler.draining import exits, removing
from rescheduler.draining.actions import LookAgain, Mark, ReadControllers, StoreDebts, TryEviction
from rescheduler.draining.events import (
    ControllersRead,
    Done,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    Looked,
    NodeSeen,
    NotDone,
    Outcome,
    PodGone,
)
from rescheduler.draining.exits import again_later, if_due, requesting, requesting_again
from rescheduler.draining.following import controllers_of, merged_states
from rescheduler.draining.state import (
    NEVER,
    RENEW_INTERVAL,
    Drain,
    Failure,
    Phase,
    Result,
    Victim,
    Why,
    leaving,
    targets,
    victims,
    without,
)
from rescheduler.planning.controllers import Controller, is_evicted_late
from rescheduler.planning.debts import Debt, Replicas, incur, paid, raised, shortfall
from rescheduler.planning.outcome import Placement, Plan, PodRef, Rejected, is_removal


def count(drain: Drain) -> Result:
    """Read the controllers of the pods to move, and of pods that an earlier process evicted."""
    return requesting(drain, Phase.COUNTING), (controllers_of(drain),)


def counted(drain: Drain, event: ControllersRead, now: float) -> Result:
    """Record the debts after the controllers were read."""
    if missing := _unanswered(drain, event):
        return exits.failed(drain, NotDone(ReadControllers, f"the response lacks {missing}", Outcome.UNKNOWN), now)
    if event.blockers:
        return exits.plan_changed(drain, event.blockers, now)
    drain = replace(
        requesting(drain, Phase.NOTING),
        waiting=tuple(_with_controller(victim, event) for victim in drain.waiting),
        victims={uid: _with_controller(victim, event) for uid, victim in drain.victims.items()},
        states=merged_states(drain, event),
        replicas=event.replicas,
        debts=_debts(drain, event),
        losable=event.losable,
        read_at=now,
        known_at=now,
    )
    known = {victim.pod.uid: victim.controller for victim in (*drain.waiting, *drain.victims.values())}
    controllers = {uid: controller for uid, controller in known.items() if controller is not None}
    begun = {controller for uid, controller in controllers.items() if drain.controllers.get(uid) in drain.begun}
    drain = replace(drain, controllers={**drain.controllers, **controllers}, begun=drain.begun | begun)
    return drain, (exits.mark(drain),)


def _unanswered(drain: Drain, event: ControllersRead) -> str:
    """Return the first requested controller that is missing from the response, or ""."""
    for victim in (*drain.waiting, *drain.victims.values()):
        if victim.owner is not None and (victim.pod.namespace, victim.owner.uid) not in event.topmost:
            return f"the controller of pod {victim.pod}"
    unread = sorted({*drain.debts, *event.topmost.values()} - event.states.keys())
    return str(unread[0]) if unread else ""


def count_tick(drain: Drain, event: NodeSeen, now: float) -> Result:
    """Retry the read when it is due."""
    if not event.tainted:
        return exits.mark_lost(drain, now)
    return if_due(drain, now, controllers_of(drain))


def noted(drain: Drain, _: Done[Mark], now: float) -> Result:
    """Store the debts that the mark contains in the memory as well."""
    return replace(drain, renew_at=now + RENEW_INTERVAL), (StoreDebts(),)


def stored(drain: Drain, _: Done[StoreDebts], now: float) -> Result:
    """Try the evictions in a dry run. A resumed drain skips this, because it has already used part of its budgets."""
    evicted = [victim for victim in drain.waiting if victim.surge is None]
    if drain.resumed or drain.evicted or not evicted:
        return _begin(drain, now)
    tentative = [replace(victim, ask_until=now + drain.limits.eviction) for victim in evicted]
    victims = {**drain.victims, **{victim.pod.uid: victim for victim in tentative}}
    others = tuple(victim for victim in drain.waiting if victim.surge is not None)
    drain = replace(drain, phase=Phase.TRYING, waiting=others, victims=victims)
    return drain, tuple(_trial(drain, victim) for victim in tentative)


def _trial(drain: Drain, victim: Victim) -> TryEviction:
    request = drain.limits.requests and victim.requestable
    return TryEviction(victim.pod, victim.grace, request=request, must=request and victim.responders)


def try_accepted(drain: Drain, event: EvictionAccepted | PodGone, now: float) -> Result:
    """Record a successful dry run. If the pod is gone, the watch will show that soon."""
    victim = drain.victims.get(event.uid)
    if victim is None:
        return drain, ()
    drain = without(drain, frozenset([event.uid]))
    accepted = replace(victim, ask_at=None, ask_until=NEVER, refusals=0, last_rejection="")
    return _begin_if_tried(replace(drain, waiting=(*drain.waiting, accepted)), now)


def try_refused(drain: Drain, event: EvictionRefused, now: float) -> Result:
    """Give up before anything is evicted."""
    victim = drain.victims.get(event.uid)
    pods = () if victim is None else (victim.pod,)
    return exits.give_up(drain, Failure(Why.EVICTION_REFUSED, event.why, pods), now)


def try_failed(drain: Drain, event: EvictionFailed, now: float) -> Result:
    """Retry the dry run, or give up after a permanent error."""
    victim = drain.victims.get(event.uid)
    if victim is None:
        return drain, ()
    if event.migrating and drain.limits.migrations:
        return try_accepted(drain, EvictionAccepted(event.uid), now)
    if not event.retryable or now >= victim.ask_until:
        return exits.give_up(drain, Failure(Why.EVICTION_REFUSED, event.why, (victim.pod,)), now)
    return again_later(drain, event.uid, event.why, event.retry_after, now), ()


def try_tick(drain: Drain, event: NodeSeen, now: float) -> Result:
    """Retry the dry runs that are due."""
    if not event.tainted:
        return exits.mark_lost(drain, now)
    drain, due = requesting_again(drain, now)
    return drain, tuple(_trial(drain, victim) for victim in due)


def _begin_if_tried(drain: Drain, now: float) -> Result:
    untried = [victim for victim in drain.victims.values() if not victim.accepted]
    return (drain, ()) if untried else _begin(drain, now)


def _begin(drain: Drain, now: float) -> Result:
    order = {placement.pod.uid: index for index, placement in enumerate(drain.placements)}
    waiting = sorted(drain.waiting, key=lambda victim: order[victim.pod.uid])
    if not drain.one_by_one:
        waiting.sort(key=lambda victim: is_evicted_late(victim.owner))
    last = now if drain.last_eviction_at is None else drain.last_eviction_at
    return replace(requesting(drain, Phase.EVICTING), waiting=tuple(waiting), last_eviction_at=last), ()


def _with_controller(victim: Victim, event: ControllersRead) -> Victim:
    if victim.owner is None:
        return victim
    return replace(victim, controller=event.topmost.get((victim.pod.namespace, victim.owner.uid)))


def _debts(drain: Drain, event: ControllersRead) -> dict[Controller, Debt]:
    """Return the existing debts, plus new debts to the controllers of the pods to move, for all their running pods.

    A ReplicaSet whose Deployment was deleted inherits the debt to the Deployment.
    """
    debts = dict(drain.debts)
    for controller in sorted(set(event.topmost.values())):
        state = event.states[controller]
        replicas = event.replicas.get(controller, Replicas())
        debt = incur(state, replicas)
        for predecessor in _predecessors(drain, event, controller):
            debt = raised(debt, debts[predecessor])
        before = debts.get(controller)
        if before is None:
            debts[controller] = debt
        elif paid(shortfall(before, state, replicas)):
            debts[controller] = msgspec.structs.replace(raised(before, debt), succeeded=debt.succeeded)
    return debts


def _predecessors(drain: Drain, event: ControllersRead, controller: Controller) -> set[Controller]:
    """Return the deleted controllers with debts whose pods now belong to *controller*."""
    pods = [victim for victim in (*drain.waiting, *drain.victims.values()) if victim.owner is not None]
    current = (victim for victim in pods if _with_controller(victim, event).controller == controller)
    previous = {drain.controllers[victim.pod.uid] for victim in current if victim.pod.uid in drain.controllers}
    candidates = previous - {controller}
    return {candidate for candidate in candidates if candidate in drain.debts and not event.states[candidate].exists}


# Transitions of a drain after its tainted node was planned again from a consistent read.

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
        placements=_newest(plan, drain),
        one_by_one=plan.one_by_one,
    )
    return count(drain)


def _nothing_left(drain: Drain, now: float) -> Result:
    """Proceed with an empty node.

    A machine is removed only after a plan that was made late enough to include any pod bound during the drain.
    """
    if drain.group is None or drain.landed_at is not None:
        return removing.emptied(drain, now)
    return replace(drain, phase=Phase.EVICTING, waiting=(), victims={}), ()


def look_tick(drain: Drain, _: NodeSeen, now: float) -> Result:
    """Read and plan again when a retry is due."""
    return if_due(drain, now, LookAgain(drain.targets))


def _newest(plan: Plan, drain: Drain) -> tuple[Placement, ...]:
    """Return the placements of *plan*, and those of pods that have left since an earlier plan."""
    planned = {placement.pod.uid for placement in plan.placements}
    return (*plan.placements, *(placement for placement in drain.placements if placement.pod.uid not in planned))


def _pods(plan: Plan) -> tuple[PodRef, ...]:
    return (*(placement.pod for placement in plan.placements), *plan.leaving)
