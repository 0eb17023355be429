"""Requests to the API server: bytes in, bytes out, and every foreign error turned into one of ours.

The connection pool is the one that the official client builds (TLS, proxies, client certificates); its models
are not used, so that the 36 and 37 series behave alike and no list is ever held as a model.
"""

import contextlib
import copy
import functools
import http
import logging
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import urllib3

from rescheduler.clock import Clock
from rescheduler.durations import LONGEST_WAIT
from rescheduler.errors import NotLeading
from rescheduler.kube.answers import Answer, refusal
from rescheduler.kube.asking import asking
from rescheduler.kube.connection import Login, Source, source
from rescheduler.kube.guard import LEAST_SECONDS, Guard, denied_by_fencing
from rescheduler.kube.logins import Logins
from rescheduler.kube.transport import speaking
from rescheduler.settings import Connection
from rescheduler.version import VERSION

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 30.0

#: A guarded write waits less long for its connection: that time is not part of the time-out that the API server keeps.
GUARDED_CONNECT_SECONDS: Final = 2.0

#: A write that the fencing policy denies to a new leader is sent again after so long.
FENCE_RETRY_SECONDS: Final = 0.25

_ERROR_BODY: Final = 64 * 1024

log = logging.getLogger(__name__)


def connect(named: Connection, clock: Clock) -> "Client":
    """A client of the API server that *named* means; errors as of :class:`Client`."""
    return Client(source(named.kubeconfig, named.context, named.in_cluster), clock)


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
    """One cluster's API server. Safe for use by many threads.

    An answer, or the next part of one, is waited for so many *read_seconds*, unless a call says otherwise.
    """

    def __init__(
        self,
        source: Source,
        clock: Clock,
        user_agent: str = f"spot-rescheduler/{VERSION}",
        read_seconds: float = READ_SECONDS,
    ) -> None:
        """Reads the credentials; raises UsageError or Unauthorized. Sends nothing yet."""
        self._logins = Logins(source, clock)
        self._clock = clock
        self._user_agent = user_agent
        self._read_seconds = min(read_seconds, LONGEST_WAIT)
        self._guard: Guard | None = None

    def guarded(self, guard: Guard) -> "Client":
        """A client with the same connections and credentials, whose writes *guard* must permit.

        The guard is asked each time that a write (anything but GET) is about to leave, once the connection is open;
        also when the same write is sent again with fresh credentials. What it says ends the write: at our side by
        the time-out, at the API server's by the query parameter ``timeout``.
        """
        client = copy.copy(self)
        client._guard = guard  # noqa: SLF001 - of our own class
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
    ) -> Answer:
        """Send one request and read the whole answer, whatever its code.

        *act* says in a person's words what is tried ("list pods"). *body* is encoded as JSON. Raises
        Retryable when no answer came, Permanent where the server is not to be trusted, NotLeading where the guard
        permits no write, or the API server's fencing policy denied it.
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

    def request(self, act: str, method: str, path: str, **options: Any) -> Answer:
        """:meth:`send`, and raise the error that fits an answer that is not ok."""
        answer = self.send(act, method, path, **options)
        if not answer.ok:
            raise refusal(act, answer)
        return answer

    def stream(self, act: str, path: str, *, query: Mapping[str, str], accept: str, idle_seconds: float) -> "Stream":
        """Open a GET whose answer goes on; a silence of *idle_seconds* ends it with Retryable."""
        with speaking(act, self.host):
            response = self._open(_Request(act, "GET", path, query, idle_seconds, accept=accept))
            if response.status == http.HTTPStatus.OK:
                return Stream(act, response, self.host)
            try:
                body = response.read(_ERROR_BODY)
            finally:
                response.close()
        kind = response.headers.get("content-type", "")
        raise refusal(act, Answer(response.status, body, kind, _seconds(response.headers.get("retry-after"))))

    def _exchange(self, request: _Request) -> Answer:
        """Send, and read the whole answer."""
        with speaking(request.act, self.host):
            response = self._open(request)
            try:
                return Answer(
                    code=response.status,
                    body=response.read(),
                    content_type=response.headers.get("content-type", ""),
                    retry_after=_seconds(response.headers.get("retry-after")),
                )
            finally:
                response.release_conn()

    def _open(self, request: _Request) -> urllib3.BaseHTTPResponse:
        """Send, and once more with fresh credentials where the old ones are refused."""
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
        """The one place where requests leave."""
        headers = {"accept": request.accept, "user-agent": self._user_agent, **login.headers}
        body = None
        if request.body is not None:
            headers["content-type"] = request.content_type
            body = msgspec.json.encode(request.body)
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=request.read_seconds)
        query = dict(request.query or {})
        asked: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self._guard is not None and request.writes:
            permitted = functools.partial(_seconds_left, request.act, self._guard)
            seconds = min(permitted(), request.read_seconds)
            timeout = urllib3.Timeout(total=seconds, connect=GUARDED_CONNECT_SECONDS)
            query["timeout"] = f"{max(int(seconds), 1)}s"
            asked = asking(permitted)
        url = login.host + _url(request.path, query)
        with asked:
            return login.pool.request(
                request.method, url, body=body, headers=headers, timeout=timeout, preload_content=False, retries=False
            )


class Stream:
    """An answer that goes on. Read it by one thread; :meth:`stop` may be called by any."""

    def __init__(self, act: str, response: urllib3.BaseHTTPResponse, host: str) -> None:
        self._act = act
        self._response = response
        self._host = host
        self.content_type = response.headers.get("content-type", "")

    def chunks(self) -> Iterator[bytes]:
        """Bytes as they come in, until the server ends the answer. Raises Retryable when it breaks off."""
        with speaking(self._act, self._host):
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
    return f"{path}?{urllib.parse.urlencode(query)}" if query else path


def _seconds(header: str | None) -> float | None:
    return float(header) if header and header.isascii() and header.isdigit() else None
