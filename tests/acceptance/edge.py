"""The network's edge: whatever the program under test says to the API server and to the cloudpool passes here.

Both are served at one URL; their paths do not meet. Writes are written down in the order in which they come, one of
them can be held up before it passes or before its answer does, and each can be given a fault.
"""

import contextlib
import json
import re
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import httpx
import uvicorn
from starlette.concurrency import run_in_threadpool

from deploy.local.cloudpool.faults import body_of
from deploy.local.plane import ControlPlane
from deploy.local.standin.server import listen
from rescheduler.draining.intent import ANNOTATION
from rescheduler.observe.server import running
from tests.acceptance import faults
from tests.acceptance.faults import Fault, Message, Receive, Send

Moment = Literal["before", "after"]

SECONDS: Final = 300.0  #: for an answer, and between two parts of a watch's
LEASE: Final = "lease"
MEMORY: Final = "memory"
DRY_RUN: Final = "dry-run"  #: of an eviction

_NODE: Final = re.compile(r"/api/v1/nodes/([^/]+)")


@dataclass(frozen=True, slots=True)
class Write:
    name: str  #: see `name_of`
    path: str
    body: Any


def name_of(method: str, path: str, query: bytes, body: Any) -> str:
    """What a write is for, in a word or two; "" for what only reads or tells."""
    if method == "GET" or path.endswith(("/events", "/selfsubjectaccessreviews")):
        return ""
    if node := _NODE.fullmatch(path):
        return f"{_on_node(method, body)} {node[1]}"
    if path == "/pool/size":
        return f"size {body['desiredSize']}"
    if path.endswith("/eviction"):
        return DRY_RUN if b"dryRun=All" in query else "evict"
    if "/leases" in path:
        return LEASE if "spec" in body else MEMORY  # the annotation that tells of it
    return MEMORY if "/configmaps" in path else path.rpartition("/")[2]


def _of_a_drain(name: str) -> bool:
    return name not in (LEASE, MEMORY, DRY_RUN)


def _on_node(method: str, body: Any) -> str:
    """delete; release, where our marks are taken off; owing, where the debts are written; else the step written."""
    if method == "DELETE":
        return "delete"
    written = body.get("metadata", {}).get("annotations", {}).get(ANNOTATION)
    if written is None:
        return "release"
    intent = json.loads(written)
    return "owing" if intent["step"] == "draining" and "debts" in intent else str(intent["step"])


class Edge:
    """An ASGI application. Its methods may be called from any thread."""

    def __init__(self, plane: ControlPlane, pool: str) -> None:
        trusted = ssl.create_default_context(cafile=plane.ca)
        self._api = httpx.AsyncClient(base_url=plane.server, verify=trusted, timeout=SECONDS, trust_env=False)
        self._pool = httpx.AsyncClient(base_url=pool, timeout=SECONDS, trust_env=False)
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._counted: Callable[[str], bool] = _of_a_drain
        self._hold: tuple[int, Moment] | None = None
        self._others = _Barrier()
        self._held = _Barrier()
        self.reached = threading.Event()  #: the write that was to be held up is held up
        self.writes: list[Write] = []  #: those that came, in order
        self.answers: list[tuple[Write, int]] = []  #: the statuses of those that passed
        self.url = ""

    def names(self) -> list[str]:
        """Of all writes but those of the memory, and dry runs."""
        return [one.name for one in self.writes if one.name not in (MEMORY, DRY_RUN)]

    def bodies(self, name: str) -> list[Any]:
        """Of the writes of that *name*."""
        return [one.body for one in self.writes if one.name == name]

    def forget(self) -> None:
        """Begin anew with what is written down, without faults, and with nothing of before held up."""
        self.drop()
        with self._lock:
            self._faults.clear()
            self.writes.clear()
            self.answers.clear()

    def hold(self, position: int, moment: Moment, counted: Callable[[str], bool] | None = None) -> None:
        """Hold up the write that is the *position*-th from now on (the first is 0), and all writes after it.

        `before`: it does not pass; `after`: it passes, its answer does not. *counted* says which names count: unless
        told otherwise, all but those of Leases, the memory and dry runs. Writes of Leases that do not count pass at
        any time.
        """
        self.forget()
        with self._lock:
            self.reached.clear()
            self._hold = (position, moment)
            self._counted = counted or _of_a_drain

    def drop(self) -> None:
        """Whoever sent what is held up is dead: nothing of it passes."""
        self.drop_others()
        self._held.open(passing=False)

    def drop_others(self) -> None:
        """The same, but for the one that was to be held up: it may still come through."""
        self._hold = None
        self._others.open(passing=False)

    def release(self) -> None:
        """What is held up goes its way."""
        self._hold = None
        self._others.open(passing=True)
        self._held.open(passing=True)

    def inject(self, *faults: Fault) -> None:
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
        passing = faults.passing(upstream, scope, body)
        if name and (name != LEASE or self._counted(LEASE)):
            await self._write(Write(name, scope["path"], parsed), passing, receive, send)
        else:
            await faults.while_there(receive, passing(send))

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start and stop with the server, in its event loop."""
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
        answer: list[Message] = []
        if fault is None or fault.acted:
            await passing(faults.keeping(answer))
            self.answers.append((write, int(answer[0]["status"])))
            if self.answers[-1][1] == httpx.codes.CONFLICT:
                self._unnoted(write, moment, fault)
                moment = fault = None
        if moment == "after":
            self.reached.set()
            if not await self._held.passed():
                return
        if fault is None:
            for message in answer:
                await send(message)
        else:
            await faults.misbehave(fault, receive, send)

    def _noted(self, write: Write) -> tuple[Moment | None, Fault | None]:
        with self._lock:
            self.writes.append(write)
            fault = next((one for one in self._faults if one.name == write.name), None)
            if fault is not None:
                self._faults.remove(fault)
            counted = sum(self._counted(one.name) for one in self.writes)
            if self._hold is None or not self._counted(write.name) or counted - 1 != self._hold[0]:
                return None, fault
            self._others.close()
            self._held.close()
            return self._hold[1], fault

    def _unnoted(self, write: Write, moment: Moment | None, fault: Fault | None) -> None:
        """Somebody else wrote in between: the write that is made again counts in its place, and has its *fault*."""
        with self._lock:
            if write in self.writes:
                self.writes.remove(write)
            if fault is not None:
                self._faults.insert(0, fault)
        if moment == "after":
            self._others.open(passing=True)
            self._held.open(passing=True)


class _Barrier:
    """Holds writes while it is closed. When it is opened, they learn whether to pass."""

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
    """An edge before the API server and the *pool*, for the length of the block."""
    edge = Edge(plane, pool)
    config = uvicorn.Config(
        edge,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,  # the pool's own is handed on
        proxy_headers=False,
        timeout_graceful_shutdown=30,  # as a rule what is under way ends with its client, at once
    )
    with running(config, listen(0), "edge") as port:
        edge.url = f"http://127.0.0.1:{port}"
        try:
            yield edge
        finally:
            edge.drop()
