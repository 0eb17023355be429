"""Cherry Servers' API: paged lists, a pace that the API allows, plans that are asked for once an hour."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rescheduler import shapes
from rescheduler.backends.base import DeadlineExceeded
from rescheduler.backends.cherryservers.messages import CreateServer, Plan, Server, words
from rescheduler.backends.config import Endpoint
from rescheduler.backends.http import UNREADABLE, Answer, BadAnswer, JsonClient, Missing
from rescheduler.clock import Clock

_PAGE = 100
_MOST_PAGES = 1000
_DIGITS = 10  #: of a number of servers that is believed
_PAUSE = 0.25  #: seconds between two requests: more than four a second may be answered 429
_PLANS_SERVE = 3600.0  #: seconds


class CherryClient:
    """Every call has a deadline on the clock's `monotonic`; errors are those of `backends.http`."""

    def __init__(self, endpoint: Endpoint, token: str, clock: Clock, secret: Callable[[], str] = lambda: "") -> None:
        """*secret* is what else no error may tell, where there is anything."""

        def told(body: bytes) -> str:
            hidden = secret()
            return words(body).replace(hidden, "***") if hidden else words(body)

        self._clock = clock
        self._http = JsonClient("Cherry Servers", endpoint, Path(), clock, told, token, self._take_turn)
        self._closed = threading.Event()
        self._turn = threading.Lock()
        self._next = clock.monotonic()
        self._plans: tuple[float, Mapping[str, Plan]] | None = None

    def close(self) -> None:
        self._closed.set()
        self._http.close()

    def servers(self, project: int, *, deadline: float) -> Sequence[Server]:
        """All servers of the project.

        Where one goes while pages are read, another moves to a page that was read before: then all are read again.
        """
        servers, most = self._pages(project, deadline)
        if len(servers) < most:
            servers, _ = self._pages(project, deadline)
        return servers

    def _pages(self, project: int, deadline: float) -> tuple[Sequence[Server], int]:
        """The servers, page by page, each once; and how many there were at most, as far as the API says."""
        found: dict[int, Server] = {}
        offset = most = 0
        for _ in range(_MOST_PAGES):
            params = {"limit": str(_PAGE), "offset": str(offset)}
            path = f"/projects/{project}/servers"
            page, answer = self._http.get(path, list[Server] | None, deadline=deadline, params=params, strict=False)  # type: ignore[arg-type]
            servers: list[Server] = page or []
            fresh = any(server.id not in found for server in servers)
            found |= {server.id: server for server in servers}
            offset += len(servers)
            total = _total(answer)
            most = max(most, total or 0)
            # Without a total, an API that does not page gives the same servers again and again.
            last = len(servers) < _PAGE or not fresh if total is None else offset >= total
            if last or not servers:
                return list(found.values()), most
        raise BadAnswer(f"Cherry Servers: project {project}: the list of servers does not end")

    def server(self, key: str, *, deadline: float) -> Server | None:
        try:
            return self._http.get(f"/servers/{key}", Server, deadline=deadline, strict=False)[0]
        except Missing:
            return None

    def create(self, request: CreateServer, *, deadline: float) -> Server | None:
        """Sent once; the server, if the answer tells of it."""
        answer = self._http.send("POST", f"/projects/{request.project_id}/servers", request, deadline=deadline)
        try:
            return shapes.decode(answer.body, Server, strict=False)
        except UNREADABLE:
            return None

    def delete(self, key: str, *, deadline: float) -> None:
        """Ids are never used again, so asking twice ends nothing else."""
        self._http.send("DELETE", f"/servers/{key}", deadline=deadline, repeatable=True)

    def plans(self, *, deadline: float) -> Mapping[str, Plan]:
        """By slug. A failure leaves in place what is known."""
        known = self._plans
        if known is not None and self._clock.monotonic() - known[0] < _PLANS_SERVE:
            return known[1]
        plans, _ = self._http.get("/plans", list[Plan], deadline=deadline, strict=False)
        found = {plan.slug: plan for plan in plans if plan.slug}
        self._plans = (self._clock.monotonic(), found)
        return found

    def _take_turn(self, deadline: float) -> None:
        with self._turn:
            turn = max(self._next, self._clock.monotonic())
            pause = turn - self._clock.monotonic()
            if turn >= deadline:
                raise DeadlineExceeded("Cherry Servers: no time is left to wait for a turn")
            self._next = turn + _PAUSE
        if pause > 0:
            self._clock.wait(pause, self._closed)


def _total(answer: Answer) -> int | None:
    text = answer.headers.get("x-total-count", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else None
