"""Matching of machines and Nodes for the ids of pools that differ most from those of Nodes; doubtful machines are kept.

The ids of every cloud are in the table of `tests/providers/test_matching.py`.
"""

from pathlib import Path

import pytest

from devcluster import manifests
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from tests.acceptance.scenes import scene
from tests.cluster.daemon import prefers
from tests.proxy.world import LABEL, ProxyWorld

pytestmark = pytest.mark.cluster

#: By pool: its kind, and the format of its provider IDs.
POOLS: dict[str, dict[str, str]] = {
    "spot": {"cloudProvider": "AWS-SPOT"},
    "azure-lower": {"cloudProvider": "Azure", "providerIds": "lower-case"},
    "openstack-regional": {"cloudProvider": "OpenStack", "providerIds": "with-region"},
    "by-address": {"cloudProvider": "AWS-EC2", "providerIds": "none"},
}


def add_machine(env: ProxyWorld, name: str, **keys: str) -> str:
    """Add a machine and return its name. A machine has the kind that the pool had when it was requested."""
    before = {machine.name for machine in env.server.pool.machines()}
    network = f"10.{80 + len(before)}"
    env.server.pool.set_config({"name": name, "labels": {LABEL: "true"}, "network": network, **keys})
    env.server.pool.set_size(env.desired + 1)
    (new,) = env.plane.wait_for(
        lambda: {machine.name for machine in env.server.pool.machines()} - before, "the machine"
    )
    return new


def listed(env: ProxyWorld) -> set[str]:
    """Return the names of the machines in the pool's cached view."""
    ids = {machine["id"] for machine in env.server.pool.pool()["machines"]}
    now = SystemClock().now()
    return {machine.name for machine in env.server.pool.machines() if machine.id(now) in ids}


def attempt(env: ProxyWorld, call: str, node: str) -> tuple[int, str]:
    """Send the request and return status and detail of the response."""
    response = env.post(f"/pool/{call}", {"machineId": env.id(node), "decrementDesiredSize": True})
    return response.status_code, response.json()["detail"] if response.content else ""


def taking_pods(cluster: ControlPlane) -> set[str]:
    """Return nodes without hard taints; the taint of a new node is removed after it becomes Ready."""
    return {
        node["metadata"]["name"]
        for node in cluster.api.items("/api/v1/nodes")
        if all(taint["effect"] == "PreferNoSchedule" for taint in node["spec"].get("taints", ()))
    }


def test_ids_of_several_kinds_are_matched_to_their_nodes(cluster: ControlPlane, tmp_path: Path) -> None:
    """Each machine is drained by its id: only the pod on its Node is evicted."""
    nodes: dict[str, str] = {}

    def of_several_kinds(env: ProxyWorld) -> None:
        for name, keys in POOLS.items():
            nodes[name] = add_machine(env, name, **keys)
        cluster.wait_for(lambda: set(nodes.values()) <= taking_pods(cluster), "the Nodes to take pods")
        cluster.apply(manifests.deployment(f"on-{name}", 1, affinity=prefers(node)) for name, node in nodes.items())
        cluster.wait_for(lambda: len(env.pods()) == len(POOLS), "the pods")
        env.cordon(*nodes.values())  # od-1 has room for the pods of all others

    with scene(cluster, tmp_path, 1, before=of_several_kinds) as env:
        remaining = env.pods()
        assert set(remaining.values()) == set(nodes.values())
        cluster.wait_for(lambda: set(nodes.values()) <= listed(env), "the pool to list its machines")
        for name, node in nodes.items():
            # Detach most machines, because that does not wait for a termination.
            assert attempt(env, "terminate" if name == "spot" else "detach", node) == (200, ""), name
            remaining = {pod: there for pod, there in remaining.items() if there != node}
            assert {pod: there for pod, there in env.pods().items() if there != "od-1"} == remaining
        assert (env.desired, env.tainted(), [machine["machineId"] for machine in env.orders()]) == (
            1,
            [],
            [env.id("spot-2")],
        )
        cluster.wait_for(lambda: nodes["spot"] not in env.nodes(), "the deletion of the terminated machine's Node")
        ambiguous_machines(env, cluster)


def ambiguous_machines(env: ProxyWorld, cluster: ControlPlane) -> None:
    """Check machines without a Node: requests, pods, and machines whose provider IDs are ambiguous."""
    requested = add_machine(env, "requested", cloudProvider="AWS-AUTO-SCALING-GROUP", requestDelay="1h")
    assert env.id(requested).startswith("i-requested")
    cluster.wait_for(lambda: requested in listed(env), "the pool to list the request")
    assert attempt(env, "terminate", requested) == (200, "")
    pod = add_machine(env, "pods", cloudProvider="Kubernetes")
    cluster.wait_for(lambda: pod in env.running() and pod in listed(env), "the pod")
    status, detail = attempt(env, "terminate", pod)
    assert (status, detail.partition(": ")[2]) == (
        500,
        "its node is unknown; it may be about to register",
    )
    cluster.apply([manifests.node("twin", providerID=env.machine("od-1").provider_id)])
    cluster.wait_for(lambda: attempt(env, "terminate", "od-1")[0] == 500, "the proxy to see the twin")
    response = env.post("/pool/size", {"desiredSize": 1})
    assert (response.status_code, {"od-1", pod} <= set(env.running()), env.desired) == (500, True, 2)
    assert "node od-1: other nodes also have the provider ID of machine" in response.json()["detail"]
