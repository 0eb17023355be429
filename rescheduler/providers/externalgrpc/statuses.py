"""Conversion between our errors and gRPC's status codes."""

from typing import Final

from grpc import StatusCode

from rescheduler import errors
from rescheduler.errors import AuthError, BackendUnavailable, DeadlineExceeded, RateLimited
from rescheduler.providers.base import AboveMaximum, BelowMinimum, NotInGroup, NotSupported, UnknownGroup

#: The first class that matches decides.
_CODES: Final[tuple[tuple[type[Exception], StatusCode], ...]] = (
    (NotSupported, StatusCode.UNIMPLEMENTED),
    (errors.NotFound, StatusCode.NOT_FOUND),
    (NotInGroup, StatusCode.INVALID_ARGUMENT),
    (RateLimited, StatusCode.RESOURCE_EXHAUSTED),
    (DeadlineExceeded, StatusCode.DEADLINE_EXCEEDED),
    (errors.Retryable, StatusCode.UNAVAILABLE),
    (errors.Forbidden, StatusCode.PERMISSION_DENIED),
    (errors.Unauthorized, StatusCode.UNAUTHENTICATED),
    (errors.Conflict, StatusCode.ABORTED),
    # Permanent also covers: below the minimum, above the maximum, the control plane.
    (errors.Permanent, StatusCode.FAILED_PRECONDITION),
)

_ERRORS: Final[dict[StatusCode, type[errors.ReschedulerError]]] = {
    StatusCode.UNIMPLEMENTED: NotSupported,
    StatusCode.NOT_FOUND: UnknownGroup,
    StatusCode.INVALID_ARGUMENT: NotInGroup,
    StatusCode.RESOURCE_EXHAUSTED: RateLimited,
    StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    StatusCode.UNAUTHENTICATED: AuthError,
    StatusCode.PERMISSION_DENIED: AuthError,
    StatusCode.FAILED_PRECONDITION: BelowMinimum,
    StatusCode.OUT_OF_RANGE: errors.Permanent,
}

#: Codes that gRPC itself may set although the service received the call and may still execute it. DATA_LOSS stands
#: for a response that cannot be decoded.
UNSURE: Final = frozenset(
    {StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED, StatusCode.DATA_LOSS}
)


def code_of(error: errors.ReschedulerError) -> StatusCode:
    """Return the status code of *error*; INTERNAL for errors that the caller neither caused nor can fix."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), StatusCode.INTERNAL)


def error_of(
    code: StatusCode, message: str, *, raising: bool = False, retry_after: float | None = None
) -> errors.ReschedulerError:
    """Return the error for a status code. *raising*: the call increases a size, so a refusal concerns the maximum.

    UNKNOWN, which upstream's example server returns for every error, and all other codes give BackendUnavailable.
    """
    if code is StatusCode.FAILED_PRECONDITION and raising:
        return AboveMaximum(message)
    kind = _ERRORS.get(code, BackendUnavailable)
    return kind(message, retry_after=retry_after) if issubclass(kind, errors.Retryable) else kind(message)
