"""What a request means to the backend, however its path is spelled.

A removal must not slip through in a spelling that the backend understands and we do not. So the path is read as
generously as any server might read it: escapes of any depth, of either kind, path parameters, doubled slashes, dot
segments, trailing slashes, what follows an escaped question mark. What is no removal in that reading is forwarded as
it came; nothing is normalised on the way.
"""

import enum
import re
from dataclasses import dataclass
from urllib.parse import unquote

_SEPARATORS = re.compile(r"[/\\]+")
_END = re.compile(r"[?#\x00]")
_UNICODE_ESCAPE = re.compile(r"%u([0-9A-Fa-f]{4})")  # servlet containers read it
_OVERLONG_SLASH = re.compile(r"%c0%af|%e0%80%af|%c0%2f", re.IGNORECASE)
_MAX_DEPTH = 8  #: escapes of escapes; deeper ones are nobody's


class Operation(enum.Enum):
    """What a POST does to the pool's members."""

    FORWARD = enum.auto()  #: removes nothing
    SIZE = enum.auto()
    TERMINATE = enum.auto()
    DETACH = enum.auto()
    MEMBERSHIP = enum.auto()
    FORBIDDEN = enum.auto()  #: would remove a machine of which we know no Node


_SIZE = ["pool", "size"]
_ON_MACHINE = {
    "terminate": Operation.TERMINATE,
    "detach": Operation.DETACH,
    "membershipStatus": Operation.MEMBERSHIP,
}


@dataclass(frozen=True, slots=True)
class Route:
    operation: Operation
    machine: str | None = None  #: the machine that the path names, as up to version 4 of the API


def route(method: str, raw_path: str) -> Route:
    """The meaning of a request to *raw_path*, as it stood in the request line, query cut off."""
    if method != "POST":
        return Route(Operation.FORWARD)
    segments = _segments(raw_path)
    if segments[-2:] == _SIZE:
        return Route(Operation.SIZE if segments == _SIZE else Operation.FORBIDDEN)
    operation = _ON_MACHINE.get(segments[-1]) if segments else None
    if operation is None:
        return Route(Operation.FORWARD)
    match segments[:-1]:
        case [] | ["pool"]:
            return Route(operation)
        case ["pool", *machine]:
            return Route(operation, _machine(raw_path, machine))
    return Route(Operation.FORBIDDEN)


def _segments(raw_path: str) -> list[str]:
    """The segments of the most generous reading; `..` above the root is dropped, as browsers and servers do."""
    path = raw_path
    for _ in range(_MAX_DEPTH):
        decoded = unquote(_UNICODE_ESCAPE.sub(_character, _OVERLONG_SLASH.sub("/", path)))
        if decoded == path:
            break
        path = decoded
    found: list[str] = []
    for part in _SEPARATORS.split(_END.split(path, maxsplit=1)[0]):
        segment = part.partition(";")[0].strip()
        if segment == "..":
            found = found[:-1]
        elif segment not in {"", "."}:
            found.append(segment)
    return found


def _machine(raw_path: str, segments: list[str]) -> str:
    """A machine's id in the path: one escaped segment, for an id may have slashes (GCE, Azure) of its own."""
    match raw_path.strip("/").split("/"):
        case [_, machine, _]:
            return unquote(machine)
    return "/".join(segments)


def _character(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))
