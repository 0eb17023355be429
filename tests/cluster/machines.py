"""On-demand nodes that are machines of a cloudpool, and queries on the pool."""

import contextlib
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from devcluster.cloudpool.cluster import Cluster
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.cloudpool.settings import CloudpoolSettings
from devcluster.manifests import ON_DEMAND, deployment
from devcluster.standin.faults import Fault, LoggedRequest
from rescheduler.clock import SystemClock
from rescheduler.net.config_files import Duration
from tests.cluster.daemon import SOFT
from tests.cluster.observer import Observer
from tests.providers.cloudpools import document

POOL: Final = "od"  #: the nodes are named od-1 …
FOREVER: Final = Duration(86400)


def cloud_flags(url: str, folder: Path, pool: str = POOL) -> tuple[str, ...]:
    """Write the configuration of *pool* at *url*, which is read often, and return the flags of the daemon."""
    entry: dict[str, Any] = {
        "id": pool,
        "backend": {"url": url, "timeout": "5s"},
        "refreshInterval": "100ms",
        "pollInterval": "200ms",
        "cacheAge": "1s",
        "orderTimeout": "2s",
        "settleTime": "2s",
    }
    config = folder / "cloud.json"
    config.write_text(json.dumps({"pools": [entry]}))
    return "--cloud-provider=cloudpool", f"--cloud-config={config}"


class PoolMachines:
    """The pool behind the on-demand nodes."""

    def __init__(self, observer: Observer, server: CloudpoolServer, folder: Path) -> None:
        self._observer, self._pool, self.faulty_app, self.server = observer, server.pool, server.faulty_app, server
        self.flags = cloud_flags(server.url, folder)

    def fill(self, **pods: int) -> None:
        """Start the pods of one Deployment per node: `fill(web=2, api=3)` starts 2 pods on od-1 and 3 on od-2."""
        for number, (app, count) in enumerate(pods.items(), start=1):
            self._observer.start_on(f"{POOL}-{number}", deployment(app, count), pods=count)

    def never_end(self, *nodes: str) -> None:
        """Let the machines of *nodes* stay TERMINATING after their termination is requested."""
        for machine in self._pool.machines():
            if machine.name in nodes:
                self._pool.save(machine, pool=msgspec.structs.replace(machine.pool, termination_delay=FOREVER))

    def ordered(self) -> list[str]:
        """Return the nodes whose machines are terminating or terminated."""
        return sorted(machine.name for machine in self._pool.machines() if machine.ending_at is not None)

    def ordered_at(self, node: str) -> datetime:
        """Return when the pool accepted the termination of the machine of *node*."""
        (ordered,) = [machine.ending_at for machine in self._pool.machines() if machine.name == node]
        assert ordered is not None
        return ordered

    def end(self, node: str) -> None:
        """Terminate the machine of *node* without the daemon."""
        self._pool.terminate(self._ids()[node], decrement=True)

    def termination_requests(self) -> set[str]:
        """Return the nodes for whose machines the pool received a termination request, successful or not."""
        names = {machine: node for node, machine in self._ids().items()}
        bodies = [json.loads(request.body) for request in self.orders() if request.path.endswith("/terminate")]
        return {names[body["machineId"]] for body in bodies}

    def _ids(self) -> dict[str, str]:
        """Return the ids of the machines by node name."""
        now = SystemClock().now()
        return {machine.name: machine.id(now) for machine in self._pool.machines()}

    @contextlib.contextmanager
    def hanging(self, _: Path) -> Iterator[Callable[[], object]]:
        """Let orders hang, without an effect. Yield a function that returns whether one does."""
        self.faulty_app.inject(Fault(path="/pool/terminate", kind="hang"))
        yield self.orders
        self.faulty_app.forget()

    def orders(self) -> list[LoggedRequest]:
        """Return all requests to change the pool, successful or not."""
        return [request for request in self.faulty_app.requests if request.method != "GET"]


@contextlib.contextmanager
def machines(observer: Observer, folder: Path, on_demand: int, spot: int) -> Iterator[PoolMachines]:
    """Create machines with the nodes od-1 …, and nodes spot-1 …; Nodes of terminated machines are not deleted."""
    observer.nodes(0, spot)
    clock = SystemClock()
    taint = {"key": ON_DEMAND, "value": "true", "effect": SOFT}
    pool_document = document(name=POOL, labels={ON_DEMAND: "true"}, taints=[taint])
    settings = CloudpoolSettings(
        pool=pool_document,
        desired_size=on_demand,
        refresh_interval=Duration(0.2),
        pool_update=Duration(0.4),
        second_termination="ok",
        nodes_stay=True,
    )
    with CloudpoolServer(settings, folder, clock).running() as server:
        cluster = Cluster(str(observer.plane.kubeconfig), server.pool, clock)
        cluster.start()
        try:
            observer.eventually(lambda: len(observer.node_names()) == on_demand + spot, "the machines' nodes")
            yield PoolMachines(observer, server, folder)
        finally:
            cluster.close()
