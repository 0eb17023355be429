"""The effect of a request at the backend, regardless of the spelling of its path, and the metrics by effect.

A removal must not bypass the proxy by a spelling that the backend understands and the proxy does not. So the path is
interpreted in every way that a server might interpret it: nested escapes of either kind, path parameters, doubled
slashes, dot segments, trailing slashes, letters of either case and of other widths, a suffix such as ``.json``, and
text after an escaped question mark. Servers apply these steps in different orders: ``/pool//../size`` is ``/size`` to
some and ``/pool/size`` to others. A request that is not a removal in any interpretation is forwarded unchanged.
"""

import enum
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import product
from typing import Final
from unicodedata import normalize
from urllib.parse import unquote

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rescheduler.observe.events import Chosen, Event
from rescheduler.observe.metric_families import PREFIX
from rescheduler.planning.outcome import Reason

_END = re.compile(r"[?#\x00]")
_UNICODE_ESCAPE = re.compile(r"%u([0-9A-Fa-f]{4})")  # accepted by servlet containers
_OVERLONG = re.compile(r"%(?:c|e0%8)([01])%([0-9a-f]{2})", re.IGNORECASE)  #: ASCII in two or three bytes
_MAX_DEPTH = 8  #: maximum depth of nested escapes; no server decodes more


class Operation(enum.StrEnum):
    """The effect of a POST on the pool's members."""

    FORWARD = enum.auto()  #: the request removes nothing
    SIZE = enum.auto()
    TERMINATE = enum.auto()
    DETACH = enum.auto()
    MEMBERSHIP = enum.auto()
    FORBIDDEN = enum.auto()  #: the request would remove a machine whose Node is unknown


_SIZE = ["pool", "size"]
_ON_MACHINE = {
    "terminate": Operation.TERMINATE,
    "detach": Operation.DETACH,
    "membershipstatus": Operation.MEMBERSHIP,
}


@dataclass(frozen=True, slots=True)
class Route:
    operation: Operation
    machine: str | None = None  #: the machine named in the path, as in versions up to 4 of the API


_FORWARD = Route(Operation.FORWARD)


def route(method: str, raw_path: str) -> Route:
    """Return the meaning of a request to *raw_path*, the path of the request line without the query.

    Methods are case-insensitive, because the backend gets them in upper case.
    """
    if method.upper() != "POST":
        return _FORWARD
    meanings = (_route_of(raw_path, segments) for segments in _readings(raw_path))
    return next((meaning for meaning in meanings if meaning.operation is not Operation.FORWARD), _FORWARD)


def _route_of(raw_path: str, segments: list[str]) -> Route:
    names = [_name(segment) for segment in segments]
    if names[-2:] == _SIZE:
        return Route(Operation.SIZE if names == _SIZE else Operation.FORBIDDEN)
    operation = _ON_MACHINE.get(names[-1]) if names else None
    if operation is None:
        return _FORWARD
    match names[:-1]:
        case [] | ["pool"]:
            return Route(operation)
        case ["pool", *_]:
            return Route(operation, _machine(raw_path, segments[1:-1]))
    return Route(Operation.FORBIDDEN)


def _name(segment: str) -> str:
    """Return *segment* as a lenient server reads it: without a suffix and case-folded."""
    return segment.partition(".")[0].upper().casefold()


def _readings(raw_path: str) -> Iterator[list[str]]:
    """Yield the segments of every interpretation, the most decoded ones first."""
    for path in reversed(_decoded(raw_path)):
        variants = {
            "cut": _END.search(path) is not None,  # an escaped ? ends the path, or is part of it
            "backslash": "\\" in path,  # a backslash separates segments, or is part of one
            "merge": "//" in path or "\\" in path,  # an empty segment is dropped, or `..` removes it
            "bare": ";" in path,  # parameters are removed before dot segments are resolved, or after
        }
        for ways in product(*((True, False) if varies else (True,) for varies in variants.values())):
            yield _segments(path, **dict(zip(variants, ways, strict=True)))


def _decoded(raw_path: str) -> list[str]:
    """Return the raw path and the result of each round of decoding."""
    paths = [raw_path]
    for _ in range(_MAX_DEPTH):
        decoded = unquote(_UNICODE_ESCAPE.sub(_character, _OVERLONG.sub(_overlong, paths[-1])))
        decoded = normalize("NFKC", decoded)  # full-width and other compatibility forms of ASCII letters
        if decoded == paths[-1]:
            break
        paths.append(decoded)
    return paths


