"""A change of size takes the right machines, one after the other, and the pool ends with the number that was asked."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from deploy.local import manifests
from deploy.local.plane import ControlPlane
from tests.acceptance.edge import Edge
from tests.acceptance.scenes import scene, watched
from tests.proxy.world import LABEL, World

pytestmark = pytest.mark.cluster

DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
MASTER = "node-role.kubernetes.io/control-plane"


def annotate(plane: ControlPlane, node: str, **annotations: str) -> None:
    plane.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": annotations}})


def ask(made: World, desired: int) -> tuple[int, str]:
    """Status, and what there is to say."""
    answer = made.post("/pool/size", {"desiredSize": desired})
    return answer.status_code, answer.json()["detail"] if answer.content else ""


def test_a_node_is_marked_emptied_ordered_away_and_deleted_in_this_order(cluster: ControlPlane, tmp_path: Path) -> None:
    """2 → 3 and 3 → 3 are forwarded; 3 → 2 takes the emptiest, of whose pods only those that must move are evicted."""
    with watched(cluster, tmp_path, 2, nodes_stay=True) as (made, border):
        made.deploy("full", 2, on="od-1")
        made.deploy("web", 1, on="od-2")
        cluster.apply(
            [
                manifests.pod("system", namespace="kube-system", nodeName="od-2"),
                manifests.daemonset("agent"),
                manifests.job("done", nodeName="od-2"),
            ]
        )
        cluster.wait_for(lambda: len(made.pods()) == 5, "all pods")
        assert ask(made, 3) == ask(made, 3) == (200, "")
        assert border.names() == ["size 3", "size 3"]
        cluster.wait_for(lambda: made.nodes() == ["od-1", "od-2", "od-3"], "the third Node")
        annotate(cluster, "od-3", **{DISABLED: "true"})
        cluster.wait_for(lambda: made.post("/pool/terminate", {"machineId": made.id("od-3")}).status_code == 500)
        border.writes.clear()
        assert ask(made, 2) == (200, "")
        assert border.names() == [
            "draining od-2",  # the victim is chosen
            "draining od-2",  # its drain begins
            "owing od-2",
            "evict",
            "removing od-2",
            "terminate",
            "delete od-2",
        ]
        assert border.bodies("terminate") == [{"machineId": made.id("od-2"), "decrementDesiredSize": True}]
        assert (made.running(), made.nodes(), made.desired) == (["od-1", "od-3"], ["od-1", "od-3"], 2)
        moved = {"web": "od-3", "full": "od-1"}

        def there() -> bool:
            return moved.items() <= {name.partition("-")[0]: node for name, node in made.pods().items()}.items()

        cluster.wait_for(there, "the pod to move")
        one_that_is_made_disposable(made, border)


def one_that_is_made_disposable(made: World, border: Edge) -> None:
    """The pool would terminate it, and launch another one; so do we, after its pods have left."""
    border.writes.clear()
    machine = made.id("od-1")
    status = {"machineId": machine, "membershipStatus": {"active": False, "evictable": True}}
    answer = made.post("/pool/membershipStatus", status)
    assert (answer.status_code, answer.content) == (200, b"")
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
    made.plane.wait_for(lambda: made.running() == ["od-3", "od-4"], "the replacement")
    assert made.desired == 2


def test_several_victims_are_judged_together(cluster: ControlPlane, tmp_path: Path) -> None:
    """3 → 0 leaves the last node. Both victims share a budget of one, and no pod moves from one to the other."""
    with watched(cluster, tmp_path, 3, nodes_stay=True) as (made, border):
        spread = {"labelSelector": {"matchLabels": {"app": "web"}}, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
        made.deploy("web", 3, topologySpreadConstraints=[{**spread, "topologyKey": "kubernetes.io/hostname"}])
        assert sorted(made.pods().values()) == ["od-1", "od-2", "od-3"]
        cluster.apply([manifests.pdb("web", max_unavailable=1)])
        cluster.wait_for(lambda: allowed(cluster, "web") == 1, "the budget")
        status, detail = ask(made, 0)
        assert status == 200
        assert detail.startswith("2 of 3 machines were removed: node od-3: no other node that is Ready and schedulable")
        assert (made.running(), made.desired, made.tainted()) == (["od-3"], 1, [])
        drained = [name for name in border.names() if name.startswith(("evict", "delete"))]
        assert [name for name in drained if name != "evict"] == ["delete od-1", "delete od-2"]
        evicted = [write.path for write, code in border.answers if write.name == "evict" and code < 300]
        assert len(evicted) == len(set(evicted)) == 2
        cluster.wait_for(lambda: list(made.pods().values()) == ["od-3"] * 3, "the pods to move")


def allowed(plane: ControlPlane, budget: str) -> int:
    found = plane.api.get(f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{budget}")
    return int(found.get("status", {}).get("disruptionsAllowed", 0))


def test_a_victim_that_fails_is_released_and_another_one_goes(cluster: ControlPlane, tmp_path: Path) -> None:
    """4 → 2, one node is protected from the start and passed over, a second one while the first victim drains."""
    with watched(cluster, tmp_path, 4) as (made, border), ThreadPoolExecutor(1) as client:
        annotate(cluster, "od-1", **{DISABLED: "true"})
        made.deploy("web", 1, on="od-4")
        cluster.wait_for(lambda: made.post("/pool/terminate", {"machineId": made.id("od-1")}).status_code == 500)
        border.hold(0, "before", lambda name: name == "terminate")
        call = client.submit(ask, made, 2)
        assert border.reached.wait(60)
        assert made.tainted() == ["od-2", "od-3"]
        annotate(cluster, "od-3", **{DISABLED: "true"})
        border.release()
        assert call.result() == (200, "")
        assert any("od-3" in line and "plan no longer holds" in line for line in made.lines)
        assert (made.running(), made.desired, made.tainted()) == (["od-1", "od-3"], 2, [])
        cluster.wait_for(lambda: list(made.pods().values()) == ["od-1"] or list(made.pods().values()) == ["od-3"])
        status, detail = ask(made, 1)
        assert (status, detail.count("scale-down-disabled"), made.desired) == (500, 2, 2)


def test_numbers_that_pool_and_cluster_do_not_agree_on(cluster: ControlPlane, tmp_path: Path) -> None:
    """What counts are the pool's active machines, and what it wants; not how many Nodes there are."""

    def with_a_master(made: World) -> None:
        cluster.api.patch("/api/v1/nodes/od-1", {"metadata": {"labels": {MASTER: ""}}})

    with scene(cluster, tmp_path, 4, pool={"quota": 4}, before=with_a_master) as made:
        made.server.pool.set_size(10)
        assert ask(made, 3) == (200, "")  # 10 are wanted, 4 there; a master is one of them
        assert (made.running(), made.desired) == (["od-1", "od-3", "od-4"], 3)
        made.server.pool.set_config({"name": "od", "bootDelay": "1h", "labels": {LABEL: "true"}})
        made.server.pool.set_size(6)
        there = ["od-1", "od-3", "od-4"]
        cluster.wait_for(lambda: len(made.running()) == 6, "six machines")
        assert ask(made, 5) == (200, "")  # 6 are active, 3 have joined
        assert ask(made, 4) == (200, "")
        assert (len(made.running()), made.desired, made.nodes()) == (4, 4, there)
        assert set(there) < set(made.running())
        assert ask(made, 2) == (200, "")  # the last without a Node, and one with
        assert (made.running(), made.desired) == (["od-1", "od-4"], 2)
        status, detail = ask(made, 1)
        assert (status, made.running(), made.desired) == (500, ["od-1", "od-4"], 2)
        assert "node od-1: it belongs to the control plane" in detail
        assert "node od-4: no other node that is Ready and schedulable remains" in detail


def test_a_pool_that_answers_from_a_cache(cluster: ControlPlane, tmp_path: Path) -> None:
    """Machines that are listed as running after their end are no machines, and none is ordered away twice."""
    with scene(cluster, tmp_path, 4, refresh_interval=4) as made:
        first, second = made.id("od-1"), made.id("od-2")
        for desired in (3, 2):
            assert ask(made, desired) == (200, "")
            listed = {one["id"] for one in httpx.get(f"{made.server.url}/pool", timeout=60).json()["machines"]}
            assert {first, second} <= listed
        assert (made.running(), made.desired) == (["od-3", "od-4"], 2)
        for machine in (first, second):
            assert made.post("/pool/terminate", {"machineId": machine, "decrementDesiredSize": True}).content == b""
        assert [one["machineId"] for one in made.orders()] == [first, second]
        assert made.desired == 2
