"""JSON over HTTP for the backends that speak it: deadlines, few and safe repetitions, typed errors, no secrets."""

import datetime as dt
import email.utils
import http
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import httpx
import msgspec
import tenacity

from rescheduler import errors, shapes
from rescheduler.backends.base import AuthError, BackendUnavailable, DeadlineExceeded, RateLimited
from rescheduler.backends.config import Endpoint
from rescheduler.backends.credentials import Credentials
from rescheduler.backends.transport import Bounds, Transport, way_out
from rescheduler.clock import Clock

#: What decoding an answer raises: it is no JSON, of another shape, or nested without end.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")

_MAX_TEXT = 500  #: characters of the other side's words that go into an error
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.ProxyError)
_BACK_OFF = tenacity.wait_random_exponential(multiplier=0.4, max=10)
_LEAST_PAUSE = 0.25  #: seconds, even where the system asks for less
_UNTOLD_PAUSE = 1.0  #: seconds at least, where the system wants fewer requests and does not say how few
_LONGEST_WAIT = 24 * 3600.0  #: seconds that are believed
_LONGEST_PATIENCE = 600.0  #: seconds for which nothing is asked, lest one wrong header silences us for days
_OWN_FAULTS = frozenset({500, 503})
_FAULTS = 500  #: and above; gateways have statuses of their own, such as 520 to 529
_REFUSALS = frozenset({501, 505})


class Unsent(BackendUnavailable):
    """The request surely did not reach the system."""


class Unanswered(BackendUnavailable):
    """The request went out and no (whole) answer came back: the system may have acted, or may still act."""


class ServerFault(BackendUnavailable):
    """The system, or something before it, answered that it failed; a part may have been done."""

    def __init__(self, message: str, *, answer: "Answer", retry_after: float | None = None) -> None:
        super().__init__(message, retry_after=retry_after)
        self.answer = answer

    @property
    def of_the_system(self) -> bool:
        """Whether the system itself said so; behind other statuses a gateway may hide an order at work."""
        return self.answer.status in _OWN_FAULTS


class BadAnswer(BackendUnavailable):
    """An answer that is not what the system's API promises."""


class Missing(errors.NotFound):
    """404."""


