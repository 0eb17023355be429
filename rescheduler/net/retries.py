"""Which calls are retried: none within a loop that repeats them anyway.

Otherwise the attempts of both loops would multiply.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_repeated: Final[ContextVar[bool]] = ContextVar("repeated", default=False)


@contextmanager
def one_attempt() -> Iterator[None]:
    """Send each request of the current thread once, for callers that repeat the whole operation after a failure."""
    token = _repeated.set(True)
    try:
        yield
    finally:
        _repeated.reset(token)


def attempts(limit: int) -> int:
    """Return how often to send a request that may be sent *limit* times: once within `one_attempt`."""
    return 1 if _repeated.get() else limit
