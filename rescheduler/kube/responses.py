"""The checks before a request is sent, and what it ends with: a response, an error of the API server or of the
network.
"""

import contextlib
import http
import re
import ssl
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar

import msgspec
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from predicates.texts import one_line
from rescheduler import decoding
from rescheduler.errors import (
    Conflict,
    Expired,
    Forbidden,
    InputError,
    NotFound,
    NotLeading,
    Permanent,
    ReschedulerError,
    Retryable,
    Unauthorized,
)

# Responses of the API server, and the exceptions for error responses.


class StatusCause(msgspec.Struct, frozen=True):
    """``meta/v1`` StatusCause."""

    reason: str = ""
    message: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    """``meta/v1`` StatusDetails."""

    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class ApiStatus(msgspec.Struct, frozen=True):
    """``meta/v1`` Status: the body of every error response, and of some with a success code."""

    status: str = ""
    message: str = ""
    reason: str = ""
    details: Details = Details()
    code: int = 0


class ApiResponse(msgspec.Struct, frozen=True):
    """A complete response. *retry_after* is in seconds, from the ``Retry-After`` header."""

    code: int
    body: bytes
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        return http.HTTPStatus.OK <= self.code < http.HTTPStatus.MULTIPLE_CHOICES

    def status(self) -> ApiStatus:
        """Decode the Status in the body. If there is none (as in a load balancer's page), only the code is set."""
        try:
            return decoding.decode(self.body, ApiStatus, strict=False)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return ApiStatus(code=self.code)


_Shape = TypeVar("_Shape")


def decoded(act: str, body: bytes, shape: type[_Shape], *, strict: bool = True) -> _Shape:
    """Return the object in the *body* of the response to the request *act*. Raises InputError if it has another form.

    Unless *strict*, values are converted, such as numbers in texts.
    """
    try:
        return decoding.decode(body, shape, strict=strict)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{act}: unexpected response: {error}") from error


_BY_CODE: Final[dict[int, type[ReschedulerError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
}
_RETRYABLE: Final = frozenset({408, 429, 500, 502, 503, 504})


def refusal(act: str, response: ApiResponse) -> ReschedulerError:
    """Return the exception for a response that is not ok. *act* is the verb and the object, as in "list pods"."""
    status = response.status()
    message = one_line(status.message) or http_phrase(response.code)
    if response.code == http.HTTPStatus.UNAUTHORIZED:
        message = "the credentials were rejected; the token may have expired"
    text = f"{act}: {message} ({response.code})"
    if response.code in _RETRYABLE:
        return Retryable(text, retry_after=retry_after_seconds(response, status))
    return _BY_CODE.get(response.code, Permanent)(text)


def retry_after_seconds(response: ApiResponse, status: ApiStatus) -> float | None:
    """Return the seconds until a retry, from the body or from the ``Retry-After`` header; None if not given."""
    return float(status.details.retry_after_seconds) or response.retry_after


def http_phrase(code: int) -> str:
    try:
        return http.HTTPStatus(code).phrase
    except ValueError:
        return "unknown HTTP status"


# Convert connection errors of urllib3 to errors of this program.

#: Most specific first: some are subclasses of others.
_WHY: Final = (
    (ProxyError, "the proxy to {host} failed: {message}"),
    (NameResolutionError, "the name of {host} cannot be resolved"),
    (NewConnectionError, "no connection to {host}: {end}"),
    (ConnectTimeoutError, "the connection to {host} timed out"),
    (SSLError, "no trusted connection to {host}: {message}"),
    (ReadTimeoutError, "{host} did not respond in time"),
)


@contextlib.contextmanager
def translating_errors(act: str, host: str) -> Iterator[None]:
    """Raise Retryable if the connection fails within the block, or Permanent if the server is not trusted.

    *act* describes the request, *host* is the server's URL.
    """
    try:
        yield
    except (HTTPError, OSError, ValueError) as error:  # ValueError: a read after the socket was shut down
        kind = Permanent if _untrusted(error) else Retryable
        raise kind(f"{act}: {_cause_text(error, host)}") from error


def _untrusted(error: Exception) -> bool:
    """Return whether the server's certificate was rejected. A retry would not succeed."""
    return isinstance(error, SSLError) and any(isinstance(cause, ssl.SSLCertVerificationError) for cause in error.args)


def _cause_text(error: Exception, host: str) -> str:
    """Return the cause in one line."""
    cause = error.original_error if isinstance(error, ProxyError) else error
    message = one_line(str(cause))
    for kind, text in _WHY:
        if isinstance(error, kind):
            return text.format(host=host, message=message, end=message.rpartition(": ")[2].rpartition("] ")[2])
    return f"the connection to {host} broke: {message}"


# Guards decide right before each write whether it may be sent, and within which time it must complete.

#: A write with less time than this is not sent: the API server's request timeout is in whole seconds.
LEAST_SECONDS: Final = 1.0

#: Denials of the policies in deploy/components/fencing and in the chart. Users may add prefixes and suffixes to names.
_FENCED: Final = re.compile(
    r"ValidatingAdmissionPolicy '[^']{0,253}spot-rescheduler-fencing[^']{0,253}' .{0,300}denied request"
)

#: The code is 422 if the policy's parameter, the Lease, does not exist.
_DENIALS: Final = frozenset({http.HTTPStatus.FORBIDDEN, http.HTTPStatus.UNPROCESSABLE_ENTITY})


class Guard(Protocol):
    """Permits or rejects writes. Thread-safe."""

    def seconds_left(self) -> float:
        """Return the seconds within which a write must complete. Raises NotLeading if it must not be sent."""
        ...

    @property
    def fence_may_lag(self) -> bool:
        """Whether the API server's fencing policy may still consider another replica the leader."""
        ...


class ReadOnly:
    """Rejects all writes, for dry runs."""

    fence_may_lag = False

    def seconds_left(self) -> float:
        raise NotLeading("a dry run writes nothing")


def denied_by_fencing(response: ApiResponse) -> bool:
    """Return whether the fencing policy denied a write because it considers another pod the leader."""
    return response.code in _DENIALS and _FENCED.search(response.status().message) is not None


# Checks that run right before each request is sent, because opening a connection may take seconds.

#: Called on the sending thread. If it raises, the request is not sent.
_CHECK: Final[ContextVar[Callable[[], object] | None]] = ContextVar("asked", default=None)


@contextlib.contextmanager
def checking_before_send(check: Callable[[], object]) -> Iterator[None]:
    """Call *check* before each request of pools with `enable_send_checks`. If it raises, the request is not sent."""
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def enable_send_checks(pool: urllib3.PoolManager) -> urllib3.PoolManager:
    """Make the connections of *pool* run the check before each request."""
    pool.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
    return pool


class _HTTP(HTTPConnection):
    def request(self, *args: Any, **options: Any) -> None:
        _check_before_send(self)
        super().request(*args, **options)


class _HTTPS(HTTPSConnection):
    def request(self, *args: Any, **options: Any) -> None:
        _check_before_send(self)
        super().request(*args, **options)


def _check_before_send(connection: HTTPConnection) -> None:
    if _CHECK.get() is not None and connection.is_closed:
        connection.connect()
    check_before_send()


def check_before_send() -> None:
    """Run the check of the request that is about to be sent by this thread, if there is one."""
    if (check := _CHECK.get()) is not None:
        check()


class _HTTPPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HTTP


class _HTTPSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HTTPS
