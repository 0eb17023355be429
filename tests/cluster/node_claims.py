"""On-demand nodes that are NodeClaims, with the part of Karpenter that ends them, and queries on the NodeClaims.

`make karpenter` runs the real one.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Final

import httpx2

from devcluster.api import Json
from devcluster.audit import AuditEvent
from devcluster.errors import ApiError
from devcluster.manifests import ON_DEMAND, custom_kind, deployment, on_demand
from devcluster.plane import ControlPlane
from tests.cluster import webhooks
from tests.cluster.daemon import SOFT
from tests.cluster.observer import AGENT, Observer
from tests.cluster.waiting import repeating

POOL: Final = "od"  #: the nodes are named od-1 …
FINALIZER: Final = "karpenter.sh/termination"
NODE_CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
NODE_POOLS: Final = "/apis/karpenter.sh/v1/nodepools"
#: Seconds between two passes of the stand-in for Karpenter.
_EVERY: Final = 0.2


def claim(node: str, pool: str = POOL) -> Json:
    """Return the NodeClaim of *node*."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": f"claim-{node}",
            "labels": {"karpenter.sh/nodepool": pool, "karpenter.sh/capacity-type": "on-demand"},
            "finalizers": [FINALIZER],
        },
        "status": {"nodeName": node, "providerID": f"kwok://{node}"},
    }


def node_pool(name: str = POOL, **spec: object) -> Json:
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


@contextlib.contextmanager
def served(plane: ControlPlane) -> Iterator[None]:
    """Serve NodePools and NodeClaims within the block."""
    kinds = plane.apply([custom_kind(kind, "karpenter.sh", namespaced=False) for kind in ("NodeClaim", "NodePool")])
    for path in (NODE_CLAIMS, NODE_POOLS):
        plane.wait_for(lambda path=path: _is_served(plane, path), f"{path} to be served")  # type: ignore[misc]
    try:
        yield
    finally:
        for each in plane.api.items(NODE_CLAIMS):
            plane.api.patch(f"{NODE_CLAIMS}/{each['metadata']['name']}", {"metadata": {"finalizers": None}})
        for kind in kinds:
            plane.api.delete(plane.api.path(kind))
        plane.wait_for(lambda: not _is_served(plane, NODE_CLAIMS), "the end of the NodeClaims")


def _is_served(plane: ControlPlane, path: str) -> bool:
    try:
        plane.api.items(path)
    except ApiError:
        return False
    return True


