"""Back-off for empty nodes whose machines the provider did not remove."""

from collections.abc import Container
from datetime import timedelta
from typing import Final

from rescheduler.backoff import Backoff, Pauses
from rescheduler.clock import Clock

#: Wait until the next offer. It starts short because a provider soon lists a new machine, and it doubles because a
#: machine without a provider would cost requests forever. Other nodes are offered in the meantime.
PAUSES: Final = Backoff(timedelta(minutes=1), timedelta(hours=1))


class Offers:
    """The times of the next offers of empty nodes, by UID. For the loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pauses = Pauses(PAUSES)

    def keep(self, uids: Container[str]) -> None:
        """Forget all nodes but *uids*."""
        self._pauses.keep(uids)

    def due(self, uid: str) -> bool:
        """Return whether the node may be offered now."""
        return not self._pauses.active(uid, self._clock.monotonic())

    def declined(self, uid: str) -> None:
        """Record that the provider did not take the node."""
        self._pauses.failed(uid, self._clock.monotonic())
