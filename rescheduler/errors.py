"""What can go wrong, sorted by what the caller can do about it."""


class ReschedulerError(Exception):
    """The root of all errors of ours; its text is one clear line for a person."""


class UsageError(ReschedulerError):
    """Wrong use: a flag, a file or a value that a person has to mend. Exit code 2."""


class ConfigError(UsageError):
    """A configuration is wrong; the message names file and key. (gRPC: FAILED_PRECONDITION)"""


class InputError(ReschedulerError):
    """What was read is broken: the message names the file or object and what was expected. Exit code 1."""


class Retryable(ReschedulerError):
    """It may work later."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after  #: seconds the other side asked for, if it did


class Permanent(ReschedulerError):
    """Trying again will not help."""


class Conflict(ReschedulerError):
    """A precondition (uid, resourceVersion) did not hold: look again before acting."""


class MarkLost(ReschedulerError):
    """The marks on a node are not those that the edit was meant for: nothing was written. Do not try again."""


class Expired(ReschedulerError):
    """The resourceVersion or the continue token is too old (410): list again."""


class NotFound(ReschedulerError):
    """The object is not there (any more)."""


class Unauthorized(ReschedulerError):
    """Credentials were refused or lack a permission; the message names the verb and the resource."""


class Forbidden(Unauthorized):
    """The credentials are good, and do not permit this."""


class NotLeading(ReschedulerError):
    """A write was not sent, or was refused by the fencing policy: this replica does not lead (any more).

    Another replica may act. Whoever meets it stops what it does and undoes nothing: that is for the leader.
    """
