"""Clocks. Only this module reads the time; pure code receives the time as a value."""

import datetime as dt
import threading
import time
from typing import Protocol


class Clock(Protocol):
    """A wall clock for timestamps and cooldowns, and monotonic seconds for deadlines. The two are never mixed."""

    def now(self) -> dt.datetime:
        """Return the wall clock time in UTC."""
        ...

    def monotonic(self) -> float:
        """Return monotonic seconds. Only differences are meaningful."""
        ...

    def wait(self, seconds: float, until: threading.Event) -> bool:
        """Wait for *seconds* or until *until* is set. Return whether it is set."""
        ...


class SystemClock:
    """The clock of the operating system.

    The functions are looked up at each call because freezegun patches the modules.
    """

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)  # noqa: TID251

    def monotonic(self) -> float:
        return time.monotonic()  # noqa: TID251

    def wait(self, seconds: float, until: threading.Event) -> bool:
        return until.wait(seconds)


class SteadyClock:
    """A clock whose wall clock never jumps: the start time plus the monotonic seconds since then.

    Use it for waits that are computed from wall clock times. A correction of the system clock could otherwise change a
    wait of minutes by hours.
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


def pause(seconds: float) -> None:
    """Wait for *seconds*. An interrupt ends the wait as KeyboardInterrupt."""
    time.sleep(seconds)  # noqa: TID251
