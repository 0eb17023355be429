"""Transitions of a drain after its second look: what it will owe is counted and noted, evictions are tried."""

from dataclasses import replace

from rescheduler.draining import exits, marking
from rescheduler.draining.following import merged_states
from rescheduler.draining.messages import (
    ControllersRead,
    ControllersUnread,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    Marked,
    PodGone,
    ReadControllers,
    Seen,
    TryEviction,
)
from rescheduler.draining.retrying import again_later, try_later
from rescheduler.draining.state import (
    NEVER,
    RENEW_INTERVAL,
    Drain,
    Failure,
    Phase,
    Result,
    Victim,
    Why,
    requesting,
    with_victim,
    without,
)
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt, Replicas, incur, lapsed, raised


def count(drain: Drain) -> Result:
    """Read the controllers of the pods that are to move, and of those that an earlier process has evicted."""
    return requesting(drain, Phase.COUNTING), (controllers_of(drain),)


def controllers_of(drain: Drain, *, words: bool = False) -> ReadControllers:
    pending = (*drain.waiting, *drain.victims.values())
    owners = frozenset((victim.pod.namespace, victim.owner) for victim in pending if victim.owner is not None)
    return ReadControllers(owners, frozenset(drain.debts), words)


def counted(drain: Drain, event: ControllersRead, now: float) -> Result:
    if missing := _unanswered(drain, event):
        return uncounted(drain, ControllersUnread(f"the answer lacks {missing}", retryable=True), now)
    if event.blockers:
        return exits.plan_changed(drain, event.blockers, now)
    drain = replace(
        requesting(drain, Phase.NOTING),
        waiting=tuple(_with_controller(victim, event) for victim in drain.waiting),
        victims={uid: _with_controller(victim, event) for uid, victim in drain.victims.items()},
        states=merged_states(drain, event),
        replicas=event.replicas,
        debts=_debts(drain, event),
        read_at=now,
    )
    known = {victim.pod.uid: victim.controller for victim in (*drain.waiting, *drain.victims.values())}
    controllers = {uid: controller for uid, controller in known.items() if controller is not None}
    begun = {after for uid, after in controllers.items() if drain.controllers.get(uid) in drain.begun}
    drain = replace(drain, controllers={**drain.controllers, **controllers}, begun=drain.begun | begun)
    return drain, (marking.mark(drain),)


def _unanswered(drain: Drain, event: ControllersRead) -> str:
    """Which controller was asked for and is not in the answer; "" where none is missing."""
    for victim in (*drain.waiting, *drain.victims.values()):
        if victim.owner is not None and (victim.pod.namespace, victim.owner.uid) not in event.topmost:
            return f"the controller of pod {victim.pod}"
    unread = sorted({*drain.debts, *event.topmost.values()} - event.states.keys())
    return str(unread[0]) if unread else ""


def uncounted(drain: Drain, event: ControllersUnread, now: float) -> Result:
    later = try_later(drain, now) if event.retryable else None
    return exits.give_up(drain, Failure(Why.API_ERROR, event.why), now) if later is None else (later, ())


def count_tick(drain: Drain, event: Seen, now: float) -> Result:
    if not event.tainted:
        return exits.mark_lost(drain, now)
    if now < drain.retry_at:
        return drain, ()
    return replace(drain, retry_at=NEVER), (controllers_of(drain),)


def noted(drain: Drain, _: Marked, now: float) -> Result:
    """Evictions are tried before the first one. A drain that is resumed has spent part of its budgets already."""
    drain = replace(drain, renew_at=now + RENEW_INTERVAL)
    if drain.resumed or drain.evicted or not drain.waiting:
        return _begin(drain, now)
    asked = [replace(victim, ask_until=now + drain.limits.eviction) for victim in drain.waiting]
    victims = {**drain.victims, **{victim.pod.uid: victim for victim in asked}}
    drain = replace(drain, phase=Phase.TRYING, waiting=(), victims=victims)
    return drain, tuple(TryEviction(victim.pod, victim.grace) for victim in asked)


