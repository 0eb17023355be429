"""Scale-downs remove the right machines one by one, and the pool reaches the requested size."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from devcluster import manifests
from devcluster.plane import ControlPlane
from tests.acceptance.edge import Edge
from tests.acceptance.scenes import scene, watched
from tests.proxy.world import LABEL, ProxyWorld

pytestmark = pytest.mark.cluster

DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
MASTER = "node-role.kubernetes.io/control-plane"


def annotate(plane: ControlPlane, node: str, **annotations: str) -> None:
    plane.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": annotations}})


def set_size(env: ProxyWorld, desired: int) -> tuple[int, str]:
    """Set the size and return status and detail of the response."""
    response = env.post("/pool/size", {"desiredSize": desired})
    return response.status_code, response.json()["detail"] if response.content else ""


def test_a_node_is_marked_drained_terminated_and_deleted_in_this_order(cluster: ControlPlane, tmp_path: Path) -> None:
    """2 → 3 and 3 → 3 are forwarded; 3 → 2 removes the node with the fewest pods and evicts only movable pods."""
    with watched(cluster, tmp_path, 2, nodes_stay=True) as (env, border):
        env.deploy("full", 2, on="od-1")
        env.deploy("web", 1, on="od-2")
        cluster.apply(
            [
                manifests.pod("system", namespace="kube-system", nodeName="od-2"),
                manifests.daemonset("agent"),
                manifests.job("done", nodeName="od-2"),
            ]
        )
        cluster.wait_for(lambda: len(env.pods()) == 5, "all pods")
        assert set_size(env, 3) == set_size(env, 3) == (200, "")
        assert border.names() == ["size 3", "size 3"]
        cluster.wait_for(lambda: env.nodes() == ["od-1", "od-2", "od-3"], "the third Node")
        annotate(cluster, "od-3", **{DISABLED: "true"})
        cluster.wait_for(lambda: env.post("/pool/terminate", {"machineId": env.id("od-3")}).status_code == 500)
        border.writes.clear()
        assert set_size(env, 2) == (200, "")
        assert border.names() == [
            "draining od-2",  # the victim is chosen
            "draining od-2",  # its drain starts
            "owing od-2",
            "evict",
            "removing od-2",
            "terminate",
            "delete od-2",
        ]
        assert border.bodies("terminate") == [{"machineId": env.id("od-2"), "decrementDesiredSize": True}]
        assert (env.running(), env.nodes(), env.desired) == (["od-1", "od-3"], ["od-1", "od-3"], 2)
        moved = {"web": "od-3", "full": "od-1"}

        def all_moved() -> bool:
            return moved.items() <= {name.partition("-")[0]: node for name, node in env.pods().items()}.items()

        cluster.wait_for(all_moved, "the pod to move")
        make_a_machine_disposable(env, border)


def make_a_machine_disposable(env: ProxyWorld, border: Edge) -> None:
    """Make a machine disposable, which the pool would terminate and replace: the proxy drains its node first."""
    border.writes.clear()
    machine = env.id("od-1")
    status = {"machineId": machine, "membershipStatus": {"active": False, "evictable": True}}
    response = env.post("/pool/membershipStatus", status)
    assert (response.status_code, response.content) == (200, b"")
    assert border.names() == [
        "draining od-1",
        "owing od-1",
        "evict",
        "evict",
        "removing od-1",
        "terminate",
        "delete od-1",
    ]
    assert border.bodies("terminate") == [{"machineId": machine, "decrementDesiredSize": False}]
    env.plane.wait_for(lambda: env.running() == ["od-3", "od-4"], "the replacement")
    assert env.desired == 2


def test_several_victims_are_planned_together(cluster: ControlPlane, tmp_path: Path) -> None:
    """3 → 0 keeps the last node. Both victims share a budget of one, and no pod moves from one victim to the other."""
    with watched(cluster, tmp_path, 3, nodes_stay=True) as (env, border):
        spread = {"labelSelector": {"matchLabels": {"app": "web"}}, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
        env.deploy("web", 3, topologySpreadConstraints=[{**spread, "topologyKey": "kubernetes.io/hostname"}])
        assert sorted(env.pods().values()) == ["od-1", "od-2", "od-3"]
        cluster.apply([manifests.pdb("web", max_unavailable=1)])
        cluster.wait_for(lambda: allowed(cluster, "web") == 1, "the budget")
        status, detail = set_size(env, 0)
        assert status == 200
        assert detail.startswith("2 of 3 machines were removed: node od-3: no other node that is Ready and schedulable")
        assert (env.running(), env.desired, env.tainted()) == (["od-3"], 1, [])
        drained = [name for name in border.names() if name.startswith(("evict", "delete"))]
        assert [name for name in drained if name != "evict"] == ["delete od-1", "delete od-2"]
        evicted = [write.path for write, code in border.answers if write.name == "evict" and code < 300]
        assert len(evicted) == len(set(evicted)) == 2
        cluster.wait_for(lambda: list(env.pods().values()) == ["od-3"] * 3, "the pods to move")


def allowed(plane: ControlPlane, budget: str) -> int:
    budget_object = plane.api.get(f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{budget}")
    return int(budget_object.get("status", {}).get("disruptionsAllowed", 0))


def test_a_failed_victim_is_released_and_another_one_is_removed(cluster: ControlPlane, tmp_path: Path) -> None:
    """4 → 2: one node is protected from the start, a second node becomes protected while the first victim drains."""
    with watched(cluster, tmp_path, 4) as (env, border), ThreadPoolExecutor(1) as client:
        annotate(cluster, "od-1", **{DISABLED: "true"})
        env.deploy("web", 1, on="od-4")
        cluster.wait_for(lambda: env.post("/pool/terminate", {"machineId": env.id("od-1")}).status_code == 500)
        border.hold(0, "before", lambda name: name == "terminate")
        call = client.submit(set_size, env, 2)
        assert border.reached.wait(60)
        assert env.tainted() == ["od-2", "od-3"]
        annotate(cluster, "od-3", **{DISABLED: "true"})
        border.release()
        assert call.result() == (200, "")
        assert any("od-3" in line and "plan is no longer valid" in line for line in env.lines)
        assert (env.running(), env.desired, env.tainted()) == (["od-1", "od-3"], 2, [])
        cluster.wait_for(lambda: list(env.pods().values()) == ["od-1"] or list(env.pods().values()) == ["od-3"])
        status, detail = set_size(env, 1)
        assert (status, detail.count("scale-down-disabled"), env.desired) == (500, 2, 2)


def test_sizes_count_machines_and_not_nodes(cluster: ControlPlane, tmp_path: Path) -> None:
    """The active machines and the desired size of the pool count, not the number of Nodes."""

    def with_a_master(env: ProxyWorld) -> None:
        cluster.api.patch("/api/v1/nodes/od-1", {"metadata": {"labels": {MASTER: ""}}})

    with scene(cluster, tmp_path, 4, pool={"quota": 4}, before=with_a_master) as env:
        env.server.pool.set_size(10)
        assert set_size(env, 3) == (200, "")  # desired 10, actual 4, including a master
        assert (env.running(), env.desired) == (["od-1", "od-3", "od-4"], 3)
        env.server.pool.set_config({"name": "od", "bootDelay": "1h", "labels": {LABEL: "true"}})
        env.server.pool.set_size(6)
        there = ["od-1", "od-3", "od-4"]
        cluster.wait_for(lambda: len(env.running()) == 6, "six machines")
        assert set_size(env, 5) == (200, "")  # 6 are active, 3 have joined
        assert set_size(env, 4) == (200, "")
        assert (len(env.running()), env.desired, env.nodes()) == (4, 4, there)
        assert set(there) < set(env.running())
        assert set_size(env, 2) == (200, "")  # the last machine without a Node, and one with a Node
        assert (env.running(), env.desired) == (["od-1", "od-4"], 2)
        status, detail = set_size(env, 1)
        assert (status, env.running(), env.desired) == (500, ["od-1", "od-4"], 2)
        assert "node od-1: it belongs to the control plane" in detail
        assert "node od-4: no other node that is Ready and schedulable remains" in detail


def test_terminated_machines_in_a_stale_cache_do_not_count(cluster: ControlPlane, tmp_path: Path) -> None:
    """Terminated machines that are still listed as running do not count and are not terminated again."""
    with scene(cluster, tmp_path, 4, refresh_interval=4) as env:
        first, second = env.id("od-1"), env.id("od-2")
        for desired in (3, 2):
            assert set_size(env, desired) == (200, "")
            listed = {machine["id"] for machine in httpx2.get(f"{env.server.url}/pool", timeout=60).json()["machines"]}
            assert {first, second} <= listed
        assert (env.running(), env.desired) == (["od-3", "od-4"], 2)
        for machine in (first, second):
            assert env.post("/pool/terminate", {"machineId": machine, "decrementDesiredSize": True}).content == b""
        assert [machine["machineId"] for machine in env.orders()] == [first, second]
        assert env.desired == 2
