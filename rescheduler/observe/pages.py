"""The HTTP server for ``--listen-address``: /metrics, /healthz, /readyz and /statusz."""

import hashlib
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from anyio import CapacityLimiter, to_thread
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from rescheduler.clock import Clock, SystemClock
from rescheduler.observe.health import Health
from rescheduler.observe.status import Board, Status, as_json
from rescheduler.observe.status_page import StatusPage

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
    page = StatusPage()
    html, plain = Rendered(status, lambda board: page.as_html(board).encode()), Rendered(status, _json)

    async def statusz(request: Request) -> Response:
        for_people = "text/html" in request.headers.get("accept", "") and request.query_params.get("format") != "json"
        rendered = html if for_people else plain
        cached = rendered.cached()
        content, tag = cached if cached is not None else await to_thread.run_sync(rendered.current, limiter=turn)
        headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type="text/html" if for_people else "application/json", headers=headers)

    return statusz


def _json(board: Board) -> bytes:
    return json.dumps(as_json(board), ensure_ascii=False, separators=(",", ":")).encode()


class Rendered:
    """A cached page of the status board, rendered on request, at most once per board and second."""

    def __init__(self, status: Status, render: Callable[[Board], bytes], clock: Clock | None = None) -> None:
        self._status, self._render, self._clock = status, render, clock or SystemClock()
        self._lock = threading.Lock()
        self._board: Board | None = None
        self._page = b"", ""
        self._until = 0.0

    def cached(self) -> tuple[bytes, str] | None:
        """Return the cached page if it may still be served, or while a new one is rendered; otherwise None."""
        if self._board is None:
            return None
        current = self._board is self._status.board or self._clock.monotonic() < self._until
        return self._page if current or self._lock.locked() else None

    def current(self) -> tuple[bytes, str]:
        """Return the current page and its entity tag, or the cached ones if they are less than a second old."""
        with self._lock:
            now, board = self._clock.monotonic(), self._status.board
            if board is not self._board and (self._board is None or now >= self._until):
                content = self._render(board)
                self._page = content, f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
                self._board, self._until = board, now + _PAGE_SECONDS
            return self._page
