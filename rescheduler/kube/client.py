"""A client for the API server that sends and returns bytes and raises the errors of this program."""

import contextlib
import copy
import dataclasses
import datetime as dt
import functools
import http
import logging
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
import urllib3

from predicates.texts import quoted
from rescheduler import VERSION
from rescheduler.clock import Clock
from rescheduler.durations import LONGEST_WAIT
from rescheduler.errors import Conflict, InputError, NotFound, NotLeading, ReschedulerError
from rescheduler.kube.connection import CredentialSource, Login, source
from rescheduler.kube.responses import (
    LEAST_SECONDS,
    ApiResponse,
    Guard,
    checking_before_send,
    denied_by_fencing,
    refusal,
    translating_errors,
)
from rescheduler.settings import ApiServerConnection

# Cache the credentials of requests, and read them again when they expire or are rejected.

#: Minimum interval between reads after rejections: an exec plugin may be slow or prompt a user.
RELOGIN_SECONDS: Final = 10.0

#: Credentials with an expiry are renewed this long before they expire.
_EARLY: Final = dt.timedelta(seconds=60)


class Logins:
    """The current credentials of one source. Thread-safe."""

    def __init__(self, source: CredentialSource, clock: Clock) -> None:
        """Read the credentials; raises UsageError or Unauthorized."""
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._login = source.login()
        self._read_at = clock.monotonic()

    @property
    def host(self) -> str:
        return self._login.host

    def current(self) -> Login:
        """Return the credentials. They are read again if they expire soon or their file may have been rotated."""
        with self._lock:
            login = self._login
            age = self._clock.monotonic() - self._read_at
            due = login.reread_after is not None and age >= login.reread_after
            ending = login.expires is not None and login.expires - _EARLY <= self._clock.now()
            return self._reread() if due or (ending and age >= RELOGIN_SECONDS) else login

    def after_refusal(self, refused: Login) -> Login:
        """Return credentials to use in place of *refused*, or *refused* itself if there are no newer ones."""
        with self._lock:
            if self._login is not refused:
                return self._login  # another thread has renewed them
            if self._clock.monotonic() - self._read_at < RELOGIN_SECONDS:
                return refused
            return self._reread()

    def _reread(self) -> Login:
        self._read_at = self._clock.monotonic()
        try:
            fresh = self._source.login()
        except ReschedulerError as error:
            log.warning("credentials cannot be renewed; keeping the old ones: %s", error)
            return self._login
        if fresh.endpoint == self._login.endpoint:
            fresh = dataclasses.replace(fresh, pool=self._login.pool)
        self._login = fresh
        return fresh


# The connection pool is built by the official client (TLS, proxies, client certificates). Its models are not used: they
# need much memory for long lists and differ between its versions.

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"  #: merges conditions by their type

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 30.0

#: Connect timeout of a guarded write. It is short because the server's request timeout does not include it.
GUARDED_CONNECT_SECONDS: Final = 2.0

#: A write of a new leader that the fencing policy denies is retried after this time.
FENCE_RETRY_SECONDS: Final = 0.25

_ERROR_BODY: Final = 64 * 1024

#: A part of a path that is sent unchanged (``pchar`` of RFC 3986).
_SEGMENT: Final = re.compile(r"(?:[-A-Za-z0-9._~!$&'()*+,;=:@]|%[0-9A-F]{2})+")

log = logging.getLogger(__name__)


def connect(connection: ApiServerConnection, clock: Clock) -> "Client":
    """Return a client for the API server of *connection*. Raises the same errors as :class:`Client`."""
    return Client(source(connection.kubeconfig, connection.context, connection.in_cluster), clock)


@dataclass(frozen=True, slots=True)
class _Request:
    act: str
    method: str
    path: str
    query: Mapping[str, str] | None
    read_seconds: float
    body: Any = None
    content_type: str = JSON
    accept: str = JSON

    @property
    def writes(self) -> bool:
        return self.method != "GET"


