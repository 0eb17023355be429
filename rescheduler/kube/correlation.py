"""Which Kubernetes Events are worth a write: the same news of the same object is told once, then counted. Pure."""

import datetime as dt
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

#: The same news of one object and reason within this time is one Event.
SAME_SECONDS: Final = 15 * 60.0

#: Events of one object and reason within that time that differ in their message; further ones are counted on the last.
DISTINCT: Final = 10

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


_Key: TypeAlias = tuple[Subject, str, Severity]


@dataclass(slots=True)
class _Series:
    message: str
    began: float
    written: float
    count: int = 1
    name: str = ""  #: of the Event, once it is made


@dataclass(slots=True)
class Correlator:
    """Remembers what was told. Times are monotonic seconds."""

    _series: dict[_Key, list[_Series]] = field(default_factory=dict)

    def judge(self, news: News, now: float) -> Create | Update | None:
        """What to write about *news*; None for nothing at the moment."""
        self._forget(news, now)
        known = self._series.setdefault(_key(news), [])
        seen = _of(known, news) or (known[-1] if len(known) >= DISTINCT else None)
        if seen is None:
            known.append(_Series(news.message, began=now, written=now))
            return Create()
        seen.count += 1
        if now - seen.written < UPDATE_SECONDS:
            return None
        seen.written = now
        return Update(seen.name, seen.count)

    def made(self, news: News, name: str) -> None:
        """The Event about *news* was made under *name*."""
        seen = _of(self._series.get(_key(news), []), news)
        if seen is not None:
            seen.name = name

    def lost(self, news: News) -> None:
        """There is no Event (any more) about *news*: the next one is new."""
        known = self._series.get(_key(news), [])
        seen = _of(known, news) or (known[-1] if known else None)
        if seen is not None:
            known.remove(seen)

    def _forget(self, news: News, now: float) -> None:
        """Drop what is old: of all objects when an object is heard of for the first time, else of this one."""
        keys = [_key(news)] if _key(news) in self._series else list(self._series)
        for key in keys:
            young = [series for series in self._series.get(key, ()) if now - series.began < SAME_SECONDS]
            if young:
                self._series[key] = young
            else:
                self._series.pop(key, None)


def _key(news: News) -> _Key:
    return news.subject, news.reason, news.severity


def _of(known: list[_Series], news: News) -> _Series | None:
    """The series of the very same message."""
    return next((series for series in known if series.message == news.message), None)


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
