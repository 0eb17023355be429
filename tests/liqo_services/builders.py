"""Clusters, groups and a service with Liqo in memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from rescheduler import cli
from rescheduler.liqo.database import MEMORY
from rescheduler.liqo.node_manager.catalog import RemoteCluster
from rescheduler.liqo.node_manager.due_actions import MachineTimeouts
from rescheduler.liqo.node_manager.groups import VirtualNodeGroup, amounts
from rescheduler.liqo.node_manager.service import NodeManagerService, Ports
from rescheduler.liqo.node_manager.store import NodeManagerStore
from rescheduler.liqo.node_manager.upkeep import NodeManagerMetrics, Upkeep
from tests.liqo_services.liqos import LiqoPace, MemoryCatalog, MemoryLiqo
from tests.providers.clocks import StepClock

NODE = {"cpu": "2", "memory": "2Gi", "pods": "110"}


def cluster(name: str, nodes: int = 4, *, price: str | None = None, gpu: bool = False, **fields: Any) -> RemoteCluster:
    """Return a cluster with room for *nodes* nodes of 2 cores and 2Gi."""
    shared = amounts({"cpu": str(2 * nodes), "memory": f"{2 * nodes}Gi", "pods": str(110 * nodes)})
    return RemoteCluster(
        name,
        fields.pop("shared", shared),
        labels={"hasGPU": str(gpu).lower()},
        price=None if price is None else Decimal(price),
        **fields,
    )


def group(name: str = "STANDARD", **fields: Any) -> VirtualNodeGroup:
    values: dict[str, Any] = {"max_size": 10, "least": NODE, "selector": {"hasGPU": "false"}}
    return VirtualNodeGroup(name, **(values | fields))


class Bench:
    """A service and its dependencies, with a restart."""

    def __init__(
        self, *clusters: RemoteCluster, groups: tuple[VirtualNodeGroup, ...] = (), database: str = MEMORY, **pace: float
    ) -> None:
        self.clock = StepClock()
        self.liqo = MemoryLiqo(self.clock, LiqoPace(**pace), [cluster.name for cluster in clusters])
        self.catalog = MemoryCatalog(list(clusters))
        self.groups = groups or (group(),)
        self.database = database
        self.peers = False
        self.patience = MachineTimeouts()
        self.start()

    def start(self) -> None:
        """Start a new process; state outside of the cluster and the disk is lost."""
        self.store = NodeManagerStore(self.database)
        self.ports = Ports(self.liqo, self.catalog, self.store, self.clock)
        self.service = NodeManagerService(self.ports, self.groups, peers=self.peers)
        self.upkeep = Upkeep(self.ports, self.service, self.patience, NodeManagerMetrics(CollectorRegistry()))

    def restart(self) -> None:
        self.store.close()
        self.start()

    def states(self, name: str = "STANDARD") -> list[str]:
        return [machine.state.value for machine in self.service.view().members(name)]

    def size(self, name: str = "STANDARD") -> int:
        return self.service.view().size(name)

    def errors(self, name: str = "STANDARD") -> list[str]:
        return [machine.error.code for machine in self.service.view().members(name) if machine.error]

    def step(self, seconds: float = 0) -> None:
        self.clock.advance(seconds)
        self.upkeep.step()


@contextmanager
def bench(*clusters: RemoteCluster, **fields: Any) -> Iterator[Bench]:
    created = Bench(*clusters, **fields)
    try:
        yield created
    finally:
        created.store.close()


def ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *arguments: str
) -> tuple[Any, str]:
    """Run ``rescheduler liqo`` in this process, in *folder*, until it exits. Return exit code and standard error."""
    for name in [name for name in os.environ if name.startswith(("RESCHEDULER_", "KUBE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as exited:
        cli.main(["liqo", *arguments])
    printed, errors = capfd.readouterr()
    assert printed == ""
    return exited.value.code, errors
