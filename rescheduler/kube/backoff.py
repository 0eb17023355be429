"""How long to wait before trying again."""

from typing import Final

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0


def delay(failures: int, asked: float | None = None) -> float:
    """Seconds to wait after *failures* in a row: 1, 2, 4 … 30, or what the server *asked* for if that is more.

    Without jitter: the few watches of one process are no herd, and tests can tell what happens when. What a
    server asks for is believed up to ten times the longest wait.
    """
    grown = min(FIRST_SECONDS * 2.0 ** min(max(failures, 1) - 1, 16), LONGEST_SECONDS)
    return max(grown, min(asked or 0.0, 10 * LONGEST_SECONDS))
