"""A cluster whose on-demand nodes are machines of a cloudpool, seen by the program only through the network's edge."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from deploy.local import kubeconfig
from deploy.local.cloudpool.cluster import Cluster
from deploy.local.cloudpool.pool import Pool, Termination
from deploy.local.cloudpool.server import Server
from deploy.local.cloudpool.settings import Settings
from deploy.local.manifests import ON_DEMAND, spot
from deploy.local.plane import ControlPlane
from rescheduler.clock import SystemClock
from tests.acceptance import edge
from tests.acceptance.edge import Edge
from tests.backends.cloudpools import AWKWARD, LISTING, document
from tests.cluster.daemon import Look

POOL: Final = "od"
#: The pool answers from a view of this age, and looks at its size so often.
QUICK: Final[dict[str, Any]] = {"refresh_interval": 0.2, "pool_update": 0.4, **LISTING}


class Site:
    """Everything that there is, and what tests ask of it."""

    def __init__(self, plane: ControlPlane, server: Server, border: Edge, folder: Path) -> None:
        self.plane, self.pool, self.face, self.edge, self.folder = plane, server.pool, server.face, border, folder
        self.look = Look(plane)
        self.kubeconfig = kubeconfig.write(
            folder / "kubeconfig", server=border.url, ca=plane.ca, token=plane.token, user="edge"
        )
        self._logs = 0

    def log(self) -> Path:
        """A new file for the log of a process."""
        self._logs += 1
        return self.folder / f"{self._logs}.log"

    # -- setting it up

    def join(self, machines: int) -> None:
        """Wait for the machines' Nodes."""
        self.look.eventually(lambda: len(self._usable()) == machines, "the Nodes")

    def spot(self, *names: str) -> None:
        """Spot nodes, which take pods."""
        self.plane.apply([spot(name) for name in names])
        self.look.eventually(lambda: set(names) <= set(self._usable()), "the spot nodes")

    def cordon(self, *nodes: str) -> None:
        for name in nodes:
            self.plane.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})

    def _usable(self) -> list[str]:
        return [
            one["metadata"]["name"]
            for one in self.plane.api.items("/api/v1/nodes")
            if any((it["type"], it["status"]) == ("Ready", "True") for it in one["status"].get("conditions", ()))
            and not any(taint["effect"] == "NoSchedule" for taint in one["spec"].get("taints", ()))
        ]

    # -- what there is

    def machine(self, node: str) -> str:
        """The id of a node's machine."""
        return next(one for one in self.pool.machines() if one.name == node).id(SystemClock().now())

    def machines(self) -> list[str]:
        """The names of those that run."""
        now = SystemClock().now()
        return sorted(one.name for one in self.pool.machines() if one.allocated(now))

    def nodes(self) -> list[str]:
        """Of the pool."""
        names = [one["metadata"]["name"] for one in self.plane.api.items("/api/v1/nodes")]
        return sorted(name for name in names if name.startswith(f"{POOL}-"))

    @property
    def desired(self) -> int:
        return int(self.pool.size()["desiredSize"])

    def state(self) -> tuple[list[str], list[str], int, list[str]]:
        """Machines, their Nodes, the desired size, and the nodes that carry marks of ours."""
        return self.machines(), self.nodes(), self.desired, sorted(self.look.marks())

    # -- what must hold

    def comes_to(self, *nodes: str, pods: int) -> None:
        """In the end there are these machines and Nodes, as many are desired, no mark is left, and *pods* run."""
        names = sorted(nodes)
        wanted: tuple[list[str], list[str], int, list[str]] = (names, names, len(names), [])
        self.look.eventually(lambda: self.state() == wanted, f"{wanted}; it is {self.state()}", seconds=180)
        self.look.running(pods)
        assert self.state() == wanted
        assert not [node for node in self.look.places() if not node]

    def nothing_twice(self) -> None:
        """No pod was evicted twice, and the pool lowered its size once for each machine that it ended."""
        evicted = Counter(
            json.dumps(write.body["deleteOptions"]["preconditions"])
            for write, status in self.edge.answers
            if write.name == "evict" and status == 201
        )
        assert not [uid for uid, times in evicted.items() if times > 1]


def undrained(pool: Pool) -> list[Termination]:
    """Machines that were ended with pods on their Nodes that could have moved."""
    return [ended for ended in pool.terminations if ended.pods]


@contextlib.contextmanager
def building(plane: ControlPlane, folder: Path, machines: int, *, quota: int = 1000, **changes: Any) -> Iterator[Site]:
    """A pool of *machines* that are Nodes; their Nodes outlive them, as where no cloud controller runs.

    What is terminated a second time is terminated, as on EC2: a second order would do its harm unseen otherwise.
    """
    clock = SystemClock()
    values = {**QUICK, "nodes_stay": True, "second_termination": "ok"} | changes
    made = document(name=POOL, labels={ON_DEMAND: "true"}, quota=quota, **AWKWARD)
    with Server(Settings(pool=made, desired_size=machines, **values), folder, clock).running() as server:
        cluster = Cluster(str(plane.kubeconfig), server.pool, clock)
        cluster.start()
        try:
            with edge.serving(plane, server.url) as border:
                yield Site(plane, server, border, folder)
                assert undrained(server.pool) == []
        finally:
            cluster.close()
