"""The reference cloudpool's machines as Nodes of a real control plane."""

import datetime as dt
from collections.abc import Iterator

import pytest

from devcluster.cloudpool.cluster import Cluster
from devcluster.cloudpool.pool import ReferencePool
from devcluster.plane import ControlPlane
from tests.providers.clocks import StepClock
from tests.providers.cloudpools import document, settings

pytestmark = pytest.mark.cluster

BOOTS = document(bootDelay="10s", terminationDelay="5s", labels={"role": "worker"}, allocatable={"cpu": "2"})


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(running=("etcd", "kube-apiserver")) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_nodes(plane: ControlPlane) -> Iterator[None]:
    yield
    for name in names(plane):
        plane.api.delete(f"/api/v1/nodes/{name}")


def names(plane: ControlPlane) -> list[str]:
    return sorted(node["metadata"]["name"] for node in plane.api.items("/api/v1/nodes"))


class ClusterWorld:
    def __init__(self, plane: ControlPlane, *, nodes_stay: bool = False) -> None:
        self.clock = StepClock()
        self.pool = ReferencePool(
            settings(pool=BOOTS, desired_size=2, refresh_interval=0, nodes_stay=nodes_stay), self.clock
        )
        self.cluster = Cluster(str(plane.kubeconfig), self.pool, self.clock)

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.cluster.step(self.clock.now())

    def close(self) -> None:
        self.cluster.close()
        self.pool.close()


@pytest.fixture
def world(plane: ControlPlane) -> Iterator[ClusterWorld]:
    created = ClusterWorld(plane)
    yield created
    created.close()


def test_nodes_join_when_their_machines_run_and_leave_when_they_terminate(
    world: ClusterWorld, plane: ControlPlane
) -> None:
    world.after(9)
    assert names(plane) == []
    world.after(1)
    assert names(plane) == ["pool-1", "pool-2"]
    world.pool.terminate(world.pool.machines()[0].id(world.clock.now()), decrement=True)
    world.after(4)
    assert names(plane) == ["pool-1", "pool-2"]
    world.after(1)
    assert names(plane) == ["pool-2"]


def test_a_node_has_the_fields_that_a_kubelet_registers(world: ClusterWorld, plane: ControlPlane) -> None:
    world.after(10)
    machine = world.pool.machines()[0]
    node = plane.api.get("/api/v1/nodes/pool-1")
    assert node["spec"]["providerID"] == machine.provider_id
    assert {"role": "worker", "topology.kubernetes.io/zone": "eu-north-1a"}.items() <= node["metadata"][
        "labels"
    ].items()
    assert node["status"]["allocatable"]["cpu"] == "2"
    assert {"type": "InternalIP", "address": machine.private_ip} in node["status"]["addresses"]


def test_a_machine_that_terminates_before_it_runs_never_joins(world: ClusterWorld, plane: ControlPlane) -> None:
    world.pool.set_size(0)
    world.after(60)
    assert names(plane) == []


def test_a_deleted_node_does_not_return(world: ClusterWorld, plane: ControlPlane) -> None:
    world.after(10)
    plane.api.delete("/api/v1/nodes/pool-1")
    world.after(60)
    assert names(plane) == ["pool-2"]
    world.pool.set_size(0)
    world.after(dt.timedelta(minutes=1).total_seconds())
    assert names(plane) == []


def test_nodes_can_be_configured_to_stay(plane: ControlPlane) -> None:
    world = ClusterWorld(plane, nodes_stay=True)
    try:
        world.after(10)
        world.pool.set_size(0)
        world.after(60)
        assert names(plane) == ["pool-1", "pool-2"]
    finally:
        world.close()
