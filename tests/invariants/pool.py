"""The watchdog's view of the pool: periodic GET /pool/size, and the pool's record of termination requests."""

import contextlib
import json
import threading
from typing import Final

import httpx2

from devcluster.cloudpool.server import CloudpoolServer
from rescheduler.clock import SystemClock
from tests.invariants.history import ObservedTermination, SeenSize, seconds

POLL_SECONDS: Final = 0.5


class PoolRecord:
    """Polls the reference cloudpool from `start` to `stop`.

    Termination requests by HTTP are attributed to the daemon; tests change the pool by method calls.
    """

    def __init__(self, server: CloudpoolServer) -> None:
        self._url, self._faulty_app, self._pool = server.url, server.faulty_app, server.pool
        self._read = len(self._faulty_app.requests)
        self._looked = SystemClock().now()
        self._clock, self._stopping = SystemClock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="pool record", daemon=True)
        self.sizes: list[SeenSize] = []
        self.terminations: dict[str, ObservedTermination] = {}  #: terminations by machine

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._look()

    def kept_nodes(self) -> tuple[str, ...]:
        """Return the nodes of machines that are not terminated."""
        now = self._clock.now()
        return tuple(machine.name for machine in self._pool.machines() if machine.state(now) != "TERMINATED")

    def _run(self) -> None:
        while not self._clock.wait(POLL_SECONDS, self._stopping):
            self._look()

    def _look(self) -> None:
        with contextlib.suppress(httpx2.HTTPError, KeyError, ValueError):  # tests inject failures
            self._size()
        self._orders()

    def _size(self) -> None:
        size = httpx2.get(f"{self._url}/pool/size", timeout=60, trust_env=False).json()
        self.sizes.append(SeenSize(self._clock.now(), size["desiredSize"], size["allocated"]))

    def _orders(self) -> None:
        requests = self._faulty_app.requests[self._read :]
        self._read += len(requests)
        now = self._clock.now()
        machines = {machine.id(now): machine for machine in self._pool.machines()}
        for request in requests:
            if request.method != "POST" or not request.path.endswith("/pool/terminate"):
                continue
            body = json.loads(request.body)
            machine = machines.get(body["machineId"])
            if machine is None or machine.ending_at is None or machine.ending_at < self._looked:
                continue  # the request was rejected, or the machine was already terminated by another client
            decrement = bool(body.get("decrementDesiredSize"))
            termination = ObservedTermination(machine.ending_at, body["machineId"], machine.name, decrement)
            self.terminations.setdefault(body["machineId"], termination)
        self._looked = now - seconds(2 * POLL_SECONDS)


def recorded(server: CloudpoolServer | None) -> PoolRecord | None:
    return None if server is None else PoolRecord(server)
