"""A request in the proxy, and the operations that a fault can use."""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler
from typing import Final

from devcluster.faults.calls import ApiCall
from devcluster.faults.upstream import Connections, Headers, Upstream, UpstreamAnswer

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  #: SO_LINGER: closing sends RST


class ConnectionEnded(Exception):
    """The client's connection is closed."""


class ProxiedRequest:
    """A received request, and the connections to its client and to the server. Used by one thread only.

    Methods that communicate with the client or the server raise OSError or http.client.HTTPException if the connection
    breaks.
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
        self.status = 0  #: status code that was sent to the client; 0: none yet
        self.forwarded = False  #: whether the request was sent to the server
        self._handler, self._upstream, self._connections = handler, upstream, connections
        self._stopping = stopping
        self._until = contextlib.ExitStack()
        self._chunked = False

    def header(self, name: str) -> str:
        """Return the value of the header *name*, which must be in lower case, or ""."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    def forward(self) -> UpstreamAnswer:
        """Send the request to the server and return the response once its headers are received. Call it once only."""
        self.forwarded = True
        return self._until.enter_context(
            self._upstream.answering(self.method, self.target, self.headers, self.body, self._connections)
        )

    def wait(self, seconds: float) -> None:
        """Wait. Raises ConnectionEnded if the proxy drops its connections during the wait."""
        if self._stopping.wait(seconds):
            raise ConnectionEnded

    def begin(self, response: UpstreamAnswer) -> None:
        """Send the status and the headers to the client."""
        self.status = response.status
        self._chunked = response.length is None
        self._handler.send_response_only(response.status)
        for name, value in response.headers:
            self._handler.send_header(name, value)
        size = ("Transfer-Encoding", "chunked") if response.length is None else ("Content-Length", str(response.length))
        self._handler.send_header(*size)
        self._handler.end_headers()

    def write(self, data: bytes) -> None:
        """Send a part of the body to the client."""
        if data:
            self._handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def finish(self) -> None:
        """Send the end of the body."""
        if self._chunked:
            self._handler.wfile.write(b"0\r\n\r\n")

    def pass_on(self, response: UpstreamAnswer, chunks: Iterable[bytes] | None = None) -> None:
        """Send the whole response to the client, or *chunks* in place of its body."""
        self.begin(response)
        for chunk in response.chunks if chunks is None else chunks:
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
