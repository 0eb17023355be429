"""Virtual nodes on a real control plane: discovery and node manager as processes, and a simulated Liqo."""

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from devcluster import manifests
from devcluster.api import Json
from devcluster.liqo import objects
from devcluster.liqo.controller import SLICES, LiqoController
from devcluster.liqo.playing import playing
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from rescheduler.liqo.client import read_file
from rescheduler.liqo.provider import LiqoProvider
from tests.acceptance.program import LoggedProgram
from tests.liqo_services.kubeconfigs import kubeconfig
from tests.providers import pki

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


class VirtualSite:
    """The services, which can be killed and restarted with their databases."""

    def __init__(self, plane: ControlPlane, folder: Path, liqo: LiqoController, own: Path | None = None) -> None:
        """Prepare the services. *own* is the node manager's kubeconfig; default: the administrator's."""
        self.plane, self.folder, self.liqo = plane, folder, liqo
        self._own = own or plane.kubeconfig
        self._logs = 0
        pki.make(folder)
        self.discovery = self._program("discovery", plane.kubeconfig, f"--namespace={NAMESPACE}")
        self.manager: LoggedProgram

    def start(self, config: str = CONFIG, *flags: str) -> None:
        """Start the node manager with the database of the previous process."""
        (self.folder / "groups.yaml").write_text(config)
        url = f"https://{self._address(self.discovery, 'serving the list of clusters on ')}"
        files = (f"--config={self.folder / 'groups.yaml'}", f"--discovery-url={url}")
        self.manager = self._program("node-manager", self._own, *files, *flags)
        self.manager.__enter__()
        self.url = f"https://{self._address(self.manager, 'serving STANDARD on ')}"

    def _program(self, part: str, kubeconfig: Path, *flags: str) -> LoggedProgram:
        self._logs += 1
        tls = [f"--{name}={self.folder / file}" for name, file in _TLS.items()]
        everywhere = (
            f"--kubeconfig={kubeconfig}",
            "--listen=127.0.0.1:0",
            "--health-address=127.0.0.1:0",
            "-v=2",
        )
        log = self.folder / f"{part}-{self._logs}.log"
        return LoggedProgram(log, "liqo", part, f"--database={self.folder / part}.db", *everywhere, *tls, *flags)

    def _address(self, program: LoggedProgram, message: str) -> str:
        self.plane.wait_for(lambda: program.logged(message) or not program.running, message, seconds=WAIT_SECONDS)
        assert program.running, program.lines
        return str(program.logged(message)[0]["message"]).partition(message)[2].partition(",")[0]

    def cloud_config(self) -> Path:
        """Write and return the file for ``--cloud-config``."""
        file = self.folder / "cloud.yaml"
        endpoint = {"url": self.url, "caFile": "ca.pem", "clientCertFile": "client.crt", "clientKeyFile": "client.key"}
        paces = {"refreshInterval": "200ms", "pollInterval": "200ms", "settleTime": "30s"}
        file.write_text(yaml.safe_dump({"nodeManager": endpoint, **paces}))
        return file

    @contextlib.contextmanager
    def provider(self) -> Iterator[LiqoProvider]:
        provider = LiqoProvider(read_file(self.cloud_config()), self.folder, SystemClock())
        try:
            yield provider
        finally:
            provider.close()

    def share(self, cluster: str, nodes: int) -> None:
        """Create the Secret with which discovery learns that *cluster* offers *nodes* nodes."""
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
        """Return our own slices; consumers have slices in this cluster, too."""
        return self.plane.api.items(SLICES, labelSelector="liqo.io/replication=true")

    def nodes(self) -> dict[str, Json]:
        """Return the virtual nodes by name."""
        nodes = self.plane.api.items("/api/v1/nodes", labelSelector="liqo.io/type=virtual-node")
        return {node["metadata"]["name"]: node for node in nodes}

    def eventually(self, condition: Any, description: str) -> Any:
        return self.plane.wait_for(condition, description, seconds=WAIT_SECONDS)


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
) -> Iterator[VirtualSite]:
    """Run the services with clusters that offer the given number of nodes, peered with all of them or with *peers*."""
    plane.apply([manifests.namespace(NAMESPACE)])

    def wait(condition: Any, description: str) -> Any:
        return plane.wait_for(condition, description, seconds=WAIT_SECONDS)

    with playing(plane.api, wait, list(shared) if peers is None else peers) as liqo:
        site = VirtualSite(plane, folder, liqo, own)
        for cluster, nodes in shared.items():
            site.share(cluster, nodes)
        with site.discovery:
            try:
                if start:
                    site.start()
                yield site
            finally:
                if hasattr(site, "manager"):
                    site.manager.kill()
