"""A clock that advances only by waiting."""

import datetime as dt
import threading

from rescheduler.clock import SystemClock

START = dt.datetime(2024, 5, 1, 12, 0, tzinfo=dt.UTC)


class StepClock(SystemClock):
    """Waiting returns immediately and advances both clocks. Thread-safe."""

    def __init__(self, start: dt.datetime = START) -> None:
        self.start = start
        self._passed = 0.0
        self._lock = threading.Lock()

    def now(self) -> dt.datetime:
        return self.start + dt.timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        return self._passed

    def wait(self, seconds: float, until: threading.Event) -> bool:
        self.advance(seconds)
        return until.is_set()

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._passed += seconds
