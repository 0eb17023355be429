"""Tests of ``rescheduler provider serve`` with the real Cluster Autoscaler: `make autoscaler`.

pytest does not collect this file by default, because the first build takes minutes. Set CLUSTER_AUTOSCALER to use an
existing binary. kwok simulates the Nodes of machines; the real scheduler binds pods.
"""

import contextlib
import functools
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import pytest

from devcluster.autoscaler import binary
from devcluster.cherry import nodes as cherry_nodes
from devcluster.cloudpool.cluster import Cluster
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.manifests import ON_DEMAND, SPOT, deployment, node
from devcluster.plane import ControlPlane
from devcluster.stackpoint import nodes as stackpoint_nodes
from devcluster.standin.faults import Fault
from devcluster.standin.nodes import Nodes
from rescheduler.clock import SystemClock
from rescheduler.planning.rules.candidates import DELETION_CANDIDATE
from tests.cluster.daemon import NO_DELAY, SOFT, ClusterQueries, Daemon
from tests.cluster.observer import Observer
from tests.providers import cherry, cloudpools, pki, stackpoints
from tests.providers.served import CLIENT_FILES, SERVER_FILES, Service

CLOCK = SystemClock()
FLAGS = (
    "--cloud-provider=externalgrpc",
    "--cloud-config=client.yaml",
    "--leader-elect=false",
    "--address=127.0.0.1:0",
    "--scan-interval=1s",
    "--scale-down-unneeded-time=3s",
    "--scale-down-delay-after-add=0s",
    "--scale-down-delay-after-delete=0s",
    "--max-graceful-termination-sec=5",
    "--max-node-provision-time=20s",
    "--write-status-configmap=false",
    "--v=5",
)


class Autoscaler:
    """A context manager that runs Cluster Autoscaler in the folder of its configuration."""

    def __init__(self, program: Path, plane: ControlPlane, folder: Path, *flags: str) -> None:
        self._command = [str(program), f"--kubeconfig={plane.kubeconfig}", *FLAGS, *flags]
        self._folder = folder
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            cwd=self._folder,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "no_proxy": "127.0.0.1"},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            assert self._process.stderr is not None
            self._process.stderr.close()
            (self._folder / "autoscaler.log").write_text("\n".join(self.lines))

    def _read(self) -> None:
        assert self._process.stderr is not None
        self.lines.extend(line.rstrip() for line in self._process.stderr)

    def logged(self, text: str) -> list[str]:
        return [line for line in list(self.lines) if text in line]


@dataclass(frozen=True)
class System:
    """A cloud stand-in with two initial machines, minimum size one, maximum size five."""

    flags: tuple[str, ...]
    labels: dict[str, str]  #: labels of the Nodes and of the template
    machines: Callable[[], int]  #: returns the number of machines that run or will run
    environ: dict[str, str] = field(default_factory=dict)
    inject: Callable[..., None] | None = None  #: injects API faults
    expander: str = "least-waste"  #: `price` does not work with a cloud that has no prices


@contextlib.contextmanager
def cloudpool(
    plane: ControlPlane, folder: Path, size: int = 2, minimum: int = 1, later: Mapping[str, str] = MappingProxyType({})
) -> Iterator[System]:
    """Run a cloudpool; machines that are requested later have the settings *later*."""
    labels = {"pool": "od"}
    document = cloudpools.document(
        requestDelay="500ms", launchDelay="500ms", bootDelay="500ms", terminationDelay="1s", labels=labels
    )
    settings = cloudpools.settings(pool=document, desired_size=size, refresh_interval=0.2, pool_update=1)
    with (
        CloudpoolServer(settings, folder, CLOCK).running() as server,
        joined(Cluster(str(plane.kubeconfig), server.pool, CLOCK)),
    ):
        server.pool.set_config({**server.pool.config(), **later})
        pool = {
            "id": "od",
            "backend": {"url": server.url, "timeout": "4s"},
            "minSize": minimum,
            "maxSize": 5,
            "refreshInterval": "500ms",
            "cacheAge": "1s",
            "pollInterval": "500ms",
            "template": {"labels": labels, "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"}},
        }
        (folder / "cloudpool.json").write_text(json.dumps({"pools": [pool]}))
        yield System(
            ("--cloud-provider=cloudpool", "--cloud-config=cloudpool.json"),
            labels,
            lambda: allocated(server.pool),
            inject=server.faulty_app.inject,
        )


