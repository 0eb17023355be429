"""A queue that runs updates one at a time, in order of arrival. It drops those that time out or lose their client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Literal

from rescheduler.proxy.request_client import ClientGone


class QueueTimeout(Exception):
    """The update timed out in the queue."""


class Turns:
    """The queue of updates, for tasks of one event loop."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.waiting = 0  #: number of queued updates, excluding the running one

    @asynccontextmanager
    async def turn(self, disconnected: Awaitable[None], patience: float) -> AsyncIterator[None]:
        """Wait for the caller's turn and keep it during the block. *disconnected* completes once the client is gone.

        Raises QueueTimeout after *patience* seconds, and ClientGone if the client has disconnected.
        """
        taking, leaving = asyncio.ensure_future(self._lock.acquire()), asyncio.ensure_future(disconnected)
        self.waiting += 1
        try:
            await asyncio.wait({taking, leaving}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._give_back(taking)
            raise
        finally:
            self.waiting -= 1
            left = leaving.done()
            leaving.cancel()
        if left or not taking.done():
            await self._give_back(taking)
            raise ClientGone if left else QueueTimeout
        try:
            yield
        finally:
            self._lock.release()

    async def _give_back(self, taking: "asyncio.Task[Literal[True]]") -> None:
        """Cancel the wait for the lock; release the lock if it was acquired at the same time."""
        taking.cancel()
        await asyncio.wait({taking})
        if not taking.cancelled():
            self._lock.release()
