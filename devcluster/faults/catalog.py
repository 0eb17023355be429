"""All faults by name, for tests with each fault and for random faults."""

from dataclasses import dataclass
from typing import Final

from devcluster.faults.injected import (
    BUDGET,
    ChangedEvents,
    ExpiredToken,
    HalfBody,
    InjectedError,
    InjectedFault,
    Reset,
    SilentWatch,
    SlowBytes,
    StaleList,
    Stall,
    WatchError,
)


@dataclass(frozen=True, slots=True)
class FaultSeconds:
    """The durations of faults."""

    stall: float = 4.0  #: time without a response, unless the client times out first
    slow: float = 2.0  #: duration of a whole response, or of each event of a watch
    silent: float = 6.0  #: duration of a silent watch, before its connection breaks
    retry_after: int = 1


DEFAULT_SECONDS: Final = FaultSeconds()


def all_faults(
    stale: StaleList, expired: ExpiredToken, seconds: FaultSeconds = DEFAULT_SECONDS
) -> dict[str, InjectedFault]:
    """Return all faults by their name in tables and on the command line; *stale* and *expired* belong to a proxy."""
    return {
        "204-after": InjectedError(204, arrived=True),
        "400": InjectedError(400),
        "401": InjectedError(401),
        "403": InjectedError(403),
        "404": InjectedError(404),
        "409": InjectedError(409),
        "410": InjectedError(410),
        "429": InjectedError(429),
        "429-retry-after": InjectedError(429, seconds.retry_after),
        "429-budget": InjectedError(429, cause=BUDGET),
        "500": InjectedError(500),
        "500-after": InjectedError(500, arrived=True),
        "502": InjectedError(502),
        "502-after": InjectedError(502, arrived=True),
        "503": InjectedError(503),
        "504": InjectedError(504),
        "504-after": InjectedError(504, arrived=True),
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


#: All faults, only for their names and `applies`; they must not be played.
UNBOUND_FAULTS: Final = all_faults(StaleList(lambda _: None), ExpiredToken(lambda _: None))
