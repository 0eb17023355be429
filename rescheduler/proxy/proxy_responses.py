"""The responses that the proxy itself creates, in the format of the API."""

from starlette.responses import Response

from rescheduler.proxy.messages import error_document

SET_SIZE = "failed to set desired size"
TERMINATE = "failed to terminate machine"
DETACH = "failed to detach machine"
MEMBERSHIP = "failed to set membership status"


class UpdateFailed(Exception):
    """A complete or partial failure of an update: the status code and the detail.

    404: unknown machine. 502: backend error. 503: API server error, or replacement pods are owed. 504: timeout.
    500: everything else.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


def error(status: int, message: str, detail: str = "") -> Response:
    return Response(error_document(message, detail), status, media_type="application/json")


def done(message: str = "", detail: str = "") -> Response:
    """Return a success response, which has a body only if there is a message."""
    if not message:
        return Response()
    return Response(error_document(message, detail), media_type="application/json")
