"""A site on which the daemon has one machine to give away."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from deploy.local.plane import ControlPlane
from rescheduler.planning.candidates import SCALE_DOWN_DISABLED
from tests.acceptance.program import Program
from tests.acceptance.site import Site, building

PODS: Final = 2  #: on od-1, all of which fit the spot nodes

FLAGS: Final = (
    "--housekeeping-interval=200ms",
    "--node-drain-delay=0",
    "--pod-eviction-timeout=20s",
    "--max-graceful-termination=2s",
    "--listen-address=127.0.0.1:0",
    "--cloud-provider=cloudpool",
    "-v=3",
)


@contextlib.contextmanager
def shrinking(plane: ControlPlane, folder: Path, **pods: Any) -> Iterator[Site]:
    """od-1 can be emptied onto two spot nodes, od-2 must stay. *pods*: as for `manifests.deployment`."""
    with building(plane, folder, 2) as site:
        site.join(2, "spot-1", "spot-2")
        annotations = {SCALE_DOWN_DISABLED: "true"}
        plane.api.patch("/api/v1/nodes/od-2", {"metadata": {"annotations": annotations}})
        site.deploy("web", PODS, on="od-1", **pods)
        site.cordon("od-2")
        yield site


def daemon(site: Site, *flags: str, settle: str = "2s") -> Program:
    """The daemon, before the site's edge."""
    pool = {
        "id": "od",
        "backend": {"url": site.edge.url, "timeout": "5s"},
        "refreshInterval": "100ms",
        "pollInterval": "200ms",
        "cacheAge": "1s",
        "orderTimeout": "2s",
        "settleTime": settle,
    }
    config = site.folder / "cloud.json"
    config.write_text(json.dumps({"pools": [pool]}))
    return Program(site.log(), "run", f"--kubeconfig={site.kubeconfig}", *FLAGS, f"--cloud-config={config}", *flags)
