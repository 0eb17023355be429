"""Exceptions, grouped by how the caller can handle them."""


class ReschedulerError(Exception):
    """The base class of all errors of this program. The message is one line that a person can read."""


class UsageError(ReschedulerError):
    """A wrong flag, file or value that the user has to correct. Exit code 2."""


class ConfigError(UsageError):
    """An invalid configuration; the message names the file and the key. (gRPC: FAILED_PRECONDITION)"""


class InputError(ReschedulerError):
    """Invalid input; the message names the file or object and the expected value. Exit code 1."""


class NoNodesError(ReschedulerError):
    """No node matches the on-demand or the spot label. Exit code 3."""


class IncompleteError(ReschedulerError):
    """A snapshot file lacks what every cluster has, and ``--strict`` is given. Exit code 3."""


class Retryable(ReschedulerError):
    """A temporary error: the same request may succeed later."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after  #: seconds to wait, if the server requested a delay


class BackendUnavailable(Retryable):
    """The system is unreachable or cannot respond; whether it acted is unknown. (UNAVAILABLE)"""


class NoTurn(BackendUnavailable):
    """Another process changes the system, or may do so: nothing was sent. (UNAVAILABLE)"""


class RateLimited(Retryable):
    """The system limits the request rate; `retry_after` in seconds, if given. (RESOURCE_EXHAUSTED)"""


class DeadlineExceeded(Retryable):
    """The caller's deadline passed before the call completed. (DEADLINE_EXCEEDED)"""


class Permanent(ReschedulerError):
    """A permanent error: a retry will not succeed."""


class Conflict(ReschedulerError):
    """A precondition (uid, resourceVersion) failed: read the object again before acting."""


class MarkLost(ReschedulerError):
    """The marks on a node are not the expected ones. Nothing was written. Do not retry."""


class Expired(ReschedulerError):
    """The resourceVersion or the continue token has expired (410): list again."""


class NotFound(ReschedulerError):
    """The object does not exist."""


class Unauthorized(ReschedulerError):
    """The credentials were rejected or lack a permission; the message names the verb and the resource."""


class AuthError(Unauthorized):
    """The system rejected the credentials. (UNAUTHENTICATED)"""


class Forbidden(Unauthorized):
    """The credentials are valid but lack the permission."""


class Withheld(ReschedulerError):
    """A request that would end a machine was not sent, because the machine may not end now."""


class NotLeading(ReschedulerError):
    """A write was not sent, or the fencing policy rejected it, because this replica does not lead.

    Another replica may be leading. Stop, and do not roll back: the leader does that.
    """


def is_transient(error: ReschedulerError) -> bool:
    """Return whether the same request may succeed later: also a new token or role binding takes effect with a delay."""
    return isinstance(error, Retryable | Unauthorized)
