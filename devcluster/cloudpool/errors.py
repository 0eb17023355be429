"""The errors that the pool reports, with their HTTP status."""


class PoolError(Exception):
    status = 500

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.message, self.detail = message, detail


class NotStarted(PoolError):
    """The pool is not started; the multipool reports 400 instead of 500."""

    def __init__(self) -> None:
        super().__init__("attempt to use the cloud pool before it was started")


class BadInput(PoolError):
    status = 400


class NotConfigured(PoolError):
    status = 400


class ResourceNotFound(PoolError):
    status = 404


class CloudError(PoolError):
    """The cloud's API failed or rejected the request."""

    status = 502
