"""A client of Cherry Servers' API with pagination, a limited request rate, and plans cached for an hour."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rescheduler import decoding
from rescheduler.clock import Clock
from rescheduler.errors import DeadlineExceeded
from rescheduler.net.config_files import Endpoint
from rescheduler.net.http import JsonClient
from rescheduler.net.http_errors import UNREADABLE, HttpResponse, InvalidResponse, Missing
from rescheduler.providers.cherryservers.messages import CreateServer, Server, ServerPlan, error_text

_PAGE = 100
_MOST_PAGES = 1000
_DIGITS = 10  #: the largest total that is accepted
_PAUSE = 0.25  #: seconds between two requests: more than four per second may get a 429
_PLANS_SERVE = 3600.0  #: seconds for which plans are cached


class CherryClient:
    """A client of the API. Deadlines are on the clock's `monotonic`; errors are those of `net.http_errors`."""

    def __init__(self, endpoint: Endpoint, token: str, clock: Clock, secret: Callable[[], str] = lambda: "") -> None:
        """Create a client. *secret* returns an additional secret to remove from errors, "" if there is none."""

        def redacted(body: bytes) -> str:
            hidden = secret()
            return error_text(body).replace(hidden, "***") if hidden else error_text(body)

        self._clock = clock
        self._http = JsonClient("Cherry Servers", endpoint, Path(), clock, redacted, token, self._take_turn)
        self._closed = threading.Event()
        self._turn = threading.Lock()
        self._next = clock.monotonic()
        self._plans: tuple[float, Mapping[str, ServerPlan]] | None = None

    def close(self) -> None:
        self._closed.set()
        self._http.close()

    def servers(self, project: int, *, deadline: float) -> Sequence[Server]:
        """Return all servers of the project.

        If a server disappears while pages are read, another may move to a page already read; then all are read again.
        """
        servers, most = self._pages(project, deadline)
        if len(servers) < most:
            servers, _ = self._pages(project, deadline)
        return servers

    def _pages(self, project: int, deadline: float) -> tuple[Sequence[Server], int]:
        """Return the distinct servers of all pages, and the largest total that the API reported."""
        servers: dict[int, Server] = {}
        offset = most = 0
        for _ in range(_MOST_PAGES):
            params = {"limit": str(_PAGE), "offset": str(offset)}
            path = f"/projects/{project}/servers"
            page, response = self._http.get(path, list[Server] | None, deadline=deadline, params=params, strict=False)  # type: ignore[arg-type]
            listed: list[Server] = page or []
            fresh = any(server.id not in servers for server in listed)
            servers |= {server.id: server for server in listed}
            offset += len(listed)
            total = _total(response)
            most = max(most, total or 0)
            # Without a total, an API that ignores paging returns the same servers again and again.
            last = len(listed) < _PAGE or not fresh if total is None else offset >= total
            if last or not listed:
                return list(servers.values()), most
        raise InvalidResponse(f"Cherry Servers: project {project}: the list of servers does not end")

    def server(self, key: str, *, deadline: float) -> Server | None:
        try:
            return self._http.get(f"/servers/{key}", Server, deadline=deadline, strict=False)[0]
        except Missing:
            return None

    def create(self, request: CreateServer, *, deadline: float) -> Server | None:
        """Order a server with a single request; return the server if the response contains it."""
        response = self._http.send("POST", f"/projects/{request.project_id}/servers", request, deadline=deadline)
        try:
            return decoding.decode(response.body, Server, strict=False)
        except UNREADABLE:
            return None

    def delete(self, key: str, *, deadline: float) -> None:
        """Delete a server. IDs are not reused, so repeating the request is safe."""
        self._http.send("DELETE", f"/servers/{key}", deadline=deadline, repeatable=True)

    def plans(self, *, deadline: float) -> Mapping[str, ServerPlan]:
        """Return the plans by slug. A failed request does not discard the cached ones."""
        known = self._plans
        if known is not None and self._clock.monotonic() - known[0] < _PLANS_SERVE:
            return known[1]
        plans, _ = self._http.get("/plans", list[ServerPlan], deadline=deadline, strict=False)
        by_slug = {plan.slug: plan for plan in plans if plan.slug}
        self._plans = (self._clock.monotonic(), by_slug)
        return by_slug

    def _take_turn(self, deadline: float) -> None:
        with self._turn:
            turn = max(self._next, self._clock.monotonic())
            pause = turn - self._clock.monotonic()
            if turn >= deadline:
                raise DeadlineExceeded("Cherry Servers: no time left to wait for the rate limit")
            self._next = turn + _PAUSE
        if pause > 0:
            self._clock.wait(pause, self._closed)


def _total(response: HttpResponse) -> int | None:
    text = response.headers.get("x-total-count", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else None
