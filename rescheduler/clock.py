"""The one place that reads the time. Everything below it is given the time as a value."""

import datetime as dt
import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock for people and cool-downs, monotonic seconds for deadlines; the two are never mixed."""

    def now(self) -> dt.datetime:
        """The wall clock, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; only differences mean anything."""
        ...

    def wait(self, seconds: float, until: threading.Event) -> bool:
        """Wait *seconds*, or less when *until* is set; whether it is set."""
        ...


class SystemClock:
    """The machine's clock.

    The functions are looked up at each call and never bound as defaults: freezegun patches the modules.
    """

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)  # noqa: TID251

    def monotonic(self) -> float:
        return time.monotonic()  # noqa: TID251

    def wait(self, seconds: float, until: threading.Event) -> bool:
        return until.wait(seconds)


class SteadyClock:
    """A clock whose wall clock never jumps: the time of *clock* when it was made, and monotonic seconds since.

    For comparing times of one process with each other and with another clock's, where a corrected wall clock would
    put a wait of minutes off by hours.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start, self._since = clock.now(), clock.monotonic()

    def now(self) -> dt.datetime:
        return self._start + dt.timedelta(seconds=self._clock.monotonic() - self._since)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def wait(self, seconds: float, until: threading.Event) -> bool:
        return self._clock.wait(seconds, until)
