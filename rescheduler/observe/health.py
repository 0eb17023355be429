"""Whether the daemon is alive, and whether it has read the cluster."""

from collections.abc import Callable
from typing import Final

from rescheduler.clock import Clock

#: The loop may be silent for so many housekeeping intervals, and for so long in any case: requests to an API
#: server that has gone silent take their time.
INTERVALS: Final = 6
LEAST_SECONDS: Final = 180.0


class Health:
    """The loop beats, the probes ask. Safe for use by many threads."""

    def __init__(
        self,
        clock: Clock,
        interval: float,
        ready: Callable[[], bool],
        missing: Callable[[], str] = lambda: "the cluster has not been read yet",
    ) -> None:
        """*interval*: seconds between two rounds; *ready*: whether the cluster was read; *missing*: why not."""
        self._clock = clock
        self._patience = max(INTERVALS * interval, LEAST_SECONDS)
        self._ready = ready
        self._missing = missing
        self._beaten = clock.monotonic()

    def beat(self) -> None:
        self._beaten = self._clock.monotonic()

    def silence(self) -> float | None:
        """Seconds since the last beat where that is too long, else None."""
        passed = self._clock.monotonic() - self._beaten
        return passed if passed > self._patience else None

    @property
    def unready(self) -> str:
        """Why we are not ready; "" where we are."""
        return "" if self._ready() else self._missing()
