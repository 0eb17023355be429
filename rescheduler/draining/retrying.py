"""Requests in flight, and when failed requests, including evictions, are sent again."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from rescheduler.backoff import Backoff
from rescheduler.draining.state import Drain, Phase, with_victim
from rescheduler.draining.victims import Victim

#: Back-off between eviction requests, unless the server sends Retry-After.
_BACKOFF: Final = Backoff(timedelta(seconds=1), timedelta(seconds=10))

#: For all other requests of a drain: seconds between attempts, and from the first failure to the last attempt. If the
#: API server fails for longer, the Lease is lost anyway.
REQUEST_INTERVAL: Final = 2.0
REQUEST_SECONDS: Final = 10.0


def requesting(drain: Drain, phase: Phase) -> Drain:
    """Return *drain* in *phase*, with its request in flight and not yet failed."""
    return replace(drain, phase=phase, failing_until=None, retry_at=None)


def try_later(drain: Drain, now: float) -> Drain | None:
    """Return *drain* with a retry of the phase's request scheduled, or None if it has failed for too long."""
    until = now + REQUEST_SECONDS if drain.failing_until is None else drain.failing_until
    return None if now >= until else replace(drain, failing_until=until, retry_at=now + REQUEST_INTERVAL)


def again_later(drain: Drain, uid: str, why: str, retry_after: float | None, now: float) -> Drain:
    """Schedule the next eviction request for pod *uid*, after *retry_after* seconds or with exponential back-off."""
    victim = drain.victims.get(uid)
    if victim is None or victim.accepted:
        return drain
    wait = _BACKOFF.seconds_after(victim.refusals + 1) if retry_after is None else retry_after
    return with_victim(drain, replace(victim, ask_at=now + wait, refusals=victim.refusals + 1, last_rejection=why))


def sooner(drain: Drain, now: float) -> Drain:
    """Shorten the back-off of rejected evictions, because a pod has left and a budget may now allow the next one."""
    soon = now + _BACKOFF.seconds_after(1)
    for victim in drain.victims.values():
        if victim.refusals and victim.ask_at is not None:
            drain = with_victim(drain, replace(victim, ask_at=min(victim.ask_at, soon), refusals=1))
    return drain


def requesting_again(drain: Drain, now: float) -> tuple[Drain, tuple[Victim, ...]]:
    """Return *drain* with a request in flight for each pod whose eviction is due, and these pods."""
    due = tuple(victim for victim in drain.victims.values() if victim.is_due(now))
    for victim in due:
        drain = with_victim(drain, replace(victim, ask_at=None))
    return drain, due
