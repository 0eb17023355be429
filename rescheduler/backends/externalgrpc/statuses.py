"""Our errors as gRPC's status codes, and status codes as our errors."""

from typing import Final

from grpc import StatusCode

from rescheduler import errors
from rescheduler.backends.base import (
    AboveMaximum,
    AuthError,
    BackendUnavailable,
    BelowMinimum,
    DeadlineExceeded,
    NotInGroup,
    NotSupported,
    RateLimited,
    UnknownGroup,
)

#: The first that fits counts.
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
    # Permanent is also: below the minimum, above the maximum, the control plane.
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

#: Statuses that gRPC itself makes where the service may never have heard of the call, or may be at work on it; the
#: last one stands for an answer that cannot be read.
UNSURE: Final = frozenset(
    {StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED, StatusCode.DATA_LOSS}
)


def code_of(error: errors.ReschedulerError) -> StatusCode:
    """INTERNAL for what no caller can have caused or mend."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), StatusCode.INTERNAL)


def error_of(
    code: StatusCode, message: str, *, raising: bool = False, retry_after: float | None = None
) -> errors.ReschedulerError:
    """The typed error; *raising* tells that the verb was to raise a size, so that a refusal is about the maximum.

    UNKNOWN, which upstream's example server answers to everything, and the rest are BackendUnavailable.
    """
    if code is StatusCode.FAILED_PRECONDITION and raising:
        return AboveMaximum(message)
    kind = _ERRORS.get(code, BackendUnavailable)
    return kind(message, retry_after=retry_after) if issubclass(kind, errors.Retryable) else kind(message)