class Client:
    """A client for the API server of one cluster. Thread-safe.

    *read_seconds* is the default read timeout of a response or of its next part.
    """

    def __init__(
        self,
        source: CredentialSource,
        clock: Clock,
        user_agent: str = f"spot-rescheduler/{VERSION}",
        read_seconds: float = READ_SECONDS,
    ) -> None:
        """Read the credentials; raises UsageError or Unauthorized. No request is sent."""
        self._logins = Logins(source, clock)
        self._clock = clock
        self._user_agent = user_agent
        self._read_seconds = min(read_seconds, LONGEST_WAIT)
        self._guard: Guard | None = None

    def guarded(self, guard: Guard) -> "Client":
        """Return a client with the same connections and credentials whose writes must be permitted by *guard*.

        The guard is called before each write (any method but GET) once the connection is open, and again before a retry
        with new credentials. Its result limits the duration of the write: by the timeout of the client, and by the
        query parameter ``timeout`` on the API server.
        """
        client = copy.copy(self)
        client._guard = guard  # noqa: SLF001 - an object of this class
        return client

    @property
    def host(self) -> str:
        return self._logins.host

    def send(
        self,
        act: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
        read_seconds: float | None = None,
    ) -> ApiResponse:
        """Send one request and return the complete response, regardless of its status code.

        *act* describes the request in messages ("list pods"). *body* is encoded as JSON. Raises Retryable if there was
        no response, Permanent if the server's certificate is not trusted, and NotLeading if the guard does not permit
        the write or the API server's fencing policy denied it.
        """
        seconds = self._read_seconds if read_seconds is None else read_seconds
        request = _Request(act, method, path, query, seconds, body, content_type, accept)
        answer = self._exchange(request)
        while self._guard is not None and request.writes and denied_by_fencing(answer):
            if not self._guard.fence_may_lag:
                error = NotLeading(str(refusal(act, answer)))
                log.warning("%s", error)
                raise error
            self._clock.wait(FENCE_RETRY_SECONDS, threading.Event())
            answer = self._exchange(request)
        return answer

    def request(self, act: str, method: str, path: str, **options: Any) -> ApiResponse:
        """Send one request as :meth:`send` does, and raise the matching error if the response is not ok."""
        answer = self.send(act, method, path, **options)
        if not answer.ok:
            raise refusal(act, answer)
        return answer

    def stream(self, act: str, path: str, *, query: Mapping[str, str], idle_seconds: float) -> "ResponseStream":
        """Open a GET with a streaming response. If no data arrives for *idle_seconds*, reading raises Retryable."""
        with translating_errors(act, self.host):
            response = self._open(_Request(act, "GET", path, query, idle_seconds))
            if response.status == http.HTTPStatus.OK:
                return ResponseStream(act, response, self.host)
            try:
                body = response.read(_ERROR_BODY)
            finally:
                response.close()
        raise refusal(act, ApiResponse(response.status, body, _seconds(response.headers.get("retry-after"))))

    def _exchange(self, request: _Request) -> ApiResponse:
        """Send the request and read the complete response."""
        with translating_errors(request.act, self.host):
            response = self._open(request)
            try:
                return ApiResponse(
                    code=response.status,
                    body=response.read(),
                    retry_after=_seconds(response.headers.get("retry-after")),
                )
            finally:
                response.release_conn()

    def _open(self, request: _Request) -> urllib3.BaseHTTPResponse:
        """Send the request; retry once with new credentials if the old ones are rejected."""
        login = self._logins.current()
        response = self._send_once(request, login)
        if response.status == http.HTTPStatus.UNAUTHORIZED:
            fresh = self._logins.after_refusal(login)
            if fresh is not login:
                response.drain_conn()
                response.release_conn()
                response = self._send_once(request, fresh)
        return response

    def _send_once(self, request: _Request, login: Login) -> urllib3.BaseHTTPResponse:
        """Send the request once. All requests of the client are sent here."""
        headers = {"accept": request.accept, "user-agent": self._user_agent, **login.headers}
        body = None
        if request.body is not None:
            headers["content-type"] = request.content_type
            body = msgspec.json.encode(request.body)
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=request.read_seconds)
        query = dict(request.query or {})
        send_checks: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self._guard is not None and request.writes:
            permitted = functools.partial(_seconds_left, request.act, self._guard)
            seconds = min(permitted(), request.read_seconds)
            timeout = urllib3.Timeout(total=seconds, connect=GUARDED_CONNECT_SECONDS)
            query["timeout"] = f"{max(int(seconds), 1)}s"
            send_checks = checking_before_send(permitted)
        url = login.host + _url(_checked(request), query)
        with send_checks:
            return login.pool.request(
                request.method, url, body=body, headers=headers, timeout=timeout, preload_content=False, retries=False
            )


