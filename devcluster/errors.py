"""The errors of the local control plane. Messages state what to do."""


class LocalError(Exception):
    """The base class of all errors of the local control plane."""


class SetupError(LocalError):
    """A requirement is missing on this machine."""


class PlaneError(LocalError):
    """A component exited, or a condition was not met in time; the message may contain the end of a log."""


class ApiError(LocalError):
    """The API server rejected a request."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status  #: HTTP status code
        self.reason = reason  #: `reason` of the Status object, such as NotFound, Conflict, TooManyRequests
