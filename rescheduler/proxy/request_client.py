"""The client of a request: the body that it sends, and whether it has disconnected."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]


class ClientGone(Exception):
    """The client has disconnected."""


class ClientSlow(Exception):
    """The client did not send the announced body in time."""


class RequestClient:
    """The client of a request, first for its body and then for its disconnect."""

    def __init__(self, receive: Receive, patience: float, *, sends: bool) -> None:
        self.receive, self.sends = receive, sends
        self._patience = patience
        self._sent = asyncio.Event()
        if not sends:
            self._sent.set()

    async def body(self) -> AsyncIterator[bytes]:
        while True:
            try:
                message = await asyncio.wait_for(self.receive(), self._patience)
            except TimeoutError:
                raise ClientSlow(f"no more of the request's body arrived for {self._patience:g} s") from None
            if message["type"] == "http.disconnect":
                raise ClientGone
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body", False):
                self._sent.set()
                return

    @asynccontextmanager
    async def cancel_on_disconnect(self) -> AsyncIterator[None]:
        """Run the block, and cancel it without an error when the client disconnects."""
        working = asyncio.current_task()
        assert working is not None
        left = over = False

        def leave(_: object) -> None:
            nonlocal left
            if not over:
                left = True
                working.cancel()

        watching = asyncio.ensure_future(self._wait_for_disconnect())
        watching.add_done_callback(leave)
        try:
            yield
        except asyncio.CancelledError:
            if not left or working.uncancel():  # another task also canceled it
                raise
        finally:
            over = True
            watching.cancel()

    async def _wait_for_disconnect(self) -> None:
        await self._sent.wait()
        await disconnected(self.receive)


async def disconnected(receive: Receive) -> None:
    """Wait until the client disconnects; its request must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
