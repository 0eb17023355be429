"""Retries of requests: how many, and the pauses between them.

Within a loop that repeats its requests anyway, each request is sent once; otherwise the attempts of both loops would
multiply.
"""

import datetime as dt
import email.utils
import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import tenacity

from rescheduler import errors
from rescheduler.backoff import Backoff
from rescheduler.clock import Clock

#: The upper limits of the pauses. Each pause is random, from 0, so that several clients do not retry at the same time.
_BACKOFF: Final = Backoff(dt.timedelta(seconds=0.4), dt.timedelta(seconds=10))
_LEAST_PAUSE: Final = 0.25  #: minimum seconds, even if the server requests less
_UNTOLD_PAUSE: Final = 1.0  #: minimum seconds after a 429 without Retry-After
_LONGEST_WAIT: Final = 24 * 3600.0  #: seconds; longer Retry-After values are cut to this

_repeated: Final[ContextVar[bool]] = ContextVar("repeated", default=False)


@contextmanager
def one_attempt() -> Iterator[None]:
    """Send each request of the current thread once, for callers that repeat the whole operation after a failure."""
    token = _repeated.set(True)
    try:
        yield
    finally:
        _repeated.reset(token)


def attempts(limit: int) -> int:
    """Return how often to send a request: at most *limit* times, but once within `one_attempt`."""
    return 1 if _repeated.get() else limit


class TooLate(tenacity.stop.stop_base):
    """Stop retrying if the next pause would end at the deadline or later."""

    def __init__(self, clock: Clock, deadline: float) -> None:
        self._clock, self._deadline = clock, deadline

    def __call__(self, retry_state: tenacity.RetryCallState) -> bool:
        return self._clock.monotonic() + retry_state.upcoming_sleep >= self._deadline


def pause(state: tenacity.RetryCallState) -> float:
    """Return the seconds until the next attempt: what the server requests, otherwise a random exponential back-off."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, errors.Retryable) else None
    if asked is None:
        longest = _BACKOFF.seconds_after(state.attempt_number)
        drawn = random.uniform(0, longest)  # noqa: S311 - it spreads requests and protects nothing
        return max(drawn, _UNTOLD_PAUSE if isinstance(error, errors.RateLimited) else 0.0)
    return max(asked, _LEAST_PAUSE)


def retry_after_seconds(value: str, now: dt.datetime) -> float | None:
    """Parse a Retry-After header into seconds (RFC 9110, 10.2.3); `None` if it is invalid."""
    if value.isascii() and value.isdigit():
        return min(float(value), _LONGEST_WAIT)
    try:
        moment = email.utils.parsedate_to_datetime(value)
        wait = (moment.replace(tzinfo=moment.tzinfo or dt.UTC) - now).total_seconds()
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, wait), _LONGEST_WAIT)
