"""Retry times of requests that failed, evictions included."""

from dataclasses import replace
from typing import Final

from rescheduler.draining.state import NEVER, Drain, with_victim

#: Back-off between eviction requests in seconds, doubling, unless the server sends Retry-After.
FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 10.0

#: Seconds between two tries of any other request of a drain, and from its first failure to the last try. An API
#: server that fails for longer costs the Lease anyway.
REQUEST_INTERVAL: Final = 2.0
REQUEST_SECONDS: Final = 10.0


def try_later(drain: Drain, now: float) -> Drain | None:
    """*drain*, of which the phase's request is made again at `retry_at`; None where it has failed for too long."""
    deadline = now + REQUEST_SECONDS if drain.deadline == NEVER else drain.deadline
    return None if now >= deadline else replace(drain, deadline=deadline, retry_at=now + REQUEST_INTERVAL)


def again_later(drain: Drain, uid: str, why: str, retry_after: float | None, now: float) -> Drain:
    """Schedule the next eviction request for pod *uid*, after *retry_after* seconds or with exponential back-off."""
    victim = drain.victims.get(uid)
    if victim is None or victim.accepted:
        return drain
    backoff = min(FIRST_RETRY * 2.0 ** min(victim.refusals, 10), LONGEST_RETRY)
    wait = backoff if retry_after is None else retry_after
    return with_victim(drain, replace(victim, ask_at=now + wait, refusals=victim.refusals + 1, last_rejection=why))


def sooner(drain: Drain, now: float) -> Drain:
    """Shorten the back-off of rejected evictions, because a pod has left and a budget may now allow the next one."""
    for victim in drain.victims.values():
        if victim.refusals and victim.ask_at != NEVER:  # NEVER: a request is in flight
            drain = with_victim(drain, replace(victim, ask_at=min(victim.ask_at, now + FIRST_RETRY), refusals=1))
    return drain
