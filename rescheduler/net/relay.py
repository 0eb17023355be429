"""Connections that another server in this process handles, but that our accept loop counts and limits.
Separate from the gRPC server: it knows sockets, and no calls.

gRPC accepts connections itself, with a limit for all clients together only, so one of them could hold them all. It gets
its connections from here, on a socket of Linux's abstract namespace, byte by byte: TLS is between it and the client.
"""

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Iterator
from functools import partial
from secrets import token_hex
from typing import Any, Final, cast
from urllib.parse import unquote

from rescheduler.errors import ReschedulerError
from rescheduler.net.accepting import HANDSHAKE_SECONDS, AcceptLoop, max_connections
from rescheduler.net.server import listen
from rescheduler.settings import ListenAddress

#: File descriptors of a relayed connection: the client's, and both ends of that to the server.
_DESCRIPTORS: Final = 3
_SEPARATOR: Final = "/"  #: between the name of the server's socket and the client, in the name of our end
_LONGEST_NAME: Final = 107


def max_relayed() -> int:
    """Return the maximum number of connections, of which one address may have a half."""
    return max_connections(_DESCRIPTORS)


def socket_name() -> str:
    """Return a new name for the server's abstract socket."""
    return f"spot-rescheduler-{token_hex(8)}"


def client_of(peer: str) -> str:
    """Return the address of the client, from the name of our end of the connection as gRPC shows it."""
    return unquote(peer).rpartition(_SEPARATOR)[2]


def bound(address: ListenAddress, flag: str) -> socket.socket:
    """Return a listening socket; without a host, for IPv4 and IPv6. Raises ReschedulerError naming the *flag*."""
    if not address.host and socket.has_dualstack_ipv6():
        with contextlib.suppress(ReschedulerError):  # IPv6 is turned off
            return listen(ListenAddress("::", address.port), flag)
    return listen(address, flag)


@contextlib.contextmanager
def relaying(listener: socket.socket, name: str) -> Iterator[None]:
    """Relay the connections of *listener* to the abstract socket *name* while the block runs, then close them."""
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    def run() -> None:
        with contextlib.closing(loop), contextlib.closing(listener):
            loop.run_until_complete(_accept(listener, name, ended))

    thread = threading.Thread(target=run, name="relay")
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


async def _accept(listener: socket.socket, name: str, ended: asyncio.Event) -> None:
    relayed: set[RelayedConnection] = set()
    accepting = AcceptLoop(listener, partial(RelayedConnection, name, relayed), most=max_relayed())
    await ended.wait()
    accepting.close()
    for connection in relayed:
        connection.transport.abort()
    await accepting.wait_closed()


class _Side(asyncio.Protocol):
    """One side of a relayed connection: what it receives is sent to the *other* one."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.other: _Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self.other is not None:
            self.other.transport.close()


class RelayedConnection(_Side):
    """The client's side. The server's is opened when the client has sent its first data, for which it has 5 s."""

    def __init__(self, name: str, relayed: "set[RelayedConnection]") -> None:
        super().__init__()
        self._name, self._relayed = name, relayed
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.last_received = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Always: whether a call is in progress is known to the server only."""
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._relayed.add(self)
        self._timer = self._loop.call_later(HANDSHAKE_SECONDS, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        self.last_received = self._loop.time()
        if self.other is not None:
            super().data_received(data)
        elif self._timer is not None:
            self._timer.cancel()
            self.transport.pause_reading()
            self._opening = self._loop.create_task(self._open(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._relayed.discard(self)
        for pending in (self._timer, self._opening):
            if pending is not None:
                pending.cancel()
        super().connection_lost(exc)
        if not self.lost.done():
            self.lost.set_result(None)

    async def _open(self, data: bytes) -> None:
        """Connect to the server under a name that tells it who the client is, and send *data*."""
        own = socket.socket(socket.AF_UNIX)
        try:
            own.setblocking(False)
            own.bind(f"\0{self._name}{_SEPARATOR}{self._client()}"[:_LONGEST_NAME])
            own.connect(f"\0{self._name}")
            _, server = await self._loop.create_unix_connection(_Side, sock=own)
        except OSError:
            own.close()
            self.transport.abort()
            return
        server.other, self.other = self, server
        server.transport.write(data)
        self.transport.resume_reading()

    def _client(self) -> str:
        host, port = cast("tuple[str, int]", self.transport.get_extra_info("peername")[:2])
        parsed = ipaddress.ip_address(host.partition("%")[0])
        mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
        return str(ListenAddress(str(mapped or parsed), port))
