"""Transitions of a drain that asks for evictions with EvictionRequests (KEP-4563, ``--eviction=request``).

An eviction that the eviction API would allow is asked for with an EvictionRequest. It counts as accepted when the pod
is being deleted. If nobody takes the request, the eviction API is used, unless the eviction is the task of other
components (``spec.evictionResponders``): then the drain fails, because the eviction API would bypass them.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from rescheduler.draining import exits
from rescheduler.draining.actions import Action, Evict, FollowRequest
from rescheduler.draining.events import EvictionRequested, RequestSeen, RequestsUnserved
from rescheduler.draining.state import Drain, Failure, Request, Result, Victim, Why, with_victim

#: Seconds between reads of an EvictionRequest.
FOLLOW_INTERVAL: Final = 2.0


def evictions(drain: Drain, victims: Iterable[Victim]) -> Result:
    """Request the evictions of *victims*."""
    actions = tuple(_eviction(drain, victim) for victim in victims)
    return replace(drain, requested=drain.requested or any(action.request for action in actions)), actions


def _eviction(drain: Drain, victim: Victim) -> Evict:
    asks = drain.limits.requests and victim.requestable and not victim.withdraw
    asks = asks and (victim.responders or not drain.ignored)
    return Evict(victim.pod, victim.grace, request=asks, withdraw=victim.withdraw)


def requested(drain: Drain, event: EvictionRequested, now: float) -> Result:
    """Follow the EvictionRequest of the pod."""
    victim = drain.victims.get(event.uid)
    if victim is None or victim.accepted:
        return drain, ()
    until = now + drain.limits.taking + drain.limits.eviction
    request = Request(now, now + FOLLOW_INTERVAL)
    return with_victim(drain, replace(victim, request=request, ask_until=until, last_rejection="")), ()


def unserved(drain: Drain, event: RequestsUnserved, now: float) -> Result:
    """Use the eviction API for this pod and all others, or give up if other components must handle the eviction."""
    victim = drain.victims.get(event.uid)
    if victim is None:
        return drain, ()
    if victim.responders:
        return exits.give_up(drain, Failure(Why.EVICTION_FAILED, event.why, (victim.pod,)), now)
    return replace(with_victim(drain, replace(victim, ask_at=now)), ignored=True), ()


def request_seen(drain: Drain, event: RequestSeen, now: float) -> Result:
    """Record what was read. Once the request is taken, the pod has as long to leave as a replacement to run."""
    victim = drain.victims.get(event.uid)
    if victim is None or victim.accepted or victim.request is None:
        return drain, ()
    if event.gone and victim.request.gone:
        return exits.again_later(drain, event.uid, "somebody deleted the EvictionRequest", None, now), ()
    if event.failed and victim.responders:
        why = f"the EvictionRequest of pod {victim.pod} failed: {event.failed}"
        return exits.give_up(drain, Failure(Why.EVICTION_FAILED, why, (victim.pod,)), now)
    if event.failed:
        return _by_api(drain, victim, now), ()
    until = victim.ask_until
    if event.taken and not victim.request.taken:
        until = now + _patience(drain)
    taken = event.taken or victim.request.taken
    request = replace(victim.request, follow_at=now + FOLLOW_INTERVAL, taken=taken, note=event.note, gone=event.gone)
    return with_victim(drain, replace(victim, request=request, ask_until=until)), ()


def follow(drain: Drain, now: float) -> Result:
    """Read the requests that are due. Use the eviction API for pods whose request nobody has taken in time."""
    actions: list[Action] = []
    for victim in drain.victims.values():
        request = victim.request
        if request is None or victim.accepted:
            continue
        if _is_untaken(drain, request, now) and not victim.responders:
            drain = replace(_by_api(drain, victim, now), ignored=True)
        elif request.follow_at is not None and request.follow_at <= now:
            drain = with_victim(drain, replace(victim, request=replace(request, follow_at=None)))
            actions.append(FollowRequest(victim.pod))
    return drain, tuple(actions)


def overdue(drain: Drain, now: float) -> Failure | None:
    """Return a failure if a request is not taken in time that must be, or if a pod has not left in time."""
    for victim in drain.victims.values():
        request = victim.request
        if request is None or victim.accepted:
            continue
        if victim.responders and _is_untaken(drain, request, now):
            why = f"nobody took the EvictionRequest of pod {victim.pod} within {drain.limits.taking:g} s"
            return Failure(Why.EVICTION_TIMEOUT, why, (victim.pod,))
        if request.taken and now >= victim.ask_until:
            why = f"pod {victim.pod} did not leave within {_patience(drain):g} s after its EvictionRequest was taken"
            why = f"{why}: {request.note}" if request.note else why
            return Failure(Why.EVICTION_TIMEOUT, why, (victim.pod,))
    return None


def _is_untaken(drain: Drain, request: Request, now: float) -> bool:
    return not request.taken and now >= request.at + drain.limits.taking


def _patience(drain: Drain) -> float:
    return drain.limits.landing or drain.limits.eviction


def _by_api(drain: Drain, victim: Victim, now: float) -> Drain:
    """Evict the pod by the eviction API, after its EvictionRequest is withdrawn."""
    until = now + drain.limits.eviction
    return with_victim(drain, replace(victim, request=None, withdraw=True, ask_at=now, ask_until=until))
