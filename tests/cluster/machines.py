"""On-demand nodes that are machines of a cloudpool, and what became of them by the pool's own account."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from deploy.local.cloudpool.cluster import Cluster
from deploy.local.cloudpool.faults import Request
from deploy.local.cloudpool.server import Server
from deploy.local.cloudpool.settings import Settings
from deploy.local.manifests import ON_DEMAND, deployment
from rescheduler.backends.config import Duration
from rescheduler.clock import SystemClock
from tests.backends.cloudpools import document
from tests.cluster.daemon import SOFT
from tests.cluster.observer import Observer

POOL: Final = "od"  #: the nodes are od-1 …
FOREVER: Final = Duration(86400)


class Machines:
    """The pool behind the on-demand nodes."""

    def __init__(self, observer: Observer, server: Server, folder: Path) -> None:
        self._observer, self._pool, self.face, self.server = observer, server.pool, server.face, server
        pool: dict[str, Any] = {
            "id": POOL,
            "backend": {"url": server.url, "timeout": "5s"},
            "refreshInterval": "100ms",
            "pollInterval": "200ms",
            "cacheAge": "1s",
            "orderTimeout": "2s",
            "settleTime": "2s",
        }
        config = folder / "cloud.json"
        config.write_text(json.dumps({"pools": [pool]}))
        self.flags = ("--cloud-provider=cloudpool", f"--cloud-config={config}")

    def fill(self, **pods: int) -> None:
        """Start so many small pods of a Deployment `APP` on each node: `fill(web=2, api=3)` fills od-1 and od-2."""
        for number, (app, count) in enumerate(pods.items(), start=1):
            self._observer.start_on(f"{POOL}-{number}", deployment(app, count), pods=count)

    def never_end(self, *nodes: str) -> None:
        """The machines of *nodes* stay TERMINATING for ever once they are ordered away."""
        for machine in self._pool.machines():
            if machine.name in nodes:
                self._pool.save(machine, pool=msgspec.structs.replace(machine.pool, termination_delay=FOREVER))

    def ordered(self) -> list[str]:
        """Nodes whose machines the pool was told to end, and does or did."""
        return sorted(machine.name for machine in self._pool.machines() if machine.ending_at is not None)

    def end(self, node: str) -> None:
        """Somebody else orders the machine of *node* away."""
        self._pool.terminate(self._ids()[node], decrement=True)

    def told(self) -> set[str]:
        """Nodes whose machines the pool was told to end, whatever came of it."""
        names = {machine: node for node, machine in self._ids().items()}
        bodies = [json.loads(request.body) for request in self.orders() if request.path.endswith("/terminate")]
        return {names[body["machineId"]] for body in bodies}

    def _ids(self) -> dict[str, str]:
        """The ids of the machines, by the names of their nodes."""
        now = SystemClock().now()
        return {machine.name: machine.id(now) for machine in self._pool.machines()}

    def orders(self) -> list[Request]:
        """Every request to change the pool, whatever came of it."""
        return [request for request in self.face.requests if request.method != "GET"]


@contextlib.contextmanager
def machines(observer: Observer, folder: Path, on_demand: int, spot: int) -> Iterator[Machines]:
    """Nodes od-1 … that are machines, and spot-1 …; their Nodes outlive them, as where no cloud controller runs."""
    observer.nodes(0, spot)
    clock = SystemClock()
    taint = {"key": ON_DEMAND, "value": "true", "effect": SOFT}
    made = document(name=POOL, labels={ON_DEMAND: "true"}, taints=[taint])
    settings = Settings(
        pool=made,
        desired_size=on_demand,
        refresh_interval=Duration(0.2),
        pool_update=Duration(0.4),
        second_termination="ok",
        nodes_stay=True,
    )
    with Server(settings, folder, clock).running() as server:
        cluster = Cluster(str(observer.plane.kubeconfig), server.pool, clock)
        cluster.start()
        try:
            observer.eventually(lambda: len(observer.node_names()) == on_demand + spot, "the machines' nodes")
            yield Machines(observer, server, folder)
        finally:
            cluster.close()
