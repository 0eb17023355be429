"""HTTP responses and the errors of requests to a system's API."""

import http
from dataclasses import dataclass
from typing import Final

import httpx2
import msgspec

from rescheduler import errors
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
