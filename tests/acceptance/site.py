"""A cluster whose on-demand nodes are machines of a cloudpool, which the program under test uses through an edge."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from devcluster.cloudpool.cluster import Cluster
from devcluster.cloudpool.pool import ReferencePool
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.cloudpool.settings import CloudpoolSettings
from devcluster.cloudpool.state import Termination
from devcluster.manifests import ON_DEMAND, spot
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from tests.acceptance import edge
from tests.acceptance.edge import Edge
from tests.cluster.daemon import ClusterQueries
from tests.providers.cloudpools import AWKWARD, LISTING, document

POOL: Final = "od"
#: Short refresh and update intervals of the pool.
QUICK: Final[dict[str, Any]] = {"refresh_interval": 0.2, "pool_update": 0.4, **LISTING}


class PoolSite:
    """The cluster, the pool and the edge, with queries and assertions."""

    def __init__(self, plane: ControlPlane, server: CloudpoolServer, border: Edge, folder: Path) -> None:
        self.plane, self.pool, self.faulty_app, self.edge, self.folder = (
            plane,
            server.pool,
            server.faulty_app,
            border,
            folder,
        )
        self.queries = ClusterQueries(plane)
        self.kubeconfig = border.kubeconfig(folder / "kubeconfig")
        self._logs = 0

    def log(self) -> Path:
        """Return a new file for the log of a process."""
        self._logs += 1
        return self.folder / f"{self._logs}.log"

    # -- setup

    def join(self, machines: int) -> None:
        """Wait for the Nodes of *machines* machines."""
        self.queries.eventually(lambda: len(self._usable()) == machines, "the Nodes")

    def spot(self, *names: str) -> None:
        """Create schedulable spot nodes."""
        self.plane.apply([spot(name) for name in names])
        self.queries.eventually(lambda: set(names) <= set(self._usable()), "the spot nodes")

    def cordon(self, *nodes: str) -> None:
        for name in nodes:
            self.plane.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})

    def _usable(self) -> list[str]:
        return [
            item["metadata"]["name"]
            for item in self.plane.api.items("/api/v1/nodes")
            if any(
                (condition["type"], condition["status"]) == ("Ready", "True")
                for condition in item["status"].get("conditions", ())
            )
            and not any(taint["effect"] == "NoSchedule" for taint in item["spec"].get("taints", ()))
        ]

    # -- queries

    def machine(self, node: str) -> str:
        """Return the id of a node's machine."""
        return next(item for item in self.pool.machines() if item.name == node).id(SystemClock().now())

    def machines(self) -> list[str]:
        """Return the node names of the machines that are not terminating."""
        now = SystemClock().now()
        return sorted(item.name for item in self.pool.machines() if item.allocated(now))

    def nodes(self) -> list[str]:
        """Return the names of the pool's Nodes."""
        names = [item["metadata"]["name"] for item in self.plane.api.items("/api/v1/nodes")]
        return sorted(name for name in names if name.startswith(f"{POOL}-"))

    @property
    def desired(self) -> int:
        return int(self.pool.size()["desiredSize"])

    def state(self) -> tuple[list[str], list[str], int, list[str]]:
        """Return the machines, their Nodes, the desired size, and the nodes with our marks."""
        return self.machines(), self.nodes(), self.desired, sorted(self.queries.marks())

    # -- assertions

    def wait_for_state(self, *nodes: str, pods: int) -> None:
        """Wait until exactly these machines and Nodes exist and are desired, no mark is left, and *pods* pods run."""
        names = sorted(nodes)
        wanted: tuple[list[str], list[str], int, list[str]] = (names, names, len(names), [])

        def as_wanted() -> bool:
            # The machines are read from a file, which takes less time than two lists of Nodes.
            return self.machines() == names and self.state() == wanted

        self.queries.eventually(as_wanted, f"{wanted}; it is {self.state()}", seconds=180)
        self.queries.running(pods)
        assert self.state() == wanted
        assert not [node for node in self.queries.places() if not node]

    def assert_no_repeated_eviction(self) -> None:
        """Assert that no pod was evicted twice."""
        evicted = Counter(
            json.dumps(write.body["deleteOptions"]["preconditions"])
            for write, status in self.edge.answers
            if write.name == "evict" and status == 201
        )
        assert not [uid for uid, times in evicted.items() if times > 1]


def undrained(pool: ReferencePool) -> list[Termination]:
    """Return the terminations of machines with movable pods on their Nodes."""
    return [ended for ended in pool.terminations if ended.pods]


@contextlib.contextmanager
def building(
    plane: ControlPlane, folder: Path, machines: int, *, quota: int = 1000, **changes: Any
) -> Iterator[PoolSite]:
    """Run a pool of *machines* machines; Nodes of terminated machines remain, as without a cloud controller manager.

    A second termination of a machine succeeds, as on EC2, so that the harm of repeated requests becomes visible.
    """
    clock = SystemClock()
    values = {**QUICK, "nodes_stay": True, "second_termination": "ok"} | changes
    pool_document = document(name=POOL, labels={ON_DEMAND: "true"}, quota=quota, **AWKWARD)
    with CloudpoolServer(
        CloudpoolSettings(pool=pool_document, desired_size=machines, **values), folder, clock
    ).running() as server:
        cluster = Cluster(str(plane.kubeconfig), server.pool, clock)
        cluster.start()
        try:
            with edge.serving(plane, server.url) as border:
                yield PoolSite(plane, server, border, folder)
                assert undrained(server.pool) == []
        finally:
            cluster.close()
