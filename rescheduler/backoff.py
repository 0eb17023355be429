"""Exponential back-off."""

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
        """Return the wait after *failures* in a row; 0 failures count as 1."""
        seconds = self.first.total_seconds() * self.factor ** min(max(failures, 1) - 1, 64)
        return self.longest if seconds >= self.longest.total_seconds() else timedelta(seconds=seconds)

    def seconds_after(self, failures: int) -> float:
        """Return the wait after *failures* in a row in seconds."""
        return self.after(failures).total_seconds()
