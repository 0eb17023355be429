"""The encoding of watch events: one JSON object per line."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


def whole_frames(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the events of a watch, including their framing. An incomplete event at the end is dropped."""
    buffer = b""
    for chunk in chunks:
        buffer += chunk
        while end := buffer.find(b"\n") + 1:
            yield buffer[:end]
            buffer = buffer[end:]


def status(code: int, message: str, retry_after: int | None = None, cause: str = "") -> dict[str, Any]:
    """Return the Status object of an error response; *cause* is the reason of its only cause."""
    details: dict[str, Any] = {"retryAfterSeconds": retry_after} if retry_after is not None else {}
    if cause:
        details["causes"] = [{"reason": cause, "message": message}]
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(code, "Unknown"),
        "details": details,
        "code": code,
    }


def error_event(code: int, message: str) -> bytes:
    """Return the encoded ERROR event with which the API server ends a watch."""
    return json.dumps({"type": "ERROR", "object": status(code, message)}).encode() + b"\n"
