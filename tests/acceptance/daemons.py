"""On-demand nodes of which the daemon may remove one at a time."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from rescheduler.planning.rules.candidates import SCALE_DOWN_DISABLED
from tests.acceptance.program import LoggedProgram
from tests.acceptance.site import PoolSite, building
from tests.cluster.daemon import LEASE_PATH, prefers

PODS: Final = 2  #: pods on each on-demand node; all of them fit on the spot nodes

FLAGS: Final = (
    "--housekeeping-interval=200ms",
    "--node-drain-delay=0",
    "--pod-eviction-timeout=20s",
    "--max-graceful-termination=2s",
    "--shorten-grace-periods",
    "--listen-address=127.0.0.1:0",
    "--namespace=default",
    "-v=3",
)


class DaemonProgram(LoggedProgram):
    """The daemon; `kill` also deletes its Lease, so that the next daemon need not wait until it expires."""

    def __init__(self, site: PoolSite, *flags: str) -> None:
        super().__init__(site.log(), "run", f"--kubeconfig={site.kubeconfig}", *FLAGS, *flags)
        self._plane = site.plane

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.kill()

    def kill(self, *, keep_lease: bool = False) -> None:
        super().kill()
        if not keep_lease:
            self._plane.api.delete(LEASE_PATH)


class DaemonFleet:
    """Machines whose nodes are all protected, except the node that `take` returned last."""

    def __init__(self, site: PoolSite, machines: int) -> None:
        self.site, self.edge, self._pods = site, site.edge, PODS * machines
        self._next = iter(range(1, machines + 1))
        self._taken = ""
        self._before: list[str] = []

    def take(self) -> str:
        """Remove the protection of the next node, protect the previous one again, and return the node."""
        if self._taken in self.site.nodes():
            self.protect(self._taken)
        self._before = self.site.machines()
        self._taken = f"od-{next(self._next)}"
        self.protect(self._taken, off=True)
        self.edge.forget()
        return self._taken

    def protect(self, node: str, *, off: bool = False) -> None:
        annotations = {SCALE_DOWN_DISABLED: None if off else "true"}
        self.site.plane.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": annotations}})

    def wait_for_state(self, *, gone: bool) -> None:
        """Wait until the node from `take` is *gone*, or until the initial state is restored."""
        remaining = [name for name in self._before if not (gone and name == self._taken)]
        self.site.wait_for_state(*remaining, pods=self._pods)
        self.site.assert_no_repeated_eviction()


@contextlib.contextmanager
def fleet(plane: ControlPlane, folder: Path, machines: int) -> Iterator[DaemonFleet]:
    """Run a fleet of *machines* machines. Their pods fit on two spot nodes and on no other node."""
    with building(plane, folder, machines) as site:
        site.join(machines)
        prepared, nodes = DaemonFleet(site, machines), site.nodes()
        for name in nodes:
            prepared.protect(name)
        plane.apply(deployment(f"of-{name}", PODS, affinity=prefers(name), cpu="10m") for name in nodes)
        site.queries.running(PODS * machines)
        assert site.queries.places() == dict.fromkeys(nodes, PODS)
        site.cordon(*nodes)
        site.spot("spot-1", "spot-2")
        yield prepared


def daemon(site: PoolSite, *flags: str, settle: str = "2s") -> DaemonProgram:
    """Return a daemon that uses the site's edge."""
    pool: dict[str, Any] = {
        "id": "od",
        "backend": {"url": site.edge.pool.url, "timeout": "5s"},
        "refreshInterval": "100ms",
        "pollInterval": "200ms",
        "cacheAge": "1s",
        "orderTimeout": "2s",
        "settleTime": settle,
    }
    config = site.folder / "cloud.json"
    config.write_text(json.dumps({"pools": [pool]}))
    return without_pool(site, "--cloud-provider=cloudpool", f"--cloud-config={config}", *flags)


def without_pool(site: PoolSite, *flags: str) -> DaemonProgram:
    """Return a daemon without a cloud provider."""
    return DaemonProgram(site, *flags)
