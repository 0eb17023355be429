"""Waits of threads that share a system: between polls, and for changes by other threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rescheduler.clock import Clock
from rescheduler.errors import DeadlineExceeded


class PolledSystem:
    """A system that is polled every *poll* seconds; *name* identifies it in errors. Thread-safe."""

    def __init__(self, name: str, clock: Clock, poll: float) -> None:
        self.clock = clock
        self.closed = threading.Event()
        self._name, self._poll = name, poll
        self._turn = threading.Lock()

    def pause(
        self, why: str, deadline: float, stop: threading.Event | None = None, *, seconds: float | None = None
    ) -> None:
        """Wait one poll interval, or *seconds*. Raises DeadlineExceeded if the deadline is earlier or *stop* is set."""
        seconds = self._poll if seconds is None else seconds
        if self.clock.monotonic() + seconds >= deadline:
            raise DeadlineExceeded(f"{self._name}: {why}")
        if self.clock.wait(seconds, stop or self.closed):
            raise DeadlineExceeded(f"{self._name}: {why}; stopping")

    def wait_poll_interval(self, deadline: float) -> bool:
        """Wait one poll interval; return False if that would exceed the deadline or the system is closed."""
        try:
            self.pause("timed out", deadline)
        except DeadlineExceeded:
            return False
        return True

    @contextmanager
    def changing(self, *, deadline: float) -> Iterator[None]:
        """Allow one change at a time, so that each is based on the result of the previous one."""
        if not self._turn.acquire(timeout=max(0.0, deadline - self.clock.monotonic())):
            raise DeadlineExceeded(f"{self._name}: another change is in progress")
        try:
            yield
        finally:
            self._turn.release()
