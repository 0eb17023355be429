"""Write Kubernetes Events on a separate thread, repeated ones as counts, so that the caller never blocks.
Separate from its user, because it is a client of the API server.
"""

import contextlib
import datetime as dt
import logging
import queue
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

from predicates.texts import printable
from rescheduler.clock import Clock
from rescheduler.errors import NotFound, ReschedulerError, Retryable
from rescheduler.kube.client import MERGE_PATCH, Client
from rescheduler.kube.lister import delay

# Deduplicate Kubernetes Events: a repeated Event is counted on the existing one. Pure.

#: Equal occurrences within this time become one Event.
SAME_SECONDS: Final = 15 * 60.0

#: Maximum number of Events with different messages per object and reason; further ones are counted on the last.
DISTINCT: Final = 10

#: Minimum interval between two updates of an Event's count.
UPDATE_SECONDS: Final = 5 * 60.0

#: Writes per second on average, and the maximum burst.
RATE: Final = 5.0
BURST: Final = 50.0

EventType: TypeAlias = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that an Event is about. A cluster-scoped object has the namespace ""."""

    kind: str
    name: str
    uid: str
    namespace: str = ""
    api_version: str = "v1"


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One occurrence to be recorded as an Event."""

    subject: Subject
    reason: str
    message: str
    event_type: EventType
    at: dt.datetime


@dataclass(frozen=True, slots=True)
class CreateEvent:
    """Create a new Event."""


@dataclass(frozen=True, slots=True)
class UpdateEvent:
    """Set the count of the Event *name* to *count*."""

    name: str
    count: int


_Key: TypeAlias = tuple[Subject, str, EventType]


@dataclass(slots=True)
class _Series:
    message: str
    began: float
    written: float
    count: int = 1
    name: str = ""  #: of the Event, once it is created


@dataclass(slots=True)
class Correlator:
    """The Events that were written recently. Times are monotonic seconds."""

    _series: dict[_Key, list[_Series]] = field(default_factory=dict)

    def judge(self, occurrence: Occurrence, now: float) -> CreateEvent | UpdateEvent | None:
        """Return the write to make for *occurrence*, or None if nothing has to be written yet."""
        self._forget(occurrence, now)
        known = self._series.setdefault(_key(occurrence), [])
        series = _series_of(known, occurrence) or (known[-1] if len(known) >= DISTINCT else None)
        if series is None:
            known.append(_Series(occurrence.message, began=now, written=now))
            return CreateEvent()
        series.count += 1
        if now - series.written < UPDATE_SECONDS:
            return None
        series.written = now
        return UpdateEvent(series.name, series.count)

    def created(self, occurrence: Occurrence, name: str) -> None:
        """Record the *name* of the Event that was created for *occurrence*."""
        series = _series_of(self._series.get(_key(occurrence), []), occurrence)
        if series is not None:
            series.name = name

    def lost(self, occurrence: Occurrence) -> None:
        """Record that the Event for *occurrence* does not exist, so that the next occurrence creates a new one."""
        known = self._series.get(_key(occurrence), [])
        series = _series_of(known, occurrence) or (known[-1] if known else None)
        if series is not None:
            known.remove(series)

    def _forget(self, occurrence: Occurrence, now: float) -> None:
        """Remove expired series: of all objects if the object is new, otherwise of this object only."""
        keys = [_key(occurrence)] if _key(occurrence) in self._series else list(self._series)
        for key in keys:
            young = [series for series in self._series.get(key, ()) if now - series.began < SAME_SECONDS]
            if young:
                self._series[key] = young
            else:
                self._series.pop(key, None)


def _key(occurrence: Occurrence) -> _Key:
    return occurrence.subject, occurrence.reason, occurrence.event_type


def _series_of(known: list[_Series], occurrence: Occurrence) -> _Series | None:
    """Return the series in *known* with the same message as *occurrence*."""
    return next((series for series in known if series.message == occurrence.message), None)


@dataclass(slots=True)
class Bucket:
    """A token bucket with BURST tokens that is refilled with RATE tokens per second."""

    tokens: float = BURST
    at: float | None = None

    def take(self, now: float) -> float:
        """Take one token. Return the seconds to wait until it is available."""
        passed = 0.0 if self.at is None else now - self.at
        self.tokens = min(BURST, self.tokens + passed * RATE) - 1
        self.at = now
        return max(0.0, -self.tokens / RATE)


# They are core/v1 Events, as in k8s-spot-rescheduler. The API server stores both versions as one resource, but only
# core/v1 allows a PATCH of the count that ``kubectl get events`` and ``kubectl describe`` show for a repeated Event,
# and only core/v1 has the component name ``rescheduler``, which users filter by.

#: The source component, as in k8s-spot-rescheduler.
COMPONENT: Final = "rescheduler"

#: Maximum length of the queue; further Events are dropped and a warning is logged.
QUEUE_LENGTH: Final = 1000

#: How often the thread looks for occurrences without having been told of any.
IDLE_SECONDS: Final = 3600.0

