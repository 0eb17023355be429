"""Which Kubernetes Events are worth a write: the same news of the same object is told once, then counted. Pure."""

import datetime as dt
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

#: News of one object and reason within this time is one Event.
SAME_SECONDS: Final = 15 * 60.0

#: A repeated Event's count is brought up to date this often; in between it is only kept here.
UPDATE_SECONDS: Final = 5 * 60.0

#: Writes a second in the long run, and at once.
RATE: Final = 5.0
BURST: Final = 50.0

Severity: TypeAlias = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that an Event is about. Of a cluster-wide object the namespace is ""."""

    kind: str
    name: str
    uid: str
    namespace: str = ""
    api_version: str = "v1"


@dataclass(frozen=True, slots=True)
class News:
    """One thing that happened, to be told to whoever describes the object."""

    subject: Subject
    reason: str
    message: str
    severity: Severity
    at: dt.datetime


@dataclass(frozen=True, slots=True)
class Create:
    """A new Event."""


@dataclass(frozen=True, slots=True)
class Update:
    """The Event *name* happened *count* times by now."""

    name: str
    count: int


@dataclass(slots=True)
class _Series:
    began: float
    written: float
    count: int = 1
    name: str = ""  #: of the Event, once it is made


@dataclass(slots=True)
class Correlator:
    """Remembers what was told. Times are monotonic seconds."""

    _series: dict[tuple[Subject, str, Severity], _Series] = field(default_factory=dict)

    def judge(self, news: News, now: float) -> Create | Update | None:
        """What to write about *news*; None for nothing at the moment."""
        key = news.subject, news.reason, news.severity
        seen = self._series.get(key)
        if seen is None or now - seen.began >= SAME_SECONDS:
            self._forget(now)
            self._series[key] = _Series(began=now, written=now)
            return Create()
        seen.count += 1
        if now - seen.written < UPDATE_SECONDS:
            return None
        seen.written = now
        return Update(seen.name, seen.count)

    def made(self, news: News, name: str) -> None:
        """The Event about *news* was made under *name*."""
        self._series[news.subject, news.reason, news.severity].name = name

    def lost(self, news: News) -> None:
        """There is no Event (any more) about *news*: the next one is new."""
        self._series.pop((news.subject, news.reason, news.severity), None)

    def _forget(self, now: float) -> None:
        self._series = {key: one for key, one in self._series.items() if now - one.began < SAME_SECONDS}


@dataclass(slots=True)
class Bucket:
    """Tokens: BURST at once, RATE a second."""

    tokens: float = BURST
    at: float | None = None

    def take(self, now: float) -> float:
        """Take one token; seconds to wait until it is really there."""
        passed = 0.0 if self.at is None else now - self.at
        self.tokens = min(BURST, self.tokens + passed * RATE) - 1
        self.at = now
        return max(0.0, -self.tokens / RATE)
