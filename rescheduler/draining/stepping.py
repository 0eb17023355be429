"""Transitions of a drain after its remaining pods were planned again: select the next wave, and free its room."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

from rescheduler.draining import exits, requests, surging
from rescheduler.draining.actions import DeletePlaceholder, PlanAgain
from rescheduler.draining.events import Done, NodeSeen, NotDone, PlannedAgain
from rescheduler.draining.following import follow, merged_states
from rescheduler.draining.state import (
    NEVER,
    BeforeStep,
    Deletion,
    Drain,
    Failure,
    Result,
    Victim,
    Why,
    targets,
    with_victim,
    without,
)
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt, Replicas, incur_at_eviction, paid, raised
from rescheduler.planning.outcome import Blocker, Plan, Reason, Rejected, is_removal

# Transitions of a drain whose pods have placeholders: the placeholders of a step are deleted before its evictions.
#
# A kubelet counts the requests of a placeholder until the placeholder is gone, and would reject a replacement pod that
# needs the room earlier. Once all placeholders of a step are gone, the step is selected and planned again.


def vacate(drain: Drain, step: Iterable[Victim], now: float) -> Result | None:
    """Delete the placeholders of the pods in *step*. Return None if there are none."""
    reserved = {victim.pod.uid for victim in step if victim.pod.uid in drain.placeholders}
    if not reserved:
        return None
    until = now + drain.limits.vacating
    new = {uid: Deletion(drain.placeholders[uid], until) for uid in sorted(reserved - drain.vacating.keys())}
    drain = replace(drain, vacating={**drain.vacating, **new})
    return drain, tuple(DeletePlaceholder(deletion.placeholder, uid) for uid, deletion in new.items())


def observed(drain: Drain, event: NodeSeen, now: float) -> Result:
    """Drop deletions whose placeholder or pod is gone, and request again those that are due."""
    present = event.placeholders.keys() & {victim.pod.uid for victim in drain.waiting}
    vacating = {uid: deletion for uid, deletion in drain.vacating.items() if uid in present}
    due = {uid: replace(deletion, ask_at=None) for uid, deletion in vacating.items() if deletion.is_due(now)}
    drain = replace(drain, placeholders=event.placeholders, vacating={**vacating, **due})
    return drain, tuple(DeletePlaceholder(deletion.placeholder, uid) for uid, deletion in due.items())


def deleted(drain: Drain, event: Done[DeletePlaceholder], _: float) -> Result:
    """Wait until the placeholder is gone."""
    return _with_deletion(drain, event.uid, last_error="it is still terminating"), ()


def not_deleted(drain: Drain, event: NotDone[DeletePlaceholder], now: float) -> Result:
    """Schedule a retry, or give up if the error is permanent."""
    deletion = drain.vacating.get(event.uid)
    if deletion is None:
        return drain, ()
    if not event.retryable:
        return exits.give_up(drain, Failure(Why.PLACEHOLDER_NOT_DELETED, event.why), now)
    errors = deletion.errors + 1
    ask_at = now + exits.BACKOFF.seconds_after(errors)
    return _with_deletion(drain, event.uid, ask_at=ask_at, errors=errors, last_error=event.why), ()


def placeholder_overdue(drain: Drain, now: float) -> Failure | None:
    """Return a failure if a placeholder is not gone in time, otherwise None."""
    for _, deletion in sorted(drain.vacating.items()):
        if now >= deletion.until:
            why = f": {deletion.last_error}" if deletion.last_error else ""
            detail = f"placeholder {deletion.placeholder} is not gone after {drain.limits.vacating:g} s{why}"
            return Failure(Why.PLACEHOLDER_NOT_DELETED, detail)
    return None


def _with_deletion(drain: Drain, uid: str, **changes: object) -> Drain:
    deletion = drain.vacating.get(uid)
    if deletion is None:
        return drain
    return replace(drain, vacating={**drain.vacating, uid: replace(deletion, **changes)})  # type: ignore[arg-type]


# Select the pods that a drain evicts next.
#
# First one pod, until its replacement pod is Ready; then one pod in each other namespace, until the replacement pods
# are bound; then one pod of each other controller, in steps of 1, 2, 4, … controllers, until the replacement pods are
# Ready; then the remaining pods of each controller in steps of 1, 2, 4, …, until its replacement pods are Ready. A
# quota or a webhook that rejects replacement pods then costs only one pod per namespace. An image that never becomes
# Ready on spot nodes costs only one pod of its controller, and few pods if many controllers have such an image.
#
# Pods of a StatefulSet are evicted one at a time, while all its other pods are Ready. Pods without a controller are not
# recreated, so they are evicted last. No pod is evicted while pods that had replaced evicted ones are lost.
#
# If a pod would have no place before another one has moved, the plan says so, and one pod moves at a time in its order.
#
# The pods of a step leave one after the other in each namespace: the next one when the replacement pods of those before
# it are bound. What rejects replacement pods, or leaves them unscheduled, may begin at any time, and then costs one pod
# of its namespace. Pods that share a volume leave together.


def next_step(drain: Drain) -> tuple[Victim, ...]:
    """Return the pods to evict now; empty if the drain has to wait."""
    return _paced(drain, _window(drain)) if not drain.lost_again else ()


def _paced(drain: Drain, pods: Sequence[Victim]) -> tuple[Victim, ...]:
    """Return the first of *pods* in each namespace that lacks no bound pod, with those that share a volume with it.

    Pods that roll out, and those that nothing replaces, are returned as well.
    """
    clear = {name for name in {victim.pod.namespace for victim in pods} if _is_clear(drain, name)}
    free = {victim.pod.uid for victim in pods if victim.controller is None or victim.surge is not None}
    replaced = (victim for victim in pods if victim.pod.uid not in free and victim.pod.namespace in clear)
    firsts = _first_of_each(replaced, lambda victim: victim.pod.namespace)
    uids, groups = free | {victim.pod.uid for victim in firsts}, {victim.together for victim in firsts} - {""}
    return tuple(victim for victim in pods if victim.pod.uid in uids or victim.together in groups)


def _is_clear(drain: Drain, namespace: str) -> bool:
    """Return whether each pod that left *namespace* has a bound replacement, and no eviction in it is under way."""
    asking = any(not each.accepted and each.pod.namespace == namespace for each in drain.victims.values())
    taken = (each for each in drain.debts if each.namespace == namespace and drain.has_taken_from(each))
    return not asking and all(drain.shortfall(controller).bound <= 0 for controller in taken)


def _window(drain: Drain) -> tuple[Victim, ...]:
    """Return the pods of all steps that have begun or may begin now."""
    rest = tuple(victim for victim in drain.waiting if victim.pod.uid in drain.rest)
    begun = {victim.controller for victim in rest}
    return (*rest, *(victim for victim in _next_steps(drain) if victim.controller not in begun))


def _next_steps(drain: Drain) -> tuple[Victim, ...]:
    """Return the pods of the steps that may begin now."""
    if any(victim.surge is not None for victim in drain.waiting):
        return _rolled_out(drain)
    controlled = [victim for victim in drain.waiting if victim.controller is not None]
    if drain.one_by_one and drain.waiting:
        return _whole_groups(drain, _next_alone(drain, drain.waiting[0]))
    if not controlled:
        return drain.waiting if _everything_runs(drain) else ()
    if unbegun := _first_victims(drain, controlled):
        begun = any(victim.pod.uid in drain.rest for victim in unbegun)
        return _whole_groups(drain, _wave(drain, unbegun)) if _all_bound(drain) and not begun else ()
    if _first_eviction_pending(drain):
        return ()
    steps = (_next_of_controller(drain, controller, controlled) for controller in sorted(_proven(drain)))
    return _whole_groups(drain, tuple(victim for step in steps for victim in step))


def _next_alone(drain: Drain, first: Victim) -> tuple[Victim, ...]:
    """Return the *first* pod in the order of the plan, once the replacement pods of those before it run."""
    if drain.unanswered or not _all_run(drain):
        return ()
    allowed = _everything_runs(drain) if first.controller is None else _may_evict(drain, first)
    return (first,) if allowed else ()


def _whole_groups(drain: Drain, step: Sequence[Victim]) -> tuple[Victim, ...]:
    """Return *step* with all pods that share a volume with one of them: it is detached only after all have left.

    If one of these may not be evicted now, none of them is.
    """
    if not any(victim.together for victim in step):
        return tuple(step)
    names = {victim.together for victim in step if victim.together}
    groups = [[victim for victim in drain.waiting if victim.together == name] for name in sorted(names)]
    allowed = (group for group in groups if all(each.controller is None or _may_evict(drain, each) for each in group))
    alone = (victim for victim in step if not victim.together)
    return tuple(chain(alone, *allowed))


def _rolled_out(drain: Drain) -> tuple[Victim, ...]:
    """Return the pods of the next Deployment that rolls out, or () if the drain has to wait.

    Roll-outs come first, one after the other: nothing has moved if one of them fails.
    """
    first = next(victim for victim in drain.waiting if victim.surge is not None)
    if drain.unanswered or not _all_run(drain) or not _may_evict(drain, first):
        return ()
    return tuple(victim for victim in drain.waiting if victim.surge == first.surge)


def still_allowed(drain: Drain, step: Sequence[Victim]) -> list[Victim]:
    """Return the pods of *step* that may be evicted after the pods of their controllers were counted again."""
    if drain.lost_again:
        return []
    allowed = [victim for victim in step if victim.controller is None or _may_still(drain, victim)]
    torn_apart = {victim.together for victim in step if victim not in allowed} - {""}
    return [victim for victim in allowed if victim.together not in torn_apart]


def _first_victims(drain: Drain, controlled: Iterable[Victim]) -> list[Victim]:
    """Return one pod of each controller from which no pod has been evicted yet, if one may be evicted now."""
    proven = _proven(drain)
    unbegun = (victim for victim in controlled if victim.controller not in proven and _may_evict(drain, victim))
    return _first_of_each(unbegun, lambda victim: victim.controller)


def _proven(drain: Drain) -> frozenset[Controller]:
    """Return the controllers with an eviction that was accepted or is in flight.

    A pod that another client deleted before its eviction proves nothing about replacement pods in its namespace.
    """
    return drain.begun - drain.unproven


def _wave(drain: Drain, unbegun: list[Victim]) -> tuple[Victim, ...]:
    proven = _proven(drain)
    if not proven:
        return tuple(unbegun[:1]) if not _may_have_begun(drain) or _all_run(drain) else ()
    namespaces = {controller.namespace for controller in proven}
    elsewhere = [victim for victim in unbegun if victim.pod.namespace not in namespaces]
    if elsewhere:
        firsts = _first_of_each(elsewhere, lambda victim: victim.pod.namespace)
        return tuple(firsts) if _all_run(drain) else ()
    if not drain.owners_in_step:
        alone = len(proven) == 1  # no other namespace: the first pod has not been waited for yet
        return tuple(unbegun[:1]) if not alone or _all_run(drain) else ()
    return tuple(unbegun[: 2 * drain.owners_in_step]) if _all_run(drain) else ()


def _may_have_begun(drain: Drain) -> bool:
    """Return whether an earlier process may have evicted pods: not all that it was to move still wait."""
    unmoved = {victim.pod.uid for victim in drain.waiting}
    return drain.resumed and not (drain.intended and unmoved.issuperset(drain.intended))


def owners_in(drain: Drain, step: Iterable[Victim]) -> int:
    """Return how many controllers lose their first pod in *step*, after each namespace has lost one.

    For any other step, return the number of the last such step.
    """
    proven = _proven(drain)
    namespaces = {controller.namespace for controller in proven}
    controllers = {victim.controller for victim in step if victim.controller is not None}
    first_pods = bool(controllers) and controllers.isdisjoint(proven)
    if first_pods and namespaces.issuperset(controller.namespace for controller in controllers):
        return len(controllers)
    return drain.owners_in_step


def _next_of_controller(drain: Drain, controller: Controller, controlled: Iterable[Victim]) -> tuple[Victim, ...]:
    """Return the next step of a controller some of whose pods were already evicted."""
    if any(not victim.accepted and victim.controller == controller for victim in drain.victims.values()):
        return ()
    pods = [victim for victim in controlled if victim.controller == controller and _may_evict(drain, victim)]
    return tuple(pods[: 1 if _is_ordered(drain, controller) else drain.step_size.get(controller, 1)])


def _all_bound(drain: Drain) -> bool:
    """Return whether every pod evicted by this or an earlier process has a bound replacement."""
    asking = any(not victim.accepted for victim in drain.victims.values())
    return not asking and all(drain.shortfall(controller).bound <= 0 for controller in drain.debts)


def _all_run(drain: Drain) -> bool:
    """Return whether no controller from which pods were evicted lacks any pod."""
    return all(paid(drain.shortfall(controller)) for controller in drain.debts if drain.has_taken_from(controller))


def _first_eviction_pending(drain: Drain) -> bool:
    """Return whether the first eviction of a controller, which is part of a wave, has not been accepted yet."""
    evicted_from = {drain.controllers.get(pod.uid) for pod in drain.evicted}
    requested = (victim for victim in drain.victims.values() if not victim.accepted and victim.controller is not None)
    return any(victim.controller not in evicted_from for victim in requested)


def _everything_runs(drain: Drain) -> bool:
    return not drain.victims and all(paid(drain.shortfall(controller)) for controller in drain.debts)


def _may_evict(drain: Drain, victim: Victim) -> bool:
    """Return whether the pod's controller lacks no owed pods and, for a StatefulSet, all its other pods are Ready."""
    controller = victim.controller
    if controller is None or not paid(drain.shortfall(controller, full=True)):
        return False
    return not _is_ordered(drain, controller) or _others_ready(drain, controller, victim)


