"""Responses of the API server, and the exceptions for error responses."""

import http
from typing import Final

import msgspec

from rescheduler import decoding
from rescheduler.errors import (
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    Permanent,
    ReschedulerError,
    Retryable,
    Unauthorized,
)

_LONGEST: Final = 300  #: maximum length of a server's text in our messages


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


def one_line(text: str) -> str:
    """Return *text* as one line of limited length, for logs and error messages."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "…"


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
