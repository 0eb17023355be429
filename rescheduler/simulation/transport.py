"""The network between the daemon and the simulated API server: a connection pool with the interface of urllib3's, so
that all code of :mod:`rescheduler.kube` runs. Requests take time, and may fail.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, cast
from urllib.parse import parse_qsl, urlsplit

import msgspec
import urllib3
from urllib3.exceptions import ProtocolError, ReadTimeoutError

from rescheduler.kube.connection import Login
from rescheduler.kube.endpoint import ApiServerEndpoint
from rescheduler.kube.responses import check_before_send
from rescheduler.simulation.api import ApiServer
from rescheduler.simulation.engine import Engine, Killed, Process, WakingEvent
from rescheduler.simulation.requests import ApiRequest, Target
from rescheduler.simulation.store import Json, StoredChange

HOST: Final = "http://simulated"

#: The API server sends a bookmark to each watch this often.
_BOOKMARK_SECONDS: Final = 60.0

#: A client ends a watch that sends nothing for this long.
_SILENCE_SECONDS: Final = 105.0


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a request in place of its answer."""

    code: int = 0  #: the API server answers this; 0: no answer arrives
    carried_out: bool = False  #: the request is carried out all the same
    seconds: float = 0.0  #: until the fault


@dataclass(slots=True)
class Network:
    """The network's behavior. *latency* returns the seconds that a request takes."""

    latency: Callable[[random.Random], float] = lambda source: 0.002 + source.expovariate(250.0)
    watch_lag: Callable[[random.Random], float] = lambda source: 0.005 + source.expovariate(100.0)
    #: Returns the fault of a request of a process, or None.
    fault: Callable[[Process, ApiRequest], Fault | None] = lambda _, __: None
    #: Receives each request of a process right before it is carried out: what others do before that, the answer shows.
    before: Callable[[Process, ApiRequest], object] = lambda _, __: None
    silent_until: float = 0.0  #: watches send nothing until this time
    forbidden: dict[str, float] = field(default_factory=dict)  #: by plural: the daemon may not read it until this time
    #: Receives each answered request: when it was received, the code, the body of the response.
    audit: list[Callable[[Process, ApiRequest, Target | None, float, int, bytes], object]] = field(default_factory=list)


class SimulatedResponse:
    """The part of urllib3's response that the client uses."""

    def __init__(self, status: int, body: bytes, watch: "Watch | None" = None) -> None:
        self.status = status
        self.headers: dict[str, str] = {}
        self._body = body
        self._watch = watch

    def read(self, _: int | None = None) -> bytes:
        return self._body

    def stream(self, _: int) -> Iterator[bytes]:
        assert self._watch is not None
        return self._watch

    def release_conn(self) -> None:
        pass

    def drain_conn(self) -> None:
        pass

    def close(self) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        if self._watch is not None:
            self._watch.stop()


class PoolTransport:
    """The connections of one process to the API server."""

    def __init__(self, engine: Engine, server: ApiServer, network: Network, process: Process) -> None:
        self._engine = engine
        self._server = server
        self._network = network
        self._process = process
        self._random = engine.random(f"network of {process.name}")

    def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: urllib3.Timeout,
        **_: object,
    ) -> SimulatedResponse:
        """Send a request. Raises the errors of urllib3, and Killed if the process was killed."""
        self._process.check()
        check_before_send()
        path, query = _parsed(url)
        request = ApiRequest(
            method,
            path,
            query,
            None if body is None else msgspec.json.decode(body),
            headers.get("content-type", ""),
        )
        received = self._engine.now
        self._sleep(self._network.latency(self._random))
        fault = self._network.fault(self._process, request)
        target = self._server.target(request)
        if target is not None and self._network.forbidden.get(target.plural, 0.0) > self._engine.now:
            status = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "simulated", "code": 403}
            return SimulatedResponse(403, msgspec.json.encode(status))
        if fault is not None:
            return self._faulty(request, fault, received, timeout)
        if request.query.get("watch") == "true":
            return self._watch(request)
        return SimulatedResponse(*self._answer(request, received))

    def _answer(self, request: ApiRequest, received: float) -> tuple[int, bytes]:
        self._network.before(self._process, request)
        code, body = self._server.answer(request)
        for audit in self._network.audit:
            audit(self._process, request, self._server.target(request), received, code, body)
        return code, body

    def _faulty(
        self, request: ApiRequest, fault: Fault, received: float, timeout: urllib3.Timeout
    ) -> SimulatedResponse:
        if fault.carried_out:
            self._answer(request, received)
        if fault.code:
            status = {"kind": "Status", "status": "Failure", "message": "simulated", "code": fault.code}
            return SimulatedResponse(fault.code, msgspec.json.encode(status))
        limit = timeout.read_timeout if isinstance(timeout.read_timeout, int | float) else fault.seconds
        self._sleep(min(fault.seconds, limit))
        if fault.seconds >= limit:
            raise ReadTimeoutError(cast("urllib3.HTTPConnectionPool", self), HOST, "Read timed out.")
        raise ProtocolError("Connection aborted.")

    def _sleep(self, seconds: float) -> None:
        self._engine.sleep(seconds)

    def _watch(self, request: ApiRequest) -> SimulatedResponse:
        target = self._server.target(request)
        if target is None:
            return SimulatedResponse(*self._server.answer(request))
        watch = Watch(self._engine, self._server, self._network, request, target)
        return SimulatedResponse(200, b"", watch)


