"""Back-off for empty nodes whose machines the provider did not remove."""

from collections.abc import Container
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rescheduler.backoff import Backoff
from rescheduler.clock import Clock

#: Wait until the next offer. It starts short because a provider soon lists a new machine, and it doubles because a
#: machine without a provider would cost requests forever. Other nodes are offered in the meantime.
PAUSES: Final = Backoff(timedelta(minutes=1), timedelta(hours=1))


@dataclass(frozen=True, slots=True)
class _Declined:
    times: int
    until: float  #: monotonic seconds


class Offers:
    """For the loop's thread. Nodes are identified by UID."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._declined: dict[str, _Declined] = {}

    def keep(self, uids: Container[str]) -> None:
        """Forget all nodes but *uids*."""
        self._declined = {uid: declined for uid, declined in self._declined.items() if uid in uids}

    def due(self, uid: str) -> bool:
        """Return whether the node may be offered now."""
        declined = self._declined.get(uid)
        return declined is None or self._clock.monotonic() >= declined.until

    def declined(self, uid: str) -> None:
        """Record that the provider did not take the node."""
        times = self._declined[uid].times + 1 if uid in self._declined else 1
        until = self._clock.monotonic() + PAUSES.seconds_after(times)
        self._declined[uid] = _Declined(times, until)
