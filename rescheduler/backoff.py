"""Exponential back-off."""

from collections.abc import Container
from dataclasses import dataclass
from datetime import timedelta


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
