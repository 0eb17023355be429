"""A schedule of background work, executed without threads, so that tests control it with a fake clock."""

import datetime as dt
import heapq
import itertools
from collections.abc import Callable

Work = Callable[[dt.datetime], None]  #: called with the time for which it was scheduled


class Agenda:
    """A queue of scheduled work, not thread-safe. Work may schedule more work that is due immediately."""

    def __init__(self) -> None:
        self._entries: list[tuple[dt.datetime, int, Work]] = []
        self._numbers = itertools.count()
        self.horizon = dt.datetime.min.replace(tzinfo=dt.UTC)  #: no other work is due before this time

    def enter(self, at: dt.datetime, work: Work) -> None:
        heapq.heappush(self._entries, (at, next(self._numbers), work))

    def clear(self) -> None:
        self._entries.clear()

    def next(self) -> dt.datetime | None:
        return self._entries[0][0] if self._entries else None

    def advance(self, now: dt.datetime) -> None:
        """Execute all work that is due by *now*, in order."""
        while self._entries and self._entries[0][0] <= now:
            at, _, work = heapq.heappop(self._entries)
            self.horizon = min(now, self._entries[0][0]) if self._entries else now
            work(at)
