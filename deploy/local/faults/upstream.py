"""The server behind the proxy, and its answers."""

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

#: Of one connection, not of the request; the proxy never asks for compressed answers, so that it can read them.
_OF_CONNECTION: Final = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})
_CHUNK: Final = 1 << 16


class Connections:
    """Open sockets, so that any thread can end them all."""

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
        """Wake whoever reads from one of them."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)  # past TLS, which belongs to its thread


@dataclass(frozen=True, slots=True)
class UpstreamAnswer:
    """What the server answered; the body is read as it is wanted."""

    status: int
    headers: Headers
    chunks: Iterable[bytes]
    length: int | None = None  #: of the body; None where it is not known, as for a watch

    @property
    def content_type(self) -> str:
        return next((value for name, value in self.headers if name.lower() == "content-type"), "")

    def read(self) -> "UpstreamAnswer":
        """The same answer with its whole body at hand."""
        body = b"".join(self.chunks)
        return UpstreamAnswer(self.status, self.headers, (body,), len(body))

    @property
    def body(self) -> bytes:
        """All of it; only once, unless the answer is one of `read`."""
        return b"".join(self.chunks)


@dataclass(frozen=True, slots=True)
class Upstream:
    """The server that requests are passed on to; *trusted* is None for plain HTTP."""

    url: str
    trusted: ssl.SSLContext | None = None

    @contextlib.contextmanager
    def answering(
        self, method: str, target: str, headers: Headers, body: bytes, connections: Connections
    ) -> Iterator[UpstreamAnswer]:
        """Send one request over a connection of its own; the answer as soon as its headers are there.

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
        where = urlsplit(self.url)
        assert where.hostname is not None
        if self.trusted is not None:
            return http.client.HTTPSConnection(where.hostname, where.port, context=self.trusted)
        return http.client.HTTPConnection(where.hostname, where.port)


def end_to_end(headers: Headers) -> Headers:
    """The headers that are passed on."""
    return [(name, value) for name, value in headers if name.lower() not in _OF_CONNECTION]


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while chunk := response.read1(_CHUNK):
        yield chunk