_ATTEMPTS: Final = 3
_LONGEST_MESSAGE: Final = 1024  #: characters; the API server's limit
_LONGEST_NAME: Final = 253

log = logging.getLogger(__name__)


class Recorder:
    """Records Events. :meth:`record` may be called by any thread; it returns at once and raises nothing."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        component: str = COMPONENT,
        unique: Callable[[], str] = lambda: uuid.uuid4().hex[:16],
        host: str = "",
    ) -> None:
        """Create the recorder. *unique* returns the end of the name of a new Event; *host* is by default this one."""
        self._component = component
        self._unique = unique
        self._client = client
        self._clock = clock
        self._queue: queue.Queue[Occurrence] = queue.Queue(QUEUE_LENGTH)
        self._queued = threading.Event()
        self._correlator = Correlator()
        self._bucket = Bucket()
        self._host = host or socket.gethostname()
        self._closing = threading.Event()
        self._failing = False
        self._dropping = False
        self._thread = clock.thread("recorder", self._run)

    def start(self) -> None:
        self._thread.start()

    def record(self, subject: Subject, reason: str, message: str, event_type: EventType = "Normal") -> None:
        """Queue an Event about *subject*. It is dropped if the queue is full."""
        if self._closing.is_set():
            return
        try:
            self._queue.put_nowait(Occurrence(subject, reason, message, event_type, self._clock.now()))
        except queue.Full:
            if not self._dropping:
                log.warning("events: more than %d are queued, some are dropped", QUEUE_LENGTH)
            self._dropping = True
        self._queued.set()

    def close(self, seconds: float = 5.0) -> None:
        """Write the queued Events for at most *seconds*, then drop the rest."""
        self._closing.set()
        self._queued.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        while (occurrence := self._next()) is not None:
            self._dropping = self._dropping and not self._queue.empty()
            match self._correlator.judge(occurrence, self._clock.monotonic()):
                case CreateEvent():
                    self._write(occurrence, None)
                case UpdateEvent() as update:
                    self._write(occurrence, update)
                case None:
                    pass

    def _next(self) -> Occurrence | None:
        """Wait for the next occurrence. Return None once the recorder is closing and all are written."""
        while True:
            self._queued.clear()
            closing = self._closing.is_set()
            with contextlib.suppress(queue.Empty):
                return self._queue.get_nowait()
            if closing:
                return None
            self._clock.wait(IDLE_SECONDS, self._queued)

    def _write(self, occurrence: Occurrence, update: UpdateEvent | None) -> None:
        """Write one Event, with a few retries."""
        self._clock.wait(self._bucket.take(self._clock.monotonic()), self._closing)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._send(occurrence, update)
            except Retryable as error:
                if attempt < _ATTEMPTS and not self._closing.is_set():
                    self._clock.wait(delay(attempt, error.retry_after), self._closing)
                    continue
                self._record_failure(occurrence, error)
            except NotFound as error:  # Events expire after an hour; create a new one
                if update is None:
                    self._record_failure(occurrence, error)
                    return
                update = None
                continue
            except ReschedulerError as error:
                self._record_failure(occurrence, error)
            else:
                self._failing = False
            return

    def _send(self, occurrence: Occurrence, update: UpdateEvent | None) -> None:
        namespace = occurrence.subject.namespace or "default"  # the namespace for Events about cluster-scoped objects
        collection = f"/api/v1/namespaces/{quote(namespace, safe='')}/events"
        if update is not None:
            path = f"{collection}/{quote(update.name, safe='')}"
            self._client.request(
                "patch event", "PATCH", path, body=_repetition_patch(occurrence, update), content_type=MERGE_PATCH
            )
            return
        event = _event(occurrence, namespace, self._component, self._host, self._unique())
        self._client.request("create event", "POST", collection, body=event)
        self._correlator.created(occurrence, event["metadata"]["name"])

    def _record_failure(self, occurrence: Occurrence, error: ReschedulerError) -> None:
        self._correlator.lost(occurrence)
        if not self._failing:
            log.warning("events cannot be written: %s", error)
        self._failing = True


def _event(occurrence: Occurrence, namespace: str, component: str, host: str, suffix: str) -> dict[str, Any]:
    subject = occurrence.subject
    time = occurrence.at.strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {
        "apiVersion": subject.api_version,
        "kind": subject.kind,
        "namespace": subject.namespace,
        "name": subject.name,
        "uid": subject.uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": namespace,
            "name": f"{subject.name[: _LONGEST_NAME - len(suffix) - 1]}.{suffix}",
        },
        "involvedObject": {name: text for name, text in about.items() if text},
        "reason": occurrence.reason,
        "message": printable(occurrence.message[:_LONGEST_MESSAGE]),
        "type": occurrence.event_type,
        "source": {"component": component, "host": host},
        "reportingComponent": component,
        "reportingInstance": host,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }


def _repetition_patch(occurrence: Occurrence, update: UpdateEvent) -> dict[str, Any]:
    return {
        "count": update.count,
        "lastTimestamp": occurrence.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "message": printable(occurrence.message[:_LONGEST_MESSAGE]),
    }
