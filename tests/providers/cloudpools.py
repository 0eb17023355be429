"""The reference cloudpool over HTTP for tests, without a cluster and with a controllable clock."""

import contextlib
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from devcluster.cloudpool.machines import PoolMachine
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.cloudpool.settings import CloudpoolSettings, PoolDocument
from devcluster.standin.faults import Fault
from rescheduler.clock import Clock
from rescheduler.cloudpool.client import CloudpoolFile, PoolSection
from rescheduler.cloudpool.pool import CloudPool
from rescheduler.cloudpool.provider import CloudpoolProvider
from rescheduler.net.config_files import shaped
from rescheduler.providers.base import CloudProvider, NodeRef
from tests.providers.clocks import StepClock
from tests.providers.failing import FailingDeletions

GROUP = "on-demand"

#: The difficult behavior of elastisys' pool, with short times: its responses are older than their timestamps, it
#: processes one request at a time, and it terminates the oldest machine, which has pods, when it has too many.
AWKWARD: dict[str, Any] = {"startBlocks": "300ms", "endBlocks": "100ms", "victimSelectionPolicy": "OLDEST"}
LISTING: dict[str, Any] = {"list_delay": 0.05}


def document(**keys: Any) -> PoolDocument:
    """Return the document for POST /config, from its keys."""
    return shaped({"name": "pool"} | keys, PoolDocument, "test")


def settings(**changes: Any) -> CloudpoolSettings:
    """Return settings of a pool with three machines that start and end immediately."""
    values: dict[str, Any] = {"pool": document(), "desired_size": 3} | changes
    return CloudpoolSettings(**values)


@contextlib.contextmanager
def serving(of: CloudpoolSettings, clock: Clock, folder: Path = Path()) -> Iterator[CloudpoolServer]:
    with CloudpoolServer(of, folder, clock).running() as server:
        yield server


def section(url: str, **changes: Any) -> PoolSection:
    """Return a pool's section of the file, from its keys."""
    backend = {"url": url, "timeout": "60s"} | changes.pop("backend", {})
    keys = {"id": GROUP, "backend": backend, "orderTimeout": "60s"} | changes
    return shaped({"pools": [keys]}, CloudpoolFile, "test").pools[0]


@contextlib.contextmanager
def providing(server: CloudpoolServer, clock: Clock, folder: Path = Path(), **changes: Any) -> Iterator[CloudProvider]:
    provider = CloudpoolProvider([CloudPool(section(server.url, **changes), folder, clock)])
    try:
        yield provider
    finally:
        provider.close()


def node_of(machine: PoolMachine, **changes: Any) -> NodeRef:
    """Return the Node of the machine as the daemon sees it."""
    values: dict[str, Any] = {"provider_id": machine.provider_id, "internal_ips": (machine.private_ip,)} | changes
    return NodeRef(machine.name, **values)


class CloudpoolWorld(FailingDeletions):
    """World of the conformance table (see `conformance`)."""

    group = GROUP

    def __init__(self, server: CloudpoolServer, clock: StepClock, minimum: int, stack: contextlib.ExitStack) -> None:
        self.server, self.clock = server, clock
        self._minimum, self._stack = minimum, stack
        self.provider = self._open()

    def _open(self) -> CloudProvider:
        limits: dict[str, Any] = {"minSize": self._minimum, "maxSize": 10, "settleTime": "120s"}
        return self._stack.enter_context(providing(self.server, self.clock, **limits))

    def restart(self) -> None:
        self.provider = self._open()

    def nodes(self) -> list[NodeRef]:
        now = self.clock.now()
        return [node_of(machine) for machine in self.server.pool.machines() if machine.state(now) == "RUNNING"]

    def foreign(self) -> NodeRef:
        return NodeRef("elsewhere-1", "aws:///eu-north-1a/i-00000000000000000", internal_ips=("10.1.2.3",))

    def placeholder(self) -> NodeRef:
        node = self.nodes()[0]
        return NodeRef(node.provider_id, node.provider_id)

    def runs(self, node: NodeRef) -> bool:
        machines = [machine for machine in self.server.pool.machines() if machine.provider_id == node.provider_id]
        return machines[0].allocated(self.clock.now())

    def target(self) -> int:
        return int(self.server.pool.size()["desiredSize"])

    def _inject(self, **fault: Any) -> None:
        self.server.faulty_app.inject(Fault(path="/pool/terminate", **fault))

    def go_down(self) -> None:
        down = Fault(path="", status=503, times=1000)
        for method, path in (("GET", "/pool"), ("GET", "/pool/size"), ("POST", "/pool/terminate")):
            self.server.faulty_app.inject(Fault(path=path, method=method, status=down.status, times=down.times))


@contextlib.contextmanager
def cloudpool_world(machines: int, minimum: int) -> Iterator[CloudpoolWorld]:
    clock = StepClock()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(settings(desired_size=machines), clock))
        # Let the provider be older than the pool's cache: a new provider ignores observations from before its start.
        world = CloudpoolWorld(server, clock, minimum, stack)
        clock.advance(dt.timedelta(minutes=5).total_seconds())
        yield world
