"""An intercepting proxy for all requests of the program under test to the API server and to the cloudpool.

Both are served at one URL, because their paths are disjoint. The edge records writes in order of arrival. It can hold a
write before it is forwarded or before its response is returned, and inject faults.
"""

import contextlib
import json
import re
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import httpx2
import uvicorn
from starlette.concurrency import run_in_threadpool

from devcluster.plane import ControlPlane
from devcluster.standin.faults import body_of
from devcluster.standin.server import listen
from rescheduler.draining.actions import ANNOTATION
from rescheduler.net.connection import HttpConnection
from rescheduler.net.server import running
from tests.acceptance import faults
from tests.acceptance.faults import Message, Receive, Send, WriteFault

Moment = Literal["before", "after"]

SECONDS: Final = 300.0  #: timeout of responses, and between two parts of a watch response
LEASE: Final = "lease"
MEMORY: Final = "memory"
DRY_RUN: Final = "dry-run"  #: a dry run of an eviction

_NODE: Final = re.compile(r"/api/v1/nodes/([^/]+)")


@dataclass(frozen=True, slots=True)
class Write:
    name: str  #: see `name_of`
    path: str
    body: Any


def name_of(method: str, path: str, query: bytes, body: Any) -> str:
    """Return a short name of the purpose of a write; "" for reads, Events and access reviews."""
    if method == "GET" or path.endswith(("/events", "/selfsubjectaccessreviews")):
        return ""
    if node := _NODE.fullmatch(path):
        return f"{_on_node(method, body)} {node[1]}"
    if path == "/pool/size":
        return f"size {body['desiredSize']}"
    if path.endswith("/eviction"):
        return DRY_RUN if b"dryRun=All" in query else "evict"
    if "/leases" in path:
        return LEASE if "spec" in body else MEMORY  # the annotation that records the memory's creation
    return MEMORY if "/configmaps" in path else path.rpartition("/")[2]


def _of_a_drain(name: str) -> bool:
    return name not in (LEASE, MEMORY, DRY_RUN)


def _intent(body: Any) -> Any:
    """Return the mark that a write sets on a Node, or None."""
    written = body.get("metadata", {}).get("annotations", {}).get(ANNOTATION)
    return None if written is None else json.loads(written)


def _on_node(method: str, body: Any) -> str:
    """Return `delete`, `release` (marks removed), `owing` (debts written), or the step that is written."""
    if method == "DELETE":
        return "delete"
    if (intent := _intent(body)) is None:
        return "release"
    return "owing" if intent["step"] == "draining" and "debts" in intent else str(intent["step"])


