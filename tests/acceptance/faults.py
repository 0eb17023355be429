"""What can go wrong between the program and whom it talks to; and requests handed on where nothing does."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

#: In place of a status: the connection is closed, or stays without an answer.
CLOSED: Final = 0
SILENT: Final = -1

_OURS: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection"})  #: of one connection


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of the next writes of that *name*; with *acted*, they are carried out before."""

    name: str
    status: int  #: or CLOSED, or SILENT
    acted: bool = False
    times: int = 1
    body: str = '{"message": "injected"}'
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def on(self, node: str) -> "Fault":
        """The same, where *name* has ``{}`` for the node."""
        return replace(self, name=self.name.format(node))


async def misbehave(fault: Fault, receive: Receive, send: Send) -> None:
    if fault.status > 0:
        body = fault.body.encode() if fault.status != 204 else b""
        length = [(b"content-length", str(len(body)).encode())] if body else []
        headers = [(b"content-type", b"application/json"), *length, *fault.headers]
        await send({"type": "http.response.start", "status": fault.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return
    if fault.status == CLOSED:
        # uvicorn's send is a method of the exchange, which holds the connection.
        send.__self__.transport.abort()  # type: ignore[attr-defined]
    while (await receive())["type"] != "http.disconnect":
        pass


def passing(upstream: httpx.AsyncClient, scope: Message, body: bytes) -> Callable[[Send], Awaitable[None]]:
    """What has the request carried out, and hands its answer to a `send`, part by part."""

    async def handed_on(send: Send) -> None:
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        headers = [(name, value) for name, value in scope["headers"] if name not in _OURS]
        request = upstream.build_request(scope["method"], target.decode(), headers=headers, content=body or None)
        answer = await upstream.send(request, stream=True)
        try:
            kept = [(name.lower(), value) for name, value in answer.headers.raw if name.lower() not in _OURS]
            await send({"type": "http.response.start", "status": answer.status_code, "headers": kept})
            async for part in answer.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await answer.aclose()

    return handed_on


def keeping(answer: list[Message]) -> Send:
    async def keep(message: Message) -> None:
        answer.append(message)

    return keep


async def while_there(receive: Receive, passing: Awaitable[None]) -> None:
    """A client that leaves takes its request along."""

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
