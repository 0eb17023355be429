"""How the callers of one system wait: for its next answer, and for each other."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rescheduler.backends.base import DeadlineExceeded
from rescheduler.clock import Clock


class Waiting:
    """A system that *name* names, with its clock; *poll* is in seconds. For any number of threads."""

    def __init__(self, name: str, clock: Clock, poll: float) -> None:
        self.clock = clock
        self.closed = threading.Event()
        self._name, self._poll = name, poll
        self._turn = threading.Lock()

    def pause(
        self, why: str, deadline: float, stop: threading.Event | None = None, *, seconds: float | None = None
    ) -> None:
        """Wait one poll interval, or *seconds*; DeadlineExceeded where there is no time for it, or *stop* is set."""
        seconds = self._poll if seconds is None else seconds
        if self.clock.monotonic() + seconds >= deadline:
            raise DeadlineExceeded(f"{self._name}: {why}")
        if self.clock.wait(seconds, stop or self.closed):
            raise DeadlineExceeded(f"{self._name}: {why}; we were told to end")

    @contextmanager
    def changing(self, *, deadline: float) -> Iterator[None]:
        """One change at a time: each is decided on what the one before left."""
        if not self._turn.acquire(timeout=max(0.0, deadline - self.clock.monotonic())):
            raise DeadlineExceeded(f"{self._name}: another change is under way")
        try:
            yield
        finally:
            self._turn.release()
