"""Who held the Lease, by the writes to it in the audit log."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tests.invariants.history import SentWrite, seconds

#: A holder that has not renewed for so long may be dead.
LEASE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Accepted writes to one Lease, in their order."""

    at: Sequence[datetime]
    holders: Sequence[str]
    since: Sequence[datetime]  #: of each write: since when its holder has held the Lease without a gap

    @classmethod
    def of(cls, writes: Sequence[SentWrite]) -> "LeaseTimes":
        mine = sorted(
            ((write.handled, write.holder) for write in writes if write.holder is not None and write.accepted),
            key=lambda pair: pair[0],
        )
        since: list[datetime] = []
        for index, (at, holder) in enumerate(mine):
            before, holder_before = mine[index - 1] if index else (at, "")
            steady = holder == holder_before and at <= before + seconds(LEASE_SECONDS)
            since.append(since[-1] if steady and since else at)
        return cls([at for at, _ in mine], [holder for _, holder in mine], since)

    def holder(self, at: datetime) -> str | None:
        """Who held it then: "" for nobody, None where that was not seen."""
        index = bisect_right(self.at, at)
        return self.holders[index - 1] if index else None

    def holders_between(self, begin: datetime, end: datetime) -> set[str | None]:
        first, last = bisect_right(self.at, begin), bisect_right(self.at, end)
        return {self.holder(begin), *self.holders[first:last]}

    def steady_since(self, at: datetime) -> datetime | None:
        """Since when the same holder has renewed it without a gap until *at*; None where nobody holds it then."""
        index = bisect_right(self.at, at) - 1
        if index < 0 or not self.holders[index] or at > self.at[index] + seconds(LEASE_SECONDS):
            return None
        return self.since[index]