@contextlib.contextmanager
def cherryservers(plane: ControlPlane, folder: Path) -> Iterator[System]:
    with cherry.serving(CLOCK, deploying=1.0, terminating=1.0) as server:
        for number in range(2):
            cherry.add(server, hostname=f"k8s-{number}", deploying=0.0)
        keys = {"cluster-name": cherry.CLUSTER, "project-id": cherry.PROJECT, "os": cherry.ORDER["image"]}
        keys |= {name: cherry.ORDER[name] for name in ("plan", "region")}
        (folder / "cherry.ini").write_text("[global]\n" + "".join(f"{key} = {keys[key]}\n" for key in keys))
        with joined(Nodes(str(plane.kubeconfig), lambda: cherry_nodes.nodes(server.cloud, {}), CLOCK)):
            yield System(
                ("--cloud-provider=cherryservers", "--cloud-config=cherry.ini", f"--nodes=1:5:{cherry.POOL}"),
                {"pool": cherry.POOL},
                lambda: sum(machine.state(CLOCK.now()) != "terminating" for machine in server.cloud.servers()),
                {**cherry.ENVIRONMENT, "CHERRY_API_URL": server.url},
                expander="price",
            )


@contextlib.contextmanager
def stackpoint(plane: ControlPlane, folder: Path) -> Iterator[System]:
    with stackpoints.serving(CLOCK, building=0.3, deleting=1.0) as server:
        for _ in range(2):
            server.cloud.add(group_name=stackpoints.FIRST, building=0.0)
        (folder / "spc.yaml").write_text("pollInterval: 500ms\nrefreshInterval: 1s\n")
        with joined(Nodes(str(plane.kubeconfig), lambda: stackpoint_nodes.nodes(server.cloud, {}), CLOCK)):
            yield System(
                ("--cloud-provider=stackpoint", "--cloud-config=spc.yaml", "--nodes=1:5:m4.xlarge:od"),
                {"stackpoint.io/node_group": stackpoints.FIRST},
                lambda: sum(machine.deleted_at is None for machine in server.cloud.nodes()),
                stackpoints.environment(server.url),
            )


@contextlib.contextmanager
def joined(nodes: Any) -> Iterator[None]:
    nodes.start()
    try:
        yield
    finally:
        nodes.close()


@contextlib.contextmanager
def two_pools(plane: ControlPlane, folder: Path) -> Iterator[tuple[System, System]]:
    """Run an on-demand pool and a spot pool with two machines and minimum size one each, behind one service.

    The minimum is below the size, because Cluster Autoscaler marks no node of a group at its minimum size.
    """
    kinds: dict[str, dict[str, Any]] = {
        "od": {"labels": {ON_DEMAND: ""}, "taints": [{"key": ON_DEMAND, "value": "true", "effect": SOFT}]},
        "spot": {"labels": {SPOT: ""}, "network": "10.78"},
    }
    flags = ("--cloud-provider=cloudpool", "--cloud-config=cloudpool.json")
    pools, systems = [], []
    with contextlib.ExitStack() as stack:
        for name, more in kinds.items():
            place = folder / name
            place.mkdir()
            document = cloudpools.document(name=name, requestDelay="200ms", launchDelay="200ms", **more)
            settings = cloudpools.settings(pool=document, desired_size=2, refresh_interval=0.2, pool_update=1)
            server = stack.enter_context(CloudpoolServer(settings, place, CLOCK).running())
            stack.enter_context(joined(Cluster(str(plane.kubeconfig), server.pool, CLOCK)))
            pools.append(
                {
                    "id": name,
                    "backend": {"url": server.url, "timeout": "4s"},
                    "minSize": 1,
                    "maxSize": 3,
                    "refreshInterval": "500ms",
                    "cacheAge": "1s",
                    "pollInterval": "500ms",
                    "template": {"labels": more["labels"], "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"}},
                }
            )
            systems.append(System(flags, more["labels"], functools.partial(allocated, server.pool)))
        (folder / "cloudpool.json").write_text(json.dumps({"pools": pools}))
        yield systems[0], systems[1]


