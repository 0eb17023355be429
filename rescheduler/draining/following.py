"""Track whether the pods that a drain evicted run again: debts are paid, or a replacement pod fails."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Final

from rescheduler.draining.actions import ReadControllers
from rescheduler.draining.events import ControllersRead
from rescheduler.draining.state import NEVER, Drain, Failure, Timers, Victim, Why
from rescheduler.durations import Backoff
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import STAYING, Debt, Replicas, paid

#: Seconds between reads of the controllers, while replacement pods are missing, and otherwise.
READ_INTERVAL: Final = 2.0
IDLE_READ_INTERVAL: Final = 10.0

#: No step begins with pods of a namespace that has kept the drain waiting for this many landing timeouts. Its last step
#: may take one more.
_STEPS_TIMEOUTS: Final = 2

#: Seconds before the landing timeout in which it is read why pods do not run.
_REASON_SECONDS: Final = 15.0

#: The Job controller's back-off before it replaces a failed pod.
_JOB_BACKOFF: Final = Backoff(timedelta(seconds=10), timedelta(minutes=10))


def follow(drain: Drain, now: float) -> Drain:
    """Determine which debts are paid, and update the timers of missing replacement pods."""
    asked = {victim.controller for victim in drain.victims.values() if not victim.accepted}
    paid_now = frozenset(
        controller for controller in drain.debts if controller not in asked and _is_paid(drain, controller, now)
    )
    settled = {controller for controller in paid_now if drain.has_taken_from(controller)}
    unsteady = drain.unsteady | (drain.settled & drain.debts.keys()) - paid_now
    drain = replace(drain, paid=paid_now, settled=drain.settled | settled, unsteady=unsteady)
    timers = {controller: _timers(drain, controller, now) for controller in drain.debts}
    running = {controller: timer for controller, timer in timers.items() if timer != Timers()}
    return replace(drain, timers=running, due_at=drain.due_at if running or drain.victims else NEVER)


def failure(drain: Drain, now: float, removed_by: str = "") -> Failure | None:
    """Return a failure if a replacement pod fails or does not become Ready in time, otherwise None.

    *removed_by* is the evidence that another tool is removing the node, and so evicts its pods.

    Controllers from which this drain evicted no pod may also lack pods; the drain only waits for these.
    """
    if (lost := _place_lost(drain)) is not None:
        return lost
    for controller, timers in sorted(drain.timers.items()):
        if not drain.has_taken_from(controller):
            continue
        delay = _job_delay(drain, controller)
        if _is_over(timers.uncreated, drain.limits.creation + delay, now) and drain.states[controller].refusal:
            return _refused(drain, controller)
        if _is_over(timers.unschedulable, drain.limits.creation, now):
            pods = ", ".join(drain.replicas[controller].unschedulable[:3])
            why = f"{_replacement(controller)}: the scheduler cannot place {pods}{_hindrances(drain, [controller])}"
            return Failure(Why.REPLACEMENT_UNSCHEDULABLE, why, owners=(controller,))
        if _is_over(timers.unbound, drain.limits.binding + delay, now):
            return _not_bound(drain, controller, drain.limits.binding + delay)
    return _landing_timeout(drain, now, removed_by)


def _place_lost(drain: Drain) -> Failure | None:
    """Return a failure if the node of a moved pod is about to go, and the pod has no other place but the old node."""
    for controller in sorted(drain.debts):
        at_risk = drain.replicas.get(controller, Replicas()).at_risk
        if at_risk and drain.has_taken_from(controller) and not paid(drain.shortfall(controller, staying=True)):
            return Failure(Why.TARGET_LOST, f"{controller}: {at_risk}")
    return None


def waited(drain: Drain, now: float, namespaces: Collection[str] = ()) -> Drain:
    """Return *drain* with the time since the last call counted for the namespaces that keep it waiting.

    These are the namespaces of pods that have not left yet or do not run again, and *namespaces*.
    """
    elapsed = 0.0 if drain.waited_at is None else now - drain.waited_at
    leaving = {victim.pod.namespace for victim in drain.victims.values()}
    missing = {controller.namespace for controller in drain.owed if drain.has_taken_from(controller)}
    added = {name: drain.kept_waiting.get(name, 0.0) + elapsed for name in leaving.union(missing, namespaces)}
    return replace(drain, kept_waiting={**drain.kept_waiting, **added}, waited_at=now)


def too_slow(drain: Drain, step: Iterable[Victim]) -> Failure | None:
    """Return a failure if a namespace with pods in *step* has kept the drain waiting for too long.

    The landing timeout limits one step. Pods that move one at a time would keep all other nodes waiting for many steps.
    """
    longest = _STEPS_TIMEOUTS * (drain.limits.landing or drain.limits.eviction)
    for victim in step:
        namespace = victim.pod.namespace
        seconds = drain.kept_waiting.get(namespace, 0.0)
        if victim.controller is not None and seconds >= longest:
            left = sum(other.pod.namespace == namespace for other in drain.waiting)
            why = f"pods of namespace {namespace} run again too slowly: the drain waited {seconds:.0f} s for them, "
            why += f"{left} of them remain{'s' * (left == 1)}, and other nodes wait"
            return Failure(Why.LANDING_TIMEOUT, why, owners=(victim.controller,))
    return None


def due_at(drain: Drain) -> float:
    """Return when *drain* fails if nothing changes, in monotonic seconds."""
    moments = [victim.ask_until if victim.leaves_by is None else victim.leaves_by for victim in drain.victims.values()]
    asking = any(not victim.accepted for victim in drain.victims.values())
    if drain.last_eviction_at is not None and not asking and (drain.waiting or drain.owed):
        moments.append(drain.last_eviction_at + (drain.limits.landing or drain.limits.eviction))
    if drain.rollout is not None:
        moments.append(drain.rollout.until)
    if drain.unowned_at is not None:
        moments.append(drain.unowned_at + drain.limits.creation)
    for controller, timers in drain.timers.items():
        if drain.has_taken_from(controller):
            delay = _job_delay(drain, controller)
            refused = timers.uncreated if drain.states[controller].refusal else None
            since = (refused, drain.limits.creation + delay), (timers.unschedulable, drain.limits.creation)
            moments += [
                began + seconds
                for began, seconds in (*since, (timers.unbound, drain.limits.binding + delay))
                if began is not None
            ]
    return min(moments, default=NEVER)


def controllers_of(drain: Drain, *, read_refusals: bool = False) -> ReadControllers:
    """Return the action that reads the controllers of all pods of *drain*."""
    pending = (*drain.waiting, *drain.victims.values())
    owners = frozenset((victim.pod.namespace, victim.owner) for victim in pending if victim.owner is not None)
    return ReadControllers(owners, frozenset(drain.debts), read_refusals)


def needs_reasons(drain: Drain, now: float) -> bool:
    """Return whether the next read must show why pods are missing, because the drain may fail soon for that."""
    if any(timers.uncreated is not None or timers.unschedulable is not None for timers in drain.timers.values()):
        return True
    patience = drain.limits.landing or drain.limits.eviction
    late = drain.last_eviction_at is not None and now >= drain.last_eviction_at + patience - _REASON_SECONDS
    return late and bool(drain.owed)


def read_interval(drain: Drain) -> float:
    """Return the seconds between reads of the controllers."""
    return READ_INTERVAL if drain.timers or not drain.waiting else IDLE_READ_INTERVAL


def merged_states(drain: Drain, event: ControllersRead) -> dict[Controller, ControllerState]:
    """Return the latest state of each controller, with all UIDs that its pods have referred to.

    UIDs of deleted ReplicaSets are kept.
    """
    merged = {**drain.states, **event.states}
    for controller, state in event.states.items():
        before = drain.states[controller].owner_uids if controller in drain.states else frozenset[str]()
        noted = drain.debts[controller].owner_uids if controller in drain.debts else ()
        merged[controller] = replace(state, owner_uids=state.owner_uids.union(before, noted))
    return merged


def due(drain: Drain) -> tuple[Controller, ...]:
    """Return the controllers of the unbound replacement pods, with one entry per pod."""
    return tuple(
        controller for controller in sorted(drain.debts) for _ in range(max(0, drain.shortfall(controller).bound))
    )


def _landing_timeout(drain: Drain, now: float, removed_by: str) -> Failure | None:
    patience = drain.limits.landing or drain.limits.eviction
    asking = any(not victim.accepted for victim in drain.victims.values())
    if asking or drain.last_eviction_at is None or now < drain.last_eviction_at + patience:
        return None
    staying = drain.moved_all and now >= drain.last_eviction_at + patience + STAYING.total_seconds()
    unpaid = [each for each in sorted(drain.debts) if not paid(drain.shortfall(each, staying=staying))]
    missing = [controller for controller in unpaid if drain.has_taken_from(controller)]
    uncreated = [controller for controller in missing if drain.timers.get(controller, Timers()).uncreated is not None]
    if refused := [controller for controller in uncreated if drain.states[controller].refusal]:
        return _refused(drain, refused[0])
    if uncreated:
        why = f"{_replacement(uncreated[0])}: not created within {patience:g} s after the last eviction"
        return Failure(Why.REPLACEMENT_NOT_CREATED, why, owners=tuple(uncreated))
    if not drain.limits.landing and any(drain.shortfall(controller).bound > 0 for controller in missing):
        return None  # unbound pods have separate timers
    if missing:
        what = "do not stay Ready" if staying else "are not Ready"
        why = f"replacement pods {what} {patience:g} s after the last eviction: {_named(drain, missing)}"
        why += "".join(
            f"; {drain.detaching[controller]}" for controller in missing[:3] if controller in drain.detaching
        )
        why += _hindrances(drain, [controller for controller in missing if controller not in drain.detaching])
        return Failure(Why.LANDING_TIMEOUT, why, owners=tuple(missing))
    if drain.waiting:
        return _not_evicted(drain, unpaid, removed_by)
    if unpaid and drain.limits.landing:  # their pods left the node by themselves, for example with their owner
        why = f"pods that left without an eviction are not replaced after {patience:g} s: {_named(drain, unpaid)}"
        return Failure(Why.LANDING_TIMEOUT, why)
    return None


def _not_evicted(drain: Drain, unpaid: list[Controller], removed_by: str) -> Failure:
    pods = tuple(victim.pod for victim in drain.waiting)
    what = "1 pod" if len(pods) == 1 else f"{len(pods)} pods"
    if removed_by:
        why = f"another tool did not evict {what} of the node that it removes: {removed_by}"
        return Failure(Why.EVICTION_TIMEOUT, why, pods)
    owners = unpaid or sorted({victim.controller for victim in drain.waiting if victim.controller is not None})
    why = f"{what} could not be evicted: other pods of {', '.join(map(str, owners[:3]))} are missing or not Ready"
    return Failure(Why.EVICTION_TIMEOUT, why, pods)


def _refused(drain: Drain, controller: Controller) -> Failure:
    why = f"{_replacement(controller)}: {drain.states[controller].refusal}"
    return Failure(Why.REPLACEMENT_REFUSED, why, owners=(controller,))


def _named(drain: Drain, controllers: list[Controller]) -> str:
    return ", ".join(
        f"{controller} ({max(1, drain.shortfall(controller).ready)} missing)" for controller in controllers[:3]
    )


def _hindrances(drain: Drain, controllers: list[Controller]) -> str:
    """Return why pods of *controllers* do not run, as far as it is known."""
    return "".join(f"; {why}" for controller in controllers[:3] if (why := drain.states[controller].hindrance))


def _not_bound(drain: Drain, controller: Controller, seconds: float) -> Failure:
    if drain.replicas.get(controller, Replicas()).returned:
        why = f"{_replacement(controller)}: it was scheduled to the drained node again, because it tolerates the taint"
        return Failure(Why.PODS_RETURN, why)
    why = f"{_replacement(controller)}: not bound to a node within {seconds:g} s"
    return Failure(Why.REPLACEMENT_NOT_BOUND, why, owners=(controller,))


def _is_paid(drain: Drain, controller: Controller, now: float) -> bool:
    """Return whether the debt is paid: between steps by Ready pods, at the end by pods that stay."""
    debt = drain.debts[controller]
    enough = paid(drain.shortfall(controller, staying=drain.moved_all), ready=drain.limits.landing > 0)
    return enough and not _may_want_more(drain, debt, now)


def _may_want_more(drain: Drain, debt: Debt, now: float) -> bool:
    """Return whether the controller was probably scaled up: before a step, it had more pods than its last known size.

    The next read of its state shows the new size. If reads fail, this assumption holds until the landing timeout.
    """
    step, wanted = drain.before_step.get(debt.controller), drain.states[debt.controller].wanted
    if step is None or wanted is None or step.at < drain.known_at:
        return False
    return max(debt.ready, debt.bound) > wanted and now < step.at + (drain.limits.landing or drain.limits.eviction)


def _timers(drain: Drain, controller: Controller, now: float) -> Timers:
    """Return the timers of a controller. A timer starts once the evicted pod no longer prevents its replacement.

    After a resumption, it ends no later than the earlier process recorded.
    """
    before = drain.timers.get(controller, Timers())
    missing, replicas = drain.shortfall(controller), drain.replicas.get(controller, Replicas())
    # The controller of a pod that an earlier process evicted is unknown, so the pod counts for every controller.
    leaving = sum(victim.controller in (controller, None) for victim in drain.victims.values() if victim.accepted)
    unschedulable = bool(replicas.unschedulable) and missing.bound > 0 and leaving == 0
    unbound = missing.bound - max(0, missing.created)  # an owner may be slow to create its pods
    delay, creation = _job_delay(drain, controller), drain.limits.creation
    began = min(now, drain.due_at - creation - delay), min(now, drain.due_at - creation)
    return Timers(
        uncreated=missing_since(before.uncreated, began[0], runs=missing.created > leaving),
        unschedulable=missing_since(before.unschedulable, began[1], runs=unschedulable),
        unbound=missing_since(
            before.unbound, min(now, drain.due_at - drain.limits.binding - delay), runs=unbound > leaving
        ),
    )


def missing_since(before: float | None, now: float, *, runs: bool) -> float | None:
    """Return since when a timer runs that started at *before*; None if it does not run now."""
    if not runs:
        return None
    return now if before is None else before


def _is_over(since: float | None, seconds: float, now: float) -> bool:
    return since is not None and now >= since + seconds


def _job_delay(drain: Drain, controller: Controller) -> float:
    """Return the Job controller's back-off for a failed pod in seconds (``pkg/controller/job/backoff_utils.go``)."""
    job = drain.states[controller].job
    if job is None:
        return 0.0
    return _JOB_BACKOFF.seconds_after(job.failures + 1)


def _replacement(controller: Controller) -> str:
    return f"replacement pod of {controller.kind} {controller.namespace}/{controller.name}"
