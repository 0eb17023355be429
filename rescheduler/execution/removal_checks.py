"""The schedule of checks for machines whose termination was requested but not confirmed."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rescheduler.backoff import Backoff
from rescheduler.clock import Clock

#: The interval between checks of a machine whose termination is not confirmed.
CHECKS: Final = Backoff(timedelta(seconds=10), timedelta(minutes=5))


@dataclass(frozen=True, slots=True)
class PendingCheck:
    """The next check of a machine."""

    check_at: float
    checks: int  #: number of checks so far
    absent: bool  #: the machine was unknown to the provider at the last request


class RemovalChecks:
    """The pending checks, by UID of the Node.

    A check takes seconds, and no drain starts during it. A sweep therefore contains at most one check, so that many
    machines that do not terminate do not prevent the drains of other nodes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: dict[str, PendingCheck] = {}
        self._checked = False  #: in this sweep

    def begin_sweep(self, uids: Collection[str]) -> None:
        """Start a sweep of the nodes *uids*. Drop all other nodes."""
        now = self._clock.monotonic()
        unknown = PendingCheck(now, checks=0, absent=False)
        self._pending = {uid: self._pending.get(uid, unknown) for uid in uids}
        self._checked = False

    def due_at(self, uid: str) -> float:
        """Return when the check of a node of this sweep is due."""
        return self._pending[uid].check_at

    def begin(self, uid: str, *, absent: bool) -> None:
        """Schedule the first check after a drain that requested the termination."""
        self._schedule(uid, checks=0, absent=absent)

    def due(self, uid: str, *, ignore_intervals: bool) -> PendingCheck | None:
        """Return the check of a machine if it is due or *ignore_intervals* is set, otherwise None.

        If the machine was unknown to the provider, the interval is always respected.
        """
        check = self._pending[uid]
        if ignore_intervals and not check.absent:
            return check
        waits = self._clock.monotonic() < check.check_at
        return None if waits or self._checked else check

    def repeat(self, uid: str, check: PendingCheck, *, absent: bool) -> None:
        """Schedule the check that follows *check*."""
        self._checked = True
        self._schedule(uid, checks=check.checks + 1, absent=absent)

    def _schedule(self, uid: str, *, checks: int, absent: bool) -> None:
        check_at = self._clock.monotonic() + CHECKS.seconds_after(checks)
        self._pending[uid] = PendingCheck(check_at, checks, absent)
