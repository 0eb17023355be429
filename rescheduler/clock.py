"""Clocks. Only this module reads the time; pure code receives the time as a value."""

import datetime as dt
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from concurrent.futures import Executor


class Thread(Protocol):
    """A thread that waits on a clock."""

    def start(self) -> None: ...

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended, or for at most *timeout* seconds."""
        ...

    def is_alive(self) -> bool:
        """Return whether the thread was started and has not ended."""
        ...


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

    def thread(self, name: str, run: Callable[[], object]) -> Thread:
        """Return a thread that is not started yet. It does not keep the process alive.

        It waits only by this clock and by the threads and executors of this clock, so that simulated time can pass.
        """
        ...

    def executor(self, name: str, workers: int) -> "Executor":
        """Return an executor whose *workers* are such threads."""
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

    def thread(self, name: str, run: Callable[[], object]) -> Thread:
        return threading.Thread(target=run, name=name, daemon=True)

    def executor(self, name: str, workers: int) -> "Executor":
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - it imports logging; commands need neither

        return ThreadPoolExecutor(workers, name)


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

    def thread(self, name: str, run: Callable[[], object]) -> Thread:
        return self._clock.thread(name, run)

    def executor(self, name: str, workers: int) -> "Executor":
        return self._clock.executor(name, workers)


def pause(seconds: float) -> None:
    """Wait for *seconds*. An interrupt ends the wait as KeyboardInterrupt."""
    time.sleep(seconds)  # noqa: TID251
