"""A pair of fault proxies between the program under test and its servers: the API server and the cloudpool.

The edge records the writes to both in order of arrival. It can hold a write before it is forwarded or before its
response is returned, and inject the faults of the catalog by the names of writes.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Literal

from devcluster.faults.calls import ApiCall, object_name
from devcluster.faults.exchange import ConnectionEnded, ProxiedRequest
from devcluster.faults.injected import InjectedFault
from devcluster.faults.proxy import FaultProxy, before_api_server, before_cloudpool, redirected
from devcluster.faults.rules import FaultRule
from devcluster.plane import ControlPlane
from rescheduler.draining.actions import ANNOTATION

Moment = Literal["before", "after"]

LEASE: Final = "lease"
MEMORY: Final = "memory"
DRY_RUN: Final = "dry-run"  #: a dry run of an eviction


@dataclass(frozen=True, slots=True)
class Write:
    name: str  #: see `name_of`
    path: str
    body: Any


def name_of(call: ApiCall, target: str, body: Any) -> str:
    """Return a short name of the purpose of a write, with the node or the size; "" for Events."""
    match call.resource:
        case "events":
            return ""
        case "nodes":
            return f"{call.step or call.verb} {object_name(target)}"
        case "pods/eviction":
            return DRY_RUN if call.dry_run else "evict"
        case "leases":
            return LEASE if "spec" in body else MEMORY  # the annotation that records the memory's creation
        case "configmaps":
            return MEMORY
        case "/pool/size":
            return f"size {body['desiredSize']}"
    return call.resource.rpartition("/")[2]


def _of_a_drain(name: str) -> bool:
    return name not in (LEASE, MEMORY, DRY_RUN)


class Edge:
    """The fault of all writes of both proxies. Its methods are thread-safe."""

    def __init__(self, plane: ControlPlane, api: FaultProxy, pool: FaultProxy) -> None:
        self.api, self.pool, self._plane = api, pool, plane
        self._lock = threading.Lock()
        self._faults: list[tuple[str, InjectedFault]] = []
        self._counted: Callable[[str], bool] = _of_a_drain
        self._hold: tuple[int, Moment] | None = None
        self._others = _Barrier()
        self._held = _Barrier()
        self.reached = threading.Event()  #: the write to be held has arrived
        self.writes: list[Write] = []  #: all writes, in order of arrival
        self.answers: list[tuple[Write, int]] = []  #: the writes without a fault, and their response statuses
        for proxy in (api, pool):
            proxy.rules.add(FaultRule("", self, occurrence=None))

    def kubeconfig(self, target: Path) -> Path:
        """Write a kubeconfig for the API server behind the edge to *target* and return it."""
        return redirected(self._plane.kubeconfig, self.api, target)

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

    def inject(self, name: str, kind: str, times: int = 1) -> None:
        """Let the next *times* writes with that *name* fail with the fault *kind* of the catalog."""
        with self._lock:
            self._faults += [(name, self.api.all_faults()[kind])] * times

    # -- called by the threads of the proxies

    def applies(self, call: ApiCall) -> bool:
        return call.writes or call.dry_run

    def play(self, request: ProxiedRequest) -> None:
        """Record the write, hold it and let it fail, each if that is due. Raises ConnectionEnded if it is dropped."""
        body = _parsed(request.body)
        write = Write(name_of(request.call, request.target, body), request.target.partition("?")[0], body)
        if self._only_times(write):
            write = Write(MEMORY, write.path, body)
        if not write.name or (write.name == LEASE and not self._counted(LEASE)):
            request.pass_on(request.forward())
            return
        self._others.pass_through()
        moment, fault = self._noted(write)
        if moment == "before":
            self._hold_back()
        if fault is not None:
            fault.play(request)
            return
        response = request.forward().read()
        self.answers.append((write, response.status))
        if response.status == HTTPStatus.CONFLICT:
            self._unnoted(write, moment)
        elif moment == "after":
            self._hold_back()
        request.pass_on(response)

    def _hold_back(self) -> None:
        self.reached.set()
        self._held.pass_through()

    def _only_times(self, write: Write) -> bool:
        """Return whether a drain that waits for its pods stores its times again, with unchanged debts."""
        if not write.name.startswith("owing "):
            return False
        with self._lock:
            earlier = [_intent(each) for each in self.writes if each.name == write.name]
        if not earlier or earlier[-1] == (intent := _intent(write)):
            return False
        return all(earlier[-1][key] == intent[key] for key in ("holder", "debts"))

    def _noted(self, write: Write) -> tuple[Moment | None, InjectedFault | None]:
        with self._lock:
            self.writes.append(write)
            due = next((due for due in self._faults if due[0] == write.name), None)
            if due is not None:
                self._faults.remove(due)
            counted = sum(self._counted(earlier.name) for earlier in self.writes)
            if self._hold is None or not self._counted(write.name) or counted - 1 != self._hold[0]:
                return None, due and due[1]
            self._others.close()
            self._held.close()
            return self._hold[1], due and due[1]

    def _unnoted(self, write: Write, moment: Moment | None) -> None:
        """Undo the record of a write that failed with a conflict; its retry gets its position."""
        with self._lock:
            if write in self.writes:
                self.writes.remove(write)
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

    def pass_through(self) -> None:
        """Wait until the barrier is open. Raises ConnectionEnded if the write is dropped."""
        if not self._opened.is_set():
            self._opened.wait()
            if not self._passing:
                raise ConnectionEnded


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body) if body else {}
    except ValueError:
        return {}


def _intent(write: Write) -> Any:
    """Return the mark that a write sets on a Node."""
    return json.loads(write.body["metadata"]["annotations"][ANNOTATION])


@contextlib.contextmanager
def serving(plane: ControlPlane, pool: str) -> Iterator[Edge]:
    """Run an edge in front of the API server and the *pool* for the duration of the block."""
    with before_api_server(plane) as api, before_cloudpool(pool) as machines:
        edge = Edge(plane, api, machines)
        try:
            yield edge
        finally:
            edge.drop()