class ClaimedMachines:
    """The NodeClaims behind the on-demand nodes. It has the methods of `machines.PoolMachines`."""

    flags = ("--cloud-provider=karpenter",)

    def __init__(self, observer: Observer) -> None:
        self._observer, self._api = observer, observer.plane.api
        self._stays: set[str] = set()
        self._all: set[str] = set()

    def fill(self, **pods: int) -> None:
        """Start the pods of one Deployment per node: `fill(web=2, api=3)` starts 2 pods on od-1 and 3 on od-2."""
        for number, (app, count) in enumerate(pods.items(), start=1):
            self._observer.start_on(f"{POOL}-{number}", deployment(app, count), pods=count)

    def never_end(self, *nodes: str) -> None:
        """Let the machines of *nodes* run on after the deletion of their NodeClaims."""
        self._stays.update(nodes)

    def end_all(self) -> None:
        """Let all machines end whose NodeClaims are deleted."""
        self._stays.clear()

    def claims(self) -> dict[str, Json]:
        """Return the NodeClaims that exist, by node. A new one has a status a moment later."""
        return {each["status"]["nodeName"]: each for each in self._api.items(NODE_CLAIMS) if "status" in each}

    def ordered(self) -> list[str]:
        """Return the nodes whose NodeClaims are deleted or gone."""
        kept = {node for node, each in self.claims().items() if "deletionTimestamp" not in each["metadata"]}
        return sorted(self._all - kept)

    def termination_requests(self) -> set[str]:
        """Return the nodes for whose NodeClaims a daemon sent a deletion, successful or not."""
        return {event.name.removeprefix("claim-") for event in self.orders()}

    def orders(self) -> list[AuditEvent]:
        """Return the deletions of NodeClaims that daemons requested, successful or not."""
        events = self._observer.audit.events()
        ours = [event for event in events if event.user_agent.startswith(AGENT) and event.verb == "delete"]
        return [event for event in ours if event.kind == "nodeclaims"]

    @contextlib.contextmanager
    def hanging(self, folder: Path) -> Iterator[Callable[[], object]]:
        """Let deletions hang until they fail. Yield a function that returns whether one does."""
        held, released = Event(), Event()

        def verdict(_: Json) -> Json:
            held.set()
            released.wait(webhooks.TIMEOUT_SECONDS)
            return {"code": 500, "message": "lost"}

        with webhooks.serving("lost", webhooks.rule("karpenter.sh", "nodeclaims", "DELETE"), verdict, folder) as hook:
            self._observer.plane.apply([hook])
            yield held.is_set
            released.set()
            self._observer.eventually(self.orders, "the failed deletion")
            self._api.delete(self._api.path(hook))

    def end(self, node: str) -> None:
        """Delete the NodeClaim of *node* without the daemon."""
        self._api.delete(f"{NODE_CLAIMS}/claim-{node}")

    def create(self, number: int) -> None:
        """Create the nodes and their NodeClaims."""
        self._all = {f"{POOL}-{n + 1}" for n in range(number)}
        labels = {"karpenter.sh/nodepool": POOL}
        taints = [{"key": ON_DEMAND, "value": "true", "effect": SOFT}]
        nodes = [
            on_demand(name, labels=labels, taints=taints, providerID=f"kwok://{name}") for name in sorted(self._all)
        ]
        self._observer.plane.apply([node_pool(), *nodes, *(claim(name) for name in sorted(self._all))])

    def act(self) -> None:
        """Do what Karpenter does; what fails is done the next time."""
        with contextlib.suppress(ApiError, httpx2.TransportError):
            self._finalize()

    def _finalize(self) -> None:
        """End the machines of deleted NodeClaims: delete the Node, and remove the finalizer once it is gone."""
        existing = set(self._observer.node_names())
        for node, each in self.claims().items():
            if "deletionTimestamp" not in each["metadata"] or node in self._stays:
                continue
            if node in existing:
                self._api.delete(f"/api/v1/nodes/{node}")
            else:
                self._api.patch(f"{NODE_CLAIMS}/{each['metadata']['name']}", {"metadata": {"finalizers": None}})


class ClaimedObserver(Observer):
    """An observer of scenes without machines of their own: the on-demand nodes that it creates are NodeClaims."""

    def nodes(self, on_demand: int, spot: int) -> None:
        names = [f"on-demand-{number + 1}" for number in range(on_demand)]
        self.eventually(lambda: not self.plane.api.items(NODE_CLAIMS), "the end of earlier nodes of these names")
        super().nodes(on_demand, spot)
        for name in names:
            belongs = {
                "metadata": {"labels": {"karpenter.sh/nodepool": POOL}},
                "spec": {"providerID": f"kwok://{name}"},
            }
            self.plane.api.patch(f"/api/v1/nodes/{name}", belongs)
        self.plane.apply([node_pool(), *map(claim, names)])


@contextlib.contextmanager
def claiming(plane: ControlPlane) -> Iterator[ClaimedObserver]:
    """Yield an observer whose on-demand nodes are NodeClaims, which the stand-in for Karpenter ends."""
    with served(plane):
        observer = ClaimedObserver(plane)
        with repeating(ClaimedMachines(observer).act, _EVERY):
            yield observer


@contextlib.contextmanager
def claimed(observer: Observer, on_demand_nodes: int, spot_nodes: int) -> Iterator[ClaimedMachines]:
    """Create NodeClaims with the nodes od-1 …, and nodes spot-1 ….

    Nodes of NodeClaims that end are deleted by the stand-in for Karpenter.
    """
    observer.nodes(0, spot_nodes)
    with served(observer.plane):
        machines = ClaimedMachines(observer)
        machines.create(on_demand_nodes)
        observer.nodes_ready(on_demand_nodes + spot_nodes)
        with repeating(machines.act, _EVERY):
            yield machines