class Watch(Iterator[bytes]):
    """The stream of one watch."""

    def __init__(
        self, engine: Engine, server: ApiServer, network: Network, request: ApiRequest, target: Target
    ) -> None:
        self._stopped = False
        self._engine = engine
        self._network = network
        self._random = engine.random(f"watch of {target.plural} at {engine.now}")
        self._target = target
        self._wanted = server.selector(request, target)
        self._store = server.store
        self._sent = int(request.query["resourceVersion"])
        self._end = engine.now + float(request.query.get("timeoutSeconds", 300))
        self._bookmark_at = engine.now + _BOOKMARK_SECONDS
        self._pending: deque[StoredChange] = deque()
        self._arrived = WakingEvent(engine)
        missed = self._store.since(target.plural, self._sent)
        self._expired = missed is None
        self._pending.extend(missed or ())
        self._store.listen(target.plural, self._changed)

    def _changed(self, change: StoredChange) -> None:
        self._pending.append(change)
        if len(self._pending) == 1:
            self._engine.after(self._network.watch_lag(self._random), self._arrived.set)

    def __next__(self) -> bytes:
        if self._expired:
            self._expired = False
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            return _event("ERROR", msgspec.json.encode(status))
        while not self._stopped:
            if (left := self._network.silent_until - self._engine.now) > 0:
                self._wait(min(left, _SILENCE_SECONDS))
                if left >= _SILENCE_SECONDS:
                    self.stop()
                    raise ReadTimeoutError(cast("urllib3.HTTPConnectionPool", self), HOST, "Read timed out.")
                continue
            chunks = [chunk for chunk in map(self._encoded, self._taken()) if chunk]
            if chunks:
                return b"".join(chunks)
            if self._engine.now >= self._end:
                break
            if self._engine.now >= self._bookmark_at:
                self._bookmark_at += _BOOKMARK_SECONDS
                return self._bookmark()
            self._wait(min(self._end, self._bookmark_at) - self._engine.now)
        self.stop()
        raise StopIteration

    def _wait(self, seconds: float) -> None:
        self._arrived.clear()
        try:
            self._engine.wait(seconds, self._arrived)
        except Killed:
            self.stop()
            raise

    def stop(self) -> None:
        """End the stream, and wake its reader."""
        self._stopped = True
        self._store.ignore(self._target.plural, self._changed)
        self._arrived.set()

    def _taken(self) -> list[StoredChange]:
        self._arrived.clear()
        taken = list(self._pending)
        self._pending.clear()
        return taken

    def _encoded(self, change: StoredChange) -> bytes:
        """Return the event of *change* for the selected objects, or b""."""
        self._sent = change.after.revision
        before = change.before is not None and self._wanted(change.before)
        after = change.type != "DELETED" and self._wanted(change.after.object)
        if not (before or after):
            return b""
        verb = "MODIFIED" if before and after else "ADDED" if after else "DELETED"
        return _event(verb, change.after.encoded)

    def _bookmark(self) -> bytes:
        served = self._target.served
        item: Json = {
            "apiVersion": served.api_version,
            "kind": served.kind,
            "metadata": {"resourceVersion": str(self._store.revision)},
        }
        return _event("BOOKMARK", msgspec.json.encode(item))


@lru_cache(4096)
def _parsed(url: str) -> tuple[str, Mapping[str, str]]:
    """Return the path and the query of *url*."""
    split = urlsplit(url)
    return split.path, dict(parse_qsl(split.query, keep_blank_values=True))


def _event(verb: str, item: bytes) -> bytes:
    return b'{"type":"' + verb.encode() + b'","object":' + item + b"}\n"


@dataclass(frozen=True, slots=True)
class SimulatedSource:
    """The credentials of a process for the simulated API server."""

    pool: PoolTransport
    name: str = "simulation"

    def login(self) -> Login:
        return Login(HOST, {}, cast("urllib3.PoolManager", self.pool), ApiServerEndpoint(HOST))
