"""Liveness and readiness of the daemon."""

from collections.abc import Callable
from typing import Final

from rescheduler.clock import Clock

#: The loop counts as alive if its last heartbeat is at most this many housekeeping intervals, or this many seconds,
#: old. Requests to an API server that does not respond take a while to time out.
INTERVALS: Final = 6
LEAST_SECONDS: Final = 180.0


class Health:
    """Records the loop's heartbeat for the probes. Thread-safe."""

    def __init__(
        self,
        clock: Clock,
        interval: float,
        ready: Callable[[], bool],
        missing: Callable[[], str] = lambda: "the cluster has not been read yet",
    ) -> None:
        """Create the probes for rounds that are *interval* seconds apart.

        *ready* returns whether the cluster was read; *missing* returns why it was not.
        """
        self._clock = clock
        self._patience = max(INTERVALS * interval, LEAST_SECONDS)
        self._ready = ready
        self._missing = missing
        self._last_beat = clock.monotonic()

    def beat(self) -> None:
        """Record a heartbeat."""
        self._last_beat = self._clock.monotonic()

    def silence(self) -> float | None:
        """Return the seconds since the last heartbeat if it is overdue, else None."""
        seconds = self._clock.monotonic() - self._last_beat
        return seconds if seconds > self._patience else None

    @property
    def unready(self) -> str:
        """Why the daemon is not ready, or "" if it is."""
        return "" if self._ready() else self._missing()
