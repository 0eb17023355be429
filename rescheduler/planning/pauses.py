"""When no drain starts: the pause that a person sets on the Lease, and the times outside the drain windows. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from predicates.texts import one_line
from rescheduler.errors import UsageError
from rescheduler.planning.forms import instant, utc

# The pause that a person sets with an annotation on the Lease. Pure.

#: Annotation of the Lease: ``true``, or the end of the pause as an RFC 3339 time. Any other value also pauses drains.
PAUSED: Final = "spot-rescheduler/paused"
#: Annotation of the Lease: why drains are paused, for people.
PAUSE_REASON: Final = "spot-rescheduler/pause-reason"

_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
)


@dataclass(frozen=True, slots=True)
class ManualPause:
    """A pause that is active."""

    until: datetime | None = None  #: its end in UTC; None if it lasts until the annotation is removed
    reason: str = ""
    unreadable: str = ""  #: the value of the annotation if it cannot be read; "" if it can

    @property
    def text(self) -> str:
        """The message about the pause, on one line."""
        until = f" until {utc(self.until)}" if self.until is not None else ""
        why = f": {self.reason}" if self.reason else ""
        if not self.unreadable:
            return f"drains are paused{until}{why}"
        value = f"annotation {PAUSED}: {self.unreadable!r}, expected an RFC 3339 time or true"
        return f"drains are paused{why} ({value})"


def manual_pause(annotations: Mapping[str, str], now: datetime) -> ManualPause | None:
    """Return the pause in the *annotations* of the Lease, or None if there is none or if it has ended."""
    value = annotations.get(PAUSED)
    if value is None:
        return None
    reason = one_line(annotations.get(PAUSE_REASON, ""))
    if value == "true":
        return ManualPause(None, reason)
    until = _end(value)
    if until is None:
        return ManualPause(None, reason, one_line(value) or "empty")
    return ManualPause(until, reason) if now < until else None


def pause_annotations(until: datetime | None, reason: str) -> dict[str, str | None]:
    """Return the annotations of a pause that ends at *until*, or that has no end (None). None removes an annotation."""
    end = "true" if until is None else utc(until)
    return {PAUSED: end, PAUSE_REASON: one_line(reason) or None}


def _end(value: str) -> datetime | None:
    """Parse an RFC 3339 time. Return None if *value* is not one."""
    if not _RFC3339.fullmatch(value.upper()):
        return None
    try:
        end = instant(value.upper())
        return None if end is None else end.astimezone(UTC)
    except OverflowError:
        return None


# Weekly windows in which drains may start, in the local time of a time zone. Pure.
#
# A window is open while the zone's wall clock is inside of it. When the clock is set forward, a window that lies in the
# skipped hour does not open on that day, and a window that starts in it opens right after it. When the clock is set
# back, a window in the repeated hour is open twice.

#: The names of the days in a window, which may be in any case.
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_NUMBER: Final = {day.lower(): number for number, day in enumerate(DAYS)}
_EVERY_DAY: Final = frozenset(range(len(DAYS)))
_TIMES: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-(?:([01][0-9]|2[0-3]):([0-5][0-9])|24:00)")
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)
#: A window that ever opens does so within this many days, even if a clock change skips one opening.
_SEARCHED_DAYS: Final = 15

#: Entries of the time zone directory that are not time zones: the local zone, and copies with leap-second rules.
_NOT_ZONES: Final = ("localtime", "posix", "right/")

EXPECTED: Final = "expected [DAYS] HH:MM-HH:MM [ZONE], such as 'Mon-Fri 09:00-17:00 Europe/Stockholm'"


@dataclass(frozen=True, slots=True)
class DrainWindow:
    """A window that is open on some days of the week. If it spans midnight, its day is the day on which it starts."""

    text: str  #: as the user wrote it
    days: frozenset[int]  #: 0 is Monday
    start: time
    end: time  #: exclusive; not later than *start* means on the next day
    zone: ZoneInfo

    def is_open(self, now: datetime) -> bool:
        """Return whether drains may start at *now*."""
        local = now.astimezone(self.zone)
        clock, day = local.time(), local.weekday()
        if self.start < self.end:
            return day in self.days and self.start <= clock < self.end
        return (day in self.days and clock >= self.start) or ((day - 1) % 7 in self.days and clock < self.end)

    def next_opening(self, now: datetime) -> datetime | None:
        """Return the first moment after *now*, in UTC, at which the closed window opens, or None if it never opens."""
        first = now.astimezone(self.zone).date()
        openings = (
            moment
            for number in range(_SEARCHED_DAYS)
            for moment in self._starts(datetime.combine(first + number * _DAY, self.start))
            if moment > now and self.is_open(moment)
        )
        return min(openings, default=None)

    def _starts(self, local: datetime) -> Iterator[datetime]:
        """Yield the moments at which the wall clock shows *local*, or the moment at which it skips *local*."""
        for fold in (0, 1):
            moment = local.replace(tzinfo=self.zone, fold=fold).astimezone(UTC)
            wall_time = self._wall_clock(moment)
            while wall_time > local and self._wall_clock(moment - _MINUTE) > local:
                moment -= _MINUTE
            if wall_time >= local:
                yield moment

    def _wall_clock(self, moment: datetime) -> datetime:
        return moment.astimezone(self.zone).replace(tzinfo=None)


def parse_window(text: str) -> DrainWindow:
    """Parse ``[DAYS] HH:MM-HH:MM [ZONE]``.

    DAYS are days and ranges, separated by commas: ``Mon-Fri``, ``Sat,Sun``; all days if they are left out. ZONE is a
    name of the IANA time zone database; UTC if it is left out. Raises UsageError.
    """
    words = text.split()
    days = _EVERY_DAY
    if words and not words[0][0].isdigit():
        days = _days(words.pop(0), text)
    if not words or len(words) > 2 or not (times := _TIMES.fullmatch(words[0])):  # noqa: PLR2004
        raise UsageError(f"drain window {text!r}: {EXPECTED}")
    start_hour, start_minute, end_hour, end_minute = times.groups()
    start, end = time(int(start_hour), int(start_minute)), time(int(end_hour or 0), int(end_minute or 0))
    if start == end and end_hour is not None:
        raise UsageError(f"drain window {text!r}: it starts and ends at {start:%H:%M}; for whole days use 00:00-24:00")
    return DrainWindow(text.strip(), days, start, end, _zone(words[1] if len(words) > 1 else "UTC", text))


def next_opening(windows: Iterable[DrainWindow], now: datetime) -> datetime | None:
    """Return when the next of *windows*, none of which is open at *now*, opens; None if none does."""
    opening = _next_opening(windows, now)
    return None if opening is None else opening[0]


def closed_until(windows: Sequence[DrainWindow], now: datetime) -> str:
    """Return a message with the next opening if none of *windows* is open, or "". No windows means always open."""
    if not windows or any(window.is_open(now) for window in windows):
        return ""
    opening = _next_opening(windows, now)
    if opening is None:
        return "no drain window is open, and none opens within two weeks"
    moment, window = opening
    local = moment.astimezone(window.zone)
    return (
        f"no drain window is open; the next one opens at {utc(moment)} "
        f"({DAYS[local.weekday()]} {local:%H:%M} {window.zone.key})"
    )


def _next_opening(windows: Iterable[DrainWindow], now: datetime) -> tuple[datetime, DrainWindow] | None:
    openings = ((window.next_opening(now), window) for window in windows)
    upcoming = [(moment, window) for moment, window in openings if moment is not None]
    return min(upcoming, key=lambda opening: opening[0], default=None)


def _days(days_text: str, text: str) -> frozenset[int]:
    days: set[int] = set()
    for part in days_text.split(","):
        first, dash, last = part.partition("-")
        numbers = [_NUMBER.get(name.lower()) for name in ((first, last) if dash else (first, first))]
        if numbers[0] is None or numbers[1] is None:
            raise UsageError(f"drain window {text!r}: day {part!r}: expected {', '.join(DAYS)} or a range; {EXPECTED}")
        days.update((numbers[0] + step) % 7 for step in range((numbers[1] - numbers[0]) % 7 + 1))
    return frozenset(days)


def _zone(name: str, text: str) -> ZoneInfo:
    expected = "expected a name of the IANA time zone database, such as Europe/Stockholm or UTC"
    error = UsageError(f"drain window {text!r}: zone {name!r}: {expected}")
    if name.startswith(_NOT_ZONES):
        raise error
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise error from None
