"""The HTTP server for ``--listen-address``: /metrics, /healthz, /readyz and /statusz; liveness and readiness."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from anyio import CapacityLimiter, to_thread
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from rescheduler.clock import Clock
from rescheduler.net.server import FRAMES
from rescheduler.observe.prepared_pages import PreparedPages, RenderedMetrics
from rescheduler.observe.status import Status
from rescheduler.pages.element import policy

# Liveness and readiness of the daemon.

#: The loop counts as alive if its last heartbeat is at most this many housekeeping intervals, or this many seconds,
#: old. Requests to an API server that does not respond take a while to time out.
INTERVALS: Final = 6
LEAST_SECONDS: Final = 180.0


class Health:
    """Records the loop's heartbeat for the probes. Thread-safe."""

    def __init__(
        self,
        clock: Clock,
        interval: float,
        ready: Callable[[], bool],
        missing: Callable[[], str] = lambda: "the cluster has not been read yet",
    ) -> None:
        """Create the probes for rounds that are *interval* seconds apart.

        *ready* returns whether the cluster was read; *missing* returns why it was not.
        """
        self._clock = clock
        self._patience = max(INTERVALS * interval, LEAST_SECONDS)
        self._ready = ready
        self._missing = missing
        self._last_beat = clock.monotonic()

    def beat(self) -> None:
        """Record a heartbeat."""
        self._last_beat = self._clock.monotonic()

    def silence(self) -> float | None:
        """Return the seconds since the last heartbeat if it is overdue, else None."""
        seconds = self._clock.monotonic() - self._last_beat
        return seconds if seconds > self._patience else None

    @property
    def unready(self) -> str:
        """Why the daemon is not ready, or "" if it is."""
        return "" if self._ready() else self._missing()


#: Maximum number of concurrent metrics requests. They use worker threads; probes do not.
_METRICS_THREADS: Final = 2

Page: TypeAlias = Callable[[Request], Awaitable[Response]]


#: Pages that a server can serve.
ServedPages: TypeAlias = Starlette


def application(
    registry: CollectorRegistry,
    health: Health,
    status: Status | None = None,
    prepared: PreparedPages | None = None,
) -> Starlette:
    """Return the pages as an ASGI application. Without *status* there is no /statusz.

    Pages that were *prepared* are served as they are; all others are rendered on request.
    """
    exposition = prepared.metrics if prepared is not None else RenderedMetrics(registry, keep=0)
    pages = {"/statusz": _statusz(prepared or PreparedPages(registry, status))} if status else {}
    pages |= {"/metrics": _metrics(exposition), "/healthz": _healthz(health), "/readyz": _readyz(health)}
    pages = {"/": _index(tuple(pages))} | pages
    return Starlette(routes=[Route(path, page, methods=["GET"]) for path, page in pages.items()])


def _metrics(exposition: RenderedMetrics) -> Page:
    limiter = CapacityLimiter(_METRICS_THREADS)

    async def metrics(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        ready = exposition.cached(accept)
        if ready is None:
            ready = await to_thread.run_sync(exposition.current, accept, limiter=limiter)
        return Response(ready[0], media_type=ready[1])

    return metrics


def _healthz(health: Health) -> Page:
    async def healthz(_: Request) -> Response:
        silence = health.silence()
        if silence is None:
            return PlainTextResponse("ok\n")
        return PlainTextResponse(f"no heartbeat of the loop for {silence:.0f} s\n", status_code=503)

    return healthz


def _readyz(health: Health) -> Page:
    async def readyz(_: Request) -> Response:
        why = health.unready
        return PlainTextResponse(f"{why}\n", status_code=503) if why else PlainTextResponse("ok\n")

    return readyz


def _index(paths: Sequence[str]) -> Page:
    links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in paths)
    html = f"<!doctype html><title>spot-rescheduler</title><h1>spot-rescheduler</h1><ul>{links}</ul>"

    async def index(_: Request) -> Response:
        return HTMLResponse(html)

    return index


def _statusz(pages: PreparedPages) -> Page:
    limiter = CapacityLimiter(1)

    async def statusz(request: Request) -> Response:
        # A query may have thousands of fields, so it is not parsed.
        as_json = b"format=json" in request.scope["query_string"].split(b"&")
        as_html = "text/html" in request.headers.get("accept", "") and not as_json
        rendered = pages.html if as_html else pages.plain
        cached = rendered.cached()
        content, tag = cached if cached is not None else await to_thread.run_sync(rendered.current, limiter=limiter)
        headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept"}
        if as_html:
            headers["Content-Security-Policy"] = f"{policy(live=True)}; {FRAMES}"
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type="text/html" if as_html else "application/json", headers=headers)

    return statusz
