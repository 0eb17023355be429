"""What a request means to the backend, however its path is spelled.

A removal must not slip through in a spelling that the backend understands and we do not. So the path is read in every
way in which a server might read it: escapes of any depth, of either kind, path parameters, doubled slashes, dot
segments, trailing slashes, letters of either case and of other widths, an ending such as ``.json``, what follows an
escaped question mark. Servers differ in what they do first, so
``/pool//../size`` is ``/size`` to some and ``/pool/size`` to others. What is no removal in any reading is forwarded as
it came; nothing is normalised on the way.
"""

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from unicodedata import normalize
from urllib.parse import unquote

_END = re.compile(r"[?#\x00]")
_UNICODE_ESCAPE = re.compile(r"%u([0-9A-Fa-f]{4})")  # servlet containers read it
_OVERLONG = re.compile(r"%(?:c|e0%8)([01])%([0-9a-f]{2})", re.IGNORECASE)  #: ASCII in two or three bytes of UTF-8
_MAX_DEPTH = 8  #: escapes of escapes; deeper ones are nobody's


class Operation(enum.StrEnum):
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
    "membershipstatus": Operation.MEMBERSHIP,
}


@dataclass(frozen=True, slots=True)
class Route:
    operation: Operation
    machine: str | None = None  #: the machine that the path names, as up to version 4 of the API


def route(method: str, raw_path: str) -> Route:
    """The meaning of a request to *raw_path*, as it stood in the request line, query cut off.

    Methods count in any case: the backend gets them in capitals.
    """
    if method.upper() != "POST":
        return Route(Operation.FORWARD)
    meanings = (_meaning(raw_path, segments) for segments in _readings(raw_path))
    return next((one for one in meanings if one.operation is not Operation.FORWARD), Route(Operation.FORWARD))


def _meaning(raw_path: str, segments: list[str]) -> Route:
    names = [_name(segment) for segment in segments]
    if names[-2:] == _SIZE:
        return Route(Operation.SIZE if names == _SIZE else Operation.FORBIDDEN)
    operation = _ON_MACHINE.get(names[-1]) if names else None
    if operation is None:
        return Route(Operation.FORWARD)
    match names[:-1]:
        case [] | ["pool"]:
            return Route(operation)
        case ["pool", *_]:
            return Route(operation, _machine(raw_path, segments[1:-1]))
    return Route(Operation.FORBIDDEN)


def _name(segment: str) -> str:
    """What a server that is lenient with letters takes *segment* for."""
    return segment.partition(".")[0].upper().casefold()


def _readings(raw_path: str) -> Iterator[list[str]]:
    """The segments as servers may see them, the most generous reading first."""
    for path in reversed(_decoded(raw_path)):
        variants = {
            "cut": _END.search(path) is not None,  # an escaped ? ends the path, or is a character of it
            "backslash": "\\" in path,  # it separates, or is a character
            "merge": "//" in path or "\\" in path,  # an empty segment is none, or `..` takes it back
            "bare": ";" in path,  # parameters are cut before dot segments are resolved, or after
        }
        for ways in product(*((True, False) if varies else (True,) for varies in variants.values())):
            yield _segments(path, **dict(zip(variants, ways, strict=True)))


def _decoded(raw_path: str) -> list[str]:
    """The path as it came, and after each round of decoding."""
    found = [raw_path]
    for _ in range(_MAX_DEPTH):
        decoded = unquote(_UNICODE_ESCAPE.sub(_character, _OVERLONG.sub(_overlong, found[-1])))
        decoded = normalize("NFKC", decoded)  # full-width letters, and others that stand for those of ASCII
        if decoded == found[-1]:
            break
        found.append(decoded)
    return found


def _segments(path: str, *, cut: bool, backslash: bool, merge: bool, bare: bool) -> list[str]:
    """One reading; `..` above the root is dropped, as browsers and servers do."""
    path = _END.split(path, maxsplit=1)[0] if cut else path
    found: list[str] = []
    for part in (path.replace("\\", "/") if backslash else path).split("/"):
        segment = part.partition(";")[0].strip() if bare else part.strip()
        if segment == "..":
            del found[-1:]
        elif segment != "." and (segment or not merge):
            found.append(segment)
    names = (segment.partition(";")[0].strip() for segment in found)
    return [name for name in names if name]


def _machine(raw_path: str, segments: list[str]) -> str:
    """A machine's id in the path: one escaped segment, for an id may have slashes (GCE, Azure) of its own."""
    match raw_path.strip("/").split("/"):
        case [_, machine, _]:
            return unquote(machine)
    return "/".join(segments)


def _character(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))


def _overlong(match: re.Match[str]) -> str:
    return chr(int(match[1]) << 6 | int(match[2], 16) & 0x3F)
