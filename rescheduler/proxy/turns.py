"""Updates one after the other, in the order in which they came; who will not wait longer leaves the queue."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Literal

from rescheduler.proxy.forward import ClientGone


class QueueTimeout(Exception):
    """The updates before took too long."""


class Turns:
    """For the tasks of one event loop."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.waiting = 0  #: updates in the queue, the one at work left out

    @asynccontextmanager
    async def turn(self, gone: Awaitable[None], patience: float) -> AsyncIterator[None]:
        """The turn, for the length of the block. *gone* ends when the client has left.

        Raises QueueTimeout after *patience* seconds, ClientGone if nobody waits any more.
        """
        taking, leaving = asyncio.ensure_future(self._lock.acquire()), asyncio.ensure_future(gone)
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
        """The lock may have come in the same moment."""
        taking.cancel()
        await asyncio.wait({taking})
        if not taking.cancelled():
            self._lock.release()
