"""The cloudpool whose machines are Nodes of a demo's cluster."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from deploy.local.demo.program import Program
from deploy.local.errors import PlaneError
from deploy.local.manifests import Json
from deploy.local.plane import ControlPlane


class Machines:
    """What the pool's REST API tells."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def states(self) -> dict[str, str]:
        """Machine → its state; one that has ended is listed for a while."""
        return {one["id"]: one["machineState"] for one in self._get("/pool")["machines"]}

    @property
    def running(self) -> int:
        return sum(state == "RUNNING" for state in self.states.values())

    @property
    def desired(self) -> int:
        return int(self._get("/pool/size")["desiredSize"])

    def _get(self, path: str) -> Json:
        found: Json = httpx.get(f"{self.url}{path}", trust_env=False).raise_for_status().json()
        return found


@contextmanager
def serving(plane: ControlPlane, size: int, document: Mapping[str, Any]) -> Iterator[Machines]:
    """A reference cloudpool, a process of its own, that has started *size* machines of the kind of *document*.

    Nodes outlive their machines, as where no cloud controller runs: whoever gives a machine away deletes its Node.
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
        command = ["deploy.local.cloudpool", f"--config={file}", f"--kubeconfig={plane.kubeconfig}"]
        with Program(command, shown=False) as server:
            plane.wait_for(lambda: server.lines, "the cloudpool to serve")
            if not server.lines[0].startswith("http"):
                raise PlaneError(f"the cloudpool did not start: {server.lines[0]}")
            yield Machines(server.lines[0])


def of_nodes(plane: ControlPlane) -> dict[str, str]:
    """Node → its machine, by the provider ID; other nodes are left out."""
    provided = {one["metadata"]["name"]: one["spec"].get("providerID", "") for one in plane.api.items("/api/v1/nodes")}
    return {node: identity.rpartition("/")[2] for node, identity in provided.items() if identity}