def try_accepted(drain: Drain, event: EvictionAccepted | PodGone, now: float) -> Result:
    """Of a pod that is gone, the watched state tells soon."""
    victim = drain.victims.get(event.uid)
    if victim is None:
        return drain, ()
    drain = without(drain, frozenset([event.uid]))
    accepted = replace(victim, ask_at=NEVER, ask_until=NEVER, refusals=0, said="")
    return _tried(replace(drain, waiting=(*drain.waiting, accepted)), now)


def try_refused(drain: Drain, event: EvictionRefused, now: float) -> Result:
    victim = drain.victims.get(event.uid)
    pods = () if victim is None else (victim.pod,)
    return exits.give_up(drain, Failure(Why.EVICTION_REFUSED, event.why, pods), now)


def try_failed(drain: Drain, event: EvictionFailed, now: float) -> Result:
    victim = drain.victims.get(event.uid)
    if victim is None:
        return drain, ()
    if not event.retryable or now >= victim.ask_until:
        return exits.give_up(drain, Failure(Why.EVICTION_REFUSED, event.why, (victim.pod,)), now)
    return again_later(drain, event.uid, event.why, event.retry_after, now), ()


def try_tick(drain: Drain, event: Seen, now: float) -> Result:
    if not event.tainted:
        return exits.mark_lost(drain, now)
    due = [victim for victim in drain.victims.values() if victim.ask_at <= now]
    for victim in due:
        drain = with_victim(drain, replace(victim, ask_at=NEVER))
    return drain, tuple(TryEviction(victim.pod, victim.grace) for victim in due)


def _tried(drain: Drain, now: float) -> Result:
    asked = [victim for victim in drain.victims.values() if not victim.accepted]
    return (drain, ()) if asked else _begin(drain, now)


def _begin(drain: Drain, now: float) -> Result:
    order = {placement.pod.uid: index for index, placement in enumerate(drain.placements)}
    waiting = sorted(drain.waiting, key=lambda victim: (_hard_to_replace(victim), order[victim.pod.uid]))
    last = now if drain.last_eviction_at == NEVER else drain.last_eviction_at
    return replace(drain, phase=Phase.EVICTING, waiting=tuple(waiting), last_eviction_at=last), ()


def _hard_to_replace(victim: Victim) -> bool:
    """Pods of StatefulSets and Jobs are not evicted first: others show sooner whether replacement pods can run."""
    return victim.controller is not None and victim.controller.kind in ("StatefulSet", "Job")


def _with_controller(victim: Victim, event: ControllersRead) -> Victim:
    if victim.owner is None:
        return victim
    return replace(victim, controller=event.topmost.get((victim.pod.namespace, victim.owner.uid)))


def _debts(drain: Drain, event: ControllersRead) -> dict[Controller, Debt]:
    """What is owed already stands; the controllers of pods that are to move are owed what runs now.

    A ReplicaSet that its Deployment has left behind is owed what the Deployment was.
    """
    debts = dict(drain.debts)
    for controller in sorted(set(event.topmost.values())):
        state = event.states[controller]
        debt = incur(state, event.replicas.get(controller, Replicas()))
        for before in _predecessors(drain, event, controller):
            debt = raised(debt, debts[before])
        if controller not in debts and not lapsed(debt, state):
            debts[controller] = debt
    return debts


def _predecessors(drain: Drain, event: ControllersRead, controller: Controller) -> set[Controller]:
    """Controllers that are gone, were owed something, and of which pods belong to *controller* now."""
    pods = [victim for victim in (*drain.waiting, *drain.victims.values()) if victim.owner is not None]
    now = (victim for victim in pods if _with_controller(victim, event).controller == controller)
    before = {victim.controller for victim in now if victim.controller is not None}
    return {each for each in before - {controller} if each in drain.debts and not event.states[each].exists}
