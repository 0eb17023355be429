"""Which machine is which Node, for the ids of all pools at once; whatever is in doubt stays."""

from pathlib import Path

import pytest

from deploy.local import manifests
from deploy.local.plane import ControlPlane
from rescheduler.clock import SystemClock
from tests.acceptance.scenes import scene
from tests.cluster.daemon import prefers
from tests.proxy.world import LABEL, World

pytestmark = pytest.mark.cluster

#: pool: its kind, and how its kubelets write provider IDs
POOLS: dict[str, dict[str, str]] = {
    "ec2": {"cloudProvider": "AWS-EC2"},
    "asg": {"cloudProvider": "AWS-AUTO-SCALING-GROUP"},
    "spot": {"cloudProvider": "AWS-SPOT"},
    "gce": {"cloudProvider": "GCE"},
    "azure": {"cloudProvider": "Azure"},
    "azure-lower": {"cloudProvider": "Azure", "providerIds": "lower-case"},
    "openstack": {"cloudProvider": "OpenStack"},
    "openstack-regional": {"cloudProvider": "OpenStack", "providerIds": "with-region"},
    "city": {"cloudProvider": "CityCloud"},
    "by-address": {"cloudProvider": "AWS-EC2", "providerIds": "none"},
}


def grow(made: World, name: str, **keys: str) -> str:
    """One more machine, of a kind; its name. A machine is of the kind that its pool had when it was made."""
    before = {one.name for one in made.server.pool.machines()}
    network = f"10.{80 + len(before)}"
    made.server.pool.set_config({"name": name, "labels": {LABEL: "true"}, "network": network, **keys})
    made.server.pool.set_size(made.desired + 1)
    (new,) = made.plane.wait_for(lambda: {one.name for one in made.server.pool.machines()} - before, "the machine")
    return new


def listed(made: World) -> set[str]:
    """The names of the machines in the pool's answers, which are those of its last look."""
    ids = {machine["id"] for machine in made.server.pool.pool()["machines"]}
    now = SystemClock().now()
    return {machine.name for machine in made.server.pool.machines() if machine.id(now) in ids}


def asked(made: World, call: str, node: str) -> tuple[int, str]:
    """Status, and what there is to say."""
    answer = made.post(f"/pool/{call}", {"machineId": made.id(node), "decrementDesiredSize": True})
    return answer.status_code, answer.json()["detail"] if answer.content else ""


def taking_pods(cluster: ControlPlane) -> set[str]:
    """Nodes without a taint that keeps pods away: that of a new node goes a moment after it is Ready."""
    return {
        node["metadata"]["name"]
        for node in cluster.api.items("/api/v1/nodes")
        if all(taint["effect"] == "PreferNoSchedule" for taint in node["spec"].get("taints", ()))
    }


def test_ids_of_all_kinds(cluster: ControlPlane, tmp_path: Path) -> None:
    """Each machine is drained by its own id: the pod on its Node goes, and no other."""
    nodes: dict[str, str] = {}

    def of_all_kinds(made: World) -> None:
        for name, keys in POOLS.items():
            nodes[name] = grow(made, name, **keys)
        cluster.wait_for(lambda: set(nodes.values()) <= taking_pods(cluster), "the Nodes to take pods")
        cluster.apply(manifests.deployment(f"on-{name}", 1, affinity=prefers(node)) for name, node in nodes.items())
        cluster.wait_for(lambda: len(made.pods()) == len(POOLS), "the pods")
        made.cordon(*nodes.values())  # od-1 takes the pods of all others

    with scene(cluster, tmp_path, 1, before=of_all_kinds) as made:
        left = made.pods()
        assert set(left.values()) == set(nodes.values())
        cluster.wait_for(lambda: set(nodes.values()) <= listed(made), "the pool to list its machines")
        for name, node in nodes.items():
            # A detached machine is one that need not be waited for.
            assert asked(made, "terminate" if name == "spot" else "detach", node) == (200, ""), name
            left = {pod: there for pod, there in left.items() if there != node}
            assert {pod: there for pod, there in made.pods().items() if there != "od-1"} == left
        assert (made.desired, made.tainted(), [one["machineId"] for one in made.orders()]) == (
            1,
            [],
            [made.id("spot-4")],
        )
        cluster.wait_for(lambda: nodes["spot"] not in made.nodes(), "the Node of the terminated machine to go")
        doubts(made, cluster)


def doubts(made: World, cluster: ControlPlane) -> None:
    """Placeholders are given up without a drain; pods are no Nodes; what two Nodes claim is nobody's."""
    requested = grow(made, "requested", cloudProvider="AWS-AUTO-SCALING-GROUP", requestDelay="1h")
    assert made.id(requested).startswith("i-requested")
    cluster.wait_for(lambda: requested in listed(made), "the pool to list the request")
    assert asked(made, "terminate", requested) == (200, "")
    pod = grow(made, "pods", cloudProvider="Kubernetes")
    cluster.wait_for(lambda: pod in made.running() and pod in listed(made), "the pod")
    status, detail = asked(made, "terminate", pod)
    assert (status, detail.partition(": ")[2]) == (500, "no node is surely this machine; it may be about to register")
    cluster.apply([manifests.node("twin", providerID=made.machine("od-1").provider_id)])
    cluster.wait_for(lambda: asked(made, "terminate", "od-1")[0] == 500, "the proxy to see the twin")
    answer = made.post("/pool/size", {"desiredSize": 1})
    assert (answer.status_code, {"od-1", pod} <= set(made.running()), made.desired) == (500, True, 2)
    assert "node od-1: other nodes too have the provider ID of machine" in answer.json()["detail"]