def _may_still(drain: Drain, victim: Victim) -> bool:
    """Return whether the pod may be evicted, or belongs to a step that has begun: its other pods need not be Ready."""
    assert victim.controller is not None
    begun = victim.pod.uid in drain.rest and not _is_ordered(drain, victim.controller)
    return (begun and drain.shortfall(victim.controller, full=True).bound <= 0) or _may_evict(drain, victim)


def _others_ready(drain: Drain, controller: Controller, victim: Victim) -> bool:
    replicas, wanted = drain.replicas.get(controller, Replicas()), drain.states[controller].wanted
    unready = set(replicas.unready) - {victim.pod.uid}
    others = (each for uid, each in drain.victims.items() if uid != victim.pod.uid)
    leaving = any(each.controller == controller for each in others)
    return replicas.live >= (wanted or 0) and not unready and not leaving


def _is_ordered(drain: Drain, controller: Controller) -> bool:
    return controller in drain.states and drain.states[controller].ordered


def _first_of_each(victims: Iterable[Victim], key: Callable[[Victim], Hashable]) -> list[Victim]:
    firsts: dict[Hashable, Victim] = {}
    for victim in victims:
        firsts.setdefault(key(victim), victim)
    return list(firsts.values())


def planned_again(drain: Drain, event: PlannedAgain, now: float) -> Result:
    """Evict the next step if the remaining pods still fit. If its pods have placeholders, delete these first.

    If another tool is removing the node, the next observation decides how the drain continues.
    """
    if drain.planning_at is None:
        return drain, ()
    if event.read is not None and event.read.blockers:
        return exits.plan_changed(drain, event.read.blockers, now)
    step, planned_at = drain.step, drain.planning_at
    drain = replace(_recounted(drain, event, now), step=(), planning_at=None, failing_until=None, retry_at=None)
    if isinstance(event.verdict, Rejected) and is_removal(event.verdict.blockers):
        return drain, ()
    if isinstance(event.verdict, Rejected):
        return exits.give_up(drain, _no_longer_fits(event.verdict), now)
    drain = _without_leaving(replace(drain, targets=targets(event.verdict)), event.verdict, now)
    drain, moving = _in_plan_order(drain, event.verdict, step)
    remaining = [victim for victim in step if victim in drain.waiting]
    asked = (drain.victims.get(victim.pod.uid) for victim in step)
    again = [victim for victim in asked if victim is not None and not victim.accepted]
    if why := unowned(drain, [*remaining, *again], event.ending):
        return replace(drain, unowned=why, read_at=now), ()
    drain = replace(drain, unowned_at=None)
    if again:
        return _evict_again(drain, again, moving, planned_at)
    allowed = _paced(drain, still_allowed(drain, [victim for victim in remaining if victim.pod.uid in moving]))
    if (waiting := vacate(drain, allowed, now)) is not None:
        return waiting
    if allowed and (surge := allowed[0].surge) is not None:
        if any(victim.controller is None or victim.controller.uid != surge.uid for victim in allowed):
            why = f"the pods of Deployment {surge} belong to another controller"
            return exits.give_up(drain, Failure(Why.PLAN_CHANGED, f"the plan is no longer valid: {why}"), now)
        return surging.begin(drain, allowed)
    return _evict(drain, allowed, planned_at, now)


