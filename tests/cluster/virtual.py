"""Virtual nodes on a real control plane: discovery and node manager as processes, Liqo played by a controller."""

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from deploy.local import manifests
from deploy.local.api import Json
from deploy.local.liqo import objects
from deploy.local.liqo.controller import SLICES, Policy
from deploy.local.liqo.playing import playing
from deploy.local.plane import ControlPlane
from rescheduler.backends.liqo.config import read_file
from rescheduler.backends.liqo.provider import LiqoProvider
from rescheduler.clock import SystemClock
from tests.acceptance.program import Program
from tests.backends import pki
from tests.liqo.kubeconfigs import kubeconfig

NAMESPACE = "clusters"
NODE = {"cpu": "2", "memory": "2Gi", "pods": "110"}
TOLERATION = objects.TOLERATION
WAIT_SECONDS = 120.0
CONFIG = """
groups:
  - id: STANDARD
    maxSize: 4
    selector: {hasGPU: "false"}
    resources: {min: {cpu: 2, memory: 2Gi, pods: 110}}
    labels: {node-role.kubernetes.io/worker: "true"}
showFailuresFor: 2s
"""


class Site:
    """The parts, each of which can be killed and started again with what it kept."""

    def __init__(self, plane: ControlPlane, folder: Path, policy: Policy, own: Path | None = None) -> None:
        """*own* is the node manager's kubeconfig; without it, it is an administrator's."""
        self.plane, self.folder, self.policy = plane, folder, policy
        self._own = own or plane.kubeconfig
        self._logs = 0
        pki.make(folder)
        self.discovery = self._program("discovery", plane.kubeconfig, f"--namespace={NAMESPACE}")
        self.manager: Program

    def start(self, config: str = CONFIG, *flags: str) -> None:
        """The node manager; its database is that of the one before."""
        (self.folder / "groups.yaml").write_text(config)
        found = f"https://{self._address(self.discovery, 'serving the list of clusters on ')}"
        files = (f"--config={self.folder / 'groups.yaml'}", f"--discovery-url={found}")
        self.manager = self._program("node-manager", self._own, *files, *flags)
        self.manager.__enter__()
        self.url = f"https://{self._address(self.manager, 'serving STANDARD on ')}"

    def _program(self, part: str, kubeconfig: Path, *flags: str) -> Program:
        self._logs += 1
        tls = [f"--{name}={self.folder / file}" for name, file in _TLS.items()]
        everywhere = (
            f"--kubeconfig={kubeconfig}",
            "--listen=127.0.0.1:0",
            "--health-address=127.0.0.1:0",
            "-v=2",
        )
        log = self.folder / f"{part}-{self._logs}.log"
        return Program(log, "liqo", part, f"--database={self.folder / part}.db", *everywhere, *tls, *flags)

    def _address(self, program: Program, words: str) -> str:
        self.plane.wait_for(lambda: program.told(words) or not program.running, words, seconds=WAIT_SECONDS)
        assert program.running, program.lines
        return str(program.told(words)[0]["message"]).partition(words)[2].partition(",")[0]

    def cloud_config(self) -> Path:
        """The file of ``--cloud-config``."""
        file = self.folder / "cloud.yaml"
        endpoint = {"url": self.url, "caFile": "ca.pem", "clientCertFile": "client.crt", "clientKeyFile": "client.key"}
        paces = {"refreshInterval": "200ms", "pollInterval": "200ms", "settleTime": "30s"}
        file.write_text(yaml.safe_dump({"nodeManager": endpoint, **paces}))
        return file

    @contextlib.contextmanager
    def provider(self) -> Iterator[LiqoProvider]:
        made = LiqoProvider(read_file(self.cloud_config()), self.folder, SystemClock())
        try:
            yield made
        finally:
            made.close()

    def share(self, cluster: str, nodes: int) -> None:
        """Discovery learns by a Secret that *cluster* lends so many nodes of ours."""
        amounts = {"cpu": str(2 * nodes), "memory": f"{2 * nodes}Gi", "pods": str(110 * nodes)}
        info = {"resources": amounts, "labels": {"hasGPU": "false"}, "hasNat": False}
        data = {
            "kubeconfig": kubeconfig(cluster={"server": f"https://{cluster}.example:6443"}),
            "info": json.dumps(info),
        }
        metadata = {"name": cluster, "namespace": NAMESPACE, "labels": {"autoscaling": "true"}}
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
        self.plane.apply([{"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}])

    def slices(self) -> list[Json]:
        """Our own; consumers of this cluster have slices here, too."""
        return self.plane.api.items(SLICES, labelSelector="liqo.io/replication=true")

    def nodes(self) -> dict[str, Json]:
        """Virtual ones."""
        found = self.plane.api.items("/api/v1/nodes", labelSelector="liqo.io/type=virtual-node")
        return {one["metadata"]["name"]: one for one in found}

    def eventually(self, found: Any, what: str) -> Any:
        return self.plane.wait_for(found, what, seconds=WAIT_SECONDS)


_TLS = {"tls-cert": "server.crt", "tls-key": "server.key", "tls-client-ca": "ca.pem"}


@contextlib.contextmanager
def site(
    plane: ControlPlane,
    folder: Path,
    shared: Mapping[str, int],
    *,
    own: Path | None = None,
    peers: tuple[str, ...] | None = None,
    start: bool = True,
) -> Iterator[Site]:
    """Clusters that share so many nodes; we are peered with all of them, or with *peers*."""
    policy = Policy()
    plane.apply([manifests.namespace(NAMESPACE)])

    def wait(found: Any, what: str) -> Any:
        return plane.wait_for(found, what, seconds=WAIT_SECONDS)

    with playing(plane.api, wait, list(shared) if peers is None else peers, policy):
        made = Site(plane, folder, policy, own)
        for cluster, nodes in shared.items():
            made.share(cluster, nodes)
        with made.discovery:
            try:
                if start:
                    made.start()
                yield made
            finally:
                if hasattr(made, "manager"):
                    made.manager.kill()
