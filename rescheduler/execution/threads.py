"""Threads for requests, so that the loop does not block."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

#: Maximum number of concurrent eviction requests.
EVICTIONS: Final = 16


@dataclass(frozen=True, slots=True)
class Threads:
    """The executors for requests."""

    evictions: Executor
    others: Executor  #: one thread, for all other requests


@contextlib.contextmanager
def running() -> Iterator[Threads]:
    """Run the threads within the block. At its end, queued requests are dropped.

    Requests in progress are completed: the Lease must not be released while a write may still be in flight.
    """
    evictions, others = ThreadPoolExecutor(EVICTIONS, "evict"), ThreadPoolExecutor(1, "write")
    try:
        yield Threads(evictions, others)
    finally:
        for wait in (False, True):  # first drop all queued requests, then wait for the requests in progress
            for pool in (others, evictions):
                pool.shutdown(wait=wait, cancel_futures=True)


@contextlib.contextmanager
def querying() -> Iterator[Executor]:
    """Run a thread for queries whose results are not awaited, not even at the end of the block."""
    pool = ThreadPoolExecutor(1, "query")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
