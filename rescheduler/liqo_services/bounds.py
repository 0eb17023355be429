"""Limits on requests: their senders and size, and the time that clients take to send them and to receive responses."""

import asyncio
import contextlib
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rescheduler.liqo_services.answers import problem
from rescheduler.net import browsers

MAX_BODY: Final = 4 << 20  #: maximum bytes of a body; a kubeconfig has about 10 KiB
BODY_SECONDS: Final = 30.0  #: seconds to receive a request's body
TAKING_SECONDS: Final = 60.0  #: seconds for a client to receive a part of the response


class Bounded:
    """An ASGI middleware that passes on requests of programs with a complete body of limited size.

    *names* are the host names of the service; if there are none, requests may have any Host.
    """

    def __init__(
        self,
        application: ASGIApp,
        *,
        max_body: int = MAX_BODY,
        body_seconds: float = BODY_SECONDS,
        taking_seconds: float = TAKING_SECONDS,
        names: frozenset[str] = frozenset(),
    ) -> None:
        self._application, self._max_body = application, max_body
        self._names = names
        self._body_seconds, self._taking_seconds = body_seconds, taking_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if of_page := browsers.refusal(scope["method"], scope["headers"], self._names):
            await problem(int(of_page[0]), of_page[1])(scope, receive, send)
            return

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
        """Read the body, up to slightly more than the limit; `None` if the client has disconnected."""
        body = bytearray()
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if len(body) > self._max_body or not message.get("more_body", False):
                return bytes(body)
        return None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that yields the body once, and then the client's disconnect."""
    read = False

    async def replayed() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
