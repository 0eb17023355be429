"""Requests to the API server: bytes in, bytes out, and every foreign error turned into one of ours.

The connection pool is the one that the official client builds (TLS, proxies, client certificates); its models
are not used, so that the 36 and 37 series behave alike and no list is ever held as a model.
"""

import contextlib
import dataclasses
import datetime as dt
import http
import logging
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from rescheduler.clock import Clock
from rescheduler.errors import Permanent, ReschedulerError, Retryable
from rescheduler.kube.answers import Answer, one_line, refusal
from rescheduler.kube.connection import Login, Source, source
from rescheduler.settings import Connection
from rescheduler.version import VERSION

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 30.0

#: Credentials are not read more often than this because of refusals: an exec plugin may be slow, or a person.
RELOGIN_SECONDS: Final = 10.0

#: Credentials that name their end are renewed this much earlier.
_EARLY: Final = dt.timedelta(seconds=60)
_ERROR_BODY: Final = 64 * 1024

#: Most special first: some are subclasses of others.
_WHY: Final = (
    (ProxyError, "the proxy to {host} failed: {said}"),
    (NameResolutionError, "the name of {host} cannot be resolved"),
    (NewConnectionError, "no connection to {host}: {end}"),
    (ConnectTimeoutError, f"no connection to {{host}} within {CONNECT_SECONDS:g} s"),
    (SSLError, "no trusted connection to {host}: {said}"),
    (ReadTimeoutError, "{host} went silent"),
)

log = logging.getLogger(__name__)


def connect(named: Connection, clock: Clock) -> "Client":
    """A client of the API server that *named* means; errors as of :class:`Client`."""
    return Client(source(named.kubeconfig, named.context, named.in_cluster), clock)


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
        self._source = source
        self._clock = clock
        self._user_agent = user_agent
        self._read_seconds = read_seconds
        self._lock = threading.Lock()
        self._login = source.login()
        self._read_at = clock.monotonic()

    @property
    def host(self) -> str:
        return self._login.host

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
        Retryable when no answer came, Permanent where the server is not to be trusted.
        """
        with self._speaking(act):
            seconds = self._read_seconds if read_seconds is None else read_seconds
            response = self._open(method, _url(path, query), body, content_type, accept, seconds)
            try:
                return Answer(
                    code=response.status,
                    body=response.read(),
                    content_type=response.headers.get("content-type", ""),
                    retry_after=_seconds(response.headers.get("retry-after")),
                )
            finally:
                response.release_conn()

    def request(self, act: str, method: str, path: str, **options: Any) -> Answer:
        """:meth:`send`, and raise the error that fits an answer that is not ok."""
        answer = self.send(act, method, path, **options)
        if not answer.ok:
            raise refusal(act, answer)
        return answer

    def stream(self, act: str, path: str, *, query: Mapping[str, str], accept: str, idle_seconds: float) -> "Stream":
        """Open a GET whose answer goes on; a silence of *idle_seconds* ends it with Retryable."""
        with self._speaking(act):
            response = self._open("GET", _url(path, query), None, JSON, accept, idle_seconds)
            if response.status == http.HTTPStatus.OK:
                return Stream(act, response, self)
            try:
                body = response.read(_ERROR_BODY)
            finally:
                response.close()
        kind = response.headers.get("content-type", "")
        raise refusal(act, Answer(response.status, body, kind, _seconds(response.headers.get("retry-after"))))

    def _open(
        self, method: str, url: str, body: Any, content_type: str, accept: str, read_seconds: float
    ) -> urllib3.BaseHTTPResponse:
        """Send, and once more with fresh credentials where the old ones are refused."""
        login = self._current()
        for last in (False, True):
            headers = {"accept": accept, "user-agent": self._user_agent, **login.headers}
            if body is not None:
                headers["content-type"] = content_type
            response = login.pool.request(
                method,
                login.host + url,
                body=None if body is None else msgspec.json.encode(body),
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=read_seconds),
                preload_content=False,
                retries=False,
            )
            if response.status != http.HTTPStatus.UNAUTHORIZED or last:
                break
            if (fresh := self._after_refusal(login)) is login:
                break
            response.drain_conn()
            response.release_conn()
            login = fresh
        return response

    def _current(self) -> Login:
        """The credentials, read again where they end soon or their file may have been rotated."""
        with self._lock:
            login = self._login
            age = self._clock.monotonic() - self._read_at
            due = login.reread_after is not None and age >= login.reread_after
            ending = login.expires is not None and login.expires - _EARLY <= self._clock.now()
            return self._reread() if due or (ending and age >= RELOGIN_SECONDS) else login

    def _after_refusal(self, refused: Login) -> Login:
        """Credentials to try in place of *refused*; *refused* itself when there are no newer ones."""
        with self._lock:
            if self._login is not refused:
                return self._login  # another thread was here first
            if self._clock.monotonic() - self._read_at < RELOGIN_SECONDS:
                return refused
            return self._reread()

    def _reread(self) -> Login:
        self._read_at = self._clock.monotonic()
        try:
            fresh = self._source.login()
        except ReschedulerError as error:
            log.warning("credentials cannot be renewed, the old ones are kept: %s", error)
            return self._login
        if fresh.tls == self._login.tls:
            fresh = dataclasses.replace(fresh, pool=self._login.pool)
        self._login = fresh
        return fresh

    @contextlib.contextmanager
    def _speaking(self, act: str) -> Iterator[None]:
        try:
            yield
        except (HTTPError, OSError, ValueError) as error:  # ValueError: a read after the socket was shut
            kind = Permanent if _untrusted(error) else Retryable
            raise kind(f"{act}: {self._why(error)}") from error

    def _why(self, error: Exception) -> str:
        """What went wrong on the way, in one line."""
        cause = error.original_error if isinstance(error, ProxyError) else error
        said = one_line(str(cause))
        for kind, text in _WHY:
            if isinstance(error, kind):
                return text.format(host=self.host, said=said, end=said.rpartition(": ")[2].rpartition("] ")[2])
        return f"the connection to {self.host} broke: {said}"


class Stream:
    """An answer that goes on. Read it by one thread; :meth:`stop` may be called by any."""

    def __init__(self, act: str, response: urllib3.BaseHTTPResponse, client: Client) -> None:
        self._act = act
        self._response = response
        self._client = client
        self.content_type = response.headers.get("content-type", "")

    def chunks(self) -> Iterator[bytes]:
        """Bytes as they come in, until the server ends the answer. Raises Retryable when it breaks off."""
        with self._client._speaking(self._act):  # noqa: SLF001 - the same border
            yield from self._response.stream(1 << 16)

    def stop(self) -> None:
        """Wake the reader and end the stream."""
        with contextlib.suppress(ValueError, RuntimeError, OSError):
            self._response.shutdown()

    def close(self) -> None:
        self._response.close()


def _untrusted(error: Exception) -> bool:
    """Whether the server's certificate was refused, which trying again does not change."""
    return isinstance(error, SSLError) and any(isinstance(one, ssl.SSLCertVerificationError) for one in error.args)


def _url(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urllib.parse.urlencode(query)}" if query else path


def _seconds(header: str | None) -> float | None:
    return float(header) if header and header.isascii() and header.isdigit() else None
