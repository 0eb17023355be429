"""A reference cloudpool and its provider, for tests of the effect on machines."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from devcluster.cloudpool.machines import PoolMachine
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.cloudpool.settings import CloudpoolSettings
from devcluster.standin.faults import Fault, Kind
from rescheduler.providers.base import CloudProvider, DeleteOutcome, NodeRef
from tests.providers.clocks import StepClock
from tests.providers.cloudpools import GROUP, node_of, providing, serving, settings

TERMINATE = "/pool/terminate"
LATER = 10_000.0


class Pool:
    """A reference cloudpool whose provider started five minutes ago."""

    def __init__(self, server: CloudpoolServer, clock: StepClock, provider: CloudProvider) -> None:
        self.server, self.clock, self.provider = server, clock, provider

    @property
    def machines(self) -> list[PoolMachine]:
        return self.server.pool.machines()

    @property
    def desired(self) -> int:
        return int(self.server.pool.size()["desiredSize"])

    def states(self) -> list[str]:
        return [machine.state(self.clock.now()) for machine in self.machines]

    def orders(self) -> list[Any]:
        return [json.loads(request.body) for request in self.server.faulty_app.requests if request.path == TERMINATE]

    def delete(self, *nodes: NodeRef, within: float = 600.0) -> list[DeleteOutcome]:
        deadline = self.clock.monotonic() + within
        return list(self.provider.delete_nodes(GROUP, nodes, deadline=deadline).values())

    def node(self, index: int = 0, **changes: Any) -> NodeRef:
        return node_of(self.machines[index], **changes)

    def inject(self, kind: Kind = "answer", *, path: str = TERMINATE, method: str = "POST", **fault: Any) -> None:
        self.server.faulty_app.inject(Fault(path=path, method=method, kind=kind, **fault))


@contextlib.contextmanager
def pool(served: CloudpoolSettings | None = None, **section: Any) -> Iterator[Pool]:
    clock = StepClock()
    keys = {"settleTime": "100s", "orderTimeout": "60s"} | section
    with serving(served or settings(), clock) as server, providing(server, clock, **keys) as provider:
        clock.advance(300)
        yield Pool(server, clock, provider)
