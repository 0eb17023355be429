"""What the API server answers when it says no, as errors sorted by what the caller can do."""

import http
from typing import Final

import msgspec

from rescheduler import shapes
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
from rescheduler.kube import envelope

_LONGEST: Final = 300  #: characters of a foreign text that we pass on


class Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """``meta/v1`` Status: the body of every refusal, and of some answers that only look like success."""

    status: str = ""
    message: str = ""
    reason: str = ""
    details: Details = Details()
    code: int = 0


class Answer(msgspec.Struct, frozen=True):
    """A whole response. *retry_after* in seconds, where the server named it in a header."""

    code: int
    body: bytes
    content_type: str = "application/json"
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        return http.HTTPStatus.OK <= self.code < http.HTTPStatus.MULTIPLE_CHOICES

    def status(self) -> Status:
        """The Status in the body; of a body that is none (a load balancer's page), only the code is told."""
        if self.content_type.startswith(envelope.CONTENT_TYPE):
            return _from_message(self.body, self.code)
        try:
            return shapes.decode(self.body, Status, strict=False)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Status(code=self.code)


def _from_message(body: bytes, code: int) -> Status:
    try:
        seen = envelope.status(body)
    except envelope.EnvelopeError:
        return Status(code=code)
    causes = tuple(Cause(one.reason, one.message) for one in seen.details.causes)
    details = Details(causes, seen.details.retryAfterSeconds)
    return Status(seen.status, seen.message, seen.reason, details, seen.code)


def one_line(text: str) -> str:
    """A foreign text, fit for a log line or an error message."""
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


def refusal(act: str, answer: Answer) -> ReschedulerError:
    """The error for an answer that is not ok; *act* names what was tried, verb and object."""
    status = answer.status()
    said = one_line(status.message) or http_phrase(answer.code)
    if answer.code == http.HTTPStatus.UNAUTHORIZED:
        said = "the credentials were refused; the token may have expired"
    text = f"{act}: {said} ({answer.code})"
    if answer.code in _RETRYABLE:
        return Retryable(text, retry_after=wanted_wait(answer, status))
    return _BY_CODE.get(answer.code, Permanent)(text)


def wanted_wait(answer: Answer, status: Status) -> float | None:
    """Seconds after which the server wants to be asked again: of the body, or of the ``Retry-After`` header."""
    return float(status.details.retry_after_seconds) or answer.retry_after


def http_phrase(code: int) -> str:
    try:
        return http.HTTPStatus(code).phrase
    except ValueError:
        return "unknown HTTP status"
