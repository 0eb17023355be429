"""A StackPointCloud stand-in over HTTP for tests, with a controllable clock, for both API generations."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from devcluster.stackpoint.app import application
from devcluster.stackpoint.cloud import StackpointCloud, StackpointCloudSettings, StackpointNode, StackpointPool
from devcluster.standin.faults import Fault
from devcluster.standin.server import StandinServer
from rescheduler.clock import Clock
from rescheduler.providers.base import CloudProvider, GroupFlags, NodeRef
from rescheduler.providers.stackpoint import StackpointProvider, config
from tests.providers.clocks import StepClock
from tests.providers.failing import FailingDeletions

TOKEN = "spc-secret-token"
FIRST, SECOND = "autoscaling-od", "autoscaling-spcstand-pool-1"
ROOT = "/orgs/6/clusters/810"


def environment(url: str) -> dict[str, str]:
    return {"CLUSTER_API_TOKEN": TOKEN, "SPC_API_BASE_URL": url, "ORGANIZATION_ID": "6", "CLUSTER_ID": "810"}


@contextlib.contextmanager
def serving(clock: Clock, **settings: Any) -> Iterator[StandinServer[StackpointCloud]]:
    cloud = StackpointCloud(StackpointCloudSettings(token=TOKEN, **settings), clock)
    with StandinServer(cloud, application(cloud)).running() as server:
        yield server


@contextlib.contextmanager
def providing(
    server: StandinServer[StackpointCloud], clock: StepClock, *nodes: str, file: Path | None = None
) -> Iterator[StackpointProvider]:
    """Return a provider for the group specs *nodes*; without them, for the pools of the API or of *file*."""
    settings = config.settings(file, GroupFlags(nodes), environment(server.url))
    provider = StackpointProvider(settings, clock)
    try:
        yield provider
    finally:
        provider.close()


def pool(minimum: int = 0, **changes: Any) -> StackpointPool:
    values: dict[str, Any] = {"pk": 1, "instance_id": SECOND.removeprefix("autoscaling-"), "min_count": minimum}
    return StackpointPool(**(values | changes))


def node_of(node: StackpointNode, **changes: Any) -> NodeRef:
    """Return the Node of the machine as the daemon sees it."""
    labels = {"stackpoint.io/instance_id": node.instance_id, "stackpoint.io/role": node.role}
    if node.group_name:
        labels["stackpoint.io/node_group"] = node.group_name
    values: dict[str, Any] = {
        "provider_id": f"aws:///us-west-2a/i-{node.pk:08x}",
        "labels": labels,
        "internal_ips": (node.private_ip,),
    } | changes
    return NodeRef(f"ip-{node.pk}.us-west-2.compute.internal", **values)


class StackpointWorld(FailingDeletions):
    """World of the conformance table (see `conformance`)."""

    def __init__(
        self,
        server: StandinServer[StackpointCloud],
        clock: StepClock,
        group: str,
        specs: tuple[str, ...],
        stack: contextlib.ExitStack,
    ) -> None:
        self.server, self.clock, self.group = server, clock, group
        self._specs, self._stack = specs, stack
        self.provider: CloudProvider = self._open()

    def _open(self) -> CloudProvider:
        return self._stack.enter_context(providing(self.server, self.clock, *self._specs))

    def restart(self) -> None:
        self.provider = self._open()

    def nodes(self) -> list[NodeRef]:
        return [node_of(node) for node in self._group() if node.state(self.clock.now()) == "running"]

    def foreign(self) -> NodeRef:
        """Return one of the cluster's first workers, which belong to no group."""
        return node_of(self.server.cloud.add())

    def placeholder(self) -> NodeRef:
        machine = f"spc://{self._group()[0].instance_id}"
        return NodeRef(machine, machine)

    def runs(self, node: NodeRef) -> bool:
        name = node.labels.get("stackpoint.io/instance_id") or node.provider_id.removeprefix("spc://")
        nodes = [node for node in self.server.cloud.nodes() if node.instance_id == name]
        return bool(nodes) and nodes[0].state(self.clock.now()) == "running"

    def target(self) -> int:
        return sum(node.deleted_at is None for node in self._group())

    def _group(self) -> list[StackpointNode]:
        return [node for node in self.server.cloud.nodes() if node.group_name == self.group]

    def _inject(self, **fault: Any) -> None:
        self.server.faulty_app.inject(Fault(method="DELETE", path=f"{ROOT}/nodes/{self._group()[0].pk}", **fault))

    def go_down(self) -> None:
        for path in ("nodes", "nodepools"):
            self.server.faulty_app.inject(Fault(method="GET", path=f"{ROOT}/{path}", status=503, times=1000))
        self.fail_deletions(1000)


@contextlib.contextmanager
def first_generation(machines: int, minimum: int) -> Iterator[StackpointWorld]:
    """Run a world with group specs, ``add_node``, and no ``can_delete``."""
    clock = StepClock()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(clock, deleting=4.0, asks=False))
        for _ in range(machines):
            server.cloud.add(group_name=FIRST)
        yield StackpointWorld(server, clock, FIRST, (f"{minimum}:10:t2.medium:od",), stack)


@contextlib.contextmanager
def second_generation(machines: int, minimum: int) -> Iterator[StackpointWorld]:
    """Run a world with pools of the API."""
    clock = StepClock()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(clock, deleting=4.0, pools=(pool(minimum),), answers_all=False))
        for _ in range(machines):
            server.cloud.add(group_name=SECOND, pool=1)
        yield StackpointWorld(server, clock, SECOND, (), stack)
