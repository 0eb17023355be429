"""The holders of the Lease, from the writes to it in the audit log."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tests.invariants.history import SentWrite, seconds

#: The Lease expires after this time without renewal.
LEASE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The successful writes to a Lease, in order."""

    at: Sequence[datetime]
    holders: Sequence[str]
    since: Sequence[datetime]  #: start of the holder's uninterrupted tenure, for each write

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
        """Return the holder at *at*: "" for none, None if unknown."""
        index = bisect_right(self.at, at)
        return self.holders[index - 1] if index else None

    def holders_between(self, begin: datetime, end: datetime) -> set[str | None]:
        first, last = bisect_right(self.at, begin), bisect_right(self.at, end)
        return {self.holder(begin), *self.holders[first:last]}

    def steady_since(self, at: datetime) -> datetime | None:
        """Return the start of the uninterrupted tenure of the holder at *at*, or None without a holder."""
        index = bisect_right(self.at, at) - 1
        if index < 0 or not self.holders[index] or at > self.at[index] + seconds(LEASE_SECONDS):
            return None
        return self.since[index]
