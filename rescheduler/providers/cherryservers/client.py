"""A client of Cherry Servers' API with pagination, a limited request rate, and plans cached for an hour.
Separate from the provider, because it knows only the API.
"""

import base64
import datetime as dt
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rescheduler import decoding
from rescheduler.clock import Clock
from rescheduler.errors import DeadlineExceeded
from rescheduler.net.config_files import Endpoint
from rescheduler.net.http import JsonClient
from rescheduler.net.http_errors import UNREADABLE, HttpResponse, InvalidResponse, Missing
from rescheduler.providers.base import InstanceError, InstanceState
from rescheduler.providers.fleet import SystemMachine

# The parts of Cherry Servers' API messages that are used. Fields may be missing, null or of another type.

SCHEME = "cherryservers://"
CLUSTER_TAG, POOL_TAG = "k8s-cluster", "k8s-nodepool"
_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_MOST = 1 << 62  #: amounts that Kubernetes can represent are smaller
_STATES = {
    "pending": InstanceState.CREATING,
    "provisioning": InstanceState.CREATING,
    "active": InstanceState.RUNNING,
    "terminating": InstanceState.DELETING,
}
_ENDED = frozenset({"terminated", "deleted"})
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{64,}={0,2}")


class Address(msgspec.Struct):
    address: str | None = None
    type: str | None = None


class PlanOf(msgspec.Struct):
    slug: str | None = None


class Server(msgspec.Struct):
    id: int
    hostname: str | None = None
    name: str | None = None
    state: str | None = None
    status: str | None = None
    tags: dict[str, Any] | list[Any] | None = None  #: an empty map may arrive as an empty list
    spot_instance: bool | None = None
    plan: PlanOf | None = None
    ip_addresses: list[Address] | None = None
    termination_date: str | None = None

    def tag(self, name: str) -> str:
        value = self.tags.get(name) if isinstance(self.tags, dict) else None
        return value if isinstance(value, str) else ""


class Cpus(msgspec.Struct):
    cores: int | None = None


class ServerMemory(msgspec.Struct):
    total: float | None = None
    unit: str | None = None


class Specs(msgspec.Struct):
    cpus: Cpus | None = None
    memory: ServerMemory | None = None


class PlanPrice(msgspec.Struct):
    unit: str | None = None
    price: float | None = None


class ServerPlan(msgspec.Struct):
    slug: str | None = None
    specs: Specs | None = None
    pricing: list[PlanPrice] | None = None

    @property
    def cores(self) -> int:
        """The number of cores; 0 if it is missing or implausible."""
        cores = (self.specs and self.specs.cpus and self.specs.cpus.cores) or 0
        return cores if 0 < cores < _MOST else 0

    @property
    def memory(self) -> int:
        """The memory in bytes; 0 if it is missing or implausible. Unknown units count as bytes."""
        memory = self.specs.memory if self.specs else None
        amount = (memory.total or 0) * _UNITS.get((memory.unit or "").upper(), 1) if memory else 0
        return int(amount) if 0 < amount < _MOST else 0

    def hourly(self, *, spot: bool) -> float | None:
        unit = "spot hourly" if spot else "hourly"
        prices = [price.price for price in self.pricing or () if (price.unit or "").lower() == unit]
        return prices[0] if prices else None


class CreateServer(msgspec.Struct, omit_defaults=True):
    project_id: int
    plan: str
    hostname: str
    image: str
    region: str
    tags: Mapping[str, str]
    user_data: str = ""  #: base64
    ssh_keys: list[int] = []
    os_partition_size: int = 0
    spot_market: bool = False


class Errors(msgspec.Struct):
    """The body of an error, in the old and the new format."""

    errors: list[str] | None = None
    error: str | None = None
    message: str | None = None


def machine(server: Server, group: str) -> SystemMachine:
    failed = server.status == "failed deployment"
    return SystemMachine(
        key=str(server.id),
        id=f"{SCHEME}{server.id}",
        group=group,
        state=_state(server),
        gone=(server.state or "") in _ENDED,
        names=frozenset(name.lower() for name in (server.hostname,) if name),
        addresses=frozenset(
            address.address for address in server.ip_addresses or () if address.address and address.type == "private-ip"
        ),
        error=InstanceError("FAILED_DEPLOYMENT", "the deployment of the server failed") if failed else None,
        spot=server.spot_instance,
        terminates_at=notice(server.termination_date),
    )


def notice(text: str | None) -> dt.datetime | None:
    """Parse the announced termination time of a spot server; the API writes "None" if there is none."""
    try:
        moment = dt.datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or dt.UTC)


def error_text(body: bytes) -> str:
    """Return the message of an error without encoded parts, which might be our user data with its secret."""
    try:
        document = decoding.decode(body, Errors)
        text = "; ".join(part for part in (*(document.errors or ()), document.error, document.message) if part)
    except UNREADABLE:
        text = body.decode("utf-8", "replace")
    return _ENCODED.sub("***", text)


def user_data(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


def _state(server: Server) -> InstanceState:
    state = _STATES.get(server.state or "", InstanceState.UNKNOWN)
    deploying = server.status in {"deploying", "failed deployment"}
    return InstanceState.CREATING if deploying and state is InstanceState.RUNNING else state


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
        self._http = JsonClient("cherryservers", endpoint, Path(), clock, redacted, token, self._take_turn)
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
        raise InvalidResponse(f"cherryservers: project {project}: the list of servers does not end")

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
                raise DeadlineExceeded("cherryservers: no time left to wait for the rate limit")
            self._next = turn + _PAUSE
        if pause > 0:
            self._clock.wait(pause, self._closed)


def _total(response: HttpResponse) -> int | None:
    text = response.headers.get("x-total-count", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else None
