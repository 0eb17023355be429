"""What can go wrong on the way to a local control plane; each text is one clear line, and says what to do."""


class LocalError(Exception):
    """The root: something about the local control plane failed."""


class SetupError(LocalError):
    """Something that this machine has to provide is missing."""


class PlaneError(LocalError):
    """A component ended, or did not do its part in time; the text carries the end of its log."""


class ApiError(LocalError):
    """The API server refused a request."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status  #: HTTP status code
        self.reason = reason  #: `reason` of the Status object, such as NotFound, Conflict, TooManyRequests
