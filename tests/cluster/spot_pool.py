"""Spot nodes that are machines of a cloudpool, and queries on the pool."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from devcluster.cloudpool.cluster import Cluster
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.manifests import SPOT
from devcluster.standin.faults import Fault
from rescheduler.clock import SystemClock
from tests.cluster.observer import Observer
from tests.providers.cloudpools import document, settings

POOL: Final = "spot"  #: the nodes are named spot-1 …
SIZE: Final = "/pool/size"
TERMINATE: Final = "/pool/terminate"


class SpotPool:
    """The pool behind the spot nodes; its first machine exists before any order."""

    def __init__(self, server: CloudpoolServer, folder: Path) -> None:
        self._pool, self._clock, self.faulty_app = server.pool, SystemClock(), server.faulty_app
        section: dict[str, Any] = {
            "id": POOL,
            "backend": {"url": server.url, "timeout": "5s"},
            "maxSize": 5,
            "refreshInterval": "100ms",
            "pollInterval": "200ms",
            "cacheAge": "1s",
            "orderTimeout": "2s",
            "settleTime": "1s",
        }
        config = folder / "cloud.json"
        config.write_text(json.dumps({"pools": [section]}))
        self.flags = ("--cloud-provider=cloudpool", f"--cloud-config={config}")

    @property
    def size(self) -> int:
        return int(self._pool.size()["desiredSize"])

    @property
    def machines(self) -> list[str]:
        """The nodes of the machines that run or will run."""
        now = self._clock.now()
        return [machine.name for machine in self._pool.machines() if machine.allocated(now)]

    @property
    def ended(self) -> list[str]:
        """The nodes of the machines that are terminating or terminated."""
        return [machine.name for machine in self._pool.machines() if machine.ending_at is not None]

    def delay(self, **delays: str) -> None:
        """Set the delays of machines that are requested from now on."""
        size = self.size
        self._pool.set_config({**self._pool.config(), **delays})
        self._pool.set_size(size)

    def hang(self, path: str, *, acted: bool) -> None:
        """Let the next request to *path* hang; if *acted* is true, it takes effect."""
        self.faulty_app.inject(Fault(path=path, kind="hang", acted=acted))

    def requests(self, path: str) -> list[Any]:
        """Return the bodies of all requests to change the pool, successful or not."""
        asked = [each for each in self.faulty_app.requests if (each.method, each.path) == ("POST", path)]
        return [json.loads(each.body) for each in asked]


@contextlib.contextmanager
def spot_pool(observer: Observer, folder: Path) -> Iterator[SpotPool]:
    """Create a spot machine with the node spot-1."""
    clock = SystemClock()
    pool = document(name=POOL, labels={SPOT: ""}, network="10.78")
    of = settings(pool=pool, desired_size=1, refresh_interval=0.2, pool_update=0.4, second_termination="ok")
    with CloudpoolServer(of, folder, clock).running() as server:
        cluster = Cluster(str(observer.plane.kubeconfig), server.pool, clock)
        cluster.start()
        try:
            before = [name for name in observer.node_names() if not name.startswith(POOL)]
            observer.eventually(lambda: len(observer.node_names()) == len(before) + 1, "the machine's node")
            yield SpotPool(server, folder)
        finally:
            cluster.close()
