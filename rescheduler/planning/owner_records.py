"""What drains have shown of the owners of pods: how often they were moved in a week, and how long they took to run."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec

from rescheduler.planning.forms import merged_entries
from rescheduler.planning.movements import Move
from rescheduler.planning.waits import Moment

WEEK: Final = timedelta(days=7)

#: An owner whose pods were not moved for this long is forgotten.
_FORGOTTEN: Final = timedelta(days=30)


class OwnerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The moves of one owner's pods."""

    last: Moment  #: when its pods were last moved
    days: tuple[Move, ...] = ()  #: the pods that were moved on each day (UTC) of the last week, the oldest first
    ready: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None  #: seconds until the new pods were Ready

    def moved(self, pods: int, at: datetime) -> "OwnerRecord":
        """Return the record after a drain moved *pods* more pods at the time *at*."""
        day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        days = {move.at: move.pods for move in self.days if move.at > at - WEEK}
        days[day] = days.get(day, 0) + pods
        moves = tuple(Move(each, days[each]) for each in sorted(days))
        return msgspec.structs.replace(self, last=max(self.last, at), days=moves)

    def ran(self, seconds: float) -> "OwnerRecord":
        """Return the record after the new pods were Ready within *seconds*: the mean of this and of what was known."""
        return msgspec.structs.replace(self, ready=round(seconds if self.ready is None else (self.ready + seconds) / 2))

    def with_others(self, other: "OwnerRecord", base: "OwnerRecord | None") -> "OwnerRecord":
        """Return the record with the moves that *other* has noted since *base*."""
        pods = Counter({move.at: move.pods for move in self.days})
        pods.update({move.at: move.pods for move in other.days})
        pods.subtract({move.at: move.pods for move in (base.days if base is not None else ())})
        days = tuple(Move(day, pods[day]) for day in sorted(pods) if pods[day] > 0)
        later, earlier = (self, other) if self.last >= other.last else (other, self)
        ready = earlier.ready if later.ready is None else later.ready
        return msgspec.structs.replace(later, days=days, ready=ready)

    def bounded(self, now: datetime) -> "OwnerRecord":
        """Return the record without times in the future."""
        days = tuple(move for move in self.days if move.at <= now)
        return msgspec.structs.replace(self, last=min(self.last, now), days=days)

    def in_a_week(self, now: datetime) -> int:
        """Return how many pods were moved within a week. It changes at the start of a day only."""
        return sum(move.pods for move in self.days if move.at > now - WEEK)


class OwnerRecords(msgspec.Struct, frozen=True, omit_defaults=True):
    """The records by ``namespace/Kind/name``, so that an owner that is created again keeps its own."""

    by_name: dict[str, OwnerRecord] = {}

    def moved(self, owner: str, pods: int, at: datetime, ready: float | None = None) -> "OwnerRecords":
        """Return the records after a drain moved *pods* pods of *owner*, which were *ready* after so many seconds."""
        record = self.by_name.get(owner, OwnerRecord(at)).moved(pods, at)
        return OwnerRecords(self.by_name | {owner: record if ready is None else record.ran(ready)})

    def in_a_week(self, now: datetime) -> Mapping[str, int]:
        """Return how many pods of each owner were moved within a week."""
        return {name: pods for name, record in self.by_name.items() if (pods := record.in_a_week(now))}

    def ready(self) -> Mapping[str, float]:
        """Return the seconds until the replacement pods of each owner were Ready, where they are known."""
        return {name: record.ready for name, record in self.by_name.items() if record.ready is not None}

    def merged(self, remote: "OwnerRecords", base: "OwnerRecords") -> "OwnerRecords":
        """Return the records with what *remote* changed since *base*."""
        return OwnerRecords(merged_entries(self.by_name, remote.by_name, base.by_name, OwnerRecord.with_others))

    def bounded(self, now: datetime) -> "OwnerRecords":
        """Return the records without times that come from a wrong clock, and without old ones."""
        known = {name: each.bounded(now) for name, each in self.by_name.items() if each.last > now - _FORGOTTEN}
        return self if known == self.by_name else OwnerRecords(known)
