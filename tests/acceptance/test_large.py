"""A scale-down of a hundred nodes sends few requests to the API server, because decisions use the watched state.

Before a pod is evicted, the proxy reads the victim and its target nodes with their pods, the budgets and the owners of
the victim's pods consistently. No list grows with the cluster, except that of the Nodes before a machine is ordered:
they are listed if the victim's controllers have pods on many nodes.
"""

from collections import Counter
from pathlib import Path

import pytest

from devcluster import manifests
from devcluster.plane import ControlPlane
from tests.acceptance import edge
from tests.acceptance.edge import Edge
from tests.acceptance.faults import Message, Receive, Send
from tests.acceptance.scenes import watched
from tests.proxy.world import ProxyWorld

pytestmark = pytest.mark.cluster

NODES = 100
#: Maximum number of different calls for a victim with one pod. How often one is repeated depends on the speed.
MAX_CALLS = 30


class Counting(Edge):
    """An edge that records all calls of the API server except Events and watches."""

    def __init__(self, plane: ControlPlane, pool: str) -> None:
        super().__init__(plane, pool)
        self.calls: list[str] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].startswith("/pool"):
            watches = b"watch=true" in scope["query_string"].lower()
            if not watches and not scope["path"].endswith(("/events", "/version")):  # which are sent at any time
                self.calls.append(f"{scope['method']} {scope['path']}?{scope['query_string'].decode()}".rstrip("?"))
        await super().__call__(scope, receive, send)


def test_a_decision_about_a_hundred_nodes_makes_few_api_calls(
    cluster: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge, "Edge", Counting)
    with watched(cluster, tmp_path, NODES) as (env, border):
        assert isinstance(border, Counting)
        cluster.apply([manifests.deployment("web", 3 * NODES // 2, cpu="1")])
        cluster.wait_for(lambda: len(env.pods()) == 3 * NODES // 2, "the pods")
        cluster.wait_for(lambda: is_each_in_use(env), "a pod on each node")
        assert env.post("/pool/terminate", {"machineId": "i-0"}).status_code == 404
        border.calls.clear()
        response = env.post("/pool/size", {"desiredSize": NODES - 1})
        assert (response.status_code, response.content, len(env.running())) == (200, b"", NODES - 1)
        (victim,) = {f"od-{number}" for number in range(1, NODES + 1)} - set(env.running())
        assert border.calls[:2] == [f"{method} /api/v1/nodes/{victim}" for method in ("GET", "PATCH")]
        assert len(set(border.calls)) <= MAX_CALLS, border.calls
        beside = {call for call in border.calls if victim not in call and "/eviction" not in call}
        (target,) = {call.rpartition("/")[2] for call in beside if call.startswith("GET /api/v1/nodes/")}
        pods = "GET /api/v1/pods?limit=500&fieldSelector=spec.nodeName%3D"
        budgets = "GET /apis/policy/v1/namespaces/default/poddisruptionbudgets?limit=500"
        replacements = "GET /api/v1/namespaces/default/pods?limit=500&fieldSelector="
        unfinished = "status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"
        nodes = "GET /api/v1/nodes?limit=500"
        read = {nodes, f"{pods}%2Cstatus.phase%3DPending", pods + target, budgets, replacements + unfinished}
        assert {call for call in beside if "?" in call} == read
        owners = Counter(call.split("/")[-2] for call in beside if call.startswith("GET /apis/apps/"))
        assert owners == {"replicasets": 1, "deployments": 1}
        of_the_pool = {call for call in beside if "/leases" in call}
        assert {call.partition(" ")[0] for call in of_the_pool} == {"GET", "POST", "PATCH"}  # it is not installed here
        assert len(beside - of_the_pool) == 8


def is_each_in_use(env: ProxyWorld) -> bool:
    """Return whether each node has a pod. If not, scale up: the scheduler uses no node that was not Ready in time."""
    pods = env.pods()
    if unused := set(env.nodes()) - set(pods.values()):
        env.plane.api.patch(
            "/apis/apps/v1/namespaces/default/deployments/web", {"spec": {"replicas": len(pods) + len(unused)}}
        )
    return not unused
