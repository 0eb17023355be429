"""The server behind the proxy, and its responses."""

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

Headers = list[tuple[str, str]]

#: Hop-by-hop headers. The proxy also drops accept-encoding, so that it can read the responses.
_OF_CONNECTION: Final = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})
_CHUNK: Final = 1 << 16


class Connections:
    """The open sockets, which any thread can shut down."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    @contextlib.contextmanager
    def holding(self, connection: socket.socket) -> Iterator[None]:
        with self._lock:
            self._open.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(connection)

    def shut(self) -> None:
        """Shut down all sockets, which wakes their readers."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    # below TLS, whose state belongs to another thread
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class UpstreamAnswer:
    """A response of the server; the body is read lazily."""

    status: int
    headers: Headers
    chunks: Iterable[bytes]
    length: int | None = None  #: bytes of the body; None if unknown, as for a watch

    def read(self) -> "UpstreamAnswer":
        """Return the response with its whole body in memory."""
        body = b"".join(self.chunks)
        return UpstreamAnswer(self.status, self.headers, (body,), len(body))

    @property
    def body(self) -> bytes:
        """The whole body; available only once, unless the response was returned by `read`."""
        return b"".join(self.chunks)


@dataclass(frozen=True, slots=True)
class Upstream:
    """The server that receives the forwarded requests; *trusted* is None for plain HTTP."""

    url: str
    trusted: ssl.SSLContext | None = None

    @contextlib.contextmanager
    def answering(
        self, method: str, target: str, headers: Headers, body: bytes, connections: Connections
    ) -> Iterator[UpstreamAnswer]:
        """Send a request over a new connection and yield the response once its headers are received.

        Raises OSError and http.client.HTTPException.
        """
        with contextlib.closing(self._connection()) as connection:
            connection.connect()
            with connections.holding(connection.sock):
                connection.putrequest(method, target, skip_accept_encoding=True)
                for name, value in end_to_end(headers):
                    connection.putheader(name, value)
                connection.putheader("Connection", "close")
                if body or method in ("POST", "PUT", "PATCH"):
                    connection.putheader("Content-Length", str(len(body)))
                connection.endheaders(body)
                with connection.getresponse() as response:
                    length = None if response.chunked else response.length
                    yield UpstreamAnswer(response.status, end_to_end(response.getheaders()), _chunks(response), length)

    def _connection(self) -> http.client.HTTPConnection:
        url = urlsplit(self.url)
        assert url.hostname is not None
        if self.trusted is not None:
            return http.client.HTTPSConnection(url.hostname, url.port, context=self.trusted)
        return http.client.HTTPConnection(url.hostname, url.port)


def end_to_end(headers: Headers) -> Headers:
    """Return the headers that are forwarded."""
    return [(name, value) for name, value in headers if name.lower() not in _OF_CONNECTION]


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while chunk := response.read1(_CHUNK):
        yield chunk