def allocated(pool: Any) -> int:
    return sum(machine.allocated(CLOCK.now()) for machine in pool.machines())


SYSTEMS: dict[str, Callable[[ControlPlane, Path], AbstractContextManager[System]]] = {
    "cloudpool": cloudpool,
    "cherryservers": cherryservers,
    "stackpoint": stackpoint,
}


@pytest.fixture(scope="module")
def program(pytestconfig: pytest.Config) -> Path:
    if given := os.environ.get("CLUSTER_AUTOSCALER"):
        return Path(given)
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        return binary.cluster_autoscaler()


@contextlib.contextmanager
def driven(
    program: Path, cluster: ControlPlane, folder: Path, system: System, *flags: str, mutual: bool = False
) -> Iterator[Autoscaler]:
    """Run Cluster Autoscaler with our service for the cloud *system*."""
    pki.make(folder)
    files = SERVER_FILES if mutual else ()
    with Service(folder, *system.flags, *files, environ=system.environ) as service:
        client = {"address": service.address, **(CLIENT_FILES if mutual else {})}
        (folder / "client.yaml").write_text(json.dumps(client))
        with Autoscaler(program, cluster, folder, f"--expander={system.expander}", *flags) as autoscaler:
            yield autoscaler


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("autoscaler")


@pytest.mark.parametrize("name", SYSTEMS)
def test_cluster_autoscaler_scales_up_and_down(name: str, program: Path, cluster: ControlPlane, folder: Path) -> None:
    """Each pod fills a machine: four pods need two more machines, one pod needs three fewer."""
    queries = ClusterQueries(cluster)
    cluster.apply([node("elsewhere")])
    with SYSTEMS[name](cluster, folder) as system:
        queries.eventually(lambda: len(cluster.api.items("/api/v1/nodes")) == 3, "the machines' Nodes")
        cluster.apply([deployment("web", 4, cpu="3", nodeSelector=system.labels)])
        with driven(program, cluster, folder, system, mutual=name == "cloudpool") as autoscaler:
            queries.running(4)
            assert system.machines() == 4
            cluster.apply([deployment("web", 1, cpu="3", nodeSelector=system.labels)])
            queries.eventually(lambda: system.machines() == 1, "the termination of the machines")
            queries.eventually(lambda: len(cluster.api.items("/api/v1/nodes")) == 2, "the deletion of their Nodes")
        assert autoscaler.logged("Error on gRPC call") == []


def test_a_node_without_a_provider_id_keeps_its_machine(program: Path, cluster: ControlPlane, folder: Path) -> None:
    """Cluster Autoscaler considers such a machine unregistered and requests its deletion after a timeout."""
    queries = ClusterQueries(cluster)
    with stackpoint(cluster, folder) as system:
        queries.eventually(lambda: len(cluster.api.items("/api/v1/nodes")) == 2, "the machines' Nodes")
        cluster.apply([deployment("web", 2, cpu="3", nodeSelector=system.labels)])
        queries.running(2)
        with driven(program, cluster, folder, system, "--max-node-provision-time=2s") as autoscaler:
            queries.eventually(lambda: len(autoscaler.logged("Starting main loop")) > 15, "sufficient rounds")
        assert system.machines() == 2


def test_a_group_without_machines_grows_by_its_template(program: Path, cluster: ControlPlane, folder: Path) -> None:
    queries = ClusterQueries(cluster)
    with cloudpool(cluster, folder, size=0, minimum=0) as system:
        cluster.apply([deployment("web", 2, cpu="3", nodeSelector=system.labels)])
        with driven(program, cluster, folder, system) as autoscaler:
            queries.running(2)
            assert system.machines() == 2
            cluster.apply([deployment("web", 0, cpu="3", nodeSelector=system.labels)])
            queries.eventually(lambda: system.machines() == 0, "the termination of the machines")
        assert autoscaler.logged("Error on gRPC call") == []


