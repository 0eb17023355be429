"""The accept loop of our servers: connections are counted before their handshake, and cost little until then.

asyncio's own server starts a TLS handshake for each connection that it accepts, without a limit on their number. A
client without credentials could so use up the descriptors and the memory of the process, and with them the probes of
all its ports. Here, a connection waits for its first data in the kernel, the number of connections is limited in total
and for each address, and when a limit is reached, idle connections make room for new ones.
"""

import asyncio
import errno
import ipaddress
import logging
import resource
import socket
import ssl
import traceback
from asyncio import sslproto
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol

from rescheduler.net.connection import CLOSE_SECONDS

#: Maximum number of connections of one server.
MAX_CONNECTIONS: Final = 512
#: The share of the process's file descriptors that one server may use: with two servers and the proxy's connections
#: to its backend, a quarter is left for the program itself.
DESCRIPTOR_SHARE: Final = 4
#: The share of the connections that one address may have.
ADDRESS_SHARE: Final = 2
#: Time limit for a TLS handshake, from accepting the connection, in seconds.
HANDSHAKE_SECONDS: Final = 5.0

#: Connections that the kernel keeps until they are accepted.
BACKLOG: Final = 1024
#: Connections that are accepted before those that were accepted earlier are served.
_AT_ONCE: Final = 16
#: How long to wait after an error of accept(), in seconds. Common causes are descriptors and memory.
_PAUSE_SECONDS: Final = 0.1
_LOG_SECONDS: Final = 60.0

#: The header of a TLS record: its type, version and length (RFC 8446, 5.1).
_RECORD_HEADER: Final = 5
_HANDSHAKE_RECORD: Final = 22
_LONGEST_RECORD: Final = 1 << 14
_IPV6_SITE: Final = 64  #: bits of an IPv6 address that identify a site; a client can use all addresses within it

#: asyncio gives each TLS connection a buffer of this size (256 KiB by default), which it fills with zeros.
_TLS_BUFFER: Final = 16 << 10

_GONE: Final = frozenset({errno.ECONNABORTED, errno.EAGAIN, errno.EINTR})

log = logging.getLogger(__name__)


class AcceptedProtocol(Protocol):
    """An asyncio protocol, with what the accept loop has to know of it."""

    lost: asyncio.Future[None]  #: done when the connection is closed
    transport: Any  #: the asyncio transport; None until the handshake is over

    @property
    def idle(self) -> bool:
        """Whether the connection may be closed for another one."""

    @property
    def last_received(self) -> float:
        """When the client last sent data, on the event loop's clock; 0 if it has sent nothing."""


