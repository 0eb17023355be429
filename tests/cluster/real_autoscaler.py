"""The real Cluster Autoscaler drives ``rescheduler provider serve`` on the local control plane: `make autoscaler`.

Not collected by name: its first build takes minutes. Machines are Nodes that kwok plays; pods are bound by the real
scheduler. Cluster Autoscaler speaks the older of the protocol's two generations.
"""

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from deploy.local.autoscaler import binary
from deploy.local.cherry import nodes as cherry_nodes
from deploy.local.cloudpool.cluster import Cluster
from deploy.local.cloudpool.server import Server as CloudpoolServer
from deploy.local.manifests import deployment, node
from deploy.local.plane import ControlPlane
from deploy.local.stackpoint import nodes as stackpoint_nodes
from deploy.local.standin.nodes import Nodes
from rescheduler.clock import SystemClock
from tests.backends import cherry, cloudpools, pki, stackpoints
from tests.backends.served import CLIENT_FILES, SERVER_FILES, Service
from tests.cluster.daemon import Look

CLOCK = SystemClock()
LABELS = {"pool": "od"}
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
    """Cluster Autoscaler for the length of the block, in the folder of its configuration."""

    def __init__(self, program: Path, plane: ControlPlane, folder: Path, *flags: str) -> None:
        self._command = [str(program), f"--kubeconfig={plane.kubeconfig}", *FLAGS, *flags]
        self._folder = folder
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, cwd=self._folder, stderr=subprocess.PIPE, text=True, env={**os.environ, "no_proxy": "127.0.0.1"}
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
            Path("/tmp/ca.log").write_text("\n".join(self.lines))

    def _read(self) -> None:
        assert self._process.stderr is not None
        self.lines.extend(line.rstrip() for line in self._process.stderr)

    def told(self, words: str) -> list[str]:
        return [line for line in list(self.lines) if words in line]


@dataclass(frozen=True)
class System:
    """A stand-in whose machines are Nodes, two at the start, one at least, five at most."""

    flags: tuple[str, ...]
    machines: Callable[[], int]  #: that run or will
    environ: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def cloudpool(plane: ControlPlane, folder: Path) -> Iterator[System]:
    document = cloudpools.document(
        requestDelay="500ms", launchDelay="500ms", bootDelay="500ms", terminationDelay="1s", labels=LABELS
    )
    settings = cloudpools.settings(pool=document, desired_size=2, refresh_interval=0.2, pool_update=1)
    with CloudpoolServer(settings, folder, CLOCK).running() as server, joined(
        Cluster(str(plane.kubeconfig), server.pool, CLOCK)
    ):
        pool = {
            "id": "od",
            "backend": {"url": server.url, "timeout": "4s"},
            "minSize": 1,
            "maxSize": 5,
            "refreshInterval": "500ms",
            "cacheAge": "1s",
            "pollInterval": "500ms",
            "template": {"labels": LABELS, "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"}},
        }
        (folder / "cloudpool.json").write_text(json.dumps({"pools": [pool]}))
        yield System(
            ("--cloud-provider=cloudpool", "--cloud-config=cloudpool.json"),
            lambda: sum(one.allocated(CLOCK.now()) for one in server.pool.machines()),
        )


@contextlib.contextmanager
def joined(nodes: Any) -> Iterator[None]:
    nodes.start()
    try:
        yield
    finally:
        nodes.close()


SYSTEMS: dict[str, Callable[[ControlPlane, Path], AbstractContextManager[System]]] = {"cloudpool": cloudpool}


@pytest.fixture(scope="module")
def program(pytestconfig: pytest.Config) -> Path:
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        return binary.cluster_autoscaler()


@pytest.mark.parametrize("name", SYSTEMS)
def test_it_scales_up_and_down(
    name: str, program: Path, cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Pods that fill a machine each: four of them need two machines more, one needs three machines less."""
    folder = tmp_path_factory.mktemp("autoscaler")
    pki.make(folder)
    look = Look(cluster)
    cluster.apply([node("elsewhere")])
    with SYSTEMS[name](cluster, folder) as system:
        look.eventually(lambda: len(cluster.api.items("/api/v1/nodes")) == 3, "the machines' Nodes")
        with Service(folder, *system.flags, *SERVER_FILES, environ=system.environ) as service:
            client = {"address": service.address, **CLIENT_FILES}
            (folder / "client.yaml").write_text(json.dumps(client))
            cluster.apply([deployment("web", 4, cpu="3", nodeSelector=LABELS)])
            with Autoscaler(program, cluster, folder) as autoscaler:
                look.running(4)
                assert system.machines() == 4
                cluster.apply([deployment("web", 1, cpu="3", nodeSelector=LABELS)])
                look.eventually(lambda: system.machines() == 1, "the machines to end", 180)
                look.eventually(lambda: len(cluster.api.items("/api/v1/nodes")) == 2, "their Nodes to go")
            assert autoscaler.told("Error on gRPC call") == []