def _in_plan_order(drain: Drain, plan: Plan, step: Iterable[Victim]) -> tuple[Drain, frozenset[str]]:
    """Return *drain* in the order of *plan* if pods move one at a time, and the pods of *step* that may move now."""
    uids = frozenset(victim.pod.uid for victim in step)
    drain = replace(drain, one_by_one=plan.one_by_one)
    if not plan.one_by_one or any(victim.surge is not None for victim in step):
        return drain, uids
    order = {placement.pod.uid: index for index, placement in enumerate(plan.placements)}
    waiting = sorted(drain.waiting, key=lambda victim: order.get(victim.pod.uid, len(order)))
    unmoved = {victim.pod.uid for victim in chain(waiting, drain.victims.values()) if not victim.accepted}
    first = next((uid for uid in order if uid in unmoved), "")
    return replace(drain, waiting=tuple(waiting)), uids & {first}


def _evict_again(drain: Drain, again: Sequence[Victim], moving: frozenset[str], planned_at: float) -> Result:
    """Request again the evictions that were rejected. Those that are not allowed any more wait for another step."""
    allowed = still_allowed(drain, [victim for victim in again if victim.pod.uid in moving])
    waiting = [victim for victim in again if victim not in allowed]
    drain = dropped(drain, frozenset(victim.pod.uid for victim in waiting))
    unasked = (replace(victim, ask_at=None, ask_until=NEVER, refusals=0, last_rejection="") for victim in waiting)
    drain = replace(drain, waiting=(*unasked, *drain.waiting))
    for victim in allowed:
        drain = with_victim(drain, replace(victim, ask_at=None, planned_at=planned_at))
    return requests.evictions(drain, allowed)