def _segments(path: str, *, cut: bool, backslash: bool, merge: bool, bare: bool) -> list[str]:
    """Split one interpretation of the path; `..` above the root is ignored, as in browsers and servers."""
    path = _END.split(path, maxsplit=1)[0] if cut else path
    segments: list[str] = []
    for part in (path.replace("\\", "/") if backslash else path).split("/"):
        segment = part.partition(";")[0].strip() if bare else part.strip()
        if segment == "..":
            del segments[-1:]
        elif segment != "." and (segment or not merge):
            segments.append(segment)
    names = (segment.partition(";")[0].strip() for segment in segments)
    return [name for name in names if name]


def _machine(raw_path: str, segments: list[str]) -> str:
    """Return the machine's id in the path: one escaped segment, because ids may contain slashes (GCE, Azure)."""
    match raw_path.strip("/").split("/"):
        case [_, machine, _]:
            return unquote(machine)
    return "/".join(segments)


def _character(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))


def _overlong(match: re.Match[str]) -> str:
    return chr(int(match[1]) << 6 | int(match[2], 16) & 0x3F)


# The proxy's metrics for Prometheus, in addition to the drain metrics of :mod:`rescheduler.observe.metrics`.

NAME: Final = f"{PREFIX}proxy_"

#: The code of a request whose client disconnected before the response began.
UNANSWERED: Final = "none"

#: The response codes with which the counter of requests is initialized; others are added when they occur.
_CODES: Final = ("200", "400", "401", "403", "404", "405", "413", "500", "502", "503", "504", UNANSWERED)
#: The operations that remove machines.
_UPDATES: Final = (Operation.SIZE, Operation.TERMINATE, Operation.DETACH, Operation.MEMBERSHIP)

_QUICK: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300)
_SLOW: Final = (0.1, 1, 5, 15, 30, 60, 120, 300, 600, 1200, 3600)


class UpdateResult(enum.StrEnum):
    """How an update ended (a metric label)."""

    DONE = "done"
    PARTLY = "partly"  #: fewer machines were removed than requested
    FAILED = "failed"
    LATE = "queue-timeout"  #: it timed out in the queue
    LEFT = "client-gone"  #: the client disconnected while it was queued


class ProxyMetrics:
    """Metrics of requests and updates, which the proxy reports, and of victims, which events report."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            f"{NAME}requests", "Requests of the pool's clients.", ("route", "code"), registry=registry
        )
        self._forwards = Histogram(
            f"{NAME}forward_duration_seconds",
            "Forwarded requests, until the last byte of the response.",
            buckets=_QUICK,
            registry=registry,
        )
        self._updates = Counter(
            f"{NAME}updates", "Requested removals by result.", ("operation", "result"), registry=registry
        )
        self._seconds = Histogram(
            f"{NAME}update_duration_seconds",
            "Removals, without their time in the queue.",
            ("operation",),
            buckets=_SLOW,
            registry=registry,
        )
        self._waiting = Gauge(f"{NAME}updates_waiting", "Removals in the queue.", registry=registry)
        self._victims = Counter(f"{NAME}victims", "Nodes chosen for removal.", registry=registry)
        self._rejections = Counter(
            f"{NAME}rejections", "Nodes rejected for removal, per request.", ("reason",), registry=registry
        )
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        for route, code in itertools.product(Operation, _CODES):
            self._requests.labels(route, code)
        for operation, result in itertools.product(_UPDATES, UpdateResult):
            self._updates.labels(operation, result)
        for reason in Reason:
            self._rejections.labels(reason)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Chosen):
            self._victims.inc(len(event.plans))
            for rejected in event.rejected:
                self._rejections.labels(rejected.blockers[0].reason).inc()

    def answered(self, route: str, code: str) -> None:
        self._requests.labels(route, code).inc()

    def forwarding(self) -> AbstractContextManager[object]:
        """Measure the duration of the block."""
        return self._forwards.time()

    def updated(self, operation: str, result: UpdateResult) -> None:
        self._updates.labels(operation, result).inc()

    def updating(self, operation: str) -> AbstractContextManager[object]:
        """Measure the duration of the block."""
        return self._seconds.labels(operation).time()

    def waiting_are(self, count: Callable[[], int]) -> None:
        """Call *count* at each scrape for the number of queued updates."""
        self._waiting.set_function(count)