class ResponseStream:
    """A streaming response. One thread reads it; :meth:`stop` may be called by any thread."""

    def __init__(self, act: str, response: urllib3.BaseHTTPResponse, host: str) -> None:
        self._act = act
        self._response = response
        self._host = host

    def chunks(self) -> Iterator[bytes]:
        """Yield bytes as they arrive until the server ends the response. Raises Retryable if the connection breaks."""
        with translating_errors(self._act, self._host):
            yield from self._response.stream(1 << 16)

    def stop(self) -> None:
        """Wake the reader and end the stream."""
        with contextlib.suppress(ValueError, RuntimeError, OSError):
            self._response.shutdown()

    def close(self) -> None:
        self._response.close()


def _seconds_left(act: str, guard: Guard) -> float:
    try:
        seconds = guard.seconds_left()
    except NotLeading as error:
        raise NotLeading(f"{act}: not sent: {error}") from None
    if seconds < LEAST_SECONDS:
        raise NotLeading(f"{act}: not sent: our leadership may end within {LEAST_SECONDS:g} s")
    return seconds


def _url(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{_encoded(tuple(query.items()))}" if query else path


#: The same queries are sent again and again.
_encoded: Final = functools.lru_cache(512)(urllib.parse.urlencode)


def _checked(request: _Request) -> str:
    """Return the path of *request* if it is sent as it was built, and servers read it so. Raises InputError.

    Segments such as ``..``, and encoded slashes and percent signs, would make it the path of another object.
    """
    if (segment := _improper_segment(request.path)) is not None:
        raise InputError(f"{request.act}: not sent: {quoted(segment)} cannot be a part of a path")
    return request.path


@functools.lru_cache(512)
def _improper_segment(path: str) -> str | None:
    """Return the first segment of *path* that cannot be a part of a path, or None."""
    for segment in path.removeprefix("/").split("/"):
        text = urllib.parse.unquote(segment)
        if not _SEGMENT.fullmatch(segment) or text in (".", "..") or "/" in text or "%" in text:
            return segment
    return None


def _seconds(header: str | None) -> float | None:
    return float(header) if header and header.isascii() and header.isdigit() else None


# Writes on the condition that an object has not changed since it was read.

T = TypeVar("T")


def retry_on_conflict(write: Callable[[], T], attempts: int, read: Callable[[], object] = lambda: None) -> T:
    """Return the result of *write*. After a Conflict, call *read* and write again, up to *attempts* times.

    A *write* that also reads the object needs no *read*. Raises the last Conflict, and all other errors. This is
    client-go's ``RetryOnConflict`` without pauses.
    """
    last = Conflict("")
    for _ in range(attempts):
        try:
            return write()
        except Conflict as error:
            last = error
        read()
    raise Conflict(f"{last} (tried {attempts} times)") from last


@contextmanager
def deletion_conflicts() -> Iterator[None]:
    """Convert NotFound to Conflict: an object that was read before has since been deleted."""
    try:
        yield
    except NotFound as error:
        raise Conflict(str(error)) from error
