"""The network's edge: an HTTP server on loopback that answers as an API server does, or as a broken one.

What it answers is scripted: for each method and path (and apart, for watches of the path) a list of steps,
taken one by one; the last one is repeated.
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
class Request:
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
    """A whole answer."""

    body: Any = field(default_factory=dict)
    code: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


@dataclass(frozen=True)
class Events:
    """A watch: lines, and then the *end*: ``close`` it properly, ``hang``, ``truncate`` a chunk, ``reset``.

    Lines that an iterator makes come when it makes them.
    """

    lines: Iterable[Any] = ()
    end: str = "close"
    content_type: str = "application/json;stream=watch"


@dataclass(frozen=True)
class Stall:
    """Take the request and never answer."""


@dataclass(frozen=True)
class Reset:
    """Cut the connection in place of an answer."""


Step = Reply | Events | Stall | Reset | Callable[[Request], Reply]


class Edge:
    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._steps: dict[tuple[str, str, bool], list[Step]] = defaultdict(list)
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def on(self, method: str, path: str, *steps: Step) -> None:
        """Answer *method* requests of *path* (no watches) with *steps*, one after the other."""
        with self._lock:
            self._steps[method, path, False] += steps

    def on_watch(self, path: str, *steps: Step) -> None:
        """Answer watches of *path* with *steps*, one after the other."""
        with self._lock:
            self._steps["GET", path, True] += steps

    def seen(self, method: str = "GET", path: str | None = None, *, watch: bool = False) -> list[Request]:
        with self._lock:
            return [
                one
                for one in self.requests
                if one.method == method and path in (None, one.path) and one.is_watch == watch
            ]

    def take(self, request: Request) -> Step:
        with self._lock:
            self.requests.append(request)
            steps = self._steps[request.method, request.path, request.is_watch]
            if not steps:
                if request.is_watch:
                    return Events(end="hang")
                return Reply({"message": f"the test scripts no {request.method} {request.path}"}, 501)
            return steps.pop(0) if len(steps) > 1 else steps[0]

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, edge: Edge) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.edge = edge


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        length = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        query = dict(urllib.parse.parse_qsl(url.query))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, url.path, query, headers, body)
        step = self.server.edge.take(request)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._answer(step if isinstance(step, Reply | Events | Stall | Reset) else step(request))

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815 - the names that http.server looks for

    def _answer(self, step: Reply | Events | Stall | Reset) -> None:
        match step:
            case Reply():
                self._reply(step)
            case Events():
                self._events(step)
            case Stall():
                self.server.edge.closing.wait()
                self.close_connection = True
            case Reset():
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

    def _events(self, step: Events) -> None:
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
        """Say nothing."""


@contextlib.contextmanager
def serving() -> Iterator[Edge]:
    edge = Edge()
    try:
        yield edge
    finally:
        edge.close()


def status(code: int, message: str = "", reason: str = "", **details: Any) -> Reply:
    """A refusal in the API server's form."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return Reply(body | ({"details": details} if details else {}), code)
