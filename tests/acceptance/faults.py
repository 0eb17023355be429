"""Faults between the program and its servers, and forwarding of requests without a fault."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx2

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

#: Special values of a status: close the connection, or do not respond.
CLOSED: Final = 0
SILENT: Final = -1

_OURS: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection"})  #: hop-by-hop headers


@dataclass(frozen=True, slots=True)
class WriteFault:
    """A fault for the next writes with that *name*; with *acted*, they take effect."""

    name: str
    status: int  #: or CLOSED, or SILENT
    acted: bool = False
    times: int = 1
    body: str = '{"message": "injected"}'
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def on(self, node: str) -> "WriteFault":
        """Return the fault with ``{}`` in its *name* replaced by the node."""
        return replace(self, name=self.name.format(node))


async def misbehave(fault: WriteFault, receive: Receive, send: Send) -> None:
    if fault.status > 0:
        body = fault.body.encode() if fault.status != 204 else b""
        length = [(b"content-length", str(len(body)).encode())] if body else []
        headers = [(b"content-type", b"application/json"), *length, *fault.headers]
        await send({"type": "http.response.start", "status": fault.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return
    if fault.status == CLOSED:
        # uvicorn's `send` is a method of an object that has the transport.
        send.__self__.transport.abort()  # type: ignore[attr-defined]
    while (await receive())["type"] != "http.disconnect":
        pass


def passing(upstream: httpx2.AsyncClient, scope: Message, body: bytes) -> Callable[[Send], Awaitable[None]]:
    """Return a function that forwards the request and streams its response to a `send`."""

    async def handed_on(send: Send) -> None:
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        headers = [(name, value) for name, value in scope["headers"] if name not in _OURS]
        request = upstream.build_request(scope["method"], target.decode(), headers=headers, content=body or None)
        response = await _sent(upstream.send(request, stream=True))
        try:
            kept = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in _OURS]
            await send({"type": "http.response.start", "status": response.status_code, "headers": kept})
            async for part in response.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await response.aclose()

    return handed_on


#: Requests whose client has disconnected; asyncio itself does not keep tasks.
_abandoned: set[asyncio.Task[None]] = set()


async def _sent(sending: Coroutine[Any, Any, httpx2.Response]) -> httpx2.Response:
    """Wait for the start of a response. If this is canceled, close the response when it starts.

    A canceled TLS handshake would leave its connection open.
    """
    request = asyncio.ensure_future(sending)
    try:
        return await asyncio.shield(request)
    except asyncio.CancelledError:
        closing = asyncio.create_task(_closed(request))
        _abandoned.add(closing)
        closing.add_done_callback(_abandoned.discard)
        raise


async def _closed(request: asyncio.Future[httpx2.Response]) -> None:
    with contextlib.suppress(httpx2.TransportError):
        await (await request).aclose()


def keeping(response: list[Message]) -> Send:
    async def keep(message: Message) -> None:
        response.append(message)

    return keep


async def while_there(receive: Receive, passing: Awaitable[None]) -> None:
    """Run *passing*, and cancel it if the client disconnects."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(passing), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        working.cancel()
        await asyncio.wait({working, leaving})
    if not working.cancelled():
        working.result()