class AcceptLoop:
    """Accepts the connections of *listener* until closed. For the thread of a running event loop.

    *protocol* creates the protocol of a connection that has sent its first data; *tls* is the context of its handshake.
    *most* is the maximum number of connections.
    """

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], AcceptedProtocol],
        tls: ssl.SSLContext | None = None,
        most: int | None = None,
    ) -> None:
        self._listener, self._protocol, self._tls, self._most = listener, protocol, tls, most
        self._loop = asyncio.get_running_loop()
        self._connections: OrderedDict[ClientConnection, None] = OrderedDict()  #: oldest first
        self._of_host: Counter[str] = Counter()
        self._failures, self._refusals = MinuteLog(self._loop.time), MinuteLog(self._loop.time)
        self._retry: asyncio.TimerHandle | None = None
        sslproto.SSLProtocol.max_size = _TLS_BUFFER
        listener.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Stop accepting, and close the connections that have sent no request yet."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._listener)
        for connection in self._connections:
            if not connection.established:
                connection.close()

    async def wait_closed(self) -> None:
        """Wait until all connections are closed."""
        if tasks := [connection.task for connection in self._connections if connection.task is not None]:
            await asyncio.wait(tasks)

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                client, address = self._listener.accept()
            except OSError as error:
                if error.errno not in _GONE:
                    self._pause(error)
                return
            self._admit(client, str(address[0]))

    def _pause(self, error: OSError) -> None:
        self._failures.warn("cannot accept connections:", error.strerror)
        self._loop.remove_reader(self._listener)
        self._retry = self._loop.call_later(_PAUSE_SECONDS, self._resume)

    def _admit(self, client: socket.socket, address: str) -> None:
        client.setblocking(False)
        connection = ClientConnection(client_group(address), self._loop.time())
        self._connections[connection] = None
        self._of_host[connection.host] += 1
        most = max_connections() if self._most is None else self._most
        too_many_of_host = self._of_host[connection.host] > most // ADDRESS_SHARE
        if too_many_of_host or len(self._connections) > most:
            self._refusals.warn("too many connections: the longest-idle one was closed; the newest is from", address)
            ended = self._longest_idle(connection, connection.host if too_many_of_host else None)
            self._forget(ended)
            ended.close()
            if ended is connection:
                client.close()
                return
        connection.task = self._loop.create_task(self._serve(client, connection))
        connection.task.add_done_callback(lambda _: self._ended(client, connection))

    def _longest_idle(self, new: "ClientConnection", host: str | None) -> "ClientConnection":
        """Return the connection to close, of *host* or of the client with the most connections.

        Those that have sent nothing yet go first. So clients that hold connections cannot lock out others, in
        particular the kubelet's probes, even from the same address. If none is idle, the new connection is closed.
        """
        counts = [self._of_host[host]] if host else sorted(set(self._of_host.values()), reverse=True)
        for most in counts:
            candidates = [
                each
                for each in self._connections
                if each is not new and each.idle and self._of_host[each.host] == most and host in (None, each.host)
            ]
            if candidates:
                silent = next(filter(ClientConnection.has_sent_nothing, candidates), None)
                return silent or min(candidates, key=lambda connection: connection.last_received)
        return new

    def _forget(self, connection: "ClientConnection") -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._of_host[connection.host] -= 1
            if not self._of_host[connection.host]:
                del self._of_host[connection.host]

    async def _serve(self, client: socket.socket, connection: "ClientConnection") -> None:
        """Serve a connection until it is closed."""
        try:
            await self._begin(client, connection)
            if connection.protocol is not None:
                await connection.protocol.lost
        except (OSError, TimeoutError, asyncio.CancelledError) as error:
            # Frames and exceptions refer to each other. They would keep 70 KB for each failed handshake until the
            # garbage collector finds them.
            traceback.clear_frames(error.__traceback__)

    def _ended(self, client: socket.socket, connection: "ClientConnection") -> None:
        self._forget(connection)
        if connection.protocol is None:
            client.close()  # otherwise, its transport closes it
        connection.task = connection.protocol = None

    async def _begin(self, client: socket.socket, connection: "ClientConnection") -> None:
        if self._tls is None:
            await self._loop.connect_accepted_socket(connection.started(self._protocol), client)
            return
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            if await self._sent_record(client):
                await self._loop.connect_accepted_socket(
                    connection.started(self._protocol),
                    client,
                    ssl=self._tls,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS,
                    ssl_shutdown_timeout=CLOSE_SECONDS,
                )

    async def _sent_record(self, client: socket.socket) -> bool:
        """Wait for the first TLS record, and return whether the client has sent a whole one.

        OpenSSL allocates 50 KB before it reads the first byte.
        """
        needed = _RECORD_HEADER
        head = await self._peeked(client, needed)
        length = int.from_bytes(head[3:])
        if len(head) == needed and head[0] == _HANDSHAKE_RECORD and length <= _LONGEST_RECORD:
            needed += length
            head = await self._peeked(client, needed)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        return len(head) == needed

    async def _peeked(self, client: socket.socket, size: int) -> bytes:
        """Return the first *size* bytes, which stay in the kernel; fewer if the client has closed its side."""
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
        ready = asyncio.Event()
        self._loop.add_reader(client, ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_reader(client)
        return client.recv(size, socket.MSG_PEEK)


class ClientConnection:
    """A connection from the moment it is accepted; *host* groups the connections of one client."""

    def __init__(self, host: str, since: float) -> None:
        self.host, self._since = host, since
        self.protocol: AcceptedProtocol | None = None
        self.task: asyncio.Task[None] | None = None

    def started(self, protocol: Callable[[], AcceptedProtocol]) -> Callable[[], Any]:
        """Return a factory of the protocol, which is used once."""

        def create() -> AcceptedProtocol:
            self.protocol = protocol()
            return self.protocol

        return create

    @property
    def established(self) -> bool:
        """Whether the handshake is over."""
        return self.protocol is not None and self.protocol.transport is not None

    @property
    def idle(self) -> bool:
        return self.protocol is None or self.protocol.idle

    def has_sent_nothing(self) -> bool:
        return self.protocol is None or not self.protocol.last_received

    @property
    def last_received(self) -> float:
        """When the client last sent a part of a request, or was accepted, on the event loop's clock."""
        return max(self._since, self.protocol.last_received if self.protocol is not None else 0.0)

    def close(self) -> None:
        if self.protocol is not None and self.protocol.transport is not None:
            self.protocol.transport.abort()
        elif self.task is not None:
            self.task.cancel()


class MinuteLog:
    """Logs a warning at most once a minute, with the number of those that were not logged."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._next, self._skipped = 0.0, 0

    def warn(self, message: str, detail: object) -> None:
        now = self._seconds()
        if now < self._next:
            self._skipped += 1
            return
        more = f" ({self._skipped} more since the last line)" if self._skipped else ""
        log.warning("%s %s%s", message, detail, more)
        self._next, self._skipped = now + _LOG_SECONDS, 0


def max_connections(descriptors: int = 1) -> int:
    """Return the maximum number of connections of one server, each of which takes so many file *descriptors*."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, limit // DESCRIPTOR_SHARE // descriptors)


def client_group(address: str) -> str:
    """Return what the connections of one client have in common: the IPv4 address, or the site of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_SITE), strict=False))
