"""Clusters, groups and a service over Liqo in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from prometheus_client import CollectorRegistry

from rescheduler.liqo.database import MEMORY
from rescheduler.liqo.nodemanager.amounts import amounts
from rescheduler.liqo.nodemanager.clusters import RemoteCluster
from rescheduler.liqo.nodemanager.groups import Group
from rescheduler.liqo.nodemanager.metrics import Metrics
from rescheduler.liqo.nodemanager.service import Ports, Service
from rescheduler.liqo.nodemanager.store import Store
from rescheduler.liqo.nodemanager.upkeep import Patience, Upkeep
from tests.backends.clocks import StepClock
from tests.liqo.liqos import MemoryCatalog, MemoryLiqo, Pace

NODE = {"cpu": "2", "memory": "2Gi", "pods": "110"}


def cluster(name: str, nodes: int = 4, *, price: str | None = None, gpu: bool = False, **more: Any) -> RemoteCluster:
    """One that has room for so many nodes of 2 cores and 2Gi."""
    shared = amounts({"cpu": str(2 * nodes), "memory": f"{2 * nodes}Gi", "pods": str(110 * nodes)})
    return RemoteCluster(
        name,
        more.pop("shared", shared),
        labels={"hasGPU": str(gpu).lower()},
        price=None if price is None else Decimal(price),
        **more,
    )


def group(name: str = "STANDARD", **more: Any) -> Group:
    values: dict[str, Any] = {"max_size": 10, "least": NODE, "selector": {"hasGPU": "false"}}
    return Group(name, **(values | more))


class Bench:
    """A service, what it stands on, and the means to start it again."""

    def __init__(
        self, *clusters: RemoteCluster, groups: tuple[Group, ...] = (), database: str = MEMORY, **pace: float
    ) -> None:
        self.clock = StepClock()
        self.liqo = MemoryLiqo(self.clock, Pace(**pace), [one.name for one in clusters])
        self.catalog = MemoryCatalog(list(clusters))
        self.groups = groups or (group(),)
        self.database = database
        self.peers = False
        self.patience = Patience()
        self.start()

    def start(self) -> None:
        """The process, anew: what is not in the cluster or on disk is forgotten."""
        self.store = Store(self.database)
        self.ports = Ports(self.liqo, self.catalog, self.store, self.clock)
        self.service = Service(self.ports, self.groups, peers=self.peers)
        self.upkeep = Upkeep(self.ports, self.service, self.patience, Metrics(CollectorRegistry()))

    def restart(self) -> None:
        self.store.close()
        self.start()

    def states(self, name: str = "STANDARD") -> list[str]:
        return [one.state.value for one in self.service.view().members(name)]

    def size(self, name: str = "STANDARD") -> int:
        return self.service.view().size(name)

    def errors(self, name: str = "STANDARD") -> list[str]:
        return [one.error.code for one in self.service.view().members(name) if one.error]

    def step(self, seconds: float = 0) -> None:
        self.clock.advance(seconds)
        self.upkeep.step()


@contextmanager
def bench(*clusters: RemoteCluster, **more: Any) -> Iterator[Bench]:
    made = Bench(*clusters, **more)
    try:
        yield made
    finally:
        made.store.close()