class Rejected(errors.Permanent):
    """The system will not do it: any other status that is no success."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: httpx.Headers
    body: bytes


class JsonClient:
    """A system's HTTP API; safe to use from several threads.

    A request that may not be repeated goes out on a connection of its own: on a kept one, the other side's idle
    close would look like an answer that got lost.
    """

    def __init__(
        self,
        system: str,
        endpoint: Endpoint,
        folder: Path,
        clock: Clock,
        words: Callable[[bytes], str] = lambda body: body.decode("utf-8", "replace"),
        token: str = "",
        turn: Callable[[float], None] = lambda _: None,
        password: str | None = None,
    ) -> None:
        """*words* finds in the body of an error what a person should read.

        *token* is a bearer token, *password* that of the endpoint's user, which are in no file.

        *turn* is called with the deadline before each request, repetitions included, and waits as long as it likes.
        """
        self._system, self._endpoint, self._clock, self._words = system, endpoint, clock, words
        self._turn = turn
        self._base = endpoint.url.rstrip("/")
        self._credentials = Credentials(endpoint, folder, token, password)
        self._closed = threading.Event()
        headers = {"user-agent": "spot-rescheduler", "accept": "application/json"}
        tls, proxy = self._credentials.tls(), way_out(endpoint.url)
        self._bounds = Bounds(clock)
        kept, unkept = httpx.Limits(), httpx.Limits(max_keepalive_connections=0)
        self._kept = httpx.Client(transport=Transport(tls, proxy, kept, self._bounds), headers=headers, trust_env=False)
        self._fresh = httpx.Client(
            transport=Transport(tls, proxy, unkept, self._bounds), headers=headers, trust_env=False
        )
        self._patient_until = -math.inf  #: of the clock's monotonic()

    def __repr__(self) -> str:
        return f"JsonClient({self._system}, {self._base}, {self._credentials!r})"

    def get(
        self,
        path: str,
        shape: type[T],
        *,
        deadline: float,
        params: Mapping[str, str] | None = None,
        strict: bool = True,
    ) -> tuple[T, Answer]:
        """The document at *path* as *shape*; BadAnswer if it is none. Not *strict*, "12" is a number too."""
        answer = self.send("GET", path, deadline=deadline, params=params, repeatable=True)
        return self.decode(answer, shape, f"GET {path}", strict=strict), answer

    def decode(self, answer: Answer, shape: type[T], what: str, *, strict: bool = True) -> T:
        try:
            return shapes.decode(answer.body, shape, strict=strict)
        except UNREADABLE as error:
            raise BadAnswer(self._line(what, f"the answer is not what the API promises: {error}")) from error

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        deadline: float,
        repeatable: bool = False,
        params: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request, repeated at most `attempts` times and only where that is safe.

        *repeatable* says that doing it twice does no harm. What never reached the system, or was turned away by a
        429, is repeated anyhow. Where an order may have been carried out the first time, no later refusal hides that.
        """
        unsure: list[BackendUnavailable] = []

        def again(error: BaseException) -> bool:
            if isinstance(error, Unanswered | ServerFault):
                unsure.append(error)
                return repeatable
            return isinstance(error, Unsent | RateLimited)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(again),
            wait=_pause,
            stop=tenacity.stop_after_attempt(self._endpoint.attempts) | _TooLate(self._clock, deadline),
            sleep=self._sleep,
            reraise=True,
        )
        client = self._kept if repeatable else self._fresh
        try:
            return retrying(self._once, client, method, path, body, params, deadline)
        except Missing:
            raise
        except errors.ReschedulerError as error:
            first = next((one for one in unsure if not (isinstance(one, ServerFault) and one.of_the_system)), None)
            if first is None or first is error or method == "GET":
                raise
            raise first from error

    def close(self) -> None:
        self._closed.set()
        self._kept.close()
        self._fresh.close()

    def _once(
        self,
        client: httpx.Client,
        method: str,
        path: str,
        body: object,
        params: Mapping[str, str] | None,
        deadline: float,
    ) -> Answer:
        what = f"{method} {path}"
        self._turn(deadline)
        if self._closed.is_set():
            raise Unsent(self._line(what, "closed"))
        now = self._clock.monotonic()
        left = min(deadline - now, self._endpoint.timeout)
        if left <= 0:
            raise DeadlineExceeded(self._line(what, "no time is left for it"))
        if now < self._patient_until:
            wait = self._patient_until - now
            raise RateLimited(self._line(what, f"we were asked not to come again for {wait:.0f} s"), retry_after=wait)
        self._credentials.tls()
        request = client.build_request(
            method,
            self._base + path,
            params=params,
            content=None if body is None else msgspec.json.encode(body),
            headers=self._credentials.headers() | ({} if body is None else {"content-type": "application/json"}),
            timeout=httpx.Timeout(left, connect=min(left, self._endpoint.connect_timeout)),
        )
        try:
            with self._bounds.until(now + left):
                answer = self._exchange(client, request, what, until=now + left)
        except _UNSENT as error:
            raise Unsent(self._line(what, f"cannot connect: {_reason(error)}")) from error
        except (httpx.RequestError, httpx.StreamError) as error:
            raise Unanswered(self._line(what, f"no answer: {_reason(error)}")) from error
        return self._checked(answer, what)

    def _exchange(self, client: httpx.Client, request: httpx.Request, what: str, *, until: float) -> Answer:
        response = client.send(request, stream=True)
        try:
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > self._endpoint.max_answer_bytes:
                    limit = self._endpoint.max_answer_bytes
                    raise BadAnswer(self._line(what, f"the answer is larger than {limit} bytes"))
                if self._clock.monotonic() > until:
                    raise Unanswered(self._line(what, "the answer did not end in time"))
            return Answer(response.status_code, response.headers, bytes(body))
        finally:
            response.close()

    def _checked(self, answer: Answer, what: str) -> Answer:
        if httpx.codes.is_success(answer.status):
            return answer
        words = " ".join(self._words(answer.body).split())[:_MAX_TEXT]
        line = self._line(what, f"{_status(answer.status)}{': ' if words else ''}{words}")
        wait = _retry_after(answer.headers.get("retry-after", ""), self._clock.now())
        match answer.status:
            case 401 | 403:
                raise AuthError(line)
            case 404:
                raise Missing(line)
            case 429:
                if wait is not None:
                    self._patient_until = self._clock.monotonic() + min(wait, _LONGEST_PATIENCE)
                raise RateLimited(line, retry_after=wait)
            case 408:
                raise ServerFault(line, answer=answer, retry_after=wait)
            case status if status >= _FAULTS and status not in _REFUSALS:
                raise ServerFault(line, answer=answer, retry_after=wait)
        raise Rejected(line)

    def _line(self, what: str, outcome: str) -> str:
        return self._credentials.redact(f"{self._system}: {what}: {outcome}")

    def _sleep(self, seconds: float) -> None:
        if self._clock.wait(seconds, self._closed):
            raise Unsent(f"{self._system}: closed while waiting to try again")


class _TooLate(tenacity.stop.stop_base):
    """Stops where the next pause would end at the deadline or later."""

    def __init__(self, clock: Clock, deadline: float) -> None:
        self._clock, self._deadline = clock, deadline

    def __call__(self, retry_state: tenacity.RetryCallState) -> bool:
        return self._clock.monotonic() + retry_state.upcoming_sleep >= self._deadline


def _pause(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, errors.Retryable) else None
    if asked is None:
        return max(_BACK_OFF(state), _UNTOLD_PAUSE if isinstance(error, RateLimited) else 0.0)
    return max(asked, _LEAST_PAUSE)


def _retry_after(value: str, now: dt.datetime) -> float | None:
    """Seconds, given as such or as a date (RFC 9110, 10.2.3); `None` for anything else."""
    if value.isascii() and value.isdigit():
        return min(float(value), _LONGEST_WAIT)
    try:
        moment = email.utils.parsedate_to_datetime(value)
        wait = (moment.replace(tzinfo=moment.tzinfo or dt.UTC) - now).total_seconds()
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, wait), _LONGEST_WAIT)


def _status(code: int) -> str:
    try:
        return f"{code} {http.HTTPStatus(code).phrase}"
    except ValueError:
        return str(code)


def _reason(error: Exception) -> str:
    """The words of httpx, or the name of the error where it has none."""
    return " ".join(str(error).split())[:_MAX_TEXT] or type(error).__name__
