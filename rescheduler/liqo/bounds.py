"""Bounds on what a client may send, and on how long it may take to send it and to take the answer."""

import asyncio
import contextlib
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rescheduler.liqo.answers import problem

MAX_BODY: Final = 4 << 20  #: bytes; a kubeconfig has some 10 KiB
BODY_SECONDS: Final = 30.0  #: for a request's body to arrive
TAKING_SECONDS: Final = 60.0  #: for a client to take a part of its answer


class Bounded:
    """An ASGI application that sees whole bodies of bounded size."""

    def __init__(
        self,
        application: ASGIApp,
        *,
        max_body: int = MAX_BODY,
        body_seconds: float = BODY_SECONDS,
        taking_seconds: float = TAKING_SECONDS,
    ) -> None:
        self._application, self._max_body = application, max_body
        self._body_seconds, self._taking_seconds = body_seconds, taking_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            async with asyncio.timeout(self._taking_seconds):
                await send(message)

        with contextlib.suppress(TimeoutError):
            refusal: ASGIApp
            try:
                async with asyncio.timeout(self._body_seconds):
                    body = await self._body(receive)
            except TimeoutError:
                refusal = problem(408, f"the body did not arrive within {self._body_seconds:g} s")
            else:
                if body is None:
                    return
                if len(body) <= self._max_body:
                    await self._application(scope, _replay(body, receive), sending)
                    return
                refusal = problem(413, f"the body is larger than {self._max_body} bytes")
            refusal.headers["connection"] = "close"
            await refusal(scope, receive, sending)

    async def _body(self, receive: Receive) -> bytes | None:
        """As far as the bound and a little further; `None` where the client has gone."""
        body = bytearray()
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if len(body) > self._max_body or not message.get("more_body", False):
                return bytes(body)
        return None


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body once, then what follows it: the client's leaving."""
    read = False

    async def replayed() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
