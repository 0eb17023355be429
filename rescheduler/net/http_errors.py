"""HTTP responses and the errors of requests to a system's API, and the retries of requests."""

import datetime as dt
import email.utils
import http
import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import httpx2
import msgspec
import tenacity

from rescheduler import errors
from rescheduler.clock import Clock
from rescheduler.durations import Backoff
from rescheduler.errors import AuthError, BackendUnavailable, RateLimited

#: The errors of decoding a response: invalid JSON, an unexpected shape, or excessive nesting.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_OWN_FAULTS: Final = frozenset({500, 503})
_FAULTS: Final = 500  #: and above; gateways use further codes, such as 520 to 529
_REFUSALS: Final = frozenset({501, 505})


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response."""

    status: int
    headers: httpx2.Headers
    body: bytes


class Unsent(BackendUnavailable):
    """The request certainly did not reach the system."""


class NoResponse(BackendUnavailable):
    """The request was sent, but no complete response was received: the system may have acted or may still act."""


class ServerFault(BackendUnavailable):
    """The system or a gateway reported a failure; the request may have been carried out partially."""

    def __init__(self, message: str, *, response: HttpResponse, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after=retry_after)
        self.response = response

    @property
    def of_the_system(self) -> bool:
        """Whether the system itself reported the failure; other codes may come from a gateway while an order runs."""
        return self.response.status in _OWN_FAULTS


class InvalidResponse(BackendUnavailable):
    """A response that violates the system's API."""


class Missing(errors.NotFound):
    """The resource does not exist (404)."""


class RequestRejected(errors.Permanent):
    """The system rejected the request with any other error status."""


def response_error(response: HttpResponse, message: str, retry_after: float | None) -> errors.ReschedulerError:
    """Return the error for *response*, an unsuccessful response."""
    match response.status:
        case 401 | 403:
            return AuthError(message)
        case 404:
            return Missing(message)
        case 429:
            return RateLimited(message, retry_after=retry_after)
        case status if status == http.HTTPStatus.REQUEST_TIMEOUT or (status >= _FAULTS and status not in _REFUSALS):
            return ServerFault(message, response=response, retry_after=retry_after)
    return RequestRejected(message)


def status_line(code: int) -> str:
    """Return *code* with its standard phrase, such as "404 Not Found"."""
    try:
        return f"{code} {http.HTTPStatus(code).phrase}"
    except ValueError:
        return str(code)


# Retries of requests: how many, and the pauses between them.
#
# Within a loop that repeats its requests anyway, each request is sent once; otherwise the attempts of both loops would
# multiply.

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
