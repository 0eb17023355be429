"""Transitions of a drain after its remaining pods were planned again: evict the next step."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from rescheduler.draining import exits
from rescheduler.draining.actions import Evict
from rescheduler.draining.events import PlanFailed, PlannedAgain
from rescheduler.draining.failures import Failure, Why
from rescheduler.draining.following import follow, merged_states
from rescheduler.draining.retrying import try_later
from rescheduler.draining.state import BeforeStep, Drain, Result
from rescheduler.draining.vacating import vacate
from rescheduler.draining.victims import Victim, targets
from rescheduler.draining.waves import owners_in, still_allowed
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt, Replicas, incur_at_eviction, raised
from rescheduler.planning.outcome import Blocker, Plan, Reason, Rejected, is_removal


def planned_again(drain: Drain, event: PlannedAgain, now: float) -> Result:
    """Evict the next step if the remaining pods still fit. If its pods have placeholders, delete these first.

    If another tool is removing the node, the next observation decides how the drain continues.
    """
    if drain.planning_at is None:
        return drain, ()
    if event.read is not None and event.read.blockers:
        return exits.plan_changed(drain, event.read.blockers, now)
    step = drain.step
    drain = replace(_recounted(drain, event, now), step=(), planning_at=None, failing_until=None, retry_at=None)
    if isinstance(event.verdict, Rejected) and is_removal(event.verdict.blockers):
        return drain, ()
    if isinstance(event.verdict, Rejected):
        return exits.give_up(drain, _no_longer_fits(event.verdict), now)
    drain = _without_leaving(replace(drain, targets=targets(event.verdict)), event.verdict, now)
    remaining = [victim for victim in step if victim in drain.waiting]
    if why := unowned(drain, remaining, event.ending):
        return replace(drain, unowned=why, read_at=now), ()
    drain = replace(drain, unowned_at=None)
    allowed = still_allowed(drain, remaining)
    return vacate(drain, allowed, now) or _evict(drain, allowed, now)


def plan_failed(drain: Drain, event: PlanFailed, now: float) -> Result:
    """Plan the step again later, or give up after the time limit or a permanent error."""
    drain = replace(drain, step=(), planning_at=None)
    if event.retryable and (later := try_later(drain, now)) is not None:
        return later, ()
    return exits.give_up(drain, Failure(Why.API_ERROR, event.why), now)


def _recounted(drain: Drain, event: PlannedAgain, now: float) -> Drain:
    """Return *drain* with the controllers as read for the step, and with the pods that they have now."""
    if event.read is None:
        return drain
    assert drain.planning_at is not None
    states = merged_states(drain, event.read)
    return follow(replace(drain, states=states, known_at=drain.planning_at, replicas=event.read.replicas), now)


def unowned(drain: Drain, pods: Iterable[Victim], ending: Mapping[tuple[str, str], str] = MappingProxyType({})) -> str:
    """Return the first of *pods* whose controller does not replace it, and why, or "".

    A controller that is being deleted, or whose own controller is, replaces no pods reliably. *ending*: see
    :class:`PlannedAgain`.
    """
    for victim in pods:
        if victim.pod.uid in drain.losable:
            continue
        state = drain.states.get(victim.controller) if victim.controller is not None else None
        if state is not None and not state.recreates:
            known = state.controller
            what = "is being deleted" if state.deleting else "has finished" if state.finished else "is gone"
            why = f"{known.kind} {known.namespace}/{known.name} {what}"
        elif victim.owner is None or not (why := ending.get((victim.pod.namespace, victim.owner.uid), "")):
            continue
        return str(Blocker(Reason.NO_CONTROLLER, why, str(victim.pod)))
    return ""


def _without_leaving(drain: Drain, plan: Plan, now: float) -> Drain:
    """Wait for pods that are already being deleted, instead of evicting them."""
    deleted = {pod.uid for pod in plan.leaving}
    leaves_by = now + drain.limits.grace + drain.limits.headroom
    leaving = {
        victim.pod.uid: replace(victim, leaves_by=leaves_by) for victim in drain.waiting if victim.pod.uid in deleted
    }
    waiting = tuple(victim for victim in drain.waiting if victim.pod.uid not in leaving)
    return replace(drain, waiting=waiting, victims={**drain.victims, **leaving})


def _no_longer_fits(rejected: Rejected) -> Failure:
    blocker = rejected.blockers[0]
    why = Why.TARGET_LOST if blocker.reason is Reason.NO_ROOM else Why.PLAN_CHANGED
    return Failure(why, str(blocker))


def _evict(drain: Drain, step: list[Victim], now: float) -> Result:
    sizes, begun = dict(drain.step_size), set(drain.begun - drain.unproven)
    controllers = {victim.controller for victim in step if victim.controller is not None}
    for controller in controllers:
        taken = sum(victim.controller == controller for victim in step)
        sizes[controller] = 2 * taken if controller in begun else 1
        begun.add(controller)
    before = {controller: BeforeStep(now, drain.replicas.get(controller, Replicas())) for controller in controllers}
    requested = {victim.pod.uid: replace(victim, ask_until=now + drain.limits.eviction) for victim in step}
    drain = replace(
        drain,
        debts=_debts(drain, step),
        waiting=tuple(victim for victim in drain.waiting if victim.pod.uid not in requested),
        victims={**drain.victims, **requested},
        begun=drain.begun | begun,
        unproven=drain.unproven - controllers,
        paid=drain.paid - controllers,
        settled=drain.settled - controllers,
        step_size=sizes,
        owners_in_step=owners_in(drain, step),
        before_step={**drain.before_step, **before},
    )
    return drain, tuple(Evict(victim.pod, victim.grace) for victim in step)


def _debts(drain: Drain, step: Iterable[Victim]) -> dict[Controller, Debt]:
    """Return the debts once the pods of *step* are evicted.

    Pods that became Ready after the debts were counted are owed like those that were Ready then, even if the controller
    was scaled up and its state has not been read again.
    """
    debts = dict(drain.debts)
    for victim in step:
        controller = victim.controller
        if controller is None or controller not in debts:
            continue
        replicas = drain.replicas.get(controller, Replicas())
        if victim.pod.uid not in replicas.unready:
            debts[controller] = raised(debts[controller], incur_at_eviction(drain.states[controller], replicas))
    return debts
