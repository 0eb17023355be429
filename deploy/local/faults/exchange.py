"""One request on its way through the proxy, and what a fault can do with it."""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler
from typing import Final

from deploy.local.faults.calls import ApiCall
from deploy.local.faults.upstream import Connections, Headers, Upstream, UpstreamAnswer

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  #: SO_LINGER: closing sends RST


class ConnectionEnded(Exception):
    """The client's connection is closed: the exchange is over."""


class ProxiedRequest:
    """A request that arrived, and the way to its client and to the server. For the thread of its connection.

    The methods that talk to the client or to the server raise OSError, or http.client.HTTPException, where the
    connection breaks.
    """

    def __init__(
        self,
        call: ApiCall,
        body: bytes,
        handler: BaseHTTPRequestHandler,
        upstream: Upstream,
        connections: Connections,
        stopping: threading.Event,
    ) -> None:
        self.call, self.body = call, body
        self.method, self.target = handler.command, handler.path
        self.headers: Headers = handler.headers.items()
        self.status = 0  #: of the answer that the client was given; 0: none
        self.forwarded = False  #: whether the server got it
        self._handler, self._upstream, self._connections = handler, upstream, connections
        self._stopping = stopping
        self._until = contextlib.ExitStack()
        self._chunked = False

    def header(self, wanted: str) -> str:
        """The value of the header, by its name in lower case; "" where there is none."""
        return next((value for name, value in self.headers if name.lower() == wanted), "")

    def forward(self) -> UpstreamAnswer:
        """Send the request to the server; its answer as soon as the headers are there. At most once."""
        self.forwarded = True
        return self._until.enter_context(
            self._upstream.answering(self.method, self.target, self.headers, self.body, self._connections)
        )

    def wait(self, seconds: float) -> None:
        """Let time pass. Raises ConnectionEnded where the proxy drops its connections meanwhile."""
        if self._stopping.wait(seconds):
            raise ConnectionEnded

    def begin(self, answer: UpstreamAnswer) -> None:
        """Give the client the status and the headers."""
        self.status = answer.status
        self._chunked = answer.length is None
        self._handler.send_response_only(answer.status)
        for name, value in answer.headers:
            self._handler.send_header(name, value)
        size = ("Transfer-Encoding", "chunked") if answer.length is None else ("Content-Length", str(answer.length))
        self._handler.send_header(*size)
        self._handler.end_headers()

    def write(self, data: bytes) -> None:
        """Give the client a part of the body."""
        if data:
            self._handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def finish(self) -> None:
        """The body has ended."""
        if self._chunked:
            self._handler.wfile.write(b"0\r\n\r\n")

    def pass_on(self, answer: UpstreamAnswer, chunks: Iterable[bytes] | None = None) -> None:
        """Give the client the whole answer, or one with *chunks* in place of its body, as long as that."""
        self.begin(answer)
        for chunk in answer.chunks if chunks is None else chunks:
            self.write(chunk)
        self.finish()

    def reset(self) -> None:
        """Reset the client's connection (RST). Raises ConnectionEnded."""
        client = self._handler.connection
        with contextlib.suppress(OSError):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            os.close(client.detach())
        raise ConnectionEnded

    def release(self) -> None:
        """Close the connection to the server."""
        self._until.close()
