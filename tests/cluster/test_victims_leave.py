"""Emptied nodes really leave: the daemon gives them to the stand-ins of clouds, and to Liqo's node manager.

And without a system they stay, as schedulable as before.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.local.cherry import app as cherry_app
from deploy.local.cherry import cloud as cherry
from deploy.local.cherry.nodes import nodes as cherry_nodes
from deploy.local.cloudpool.cluster import Cluster
from deploy.local.cloudpool.server import Server as CloudpoolServer
from deploy.local.liqo.objects import TOLERATION
from deploy.local.manifests import ON_DEMAND, deployment, spot
from deploy.local.plane import ControlPlane
from deploy.local.stackpoint import app as stackpoint_app
from deploy.local.stackpoint import cloud as stackpoint
from deploy.local.stackpoint.nodes import nodes as stackpoint_nodes
from deploy.local.standin.nodes import Nodes
from deploy.local.standin.server import Server
from rescheduler.clock import SystemClock
from tests.backends import cloudpools, pki
from tests.backends.served import CLIENT_FILES, SERVER_FILES, Service
from tests.cluster import virtual
from tests.cluster.daemon import NO_DELAY, Daemon, Look

LABELS = {ON_DEMAND: "true"}
INI = "[global]\ncluster-name = c1\nproject-id = 7\n"
ORDER = {"plan": "e5_1620v4", "region": "eu_nord_1", "image": "ubuntu_24_04"}
OWN = "own"  #: the folder of a system that is behind external gRPC
TAGS = {"k8s-cluster": "c1", "k8s-nodepool": "od"}

World = contextlib.AbstractContextManager[Callable[[], list[str]]]  #: the names of the machines that there are


@contextlib.contextmanager
def cherry_world(plane: ControlPlane, environ: pytest.MonkeyPatch, config: Path) -> Iterator[Callable[[], list[str]]]:
    """Two servers of the pool, of which one must stay, and none of a third party."""
    config.write_text(INI)
    cloud = cherry.Cloud(cherry.Settings(terminating=2), SystemClock())
    for name in ("od-1", "od-2"):
        cloud.create(7, {**ORDER, "tags": TAGS, "hostname": name})
    nodes = Nodes(str(plane.kubeconfig), lambda: cherry_nodes(cloud, LABELS), SystemClock())
    with Server(cloud, cherry_app.application(cloud, per_second=4), path="/v1").running() as server:
        environ.setenv("CHERRY_AUTH_TOKEN", "token")
        environ.setenv("CHERRY_API_URL", server.url)
        with joined(nodes):
            yield lambda: [one.hostname for one in cloud.servers()]


@contextlib.contextmanager
def stackpoint_world(
    plane: ControlPlane, environ: pytest.MonkeyPatch, config: Path
) -> Iterator[Callable[[], list[str]]]:
    """Two nodes of the group, of which one must stay; behind external gRPC with provider IDs, of the cloud below."""
    cloud = stackpoint.Cloud(stackpoint.Settings(deleting=2), SystemClock())
    for number in range(2):
        below = f"i-{number}" if config.parent.name == OWN else None
        cloud.add(group_name="autoscaling-od", provider_node_id=below)
    nodes = Nodes(str(plane.kubeconfig), lambda: stackpoint_nodes(cloud, LABELS), SystemClock())
    with Server(cloud, stackpoint_app.application(cloud)).running() as server:
        environ.setenv("CLUSTER_API_TOKEN", "token")
        environ.setenv("SPC_API_BASE_URL", server.url)
        environ.setenv("ORGANIZATION_ID", "6")
        environ.setenv("CLUSTER_ID", "810")
        with joined(nodes):
            yield lambda: [one.instance_id for one in cloud.nodes() if one.deleted_at is None]


@contextlib.contextmanager
def cloudpool_world(plane: ControlPlane, _: pytest.MonkeyPatch, config: Path) -> Iterator[Callable[[], list[str]]]:
    """Two machines, of which one must stay."""
    document = cloudpools.document(terminationDelay="2s", labels=LABELS)
    settings = cloudpools.settings(pool=document, desired_size=2, refresh_interval=0.5)
    with CloudpoolServer(settings, config.parent, SystemClock()).running() as server:
        pool = {"id": "od", "backend": {"url": server.url}, "minSize": 1, "maxSize": 3, "cacheAge": "1s"}
        config.write_text(json.dumps({"pools": [pool]}))
        with joined(Cluster(str(plane.kubeconfig), server.pool, SystemClock())):
            now = SystemClock().now
            yield lambda: [one.name for one in server.pool.machines() if one.allocated(now())]


@contextlib.contextmanager
def joined(nodes: Nodes | Cluster) -> Iterator[None]:
    nodes.start()
    try:
        yield
    finally:
        nodes.close()


@contextlib.contextmanager
def liqo_world(plane: ControlPlane, _: pytest.MonkeyPatch, config: Path) -> Iterator[Callable[[], list[str]]]:
    """Two virtual nodes of a cluster that lends so much, of which one must stay."""
    with virtual.site(plane, config.parent, {"rome": 2}, start=False) as here:
        here.start(virtual.CONFIG.replace("maxSize: 4", "maxSize: 4\n    minSize: 1"))
        config.write_text(here.cloud_config().read_text())
        with here.provider() as provider:
            provider.increase_size("STANDARD", 2, deadline=SystemClock().monotonic() + 60)
        yield lambda: [one["metadata"]["name"] for one in here.slices() if "deletionTimestamp" not in one["metadata"]]


Opened = Callable[[ControlPlane, pytest.MonkeyPatch, Path], World]
#: System → its world, and the flags that choose it; without a configuration file where it needs none.
DIRECT: dict[str, tuple[Opened, tuple[str, ...]]] = {
    "cherryservers": (cherry_world, ("--cloud-provider=cherryservers", "--cloud-config={config}", "--nodes=1:3:od")),
    "stackpoint": (stackpoint_world, ("--cloud-provider=spc", "--nodes=1:3:t2.medium:od")),
    "cloudpool": (cloudpool_world, ("--cloud-provider=cloudpool", "--cloud-config={config}")),
    "liqo": (liqo_world, ("--cloud-provider=liqo", "--cloud-config={config}")),
}


def behind_grpc(system: str) -> Opened:
    """The world of *system*, behind a service of ours that wants certificates."""

    @contextlib.contextmanager
    def opened(plane: ControlPlane, environ: pytest.MonkeyPatch, config: Path) -> Iterator[Callable[[], list[str]]]:
        world, flags = DIRECT[system]
        (own := config.parent / OWN).mkdir()
        pki.make(config.parent)
        with world(plane, environ, own / "cloud-config") as machines:
            asked = [flag.format(config=own / "cloud-config") for flag in flags]
            with Service(config.parent, *asked, *SERVER_FILES) as service:
                config.write_text(json.dumps({"address": service.address, "grpc_timeout": "60s", **CLIENT_FILES}))
                yield machines

    return opened


GRPC = ("--cloud-provider=externalgrpc", "--cloud-config={config}")
WORLDS = {**DIRECT, **{f"externalgrpc over {system}": (behind_grpc(system), GRPC) for system in DIRECT}}


@pytest.mark.parametrize("system", WORLDS)
def test_a_victim_leaves_and_the_minimum_stays(
    system: str, cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Both on-demand nodes could be emptied; the group must keep one, so one drain is all there is."""
    config = tmp_path_factory.mktemp("cloud") / "cloud-config"
    look = Look(cluster)
    world, flags = WORLDS[system]
    with world(cluster, monkeypatch, config) as machines:
        look.eventually(lambda: len(cluster.api.items("/api/v1/nodes")) == 2, "the machines' Nodes")
        cluster.apply([deployment("web", 2, nodeSelector={"kubernetes.io/os": "linux"}, tolerations=[TOLERATION])])
        look.running(2, "web")
        cluster.apply([spot("spot-1"), spot("spot-2")])
        with Daemon(cluster, NO_DELAY, *(flag.format(config=config) for flag in flags)) as daemon:
            look.eventually(lambda: len(machines()) == 1, "one machine to end")
            look.eventually(lambda: len(cluster.api.items("/api/v1/nodes")) == 3, "its Node to go")
            look.eventually(lambda: daemon.told("must keep 1, 0 would be left"), "the other to be refused")
            assert len(machines()) == 1
            assert not daemon.told("token")
        look.running(2, "web")
        assert look.marks() == {}


def test_without_a_system_the_emptied_nodes_stay(cluster: ControlPlane) -> None:
    look = Look(cluster)
    look.nodes(2, 2)
    cluster.apply([deployment("web", 4)])
    look.running(4)
    look.open_spot()
    before = {one["metadata"]["name"]: one["spec"] for one in cluster.api.items("/api/v1/nodes")}
    with Daemon(cluster, NO_DELAY, "--cloud-provider=none") as daemon:
        look.eventually(lambda: len(daemon.told("drained after")) == 2, "both to be emptied")
        look.eventually(lambda: look.marks() == {}, "the taints to go")
    assert {one["metadata"]["name"]: one["spec"] for one in cluster.api.items("/api/v1/nodes")} == before
    look.running(4)
    assert look.kinds() == {"spot": 4}
