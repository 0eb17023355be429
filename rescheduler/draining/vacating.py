"""Transitions of a drain whose pods have placeholders: each is deleted, and gone, before its pod is evicted.

A kubelet counts a placeholder until it is gone, and would reject a replacement pod that needs its room before that.
"""

from dataclasses import replace

from rescheduler.draining import exits
from rescheduler.draining.actions import DeletePlaceholder, Evict
from rescheduler.draining.events import PlaceholderDeleted, PlaceholderNotDeleted, Seen
from rescheduler.draining.retrying import again_later, requesting_again
from rescheduler.draining.state import Drain, Failure, Result, Why, with_victim
from rescheduler.draining.victims import Victim


def first_request(drain: Drain, victim: Victim, now: float) -> Victim:
    """Return *victim* with its first request in flight: for its placeholder if it has one, or for its eviction."""
    placeholder = drain.placeholders.get(victim.pod.uid)
    seconds = drain.limits.eviction if placeholder is None else drain.limits.vacating
    return replace(victim, placeholder=placeholder, ask_until=now + seconds)


def request(victim: Victim) -> Evict | DeletePlaceholder:
    """Return the action that sends the request of *victim*."""
    if victim.placeholder is not None:
        return DeletePlaceholder(victim.placeholder, victim.pod.uid)
    return Evict(victim.pod, victim.grace)


def asked_again(drain: Drain, event: Seen, now: float) -> Result:
    """Evict the pods whose placeholders are gone, and send again the requests that are due."""
    ask_until = now + drain.limits.eviction
    freed = [
        replace(victim, placeholder=None, ask_at=None, ask_until=ask_until, refusals=0, last_rejection="")
        for uid, victim in drain.victims.items()
        if victim.placeholder is not None and uid not in event.placeholders
    ]
    for victim in freed:
        drain = with_victim(drain, victim)
    drain, due = requesting_again(drain, now)
    return drain, tuple(request(victim) for victim in (*freed, *due))


def placeholder_deleted(drain: Drain, event: PlaceholderDeleted, _: float) -> Result:
    """Wait until the placeholder is gone."""
    victim = drain.victims.get(event.uid)
    if victim is None or victim.placeholder is None:
        return drain, ()
    return with_victim(drain, replace(victim, last_rejection="it is being deleted, but is not gone")), ()


def placeholder_not_deleted(drain: Drain, event: PlaceholderNotDeleted, now: float) -> Result:
    """Schedule a retry, or give up if the error is permanent."""
    victim = drain.victims.get(event.uid)
    if victim is None or victim.placeholder is None:
        return drain, ()
    if not event.retryable:
        return exits.give_up(drain, Failure(Why.PLACEHOLDER_NOT_DELETED, event.why, (victim.pod,)), now)
    return again_later(drain, event.uid, event.why, None, now), ()


def placeholder_overdue(drain: Drain, now: float) -> Failure | None:
    """Return the failure of a placeholder that is not gone in time, or None."""
    late = [each for each in drain.victims.values() if each.placeholder is not None and now >= each.ask_until]
    if not late:
        return None
    why = f": {late[0].last_rejection}" if late[0].last_rejection else ""
    detail = (
        f"placeholder {late[0].placeholder} of pod {late[0].pod} is not gone after {drain.limits.vacating:g} s{why}"
    )
    return Failure(Why.PLACEHOLDER_NOT_DELETED, detail, tuple(victim.pod for victim in late))
