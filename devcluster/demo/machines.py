"""The cloudpool whose machines are the nodes of a demo cluster."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from devcluster.demo.program import Program
from devcluster.errors import PlaneError
from devcluster.manifests import Json
from devcluster.plane import ControlPlane


class Machines:
    """The state of the pool, read from its REST API."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def states(self) -> dict[str, str]:
        """The state of each machine by id; terminated machines are listed for some time."""
        return {machine["id"]: machine["machineState"] for machine in self._get("/pool")["machines"]}

    @property
    def running(self) -> int:
        return sum(state == "RUNNING" for state in self.states.values())

    @property
    def desired(self) -> int:
        return int(self._get("/pool/size")["desiredSize"])

    def _get(self, path: str) -> Json:
        document: Json = httpx2.get(f"{self.url}{path}", trust_env=False).raise_for_status().json()
        return document


@contextmanager
def serving(plane: ControlPlane, size: int, document: Mapping[str, Any]) -> Iterator[Machines]:
    """Run a reference cloudpool as a process, with *size* machines and the configuration *document*.

    Nodes of terminated machines remain, as in a cluster without a cloud controller manager. The program that terminates
    a machine has to delete its Node.
    """
    settings = {
        "pool": {"requestDelay": "500ms", "launchDelay": "500ms", "terminationDelay": "1s", **document},
        "desiredSize": size,
        "refreshInterval": "500ms",
        "poolUpdate": "1s",
        "nodesStay": True,
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cloudpool.json"
        file.write_text(json.dumps(settings))
        command = ["devcluster.cloudpool", f"--config={file}", f"--kubeconfig={plane.kubeconfig}"]
        with Program(command, shown=False) as server:
            plane.wait_for(lambda: server.lines, "the cloudpool to serve")
            if not server.lines[0].startswith("http"):
                raise PlaneError(f"the cloudpool did not start: {server.lines[0]}")
            yield Machines(server.lines[0])


def of_nodes(plane: ControlPlane) -> dict[str, str]:
    """Return the machine of each Node that has a provider ID, by node name."""
    provided = {
        node["metadata"]["name"]: node["spec"].get("providerID", "") for node in plane.api.items("/api/v1/nodes")
    }
    return {node: identity.rpartition("/")[2] for node, identity in provided.items() if identity}
