"""All faults by name, for runs that try each of them and for random ones."""

from dataclasses import dataclass
from typing import Final

from deploy.local.faults.injected import (
    ChangedEvents,
    ExpiredToken,
    HalfBody,
    InjectedFault,
    Refusal,
    Reset,
    SilentWatch,
    SlowBytes,
    StaleList,
    Stall,
    WatchError,
)


@dataclass(frozen=True, slots=True)
class FaultSeconds:
    """How long faults last that take time."""

    stall: float = 4.0  #: without an answer; the client gives up when it is the more patient one
    slow: float = 2.0  #: for a whole answer, or for each event of a watch
    silent: float = 6.0  #: of a watch, before it breaks off
    retry_after: int = 1


DEFAULT_SECONDS: Final = FaultSeconds()


def all_faults(
    stale: StaleList, expired: ExpiredToken, seconds: FaultSeconds = DEFAULT_SECONDS
) -> dict[str, InjectedFault]:
    """Every fault by its name in tables and on the command line; *stale* and *expired* are those of one proxy."""
    return {
        "401": Refusal(401),
        "403": Refusal(403),
        "409": Refusal(409),
        "410": Refusal(410),
        "429": Refusal(429),
        "429-retry-after": Refusal(429, seconds.retry_after),
        "500": Refusal(500),
        "503": Refusal(503),
        "reset-before": Reset(arrived=False),
        "reset-after": Reset(arrived=True),
        "half-body": HalfBody(),
        "stall": Stall(seconds.stall),
        "stall-after": Stall(seconds.stall, arrived=True),
        "slow-bytes": SlowBytes(seconds.slow),
        "stale-list": stale,
        "watch-410": WatchError(410),
        "watch-410-later": WatchError(410, after=1),
        "repeated-events": ChangedEvents("repeat"),
        "reordered-events": ChangedEvents("reorder"),
        "silent-watch": SilentWatch(seconds.silent),
        "expired-token": expired,
    }


#: The names of all faults, and which calls they mean anything for; not to be played.
UNBOUND_FAULTS: Final = all_faults(StaleList(lambda _: None), ExpiredToken(lambda _: None))
