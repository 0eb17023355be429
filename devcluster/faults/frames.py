"""The encoding of watch events: one JSON object per line, or length-prefixed protobuf messages."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

_LENGTH: Final = 4  #: bytes, big-endian
_MAGIC: Final = b"k8s\0"
_REASONS: Final = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


def is_protobuf(content_type: str) -> bool:
    return content_type.startswith(PROTOBUF)


def whole_frames(chunks: Iterable[bytes], *, protobuf: bool) -> Iterator[bytes]:
    """Yield the events of a watch, including their framing. An incomplete event at the end is dropped."""
    buffer = b""
    for chunk in chunks:
        buffer += chunk
        while end := _end(buffer, protobuf=protobuf):
            yield buffer[:end]
            buffer = buffer[end:]


def status(code: int, message: str, retry_after: int | None = None) -> dict[str, Any]:
    """Return the Status object of an error response."""
    details = {"retryAfterSeconds": retry_after} if retry_after is not None else {}
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


def error_event(code: int, message: str, *, protobuf: bool) -> bytes:
    """Return the encoded ERROR event with which the API server ends a watch."""
    error = status(code, message)
    if not protobuf:
        return json.dumps({"type": "ERROR", "object": error}).encode() + b"\n"
    kind = _text(1, "v1") + _text(2, "Status")
    body = _text(2, "Failure") + _text(3, message) + _text(4, error["reason"]) + _varint(6 << 3) + _varint(code)
    unknown = _MAGIC + _bytes(1, kind) + _bytes(2, body)
    event = _text(1, "ERROR") + _bytes(2, _bytes(1, unknown))
    return len(event).to_bytes(_LENGTH, "big") + event


def _end(buffer: bytes, *, protobuf: bool) -> int:
    """Return the end offset of the first frame, or 0 if it is incomplete."""
    if not protobuf:
        return buffer.find(b"\n") + 1
    if len(buffer) < _LENGTH:
        return 0
    end = _LENGTH + int.from_bytes(buffer[:_LENGTH], "big")
    return end if len(buffer) >= end else 0


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _varint(value: int) -> bytes:
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(value & 0x7F)
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])
