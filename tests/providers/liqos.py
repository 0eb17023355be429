"""Liqo for tests: our client, a real node manager over HTTP, Liqo in memory, and a controllable clock."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from devcluster.standin.faults import Fault
from devcluster.standin.server import StandinServer
from rescheduler.clock import Clock
from rescheduler.liqo.client import LiqoFile
from rescheduler.liqo.messages import VIRTUAL_NODE_LABELS
from rescheduler.liqo.node_manager.app import node_manager
from rescheduler.liqo.provider import LiqoProvider
from rescheduler.net.config_files import Endpoint
from rescheduler.providers.base import CloudProvider, NodeRef
from tests.liqo_services.builders import Bench, cluster, group
from tests.providers.failing import FailingDeletions

GROUP = "STANDARD"


class RestartableNodeManager:
    """The process behind the server: it can restart while the server keeps running."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._app: ASGIApp = node_manager(bench.service)

    def restart(self) -> None:
        """Lose all state outside of the cluster, because the database is in memory."""
        self._bench.restart()
        self._app = node_manager(self._bench.service)

    def close(self) -> None:
        self._bench.store.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


@contextlib.contextmanager
def providing(url: str, clock: Clock) -> Iterator[LiqoProvider]:
    provider = LiqoProvider(LiqoFile(node_manager=Endpoint(url=url)), Path(), clock)
    try:
        yield provider
    finally:
        provider.close()


class LiqoWorld(FailingDeletions):
    """World of the conformance table (see `conformance`)."""

    group = GROUP

    def __init__(
        self, bench: Bench, server: StandinServer[RestartableNodeManager], stack: contextlib.ExitStack
    ) -> None:
        self.bench, self.server, self.clock = bench, server, bench.clock
        self._stack = stack
        self.provider: CloudProvider = self._open()

    def _open(self) -> CloudProvider:
        return self._stack.enter_context(providing(self.server.url, self.clock))

    def restart(self) -> None:
        """Restart the node manager and its client."""
        self.server.cloud.restart()
        self.provider = self._open()

    def nodes(self) -> list[NodeRef]:
        return [node_of(name) for name in self.bench.liqo.remaining()]

    def foreign(self) -> NodeRef:
        """Return a virtual node of another owner."""
        self.bench.liqo.strangers["theirs"] = "liqo://theirs"
        return node_of("theirs")

    def placeholder(self) -> NodeRef:
        machine = f"liqo://{self.bench.liqo.remaining()[0]}"
        return NodeRef(machine, machine)

    def runs(self, node: NodeRef) -> bool:
        return node.provider_id.removeprefix("liqo://") in self.bench.liqo.remaining()

    def target(self) -> int:
        return self.bench.size()

    def _inject(self, **fault: Any) -> None:
        path = f"/v1/groups/{GROUP}/machines/{self.bench.liqo.remaining()[0]}"
        self.server.faulty_app.inject(Fault(method="DELETE", path=path, **fault))

    def go_down(self) -> None:
        """Stop the API server of the cluster in which Liqo runs."""
        self.bench.liqo.down = True


def node_of(name: str) -> NodeRef:
    return NodeRef(name, f"liqo://{name}", VIRTUAL_NODE_LABELS)


@contextlib.contextmanager
def liqo_world(machines: int, minimum: int) -> Iterator[LiqoWorld]:
    bench = Bench(cluster("rome", 20), groups=(group(GROUP, min_size=minimum),), draining=4)
    for number in range(machines):
        bench.liqo.add(f"rome-{number + 1}", GROUP, "rome")
    manager = RestartableNodeManager(bench)
    with StandinServer(manager, manager).running() as server, contextlib.ExitStack() as stack:
        yield LiqoWorld(bench, server, stack)
