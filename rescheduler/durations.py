"""Parse durations in the format of Go's ``time.ParseDuration``: the only parser of durations in the program."""

import math
import re
from collections.abc import Container
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from predicates.texts import LONGEST_AMOUNT

#: The longest duration of a setting in seconds: ten years. Dates plus durations stay within the range of datetime.
LONGEST: Final = 10.0 * 365 * 24 * 3600
#: The longest wait in seconds. System calls take milliseconds as a 32-bit integer.
LONGEST_WAIT: Final = 2_000_000.0

#: By unit: its length in nanoseconds.
UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign
    "μs": 1_000,  # the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3600 * 1_000_000_000,
}
_PART: Final = re.compile(rf"([0-9]++(?:\.[0-9]*+)?|\.[0-9]++)({'|'.join(UNITS)})")
#: Go counts nanoseconds as a signed 64-bit integer.
INT64: Final = range(-(2**63), 2**63)
#: More digits are not significant: an integer of 20 digits exceeds 64 bits, and a fraction is less than a nanosecond.
_DIGITS: Final = 20


def nanoseconds(text: str) -> int:
    """Parse a duration such as ``2m30s``, ``-1.5h``, ``500ms`` or ``0`` and return it in nanoseconds.

    The result is that of ``time.ParseDuration``. Raises ValueError, with the expected format, for texts that Go
    rejects, including durations of more than 292 years.
    """
    total = _total(text)
    if total not in INT64:
        raise ValueError(f"expected a duration of at most {INT64[-1] // UNITS['h']}h")
    return total


def seconds(text: str) -> float:
    """Parse the duration of a setting and return it in seconds.

    Raises ValueError, with the expected format, for anything else, including negative durations and durations
    longer than :data:`LONGEST`.
    """
    total = _total(text)
    if total < 0:
        raise ValueError("expected a duration of at least 0s")
    if total > LONGEST * UNITS["s"]:
        raise ValueError(f"expected a duration of at most {LONGEST / 3600:.0f}h")
    return total / UNITS["s"]


def period(text: str) -> timedelta | None:
    """Parse the duration in an annotation, to the microsecond. Return None if Go rejects *text*."""
    try:
        return timedelta(microseconds=nanoseconds(text) / UNITS["us"])
    except ValueError:
        return None


def _total(text: str) -> int:
    """Parse *text* into nanoseconds, whose number is not limited. Raises ValueError if the format is invalid."""
    if len(text) > LONGEST_AMOUNT:
        raise ValueError(f"expected a duration of at most {LONGEST_AMOUNT} characters")
    position = int(text.startswith(("-", "+")))
    if text[position:] == "0":
        return 0
    total, part = 0, None
    while position < len(text) or part is None:
        part = _PART.match(text, position)
        if part is None:
            raise ValueError("expected a duration such as 10s, 2m30s, 1h or 500ms")
        total += _part(part[1], UNITS[part[2]])
        position = part.end()
    return -total if text[0] == "-" else total


def _part(number: str, unit: int) -> int:
    """Return *number* times *unit*, in nanoseconds. The fraction is rounded as in Go."""
    integer, _, fraction = number.partition(".")
    digits = fraction[:_DIGITS]
    return int(integer.lstrip("0")[:_DIGITS] or "0") * unit + int(int(digits or "0") * (unit / 10 ** len(digits)))


# Exponential back-off.


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential waits: *first*, *factor* × *first*, *factor*² × *first*, … up to *longest*.

    There is no jitter: one process has few waits at a time, and tests need exact times.
    """

    first: timedelta
    longest: timedelta
    factor: float = 2.0

    def after(self, failures: int) -> timedelta:
        """Return the wait after *failures* consecutive failures; 0 counts as 1."""
        seconds = self.first.total_seconds() * self.factor ** min(max(failures, 1) - 1, 64)
        return self.longest if seconds >= self.longest.total_seconds() else timedelta(seconds=seconds)

    def seconds_after(self, failures: int) -> float:
        """Return the wait after *failures* consecutive failures, in seconds."""
        return self.after(failures).total_seconds()


@dataclass(frozen=True, slots=True)
class _Delay:
    """The number of consecutive failures of a key, and the end of its pause."""

    failures: int
    until: float  #: monotonic seconds


class Pauses:
    """Pauses after failures, by key; *backoff* sets their length. All times are monotonic seconds. Not thread-safe."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._pauses: dict[str, _Delay] = {}

    def failed(self, key: str, now: float) -> None:
        """Record a failure of *key* and start its next pause."""
        failures = self._pauses[key].failures + 1 if key in self._pauses else 1
        self._pauses[key] = _Delay(failures, now + self._backoff.seconds_after(failures))

    def next_end(self, now: float) -> float:
        """Return when the next pause ends; infinity if none is active."""
        return min((pause.until for pause in self._pauses.values() if pause.until > now), default=math.inf)

    def succeeded(self, key: str) -> None:
        """End the pause of *key* and forget its failures."""
        self._pauses.pop(key, None)

    def active(self, key: str, now: float) -> bool:
        """Return whether *key* is in a pause."""
        return key in self._pauses and now < self._pauses[key].until

    def keep(self, keys: Container[str]) -> None:
        """Forget the failures of all keys but *keys*."""
        self._pauses = {key: pause for key, pause in self._pauses.items() if key in keys}

    def forget_old(self, now: float) -> None:
        """Forget the failures of keys whose pause ended longer ago than the longest pause."""
        longest = self._backoff.longest.total_seconds()
        self._pauses = {key: pause for key, pause in self._pauses.items() if now < pause.until + longest}
