"""Events of a watch as bytes: one JSON object a line, or protobuf messages with their length before each."""

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
    """The events of a watch with their framing, one by one. What is cut off at the end is dropped."""
    kept = b""
    for chunk in chunks:
        kept += chunk
        while end := _end(kept, protobuf=protobuf):
            yield kept[:end]
            kept = kept[end:]


def status(code: int, message: str, retry_after: int | None = None) -> dict[str, Any]:
    """The Status object of a refusal."""
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
    """The ERROR event with which the API server ends a watch, in its frame."""
    refusal = status(code, message)
    if not protobuf:
        return json.dumps({"type": "ERROR", "object": refusal}).encode() + b"\n"
    kind = _text(1, "v1") + _text(2, "Status")
    body = _text(2, "Failure") + _text(3, message) + _text(4, refusal["reason"]) + _varint(6 << 3) + _varint(code)
    unknown = _MAGIC + _bytes(1, kind) + _bytes(2, body)
    event = _text(1, "ERROR") + _bytes(2, _bytes(1, unknown))
    return len(event).to_bytes(_LENGTH, "big") + event


def _end(kept: bytes, *, protobuf: bool) -> int:
    """Where the first frame ends; 0 where it is not all there."""
    if not protobuf:
        return kept.find(b"\n") + 1
    if len(kept) < _LENGTH:
        return 0
    end = _LENGTH + int.from_bytes(kept[:_LENGTH], "big")
    return end if len(kept) >= end else 0


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _varint(value: int) -> bytes:
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(value & 0x7F)
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])
