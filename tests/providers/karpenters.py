"""Karpenter's part of an API server for tests: NodeClaims whose machines end some time after their deletion."""

import contextlib
import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from devcluster.api import Json
from devcluster.standin.faults import Fault
from devcluster.standin.server import StandinServer
from rescheduler.clock import Clock
from rescheduler.execution.machine_objects import MachineObjects
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from rescheduler.providers.base import CloudProvider, NodeRef
from rescheduler.providers.karpenter import KarpenterProvider
from rescheduler.providers.karpenter.claims import NODE_CLAIMS, NODE_POOLS
from tests.kube.conftest import kubeconfig
from tests.providers.clocks import StepClock
from tests.providers.failing import FailingDeletions

POOL: Final = "on-demand"
FINALIZER: Final = "karpenter.sh/termination"


class KarpenterCluster:
    """The NodePools and NodeClaims. A deleted NodeClaim is gone *seconds* later, as Karpenter then removes it."""

    def __init__(self, clock: Clock, seconds: float = 15.0) -> None:
        self._clock, self._seconds = clock, seconds
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._claims: dict[str, Json] = {}
        self._gone_at: dict[str, float] = {}
        self.pools: dict[str, Json] = {}
        self.down = False

    def add_pool(self, name: str = POOL, **spec: Any) -> None:
        self.pools[name] = {"metadata": {"name": name}, "spec": spec}

    def add(self, pool: str = POOL, status: Json | None = None, **meta: Any) -> Json:
        """Add a NodeClaim with a running machine; *status* and *meta* replace fields."""
        number = next(self._numbers)
        named = {"name": f"{pool or 'alone'}-{number}", "uid": f"uid-{number}", "resourceVersion": str(number)}
        labels = {"karpenter.sh/nodepool": pool, "karpenter.sh/capacity-type": "on-demand"} if pool else {}
        running = {"nodeName": f"node-{number}", "providerID": f"kwok://node-{number}"}
        claim = {
            "metadata": {**named, "labels": labels, "finalizers": [FINALIZER], **meta},
            "status": running if status is None else status,
        }
        with self._lock:
            self._claims[claim["metadata"]["name"]] = claim
        return claim

    def change(self, name: str) -> None:
        """Change a NodeClaim: it gets a new resourceVersion."""
        with self._lock:
            self._claims[name]["metadata"]["resourceVersion"] = str(next(self._numbers))

    def claim(self, name: str) -> Json:
        """Return the NodeClaim itself, for changes that its resourceVersion does not tell."""
        return self._claims[name]

    def listed(self) -> list[Json]:
        with self._lock:
            now = self._clock.monotonic()
            for name in [name for name, gone in self._gone_at.items() if gone <= now]:
                del self._claims[name], self._gone_at[name]
            return json.loads(json.dumps([*self._claims.values()]))  # type: ignore[no-any-return]

    def alive(self) -> list[Json]:
        """Return the NodeClaims that are not being deleted."""
        return [claim for claim in self.listed() if "deletionTimestamp" not in claim["metadata"]]

    def delete(self, name: str, preconditions: Json) -> tuple[int, str]:
        """Return the code and the message of the response."""
        self.listed()
        with self._lock:
            if (claim := self._claims.get(name)) is None:
                return 404, f'nodeclaims.karpenter.sh "{name}" not found'
            meta = claim["metadata"]
            if any(meta[key] != value for key, value in preconditions.items()):
                return 409, "the preconditions failed"
            if "deletionTimestamp" not in meta:
                meta["deletionTimestamp"] = self._clock.now().isoformat()
                meta["resourceVersion"] = str(next(self._numbers))
                self._gone_at[name] = self._clock.monotonic() + self._seconds
            return 200, ""

    def close(self) -> None:
        """Do nothing: the protocol of stand-ins."""


def application(cluster: KarpenterCluster) -> Starlette:
    def answer(code: int, body: Any) -> JSONResponse:
        if cluster.down:
            return JSONResponse({"kind": "Status", "message": "the server is starting", "code": 503}, 503)
        return JSONResponse(body, code)

    def pools(_: Request) -> JSONResponse:
        return answer(200, {"metadata": {"resourceVersion": "1"}, "items": [*cluster.pools.values()]})

    def claims(_: Request) -> JSONResponse:
        return answer(200, {"metadata": {"resourceVersion": "1"}, "items": cluster.listed()})

    async def delete(request: Request) -> JSONResponse:
        options = json.loads(await request.body())
        assert sorted(options["preconditions"]) == ["resourceVersion", "uid"]
        if cluster.down:
            return answer(503, {})
        code, message = cluster.delete(request.path_params["name"], options["preconditions"])
        return answer(code, {"kind": "Status", "message": message, "code": code})

    return Starlette(
        routes=[
            Route(NODE_POOLS, pools),
            Route(NODE_CLAIMS, claims),
            Route(f"{NODE_CLAIMS}/{{name}}", delete, methods=["DELETE"]),
        ]
    )


def node_of(claim: Json, **changes: Any) -> NodeRef:
    """Return the Node of a NodeClaim as the daemon sees it."""
    values = {"provider_id": claim["status"]["providerID"], "labels": claim["metadata"]["labels"]} | changes
    return NodeRef(claim["status"]["nodeName"], **values)


class KarpenterWorld(FailingDeletions):
    """World of the conformance table (see `conformance`). A minimum is that of a NodePool with static capacity."""

    group = POOL

    def __init__(self, server: StandinServer[KarpenterCluster], clock: StepClock, folder: Path) -> None:
        self.server, self.clock, self.cluster = server, clock, server.cloud
        self.folder = folder
        self.provider: CloudProvider = self._open()

    def _open(self) -> CloudProvider:
        provider = KarpenterProvider(self.clock)
        client = Client(Kubeconfig(str(kubeconfig(self.folder, self.server.url))), self.clock)
        provider.use_cluster(MachineObjects(client))
        return provider

    def restart(self) -> None:
        self.provider = self._open()

    def nodes(self) -> list[NodeRef]:
        return [node_of(claim) for claim in self.cluster.alive() if claim["metadata"]["labels"]]

    def foreign(self) -> NodeRef:
        """Return the Node of a machine that Karpenter does not own, such as one of a managed node group."""
        return NodeRef("elsewhere", "aws:///eu-north-1a/i-1", {"eks.amazonaws.com/nodegroup": "base"})

    def placeholder(self) -> None:
        """Return None: Cluster Autoscaler does not use this provider."""

    def runs(self, node: NodeRef) -> bool:
        return any(claim["status"]["providerID"] == node.provider_id for claim in self.cluster.listed())

    def target(self) -> int:
        return len(self.cluster.alive())

    def _inject(self, **fault: Any) -> None:
        fault = {"status": 429, **fault}
        path = f"{NODE_CLAIMS}/{self.cluster.alive()[0]['metadata']['name']}"
        self.server.faulty_app.inject(Fault(method="DELETE", path=path, **fault))

    def go_down(self) -> None:
        self.cluster.down = True


@contextlib.contextmanager
def karpenter_world(machines: int, minimum: int) -> Iterator[KarpenterWorld]:
    clock = StepClock()
    cluster = KarpenterCluster(clock)
    static: dict[str, Any] = {"replicas": minimum} if minimum else {}
    cluster.add_pool(limits={"nodes": "10"}, **static)
    for _ in range(machines):
        cluster.add()
    with TemporaryDirectory() as folder, StandinServer(cluster, application(cluster)).running() as server:
        yield KarpenterWorld(server, clock, Path(folder))
