"""The threads that do requests, so that whoever decides need not wait for them."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

#: Evictions asked for at the same time.
EVICTIONS: Final = 16


@dataclass(frozen=True, slots=True)
class Threads:
    """Who does which requests."""

    evictions: Executor
    others: Executor  #: of a single thread


@contextlib.contextmanager
def running() -> Iterator[Threads]:
    """Threads for the length of the block; at its end, requests that wait for a turn are dropped.

    Those under way are waited for: the Lease must not be given back while a write may still be on its way.
    """
    evictions, others = ThreadPoolExecutor(EVICTIONS, "evict"), ThreadPoolExecutor(1, "write")
    try:
        yield Threads(evictions, others)
    finally:
        for wait in (False, True):  # none is begun any more while another one is waited for
            for pool in (others, evictions):
                pool.shutdown(wait=wait, cancel_futures=True)
