"""Waits that grow exponentially: after failed drains, and after pods returned to on-demand nodes."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, TypeAlias

import msgspec

from rescheduler.backoff import Backoff

#: A wall-clock time with its time zone.
Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]

#: Limited, so that calculations with stored numbers cannot overflow.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10**9)]


@dataclass(frozen=True, slots=True)
class Waits:
    """The lengths of the waits of nodes, drains and controllers. The defaults are those of the flags."""

    cooldown: Backoff = Backoff(timedelta(minutes=5), timedelta(hours=2))  #: after a failed drain, for its node
    pause: Backoff = Backoff(timedelta(minutes=10), timedelta(hours=4))  #: for all drains, after returned pods
    recovery: Backoff = Backoff(timedelta(minutes=10), timedelta(hours=24))  #: for an owner whose pods did not run
    room: Backoff = Backoff(timedelta(minutes=15), timedelta(hours=4))  #: for orders of spot room
    returned: Backoff = Backoff(timedelta(minutes=10), timedelta(hours=24))  #: for a controller whose pods returned
    moves_per_pod: float = 3.0  #: per 24 hours, on average over a controller's replicas; 0 means no limit


class Pause(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pause of drains, which doubles with each further failure."""

    times: Count = 0  #: consecutive failures
    until: Moment | None = None

    def lengthened(self, now: datetime, wait: Backoff) -> "Pause":
        """Return the pause, lengthened after one more failure."""
        return Pause(self.times + 1, now + wait.after(self.times + 1))

    def active(self, now: datetime) -> datetime | None:
        """Return the end of the pause, or None if drains need not wait."""
        return self.until if self.until is not None and now < self.until else None

    def bounded(self, now: datetime, wait: Backoff) -> "Pause":
        """Return the same pause, limited to the longest allowed wait."""
        if self.until is None or self.until <= now + wait.longest:
            return self
        return Pause(self.times, now + wait.longest)
