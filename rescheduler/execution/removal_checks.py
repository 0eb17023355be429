"""When machines whose termination was requested, but not confirmed, are checked again."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rescheduler.backoff import Backoff
from rescheduler.clock import Clock

#: Between two checks of a machine that is not confirmed as terminated.
CHECKS: Final = Backoff(timedelta(seconds=10), timedelta(minutes=5))


@dataclass(frozen=True, slots=True)
class PendingCheck:
    """The next check of a machine."""

    check_at: float
    checks: int  #: number of checks so far
    absent: bool  #: the provider did not know the machine at the last request


class RemovalChecks:
    """The pending checks, by UID of the Node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: dict[str, PendingCheck] = {}

    def begin(self, uid: str, *, absent: bool) -> None:
        """Schedule the first check after a drain that requested the termination."""
        self._schedule(uid, checks=0, absent=absent)

    def due(self, uid: str, *, hurried: bool) -> PendingCheck | None:
        """Return the check of a machine if it is due, or *hurried*.

        If the provider did not know the machine, the interval is always respected.
        """
        now = self._clock.monotonic()
        check = self._pending.get(uid, PendingCheck(now, checks=0, absent=False))
        return None if now < check.check_at and (check.absent or not hurried) else check

    def repeat(self, uid: str, check: PendingCheck, *, absent: bool) -> None:
        """Schedule the check that follows *check*."""
        self._schedule(uid, checks=check.checks + 1, absent=absent)

    def _schedule(self, uid: str, *, checks: int, absent: bool) -> None:
        check_at = self._clock.monotonic() + CHECKS.seconds_after(checks)
        self._pending[uid] = PendingCheck(check_at, checks, absent)

    def keep(self, uids: Collection[str]) -> None:
        """Forget all other nodes."""
        self._pending = {uid: check for uid, check in self._pending.items() if uid in uids}
