"""A scale-down of a hundred nodes sends few requests to the API server, because decisions use the watched state.

Before a pod is evicted, the proxy reads the victim and its target nodes with their pods, the budgets and the owners of
the victim's pods consistently. No list grows with the cluster, except those of the Nodes and their Leases before a
machine is ordered: they are listed if the victim's controllers have pods on many nodes.
"""

from collections import Counter
from pathlib import Path

import pytest

from devcluster import manifests
from devcluster.plane import ControlPlane
from tests.acceptance.edge import Edge
from tests.acceptance.scenes import watched
from tests.proxy.world import ProxyWorld

pytestmark = pytest.mark.cluster

NODES = 100
#: Maximum number of different calls for a victim with one pod. How often one is repeated depends on the speed.
MAX_CALLS = 30


def calls_of_the_api_server(border: Edge) -> list[str]:
    """Return the calls so far with their targets, except those that are sent at any time: watches and Events."""
    seen = [each for each in border.api.seen if each.call.resource not in ("events", "/version")]
    return [f"{each.call.verb} {each.target}" for each in seen if each.call.verb != "watch"]


def test_a_decision_about_a_hundred_nodes_makes_few_api_calls(cluster: ControlPlane, tmp_path: Path) -> None:
    with watched(cluster, tmp_path, NODES) as (env, border):
        cluster.apply([manifests.deployment("web", 3 * NODES // 2, cpu="1")])
        cluster.wait_for(lambda: len(env.pods()) == 3 * NODES // 2, "the pods")
        cluster.wait_for(lambda: is_each_in_use(env), "a pod on each node")
        assert env.post("/pool/terminate", {"machineId": "i-0"}).status_code == 404
        before = len(calls_of_the_api_server(border))
        response = env.post("/pool/size", {"desiredSize": NODES - 1})
        assert (response.status_code, response.content, len(env.running())) == (200, b"", NODES - 1)
        (victim,) = {f"od-{number}" for number in range(1, NODES + 1)} - set(env.running())
        all_calls = calls_of_the_api_server(border)[before:]
        calls = [call for call in all_calls if "/configmaps" not in call]
        assert {call.partition(" ")[0] for call in set(all_calls) - set(calls)} <= {"get", "patch"}
        assert calls[:2] == [f"{verb} /api/v1/nodes/{victim}" for verb in ("get", "patch")]
        assert len(set(calls)) <= MAX_CALLS, calls
        beside = {call for call in calls if victim not in call and "/eviction" not in call}
        (target,) = {call.rpartition("/")[2] for call in beside if call.startswith("get /api/v1/nodes/")}
        pods = "list /api/v1/pods?limit=500&fieldSelector=spec.nodeName%3D"
        budgets = "list /apis/policy/v1/namespaces/default/poddisruptionbudgets?limit=500"
        replacements = "list /api/v1/namespaces/default/pods?limit=500&fieldSelector="
        unfinished = "status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"
        nodes = "list /api/v1/nodes?limit=500"
        leases = "list /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?limit=500"
        read = {nodes, leases, f"{pods}%2Cstatus.phase%3DPending", pods + target, budgets, replacements + unfinished}
        assert {call for call in beside if "?" in call} == read
        owners = Counter(call.split("/")[-2] for call in beside if call.startswith("get /apis/apps/"))
        assert owners == {"replicasets": 1, "deployments": 1}
        of_the_pool = {call for call in beside if "/leases" in call} - {leases}
        assert {call.partition(" ")[0] for call in of_the_pool} == {
            "get",
            "create",
            "patch",
        }  # it is not installed here
        assert len(beside - of_the_pool) == 9


def is_each_in_use(env: ProxyWorld) -> bool:
    """Return whether each node has a pod. If not, scale up: the scheduler uses no node that was not Ready in time.

    It is scaled up only when all pods run: otherwise, the next call could scale down, which may empty a node later.
    """
    path, pods = "/apis/apps/v1/namespaces/default/deployments/web", env.pods()
    unused = set(env.nodes()) - set(pods.values())
    if len(pods) != env.plane.api.get(path)["spec"]["replicas"]:
        return False
    if unused:
        env.plane.api.patch(path, {"spec": {"replicas": len(pods) + len(unused)}})
    return not unused
