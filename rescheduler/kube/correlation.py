"""Deduplicate Kubernetes Events: a repeated Event is counted on the existing one. Pure."""

import datetime as dt
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

#: Equal occurrences within this time become one Event.
SAME_SECONDS: Final = 15 * 60.0

#: Maximum number of Events with different messages per object and reason; further ones are counted on the last.
DISTINCT: Final = 10

#: Minimum interval between two updates of an Event's count.
UPDATE_SECONDS: Final = 5 * 60.0

#: Writes per second on average, and the maximum burst.
RATE: Final = 5.0
BURST: Final = 50.0

Severity: TypeAlias = Literal["Normal", "Warning"]


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
    severity: Severity
    at: dt.datetime


@dataclass(frozen=True, slots=True)
class CreateEvent:
    """Create a new Event."""


@dataclass(frozen=True, slots=True)
class UpdateEvent:
    """Set the count of the Event *name* to *count*."""

    name: str
    count: int


_Key: TypeAlias = tuple[Subject, str, Severity]


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
    return occurrence.subject, occurrence.reason, occurrence.severity


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
