"""The duration of each round of a daemon, from its metrics, and the time that its pages take."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import httpx2

from tests.scale.measured import percentile
from tests.scale.subjects import Durations, MeasuredSubject

_SECONDS: Final = 0.2  #: interval between two readings of the metrics; shorter than between rounds
_PAGE_SECONDS: Final = 0.02  #: interval between two requests for pages


@dataclass(slots=True)
class Rounds:
    """The durations of rounds and plannings in seconds; between two readings of the metrics, their mean."""

    rounds: list[float] = field(default_factory=list)
    plannings: list[float] = field(default_factory=list)

    def add(self, earlier: Durations, later: Durations) -> None:
        """Add the rounds and plannings that ended between two readings."""
        self.rounds += _each(later.rounds - earlier.rounds, later.seconds - earlier.seconds)
        self.plannings += _each(later.plannings - earlier.plannings, later.planning_seconds - earlier.planning_seconds)

    @property
    def longest(self) -> float | None:
        """The seconds of the longest round, or None before the first round has ended."""
        return max(self.rounds, default=None)

    @property
    def mean(self) -> float | None:
        return sum(self.rounds) / len(self.rounds) if self.rounds else None


def _each(count: int, seconds: float) -> list[float]:
    return [seconds / count] * count if count else []


@contextlib.contextmanager
def watched(subject: MeasuredSubject) -> Iterator[Rounds]:
    """Record the rounds of *subject* during the block, in which it may start."""
    rounds, ended, last = Rounds(), threading.Event(), Durations()
    with contextlib.suppress(httpx2.TransportError):
        last = subject.durations()

    def read_metrics() -> None:
        nonlocal last
        with contextlib.suppress(httpx2.TransportError):
            now = subject.durations()
            rounds.add(last, now)
            last = now

    def run() -> None:
        while not ended.wait(_SECONDS):
            read_metrics()

    thread = threading.Thread(target=run, daemon=True)
    if subject.pages:
        thread.start()
    try:
        yield rounds
    finally:
        ended.set()
        if subject.pages:
            thread.join()
            read_metrics()


@contextlib.contextmanager
def requested(subject: MeasuredSubject, path: str) -> Iterator[list[float]]:
    """Request a page of *subject* repeatedly during the block. Record the seconds until each response."""
    seconds: list[float] = []
    ended = threading.Event()

    def run() -> None:
        with httpx2.Client(base_url=subject.pages, trust_env=False, timeout=60.0) as client:
            while not ended.wait(_PAGE_SECONDS):
                before = time.monotonic()  # noqa: TID251 - measured time
                client.get(path).raise_for_status()
                seconds.append(time.monotonic() - before)  # noqa: TID251

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield seconds
    finally:
        ended.set()
        thread.join()


def slowest(seconds: list[float]) -> float:
    """Return the 99th percentile of *seconds*."""
    return percentile(seconds, 0.99)
