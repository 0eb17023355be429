"""Serve ASGI applications in separate threads."""

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE

from rescheduler.errors import ReschedulerError
from rescheduler.net.accepting import BACKLOG, AcceptLoop
from rescheduler.net.browsers import MISDIRECTED, SECURED, host_names, misdirected
from rescheduler.net.connection import HttpConnection
from rescheduler.settings import ListenAddress

_STOP_SECONDS: Final = 5.0

#: How often an idle server wakes up, in seconds: the Date header has whole seconds. Uvicorn itself wakes up ten times
#: as often.
_TICK_SECONDS: Final = 1.0

#: How long a computing thread delays the server's thread each time that thread waits for the interpreter, in seconds.
#: It waits several times per request, and Python's default is five times as long.
_SWITCH_SECONDS: Final = 0.001


class QuietServer(uvicorn.Server):
    """A server that uses little CPU while it has no requests, and stops at once."""

    def __init__(self, settings: uvicorn.Config) -> None:
        super().__init__(settings)
        self._woken: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, but with our own accept loops."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        self.servers = [AcceptLoop(listener, self._connection, self.config.ssl) for listener in sockets or ()]  # type: ignore[misc]
        self.started = True

    def _connection(self) -> HttpConnection:
        protocol: type[HttpConnection] = self.config.http_protocol_class  # type: ignore[assignment]
        return protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def main_loop(self) -> None:
        woken = asyncio.Event()
        self._woken = asyncio.get_running_loop(), woken
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), _TICK_SECONDS)

    def stop(self) -> None:
        """Signal the server to stop. May be called from any thread."""
        self.should_exit = True
        if self._woken is not None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                self._woken[0].call_soon_threadsafe(self._woken[1].set)


class SecuredPages:
    """An ASGI middleware that checks the Host header, and adds headers that limit what browsers do with the pages."""

    def __init__(self, application: ASGIApp, names: frozenset[str]) -> None:
        self._application, self._names = application, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                added = [(name, value) for name, value in SECURED.items() if name not in present]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        application = self._application
        if misdirected(scope["headers"], self._names):
            application = PlainTextResponse(f"{MISDIRECTED}\n", HTTPStatus.MISDIRECTED_REQUEST)
        await application(scope, receive, secured)


@contextlib.contextmanager
def serving(application: Starlette, address: ListenAddress, flag: str = "--listen-address") -> Iterator[ListenAddress]:
    """Serve *application* in a separate thread while the block runs. Yield the address with the actual port.

    Raises ReschedulerError naming the *flag* if the address cannot be used.
    """
    pages = SecuredPages(application, host_names(address.host))
    settings = uvicorn.Config(pages, log_config=None, access_log=False, lifespan="off", ws="none", http=HttpConnection)
    sys.setswitchinterval(min(_SWITCH_SECONDS, sys.getswitchinterval()))
    with running(settings, listen(address, flag), "http", _STOP_SECONDS) as port:
        yield ListenAddress(address.host, port)


@contextlib.contextmanager
def running(
    settings: uvicorn.Config, listener: socket.socket, name: str, patience: float | None = None
) -> Iterator[int]:
    """Serve *listener* in a thread *name* while the block runs. Yield its port, and close the listener at the end.

    Then wait for requests in progress, for *patience* seconds or as long as *settings* allow.
    """
    server = QuietServer(settings)
    thread = threading.Thread(target=server.run, args=([listener],), name=name, daemon=patience is not None)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.stop()
        thread.join(patience)
        listener.close()


def listen(address: ListenAddress, flag: str) -> socket.socket:
    """Return a listening socket. The server does not create it itself, so that errors in the address can be reported.

    Raises ReschedulerError naming the *flag* if the address cannot be used.
    """
    try:
        addresses = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # As in Go, prefer IPv4 for a name with addresses of both families.
        family, kind, protocol, _, socket_address = min(
            addresses, key=lambda candidate: candidate[0] is not socket.AF_INET
        )
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ReschedulerError(f"{flag} {address}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(socket_address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ReschedulerError(f"{flag} {address}: cannot listen there: {error.strerror}") from error
    return listener
