"""What happens at which moment: work in the background without threads, so that a clock in hand moves it."""

import datetime as dt
import heapq
import itertools
from collections.abc import Callable

Work = Callable[[dt.datetime], None]  #: called with the moment for which it was entered


class Agenda:
    """For one thread at a time. What is entered while other work is done may be due at once."""

    def __init__(self) -> None:
        self._entries: list[tuple[dt.datetime, int, Work]] = []
        self._numbers = itertools.count()
        self.horizon = dt.datetime.min.replace(tzinfo=dt.UTC)  #: until when nothing else is due

    def enter(self, at: dt.datetime, work: Work) -> None:
        heapq.heappush(self._entries, (at, next(self._numbers), work))

    def clear(self) -> None:
        self._entries.clear()

    def next(self) -> dt.datetime | None:
        return self._entries[0][0] if self._entries else None

    def advance(self, now: dt.datetime) -> None:
        """Do all that is due by *now*, in order."""
        while self._entries and self._entries[0][0] <= now:
            at, _, work = heapq.heappop(self._entries)
            self.horizon = min(now, self._entries[0][0]) if self._entries else now
            work(at)
