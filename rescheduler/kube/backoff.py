"""Back-off of reads and writes that the API server rejects."""

from datetime import timedelta
from typing import Final

from rescheduler.backoff import Backoff

_BACKOFF: Final = Backoff(timedelta(seconds=1), timedelta(seconds=30))
_LONGEST_RETRY_AFTER: Final = 300.0  #: seconds


def delay(failures: int, retry_after: float | None = None) -> float:
    """Return the seconds to wait after *failures* in a row, or the server's *retry_after* if that is longer."""
    return max(_BACKOFF.seconds_after(failures), min(retry_after or 0.0, _LONGEST_RETRY_AFTER))