class Edge:
    """The intercepting proxy, an ASGI application. Its methods are thread-safe."""

    def __init__(self, plane: ControlPlane, pool: str) -> None:
        trusted = ssl.create_default_context(cafile=plane.ca)
        self._api = httpx2.AsyncClient(base_url=plane.server, verify=trusted, timeout=SECONDS, trust_env=False)
        self._pool = httpx2.AsyncClient(base_url=pool, timeout=SECONDS, trust_env=False)
        self._lock = threading.Lock()
        self._faults: list[WriteFault] = []
        self._counted: Callable[[str], bool] = _of_a_drain
        self._hold: tuple[int, Moment] | None = None
        self._others = _Barrier()
        self._held = _Barrier()
        self.reached = threading.Event()  #: the write to be held has arrived
        self.writes: list[Write] = []  #: all writes, in order of arrival
        self.answers: list[tuple[Write, int]] = []  #: the forwarded writes and their response statuses
        self.url = ""

    def names(self) -> list[str]:
        """Return the names of all writes except those of the memory and dry runs."""
        return [write.name for write in self.writes if write.name not in (MEMORY, DRY_RUN)]

    def bodies(self, name: str) -> list[Any]:
        """Return the bodies of the writes with that *name*."""
        return [write.body for write in self.writes if write.name == name]

    def forget(self) -> None:
        """Drop held writes, and clear the record and the faults."""
        self.drop()
        with self._lock:
            self._faults.clear()
            self.writes.clear()
            self.answers.clear()

    def hold(self, position: int, moment: Moment, counted: Callable[[str], bool] | None = None) -> None:
        """Hold the *position*-th write from now on (the first is 0), and all writes after it.

        `before`: hold it before it is forwarded; `after`: hold its response. *counted* returns whether a name counts;
        by default, all except those of Leases, the memory and dry runs count. Lease writes that do not count are always
        forwarded.
        """
        self.forget()
        with self._lock:
            self.reached.clear()
            self._hold = (position, moment)
            self._counted = counted or _of_a_drain

    def drop(self) -> None:
        """Drop all held writes and responses, after their sender was killed."""
        self.drop_others()
        self._held.open(passing=False)

    def drop_others(self) -> None:
        """Drop all held writes except the one at the held position, which may still be released."""
        self._hold = None
        self._others.open(passing=False)

    def release(self) -> None:
        """Forward all held writes and responses."""
        self._hold = None
        self._others.open(passing=True)
        self._held.open(passing=True)

    def inject(self, *faults: WriteFault) -> None:
        with self._lock:
            self._faults += [fault for fault in faults for _ in range(fault.times)]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        body = await body_of(receive)
        upstream = self._pool if scope["path"].startswith("/pool") else self._api
        parsed = _parsed(body)
        name = name_of(scope["method"], scope["path"], scope["query_string"], parsed)
        if self._only_times(name, parsed):
            name = MEMORY
        passing = faults.passing(upstream, scope, body)
        if name and (name != LEASE or self._counted(LEASE)):
            await self._write(Write(name, scope["path"], parsed), passing, receive, send)
        else:
            await faults.while_there(receive, passing(send))

    def _only_times(self, name: str, body: Any) -> bool:
        """Return whether a drain that waits for its pods stores its times again, with unchanged debts."""
        if not name.startswith("owing "):
            return False
        with self._lock:
            earlier = [_intent(write.body) for write in self.writes if write.name == name]
        if not earlier or earlier[-1] == (intent := _intent(body)):
            return False
        return all(earlier[-1][key] == intent[key] for key in ("holder", "debts"))

    async def _live(self, receive: Receive, send: Send) -> None:
        """Handle the ASGI lifespan protocol."""
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await self._api.aclose()
        await self._pool.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _write(
        self, write: Write, passing: Callable[[Send], Awaitable[None]], receive: Receive, send: Send
    ) -> None:
        if not await self._others.passed():
            return
        moment, fault = self._noted(write)
        if moment == "before":
            self.reached.set()
            if not await self._held.passed():
                return
        response: list[Message] = []
        if fault is None or fault.acted:
            await passing(faults.keeping(response))
            self.answers.append((write, int(response[0]["status"])))
            if self.answers[-1][1] == httpx2.codes.CONFLICT:
                self._unnoted(write, moment, fault)
                moment = fault = None
        if moment == "after":
            self.reached.set()
            if not await self._held.passed():
                return
        if fault is None:
            for message in response:
                await send(message)
        else:
            await faults.misbehave(fault, receive, send)

    def _noted(self, write: Write) -> tuple[Moment | None, WriteFault | None]:
        with self._lock:
            self.writes.append(write)
            fault = next((fault for fault in self._faults if fault.name == write.name), None)
            if fault is not None:
                self._faults.remove(fault)
            counted = sum(self._counted(earlier.name) for earlier in self.writes)
            if self._hold is None or not self._counted(write.name) or counted - 1 != self._hold[0]:
                return None, fault
            self._others.close()
            self._held.close()
            return self._hold[1], fault

    def _unnoted(self, write: Write, moment: Moment | None, fault: WriteFault | None) -> None:
        """Undo the record of a write that failed with a conflict; its retry gets its position and its *fault*."""
        with self._lock:
            if write in self.writes:
                self.writes.remove(write)
            if fault is not None:
                self._faults.insert(0, fault)
        if moment == "after":
            self._others.open(passing=True)
            self._held.open(passing=True)


class _Barrier:
    """A barrier that holds writes while it is closed; opening it forwards or drops them."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._opened.set()
        self._passing = True

    def close(self) -> None:
        self._opened.clear()

    def open(self, *, passing: bool) -> None:
        self._passing = passing
        self._opened.set()

    async def passed(self) -> bool:
        if self._opened.is_set():
            return True
        await run_in_threadpool(self._opened.wait)
        return self._passing


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body) if body else {}
    except ValueError:
        return {}


@contextlib.contextmanager
def serving(plane: ControlPlane, pool: str) -> Iterator[Edge]:
    """Run an edge in front of the API server and the *pool* for the duration of the block."""
    edge = Edge(plane, pool)
    config = uvicorn.Config(
        edge,
        http=HttpConnection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,  # the pool's header is forwarded
        proxy_headers=False,
        timeout_graceful_shutdown=30,  # requests usually end immediately with their client
    )
    with running(config, listen(0), "edge") as port:
        edge.url = f"http://127.0.0.1:{port}"
        try:
            yield edge
        finally:
            edge.drop()
