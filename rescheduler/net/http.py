"""JSON over HTTP, with deadlines, retries only where they are safe, typed errors, and no secrets in messages."""

import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import httpx2
import msgspec
import tenacity

from rescheduler import decoding, errors
from rescheduler.clock import Clock
from rescheduler.errors import BackendUnavailable, DeadlineExceeded, RateLimited
from rescheduler.net.config_files import Credentials, Endpoint
from rescheduler.net.http_errors import (
    UNREADABLE,
    HttpResponse,
    InvalidResponse,
    Missing,
    NoResponse,
    ServerFault,
    TooLate,
    Unsent,
    attempts,
    pause,
    response_error,
    retry_after_seconds,
    status_line,
)
from rescheduler.net.transport import ThreadDeadline, Transport, proxy_of

T = TypeVar("T")

_MAX_TEXT = 500  #: maximum characters of the server's message in an error
_UNSENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.UnsupportedProtocol,
    httpx2.ProxyError,
)
_LONGEST_PATIENCE = 600.0  #: maximum seconds without requests, so that one wrong header cannot block the client


class JsonClient:
    """A client of a system's HTTP API. Thread-safe.

    A request that must not be repeated uses a new connection: on a reused connection, the server's idle timeout could
    be mistaken for a lost response.
    """

    def __init__(
        self,
        system: str,
        endpoint: Endpoint,
        folder: Path,
        clock: Clock,
        error_text: Callable[[bytes], str] = lambda body: body.decode("utf-8", "replace"),
        token: str = "",
        turn: Callable[[float], None] = lambda _: None,
        password: str | None = None,
    ) -> None:
        """Create a client. *error_text* extracts the readable message from the body of an error response.

        *token* is a bearer token and *password* the password of the endpoint's user, if they are not in files.

        *turn* is called with the deadline before each request, including retries, and may wait as long as it needs.
        """
        self._system, self._endpoint, self._clock, self._error_text = system, endpoint, clock, error_text
        self._turn = turn
        self._base = endpoint.url.rstrip("/")
        self._credentials = Credentials(endpoint, folder, token, password)
        self._closed = threading.Event()
        headers = {"user-agent": "spot-rescheduler", "accept": "application/json"}
        tls, proxy = self._credentials.tls(), proxy_of(endpoint.url)
        self._bounds = ThreadDeadline(clock)
        self._kept, self._fresh = (
            httpx2.Client(transport=Transport(tls, proxy, limits, self._bounds), headers=headers, trust_env=False)
            for limits in (httpx2.Limits(), httpx2.Limits(max_keepalive_connections=0))
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
    ) -> tuple[T, HttpResponse]:
        """Return the document at *path*, or raise InvalidResponse. Unless *strict*, "12" is a valid number."""
        response = self.send("GET", path, deadline=deadline, params=params, repeatable=True)
        return self.decode(response, shape, f"GET {path}", strict=strict), response

    def decode(self, response: HttpResponse, shape: type[T], what: str, *, strict: bool = True) -> T:
        try:
            return decoding.decode(response.body, shape, strict=strict)
        except UNREADABLE as error:
            raise InvalidResponse(self._line(what, f"the response does not match the API: {error}")) from error

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        deadline: float,
        repeatable: bool = False,
        params: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        """Send a request. If that is safe, retry it, up to `attempts` times in total, but not within `one_attempt`.

        *repeatable* means that a second request does no harm. Requests that never reached the system or got a 429
        are always retried. If an earlier attempt may have been carried out, its error is raised, not the last one.
        """
        unsure: list[BackendUnavailable] = []

        def again(error: BaseException) -> bool:
            if isinstance(error, NoResponse | ServerFault):
                unsure.append(error)
                return repeatable
            return isinstance(error, Unsent | RateLimited)

        client = self._kept if repeatable else self._fresh
        try:
            return self.retrying(again, deadline)(self._once, client, method, path, body, params, deadline)
        except Missing:
            raise
        except errors.ReschedulerError as error:
            first = next(filter(_may_be_carried_out, unsure), error)
            if first is error or method == "GET":
                raise
            raise first from error

    def close(self) -> None:
        self._closed.set()
        self._kept.close()
        self._fresh.close()

    def _once(
        self,
        client: httpx2.Client,
        method: str,
        path: str,
        body: object,
        params: Mapping[str, str] | None,
        deadline: float,
    ) -> HttpResponse:
        what = f"{method} {path}"
        self._turn(deadline)
        self._credentials.tls()
        content = None if body is None else msgspec.json.encode(body)
        headers = self._credentials.headers() | ({} if body is None else {"content-type": "application/json"})
        request = client.build_request(method, self._base + path, params=params, content=content, headers=headers)
        return self._checked(self._timed(client, request, what, deadline), what)

    def exchange(
        self, method: str, path: str, content: bytes, headers: Mapping[str, str], *, deadline: float, what: str
    ) -> HttpResponse:
        """Send a request that the caller has encoded and signed, once. Return unsuccessful responses, too."""
        self._credentials.tls()
        request = self._fresh.build_request(method, self._base + path, content=content, headers=headers)
        return self._timed(self._fresh, request, what, deadline)

    def retrying(self, again: Callable[[BaseException], bool], deadline: float) -> tenacity.Retrying:
        """Return an iterator of attempts while *again* is true of the error, within the limits of this client."""
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(again),
            wait=pause,
            stop=tenacity.stop_after_attempt(attempts(self._endpoint.attempts)) | TooLate(self._clock, deadline),
            sleep=self._sleep,
            reraise=True,
        )

    def _timed(self, client: httpx2.Client, request: httpx2.Request, what: str, deadline: float) -> HttpResponse:
        left, until = self._time_left(what, deadline)
        timeout = httpx2.Timeout(left, connect=min(left, self._endpoint.connect_timeout))
        request.extensions = {**request.extensions, "timeout": timeout.as_dict()}
        return self._exchange(client, request, what, until)

    def _time_left(self, what: str, deadline: float) -> tuple[float, float]:
        """Return the time limit of a request, in seconds and as a monotonic time. Raises if none may be sent now."""
        if self._closed.is_set():
            raise Unsent(self._line(what, "closed"))
        now = self._clock.monotonic()
        left = min(deadline - now, self._endpoint.timeout)
        if left <= 0:
            raise DeadlineExceeded(self._line(what, "no time left"))
        if now < self._patient_until:
            wait = self._patient_until - now
            raise RateLimited(self._line(what, f"the system requested a wait of {wait:.0f} s"), retry_after=wait)
        return left, now + left

    def _exchange(self, client: httpx2.Client, request: httpx2.Request, what: str, until: float) -> HttpResponse:
        try:
            with self._bounds.until(until):
                return self._read(client.send(request, stream=True), what, until)
        except _UNSENT as error:
            raise Unsent(self._line(what, f"cannot connect: {_reason(error)}")) from error
        except (httpx2.RequestError, httpx2.StreamError) as error:
            raise NoResponse(self._line(what, f"no answer: {_reason(error)}")) from error

    def _read(self, response: httpx2.Response, what: str, until: float) -> HttpResponse:
        try:
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > self._endpoint.max_answer_bytes:
                    limit = self._endpoint.max_answer_bytes
                    raise InvalidResponse(self._line(what, f"the response is larger than {limit} bytes"))
                if self._clock.monotonic() > until:
                    raise NoResponse(self._line(what, "the response did not complete in time"))
            return HttpResponse(response.status_code, response.headers, bytes(body))
        finally:
            response.close()

    def _checked(self, response: HttpResponse, what: str) -> HttpResponse:
        if httpx2.codes.is_success(response.status):
            return response
        error_text = " ".join(self._error_text(response.body).split())[:_MAX_TEXT]
        line = self._line(what, f"{status_line(response.status)}{': ' if error_text else ''}{error_text}")
        wait = retry_after_seconds(response.headers.get("retry-after", ""), self._clock.now())
        error = response_error(response, line, wait)
        if isinstance(error, RateLimited) and wait is not None:
            self._patient_until = self._clock.monotonic() + min(wait, _LONGEST_PATIENCE)
        raise error

    def _line(self, what: str, outcome: str) -> str:
        return self._credentials.redact(f"{self._system}: {what}: {outcome}")

    def _sleep(self, seconds: float) -> None:
        if self._clock.wait(seconds, self._closed):
            raise Unsent(f"{self._system}: closed while waiting for a retry")


def _may_be_carried_out(error: BackendUnavailable) -> bool:
    """Return whether the system may have carried out the request, or may still do so."""
    return not (isinstance(error, ServerFault) and error.of_the_system)


def _reason(error: Exception) -> str:
    """Return httpx2's message, or the name of the exception class if it has none."""
    return " ".join(str(error).split())[:_MAX_TEXT] or type(error).__name__
