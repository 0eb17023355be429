"""Back-off for empty nodes whose machines the provider did not remove."""

from collections.abc import Container
from datetime import timedelta
from typing import Final

from rescheduler.backoff import Backoff, Pauses
from rescheduler.clock import Clock

#: Wait until the next offer. It starts short because a provider lists a new machine within minutes, and it doubles
#: because a machine that no provider owns would cost requests forever. Other nodes are offered in the meantime.
PAUSES: Final = Backoff(timedelta(minutes=1), timedelta(hours=1))


class Offers:
    """Schedules when empty nodes are offered to the provider again. Used by the loop's thread only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pauses = Pauses(PAUSES)

    def keep(self, uids: Container[str]) -> None:
        """Drop all nodes except *uids*."""
        self._pauses.keep(uids)

    def due(self, uid: str) -> bool:
        """Return whether the node may be offered now."""
        return not self._pauses.active(uid, self._clock.monotonic())

    def declined(self, uid: str) -> None:
        """Record that the provider did not remove the node's machine."""
        self._pauses.failed(uid, self._clock.monotonic())
