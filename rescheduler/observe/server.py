"""The HTTP server for ``--listen-address``: /metrics, /healthz, /readyz and /statusz."""

import contextlib
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeAlias

import uvicorn
from anyio import CapacityLimiter, to_thread
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from rescheduler.clock import Clock, SystemClock
from rescheduler.errors import ReschedulerError
from rescheduler.observe.connection import HttpConnection
from rescheduler.observe.health import Health
from rescheduler.observe.status import Board, Status, as_html, as_json
from rescheduler.settings import Address

_STOP_SECONDS: Final = 5.0
#: How long a rendered page is cached, in seconds.
_PAGE_SECONDS: Final = 1.0
#: Maximum number of concurrent metrics requests. They use worker threads; probes do not.
_METRICS_THREADS: Final = 2

Page: TypeAlias = Callable[[Request], Awaitable[Response]]


def application(registry: CollectorRegistry, health: Health, status: Status | None = None) -> Starlette:
    """Return the pages as an ASGI application. Without *status* there is no /statusz."""
    turns = CapacityLimiter(_METRICS_THREADS)

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(await to_thread.run_sync(encode, registry, limiter=turns), media_type=content_type)

    async def healthz(_: Request) -> Response:
        silence = health.silence()
        if silence is None:
            return PlainTextResponse("ok\n")
        return PlainTextResponse(f"no heartbeat of the loop for {silence:.0f} s\n", status_code=503)

    async def readyz(_: Request) -> Response:
        why = health.unready
        return PlainTextResponse(f"{why}\n", status_code=503) if why else PlainTextResponse("ok\n")

    async def index(_: Request) -> Response:
        links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in pages)
        return HTMLResponse(f"<!doctype html><title>spot-rescheduler</title><h1>spot-rescheduler</h1><ul>{links}</ul>")

    pages: dict[str, Page] = {"/statusz": _statusz(status)} if status else {}
    pages |= {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz}
    return Starlette(routes=[Route(path, page, methods=["GET"]) for path, page in ({"/": index} | pages).items()])


def _statusz(status: Status) -> Page:
    turn = CapacityLimiter(1)
    html, plain = Rendered(status, _html), Rendered(status, _json)

    async def statusz(request: Request) -> Response:
        for_people = "text/html" in request.headers.get("accept", "") and request.query_params.get("format") != "json"
        content = await to_thread.run_sync((html if for_people else plain).current, limiter=turn)
        return Response(content, media_type="text/html" if for_people else "application/json")

    return statusz


def _html(board: Board) -> bytes:
    return as_html(board).encode()


def _json(board: Board) -> bytes:
    return json.dumps(as_json(board), ensure_ascii=False, separators=(",", ":")).encode()


class Rendered:
    """A cached page of the status board, rendered on request, at most once per board and second."""

    def __init__(self, status: Status, render: Callable[[Board], bytes], clock: Clock | None = None) -> None:
        self._status, self._render, self._clock = status, render, clock or SystemClock()
        self._lock = threading.Lock()
        self._board: Board | None = None
        self._content = b""
        self._until = 0.0

    def current(self) -> bytes:
        """Return the current page, or the cached one if it is less than a second old."""
        with self._lock:
            now, board = self._clock.monotonic(), self._status.board
            if board is not self._board and (self._board is None or now >= self._until):
                self._content = self._render(board)
                self._board, self._until = board, now + _PAGE_SECONDS
            return self._content


@contextlib.contextmanager
def serving(application: Starlette, address: Address, flag: str = "--listen-address") -> Iterator[Address]:
    """Serve *application* in a separate thread while the block runs. Yield the address with the actual port.

    Raises ReschedulerError naming the *flag* if the address cannot be used.
    """
    settings = uvicorn.Config(
        application, log_config=None, access_log=False, lifespan="off", ws="none", http=HttpConnection
    )
    with running(settings, listen(address, flag), "http", _STOP_SECONDS) as port:
        yield Address(address.host, port)


@contextlib.contextmanager
def running(
    settings: uvicorn.Config, listener: socket.socket, name: str, patience: float | None = None
) -> Iterator[int]:
    """Serve *listener* in a thread *name* while the block runs. Yield its port, and close the listener at the end.

    Then wait for requests in progress: *patience* seconds, or as long as *settings* allow.
    """
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, args=([listener],), name=name, daemon=patience is not None)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(patience)
        listener.close()


def listen(address: Address, flag: str) -> socket.socket:
    """Return a listening socket. It is not created by the server, so that errors in the address can be reported.

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
        listener.listen()
    except OSError as error:
        listener.close()
        raise ReschedulerError(f"{flag} {address}: cannot listen there: {error.strerror}") from error
    return listener
