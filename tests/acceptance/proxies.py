"""A site on which a client of the proxy removes machines."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx2

from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from tests.acceptance.program import ANSWER_SECONDS, LoggedProgram
from tests.acceptance.site import PoolSite, building
from tests.cluster.daemon import prefers

#: Initial number of pods by node; od-3 is the first victim and od-4 the second.
PODS: Final = {"od-1": 3, "od-2": 3, "od-3": 1, "od-4": 2}
ALL: Final = tuple(PODS)
TOTAL: Final = sum(PODS.values())


@contextlib.contextmanager
def pool_of_four(plane: ControlPlane, folder: Path, *, wanted: int = 4, **pods: Any) -> Iterator[PoolSite]:
    """Run a pool with four machines, the pods of PODS and desired size *wanted*; *pods* as for `deployment`."""
    with building(plane, folder, wanted, quota=len(PODS)) as site:
        _filled(site, PODS, **pods)
        yield site


class ProxyFleet:
    """Machines that are removed one at a time; od-1 and od-2 have room for the pods of all others."""

    def __init__(self, site: PoolSite, machines: int) -> None:
        self.site, self.edge, self._pods = site, site.edge, 2 * machines
        self._next = iter(range(3, machines + 1))
        self._taken, self._newest = "", ""
        self._before: list[str] = []

    def take(self) -> str:
        self._before, self._taken = self.site.machines(), f"od-{next(self._next)}"
        self._newest = f"od-{len(self.site.pool.machines()) + 1}"
        self.edge.forget()
        return self._taken

    def wait_for_state(self, *, gone: bool, replaced: bool = False) -> None:
        """Wait until the node from `take` is *gone* and optionally *replaced*, or the initial state is restored."""
        remaining = [name for name in self._before if not (gone and name == self._taken)]
        new = [self._newest] if replaced else []
        self.site.wait_for_state(*remaining, *new, pods=self._pods)
        self.site.assert_no_repeated_eviction()


@contextlib.contextmanager
def fleet(plane: ControlPlane, folder: Path, takes: int) -> Iterator[ProxyFleet]:
    """Run a fleet for *takes* removals, with two pods on each node."""
    machines = takes + 2
    with building(plane, folder, machines) as site:
        _filled(site, {f"od-{number + 1}": 2 for number in range(machines)}, cpu="10m")
        site.cordon(*(f"od-{number + 1}" for number in range(2, machines)))
        yield ProxyFleet(site, machines)


def _filled(site: PoolSite, pods: Mapping[str, int], **fields: Any) -> None:
    site.join(len(pods))
    site.plane.apply(deployment(f"of-{name}", count, affinity=prefers(name), **fields) for name, count in pods.items())
    site.queries.running(sum(pods.values()))
    assert site.queries.places() == pods


class ProxyProgram(LoggedProgram):
    """The proxy, which uses the site's edge."""

    def __init__(self, site: PoolSite, **sections: Any) -> None:
        document = {
            "apiServer": {"url": site.edge.api.url, "auth": {"kubeConfigPath": str(site.kubeconfig)}, "timeout": "5s"},
            "backend": {"url": site.edge.pool.url, "timeout": "2s", "settleTime": "2s", "pollInterval": "200ms"},
            "drain": {"evictionTimeout": "15s", "maxGracefulTermination": "2s"},
        }
        config = site.folder / "proxy.json"
        config.write_text(json.dumps(document | sections))
        flags = (f"--config-file={config}", "--host=127.0.0.1", "--port=0", "--listen-address=127.0.0.1:0", "-v=3")
        super().__init__(site.log(), "proxy", *flags)
        self._site = site
        self._client = ThreadPoolExecutor(1)

    def __exit__(self, *_: object) -> None:
        super().__exit__(*_)
        self._client.shutdown()

    def send(self, path: str, body: Any) -> "Future[httpx2.Response]":
        """Wait until the proxy has read the cluster and send a request; return the future response."""
        self._site.queries.eventually(self.proxy_url, "the proxy to read the cluster")
        url = f"{self.proxy_url()}{path}"
        return self._client.submit(httpx2.post, url, json=body, timeout=ANSWER_SECONDS, trust_env=False)

    def post(self, path: str, body: Any) -> httpx2.Response:
        return self.send(path, body).result()


def patient(site: PoolSite) -> ProxyProgram:
    """Return a proxy that does not give up a termination because the pool responds late on a busy machine."""
    backend = {"url": site.edge.pool.url, "timeout": "30s", "settleTime": "2s", "pollInterval": "200ms"}
    return ProxyProgram(site, backend=backend)
