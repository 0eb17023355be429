"""A scripted HTTP server on loopback that responds like an API server or like a broken one.

Each method and path, and separately each watch of a path, has a list of responses, which are used one by one. The last
one is repeated.
"""

import contextlib
import io
import json
import socket
import threading
import urllib.parse
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class ReceivedRequest:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"


@dataclass(frozen=True)
class Reply:
    """A complete response."""

    body: Any = field(default_factory=dict)
    code: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


@dataclass(frozen=True)
class WatchReply:
    """A watch: the lines, and then the *end*: ``close`` properly, ``hang``, ``truncate`` a chunk, or ``reset``.

    Lines of an iterator are sent when it yields them.
    """

    lines: Iterable[Any] = ()
    end: str = "close"
    content_type: str = "application/json;stream=watch"


@dataclass(frozen=True)
class StallReply:
    """Receive the request and never respond."""


@dataclass(frozen=True)
class ResetReply:
    """Reset the connection instead of responding."""


Step = Reply | WatchReply | StallReply | ResetReply | Callable[[ReceivedRequest], Reply]


class ScriptedApiServer:
    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self._steps: dict[tuple[str, str, bool], list[Step]] = defaultdict(list)
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self._server = _ScriptedServer(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def on(self, method: str, path: str, *steps: Step) -> None:
        """Respond to *method* requests of *path* (no watches) with *steps*, one after the other."""
        with self._lock:
            self._steps[method, path, False] += steps

    def on_watch(self, path: str, *steps: Step) -> None:
        """Respond to watches of *path* with *steps*, one after the other."""
        with self._lock:
            self._steps["GET", path, True] += steps

    def seen(self, method: str = "GET", path: str | None = None, *, watch: bool = False) -> list[ReceivedRequest]:
        with self._lock:
            return [
                request
                for request in self.requests
                if request.method == method and path in (None, request.path) and request.is_watch == watch
            ]

    def take(self, request: ReceivedRequest) -> Step:
        with self._lock:
            self.requests.append(request)
            steps = self._steps[request.method, request.path, request.is_watch]
            if not steps:
                if request.is_watch:
                    return WatchReply(end="hang")
                return Reply({"message": f"the test scripts no {request.method} {request.path}"}, 501)
            return steps.pop(0) if len(steps) > 1 else steps[0]

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _ScriptedServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, edge: ScriptedApiServer) -> None:
        super().__init__(("127.0.0.1", 0), _ScriptedHandler)
        self.edge = edge


class _ScriptedHandler(BaseHTTPRequestHandler):
    server: "_ScriptedServer"

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        length = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        query = dict(urllib.parse.parse_qsl(url.query))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = ReceivedRequest(self.command, url.path, query, headers, body)
        step = self.server.edge.take(request)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._answer(step if isinstance(step, Reply | WatchReply | StallReply | ResetReply) else step(request))

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815 - the names that http.server looks for

    def _answer(self, step: Reply | WatchReply | StallReply | ResetReply) -> None:
        match step:
            case Reply():
                self._reply(step)
            case WatchReply():
                self._events(step)
            case StallReply():
                self.server.edge.closing.wait()
                self.close_connection = True
            case ResetReply():
                self._reset()

    def _reply(self, step: Reply) -> None:
        body = step.body if isinstance(step.body, bytes) else json.dumps(step.body).encode()
        self.send_response(step.code)
        for name, value in step.headers.items():
            self.send_header(name, value)
        self.send_header("content-type", step.content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _events(self, step: WatchReply) -> None:
        self.send_response(200)
        self.send_header("content-type", step.content_type)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for line in step.lines:
            self._chunk(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        self.close_connection = True
        match step.end:
            case "close":
                self._chunk(b"")
            case "hang":
                self.server.edge.closing.wait()
            case "truncate":
                self.wfile.write(b'40\r\n{"type": "MODIF')
            case "reset":
                self._reset()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _reset(self) -> None:
        self.close_connection = True
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # on, zero seconds: close() sends RST
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.rfile.close()
        self.wfile.close()
        self.connection.close()
        self.rfile, self.wfile = io.BytesIO(), io.BytesIO()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""


@contextlib.contextmanager
def serving() -> Iterator[ScriptedApiServer]:
    edge = ScriptedApiServer()
    try:
        yield edge
    finally:
        edge.close()


def status(code: int, message: str = "", reason: str = "", **details: Any) -> Reply:
    """Return an error response with a Status body."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return Reply(body | ({"details": details} if details else {}), code)
