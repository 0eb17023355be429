"""The machines of drained nodes are terminated, with all cloud stand-ins and with Liqo's node manager.

Without a cloud provider, drained nodes are kept and stay schedulable.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from devcluster.cherry import app as cherry_app
from devcluster.cherry import cloud as cherry
from devcluster.cherry.nodes import nodes as cherry_nodes
from devcluster.cloudpool.cluster import Cluster
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.liqo.objects import TOLERATION
from devcluster.manifests import ON_DEMAND, deployment, spot
from devcluster.plane import ControlPlane
from devcluster.stackpoint import app as stackpoint_app
from devcluster.stackpoint import cloud as stackpoint
from devcluster.stackpoint.nodes import nodes as stackpoint_nodes
from devcluster.standin.faults import Fault, FaultyApp
from devcluster.standin.nodes import Nodes
from devcluster.standin.server import StandinServer
from rescheduler.clock import SystemClock
from tests.cluster import virtual
from tests.cluster.daemon import NO_DELAY, ClusterQueries, Daemon
from tests.providers import cloudpools, pki
from tests.providers.served import CLIENT_FILES, SERVER_FILES, Service

LABELS = {ON_DEMAND: "true"}
INI = "[global]\ncluster-name = c1\nproject-id = 7\n"
ORDER = {"plan": "e5_1620v4", "region": "eu_nord_1", "image": "ubuntu_24_04"}
OWN = "own"  #: the folder of a cloud that is used through external gRPC
TAGS = {"k8s-cluster": "c1", "k8s-nodepool": "od"}


@dataclass(frozen=True)
class Cloud:
    """A cloud with the machines of two on-demand nodes, of which one must be kept."""

    machines: Callable[[], list[str]]  #: returns their names
    app: FaultyApp | None = None  #: its API
    orders: tuple[tuple[str, str], ...] = ()  #: the requests that end a machine: method and path

    def refuse_orders(self) -> None:
        """Answer 503 to every order, without an effect."""
        assert self.app is not None
        self.app.inject(*(Fault(method=method, path=path, status=503, times=1000) for method, path in self.orders))

    def is_asked(self) -> bool:
        """Return whether an order was received, successful or not."""
        assert self.app is not None
        return any((request.method, request.path) in self.orders for request in self.app.requests)


World = contextlib.AbstractContextManager[Cloud]


@contextlib.contextmanager
def cherry_world(plane: ControlPlane, environ: pytest.MonkeyPatch, config: Path) -> Iterator[Cloud]:
    """Run Cherry Servers with two servers in the pool."""
    config.write_text(INI)
    cloud = cherry.CherryCloud(cherry.CherryCloudSettings(terminating=2), SystemClock())
    for name in ("od-1", "od-2"):
        cloud.create(7, {**ORDER, "tags": TAGS, "hostname": name})
    nodes = Nodes(str(plane.kubeconfig), lambda: cherry_nodes(cloud, LABELS), SystemClock())
    with StandinServer(cloud, cherry_app.application(cloud, per_second=4), path="/v1").running() as server:
        environ.setenv("CHERRY_AUTH_TOKEN", "token")
        environ.setenv("CHERRY_API_URL", server.url)
        with joined(nodes):
            orders = tuple(("DELETE", f"/v1/servers/{item.id}") for item in cloud.servers())
            yield Cloud(lambda: [item.hostname for item in cloud.servers()], server.faulty_app, orders)


@contextlib.contextmanager
def stackpoint_world(plane: ControlPlane, environ: pytest.MonkeyPatch, _: Path) -> Iterator[Cloud]:
    """Run StackPointCloud with two nodes in the group."""
    cloud = stackpoint.StackpointCloud(stackpoint.StackpointCloudSettings(deleting=2), SystemClock())
    cloud.add(group_name="autoscaling-od")
    cloud.add(group_name="autoscaling-od")
    nodes = Nodes(str(plane.kubeconfig), lambda: stackpoint_nodes(cloud, LABELS), SystemClock())
    with StandinServer(cloud, stackpoint_app.application(cloud)).running() as server:
        environ.setenv("CLUSTER_API_TOKEN", "token")
        environ.setenv("SPC_API_BASE_URL", server.url)
        environ.setenv("ORGANIZATION_ID", "6")
        environ.setenv("CLUSTER_ID", "810")
        with joined(nodes):
            orders = tuple(("DELETE", f"/orgs/6/clusters/810/nodes/{item.pk}") for item in cloud.nodes())
            left = lambda: [item.instance_id for item in cloud.nodes() if item.deleted_at is None]  # noqa: E731
            yield Cloud(left, server.faulty_app, orders)


@contextlib.contextmanager
def cloudpool_world(plane: ControlPlane, _: pytest.MonkeyPatch, config: Path) -> Iterator[Cloud]:
    """Run a cloudpool with two machines."""
    document = cloudpools.document(terminationDelay="2s", labels=LABELS)
    settings = cloudpools.settings(pool=document, desired_size=2, refresh_interval=0.5)
    with CloudpoolServer(settings, config.parent, SystemClock()).running() as server:
        pool = {"id": "od", "backend": {"url": server.url}, "minSize": 1, "maxSize": 3, "cacheAge": "1s"}
        config.write_text(json.dumps({"pools": [pool]}))
        with joined(Cluster(str(plane.kubeconfig), server.pool, SystemClock())):
            now = SystemClock().now
            left = lambda: [item.name for item in server.pool.machines() if item.allocated(now())]  # noqa: E731
            yield Cloud(left, server.faulty_app, (("POST", "/pool/terminate"),))


@contextlib.contextmanager
def joined(nodes: Nodes | Cluster) -> Iterator[None]:
    nodes.start()
    try:
        yield
    finally:
        nodes.close()


@contextlib.contextmanager
def liqo_world(plane: ControlPlane, _: pytest.MonkeyPatch, config: Path) -> Iterator[Cloud]:
    """Run Liqo with two virtual nodes."""
    with virtual.site(plane, config.parent, {"rome": 2}, start=False) as here:
        here.start(virtual.CONFIG.replace("maxSize: 4", "maxSize: 4\n    minSize: 1"))
        config.write_text(here.cloud_config().read_text())
        with here.provider() as provider:
            provider.increase_size("STANDARD", 2, deadline=SystemClock().monotonic() + 60)
        yield Cloud(
            lambda: [item["metadata"]["name"] for item in here.slices() if "deletionTimestamp" not in item["metadata"]]
        )


Opened = Callable[[ControlPlane, pytest.MonkeyPatch, Path], World]
#: By cloud: its stand-in, and the flags that select it, with a configuration file only if it is required.
DIRECT: dict[str, tuple[Opened, tuple[str, ...]]] = {
    "cherryservers": (cherry_world, ("--cloud-provider=cherryservers", "--cloud-config={config}", "--nodes=1:3:od")),
    "stackpoint": (stackpoint_world, ("--cloud-provider=spc", "--nodes=1:3:t2.medium:od")),
    "cloudpool": (cloudpool_world, ("--cloud-provider=cloudpool", "--cloud-config={config}")),
    "liqo": (liqo_world, ("--cloud-provider=liqo", "--cloud-config={config}")),
}


def behind_grpc(system: str) -> Opened:
    """Return the stand-in of *system* behind our provider service with client certificates."""

    @contextlib.contextmanager
    def opened(plane: ControlPlane, environ: pytest.MonkeyPatch, config: Path) -> Iterator[Cloud]:
        world, flags = DIRECT[system]
        (own := config.parent / OWN).mkdir()
        pki.make(config.parent)
        with world(plane, environ, own / "cloud-config") as cloud:
            arguments = [flag.format(config=own / "cloud-config") for flag in flags]
            with Service(config.parent, *arguments, *SERVER_FILES) as service:
                config.write_text(json.dumps({"address": service.address, "grpc_timeout": "60s", **CLIENT_FILES}))
                yield cloud

    return opened


GRPC = ("--cloud-provider=externalgrpc", "--cloud-config={config}")
BEHIND = "externalgrpc over cloudpool"
#: `tests/providers/test_externalgrpc_conformance.py` has each provider behind the service.
WORLDS = {**DIRECT, BEHIND: (behind_grpc("cloudpool"), GRPC)}


@pytest.mark.parametrize("system", WORLDS)
def test_one_machine_is_terminated_and_the_minimum_is_kept(
    system: str, cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Both on-demand nodes are drainable, but the group's minimum size allows only one drain."""
    config = tmp_path_factory.mktemp("cloud") / "cloud-config"
    queries = ClusterQueries(cluster)
    world, flags = WORLDS[system]
    with world(cluster, monkeypatch, config) as cloud:
        machines = cloud.machines
        queries.eventually(lambda: len(cluster.api.items("/api/v1/nodes")) == 2, "the machines' Nodes")
        cluster.apply([deployment("web", 2, nodeSelector={"kubernetes.io/os": "linux"}, tolerations=[TOLERATION])])
        queries.running(2, "web")
        cluster.apply([spot("spot-1"), spot("spot-2")])
        with Daemon(cluster, NO_DELAY, *(flag.format(config=config) for flag in flags)) as daemon:
            queries.eventually(lambda: len(machines()) == 1, "the termination of one machine")
            queries.eventually(lambda: len(cluster.api.items("/api/v1/nodes")) == 3, "the deletion of its Node")
            queries.eventually(lambda: daemon.logged("must keep 1, 0 would be left"), "the rejection of the other node")
            assert len(machines()) == 1
            assert not daemon.logged("token")
        queries.running(2, "web")
        assert queries.marks() == {}


def test_without_a_cloud_provider_drained_nodes_are_kept(cluster: ControlPlane) -> None:
    queries = ClusterQueries(cluster)
    queries.nodes(2, 2)
    cluster.apply([deployment("web", 4)])
    queries.running(4)
    queries.open_spot()
    before = {item["metadata"]["name"]: item["spec"] for item in cluster.api.items("/api/v1/nodes")}
    with Daemon(cluster, NO_DELAY, "--cloud-provider=none") as daemon:
        queries.eventually(lambda: len(daemon.logged("drained after")) == 2, "both drains")
        queries.eventually(lambda: queries.marks() == {}, "the removal of the taints")
    assert {item["metadata"]["name"]: item["spec"] for item in cluster.api.items("/api/v1/nodes")} == before
    queries.running(4)
    assert queries.kinds() == {"spot": 4}