def dropped(drain: Drain, uids: frozenset[str]) -> Drain:
    """Return *drain* without these pods. Their controllers are unproven if no eviction of a pod was accepted."""
    controllers = {victim.controller for uid, victim in drain.victims.items() if uid in uids and not victim.accepted}
    drain = without(drain, uids)
    evicted_from = {drain.controllers.get(pod.uid) for pod in drain.evicted}
    requested = {victim.controller for victim in drain.victims.values()}
    unproven = {controller for controller in controllers - evicted_from - requested if controller is not None}
    return replace(drain, unproven=drain.unproven | unproven)


def plan_failed(drain: Drain, event: NotDone[PlanAgain], now: float) -> Result:
    """Plan the step again later, or give up after the time limit or a permanent error."""
    return exits.failed(replace(drain, step=(), planning_at=None), event, now)


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
    why = Why.TARGET_LOST if blocker.reason in (Reason.NO_ROOM, Reason.SPOT_POOL_SETTLING) else Why.PLAN_CHANGED
    return Failure(why, str(blocker))


def _evict(drain: Drain, step: Sequence[Victim], planned_at: float, now: float) -> Result:
    window = {victim.pod.uid: victim for victim in (*_window(drain), *step)}
    new = [victim for uid, victim in window.items() if uid not in drain.rest]
    sizes, proven = dict(drain.step_size), _proven(drain)
    for controller, taken in Counter(victim.controller for victim in new if victim.controller is not None).items():
        sizes[controller] = 2 * taken if controller in proven else 1
    controllers = {victim.controller for victim in step if victim.controller is not None}
    before = {controller: BeforeStep(now, drain.replicas.get(controller, Replicas())) for controller in controllers}
    until = now + drain.limits.eviction
    requested = {victim.pod.uid: replace(victim, ask_until=until, planned_at=planned_at) for victim in step}
    drain = replace(
        drain,
        debts=_debts(drain, step),
        waiting=tuple(victim for victim in drain.waiting if victim.pod.uid not in requested),
        victims={**drain.victims, **requested},
        begun=drain.begun | controllers,
        rest=frozenset(window.keys() - requested.keys()),
        unproven=drain.unproven - controllers,
        paid=drain.paid - controllers,
        settled=drain.settled - drain.counting(step),
        step_size=sizes,
        owners_in_step=owners_in(drain, new),
        before_step={**drain.before_step, **before},
    )
    return requests.evictions(drain, step)


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
