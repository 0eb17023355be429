"""Transitions of a drain while its pods are evicted and leave."""

from dataclasses import replace
from typing import Final

from rescheduler.draining import exits
from rescheduler.draining.messages import (
    Evict,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    LookAgain,
    PodGone,
    Seen,
)
from rescheduler.draining.state import NEVER, Drain, Failure, Phase, Result, Victim, Why, without

#: Seconds until a refused eviction is asked for again: doubling, where the server names no time.
FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 10.0

#: Pods that a failure names; the others are counted.
_PODS_NAMED: Final = 5


def eviction_accepted(drain: Drain, event: EvictionAccepted, now: float) -> Result:
    if (victim := drain.victims.get(event.uid)) is None or victim.accepted:
        return drain, ()
    accepted = replace(victim, leaves_by=now + victim.patience + drain.limits.headroom, said="")
    return replace(_with(drain, accepted), evicted=(*drain.evicted, victim.pod)), ()


def eviction_refused(drain: Drain, event: EvictionRefused, now: float) -> Result:
    return _again_later(drain, event.uid, event.why, event.retry_after, now), ()


def eviction_failed(drain: Drain, event: EvictionFailed, now: float) -> Result:
    if (victim := drain.victims.get(event.uid)) is None:
        return drain, ()
    if not event.retryable:
        return exits.give_up(drain, Failure(Why.EVICTION_FAILED, event.why, (victim.pod,)), now)
    return _again_later(drain, event.uid, event.why, event.retry_after, now), ()


def pod_gone(drain: Drain, event: PodGone, _: float) -> Result:
    return _waiting(without(drain, frozenset([event.uid])))


def seen(drain: Drain, event: Seen, now: float) -> Result:
    gone = drain.victims.keys() - event.present
    if gone:
        drain = _hurried(without(drain, frozenset(gone)), now)
    if (failure := _overdue(drain, now)) is not None:
        return exits.give_up(drain, failure, now)
    due = [victim for victim in drain.victims.values() if victim.ask_at <= now]
    for victim in due:
        drain = _with(drain, replace(victim, ask_at=NEVER))
    drain, actions = _waiting(drain)
    return drain, actions + tuple(Evict(victim.pod, victim.grace) for victim in due)


def _waiting(drain: Drain) -> Result:
    if drain.victims:
        return drain, ()
    return replace(drain, phase=Phase.LOOKING), (LookAgain(),)


def _again_later(drain: Drain, uid: str, why: str, retry_after: float | None, now: float) -> Drain:
    if (victim := drain.victims.get(uid)) is None or victim.accepted:
        return drain
    grown = min(FIRST_RETRY * 2.0 ** min(victim.refusals, 10), LONGEST_RETRY)
    wait = grown if retry_after is None else retry_after
    return _with(drain, replace(victim, ask_at=now + wait, refusals=victim.refusals + 1, said=why))


def _hurried(drain: Drain, now: float) -> Drain:
    """A pod has left, so a budget may allow the next one: those refused need not wait out their back-off."""
    for victim in drain.victims.values():
        if victim.refusals:
            soon = min(victim.ask_at, now + FIRST_RETRY)
            drain = _with(drain, replace(victim, ask_at=soon, refusals=1))
    return drain


def _overdue(drain: Drain, now: float) -> Failure | None:
    stuck = [one for one in drain.victims.values() if one.leaves_by is not None and one.leaves_by <= now]
    if stuck:
        why = f"{_pods(stuck)} did not end within the grace period and {drain.limits.headroom:g} s"
        return Failure(Why.TERMINATION_TIMEOUT, why, tuple(one.pod for one in stuck))
    refused = [one for one in drain.victims.values() if not one.accepted]
    if refused and now >= drain.deadline:
        said = next((f": {one.said}" for one in refused if one.said), "")
        why = f"{_pods(refused)} could not be evicted within {drain.limits.eviction:g} s{said}"
        return Failure(Why.EVICTION_TIMEOUT, why, tuple(one.pod for one in refused))
    return None


def _pods(found: list[Victim]) -> str:
    names = ", ".join(str(one.pod) for one in found[:_PODS_NAMED])
    more = f" and {len(found) - _PODS_NAMED} more" if len(found) > _PODS_NAMED else ""
    return f"pod{'s' if len(found) > 1 else ''} {names}{more}"


def _with(drain: Drain, victim: Victim) -> Drain:
    return replace(drain, victims={**drain.victims, victim.pod.uid: victim})