def test_a_machine_that_never_joins_is_terminated(program: Path, cluster: ControlPlane, folder: Path) -> None:
    """Other machines are kept."""
    queries = ClusterQueries(cluster)
    with cloudpool(cluster, folder, later={"bootDelay": "1h"}) as system:
        queries.eventually(lambda: len(cluster.api.items("/api/v1/nodes")) == 2, "the machines' Nodes")
        cluster.apply([deployment("web", 3, cpu="3", nodeSelector=system.labels)])
        with driven(program, cluster, folder, system, "--max-node-provision-time=5s") as autoscaler:
            queries.eventually(lambda: system.machines() == 3, "a machine more")
            queries.eventually(lambda: autoscaler.logged("Some unregistered nodes were removed"), "its removal")
            queries.eventually(lambda: system.machines() == 2, "two machines")
        assert queries.places() == {"pool-1": 1, "pool-2": 1, "": 1}
        assert autoscaler.logged("Error on gRPC call") == []


def test_a_temporary_cloud_outage_only_causes_a_delay(program: Path, cluster: ControlPlane, folder: Path) -> None:
    """No machine with pods is terminated, and no machine is requested twice."""
    queries = ClusterQueries(cluster)
    with cloudpool(cluster, folder) as system:
        queries.eventually(lambda: len(cluster.api.items("/api/v1/nodes")) == 2, "the machines' Nodes")
        cluster.apply([deployment("web", 3, cpu="3", nodeSelector=system.labels)])
        assert system.inject is not None
        for method, path in (("GET", "/pool"), ("GET", "/pool/size"), ("POST", "/pool/size")):
            system.inject(Fault(method=method, path=path, status=503, times=20))
        patience = ("--initial-node-group-backoff-duration=2s", "--max-node-group-backoff-duration=4s")
        with driven(program, cluster, folder, system, *patience) as autoscaler:
            queries.running(3)
            assert system.machines() == 3
        assert autoscaler.logged("Error on gRPC call NodeGroupIncreaseSize")


def test_the_daemon_moves_pods_to_spot_nodes_that_cluster_autoscaler_marks_as_unneeded(
    program: Path, cluster: ControlPlane, observer: Observer, folder: Path
) -> None:
    """Both programs use the same service. At the pool's minimum, the other node is blocked without a failed drain."""
    with two_pools(cluster, folder) as (on_demand, spot):
        observer.eventually(lambda: len(observer.node_names()) == 4, "the machines' Nodes")
        observer.start_on("od-1", deployment("web", 1, cpu="300m"), pods=1)
        observer.start_on("od-2", deployment("api", 2, cpu="300m"), pods=2)
        observer.running(3)
        observer.open_all()
        with driven(program, cluster, folder, on_demand, "--scale-down-unneeded-time=1h") as autoscaler:
            observer.eventually(
                lambda: all(DELETION_CANDIDATE in taints(cluster, f"spot-{number}") for number in (1, 2)), "its taints"
            )
            client = folder / "client.yaml"
            with Daemon(cluster, NO_DELAY, "--cloud-provider=externalgrpc", f"--cloud-config={client}"):
                observer.eventually(lambda: on_demand.machines() == 1, "the termination of the machine")
                observer.eventually(lambda: "od-1" not in observer.node_names(), "the deletion of its Node")
                observer.eventually(
                    lambda: any("below-minimum: " in message for message in observer.messages("od-2", "DrainBlocked")),
                    "the blocker of the other node",
                )
        assert observer.kinds() == {"spot": 1, "od": 2}
        assert (on_demand.machines(), spot.machines()) == (1, 2)
        assert "DrainFailed" not in observer.events("od-1") | observer.events("od-2")
        assert autoscaler.logged("Error on gRPC call") == []


def taints(cluster: ControlPlane, name: str) -> set[str]:
    return {taint["key"] for taint in cluster.api.get(f"/api/v1/nodes/{name}")["spec"].get("taints", [])}
