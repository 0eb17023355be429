"""Waits that double: after failed drains, after pods that came back."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, TypeAlias

import msgspec

#: A wall-clock time with its time zone.
Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]

#: Bounded, so that stored numbers of any size can be calculated with.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10**9)]


@dataclass(frozen=True, slots=True)
class Doubling:
    """*first*, 2 × *first*, 4 × *first*, … at most *longest*."""

    first: timedelta
    longest: timedelta

    def after(self, times: int) -> timedelta:
        """The wait after *times* failures, 1 or more."""
        seconds = self.first.total_seconds() * 2.0 ** min(times - 1, 64)
        return self.longest if seconds >= self.longest.total_seconds() else timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True)
class Waits:
    """How long nodes, drains and controllers wait. The defaults are those of the flags."""

    cooldown: Doubling = Doubling(timedelta(minutes=5), timedelta(hours=2))  #: of a node whose drain failed
    pause: Doubling = Doubling(timedelta(minutes=10), timedelta(hours=4))  #: of all drains
    returned: Doubling = Doubling(timedelta(minutes=10), timedelta(hours=24))  #: of a controller whose pods came back
    moves_per_pod: float = 3.0  #: in 24 hours, on average over a controller's replicas; 0: no limit


class Pause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Drains wait until a time, twice as long after each further failure."""

    times: Count = 0  #: failures in a row
    until: Moment | None = None

    def lengthened(self, now: datetime, wait: Doubling) -> "Pause":
        """The pause after one more failure."""
        return Pause(self.times + 1, now + wait.after(self.times + 1))

    def active(self, now: datetime) -> datetime | None:
        """Until when drains wait; None where they need not."""
        return self.until if self.until is not None and now < self.until else None

    def bounded(self, now: datetime, wait: Doubling) -> "Pause":
        """The same, but not for longer than a pause may last."""
        if self.until is None or self.until <= now + wait.longest:
            return self
        return Pause(self.times, now + wait.longest)
