"""The whole proxy: a process between a real control plane and the reference cloudpool."""

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from deploy.local.cloudpool.faults import Fault
from deploy.local.plane import ControlPlane
from deploy.local.stages import TERMINATE_AFTER
from tests.proxy.world import World, world

pytestmark = pytest.mark.cluster

HANGS = Fault(path="/pool/terminate", kind="hang")
ACTS = Fault(path="/pool/terminate", kind="hang", acted=True)


def test_a_pool_shrinks_by_its_emptiest_nodes_and_grows_again(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 4) as made:
        made.deploy("full", 3, on="od-1")
        made.deploy("light", 1, on="od-2")
        answer = made.post("/pool/size", {"desiredSize": 2})
        assert (answer.status_code, answer.text) == (200, "")
        assert (made.running(), made.desired, made.tainted()) == (["od-1", "od-2"], 2, [])
        cluster.wait_for(lambda: made.nodes() == ["od-1", "od-2"], "the Nodes to go")
        answer = made.post("/pool/size", {"desiredSize": 1})
        assert (answer.status_code, answer.text) == (200, "")
        assert (made.running(), made.desired, made.tainted()) == (["od-1"], 1, [])
        cluster.wait_for(lambda: set(made.pods().values()) == {"od-1"} and len(made.pods()) == 4, "the pods to move")
        assert made.post("/pool/size", {"desiredSize": 3}).status_code == 200
        assert made.desired == 3


def test_the_last_node_stays(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as made:
        answer = made.post("/pool/size", {"desiredSize": 0})
        assert (answer.status_code, made.desired, len(made.running())) == (200, 1, 1)
        assert "1 of 2 machines were removed" in answer.json()["detail"]
        assert "no other node that is Ready and schedulable remains" in answer.json()["detail"]


def test_a_termination_is_graceful_and_repeatable(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 3) as made:
        made.deploy("web", 2, on="od-2")
        body = {"machineId": made.id("od-2"), "decrementDesiredSize": True}
        for _ in range(2):
            answer = made.post("/pool/terminate", body)
            assert (answer.status_code, answer.text) == (200, "")
        assert (made.running(), made.desired, len(made.orders())) == (["od-1", "od-3"], 2, 1)
        cluster.wait_for(lambda: len(made.pods()) == 2 and "od-2" not in made.pods().values(), "the pods to move")


def test_a_termination_without_decrement_is_replaced(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as made:
        made.deploy("web", 1, on="od-1")
        assert made.post("/pool/terminate", {"machineId": made.id("od-1")}).status_code == 200
        assert made.desired == 2
        cluster.wait_for(lambda: made.running() == ["od-2", "od-3"], "the replacement")


@pytest.mark.parametrize("path", ["/pool/terminate", "/pool/detach"])
def test_who_must_not_go_stays(path: str, cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as made:
        made.deploy("web", 1, on="od-1", volumes=[{"name": "data", "emptyDir": {}}])
        answer = made.post(path, {"machineId": made.id("od-1"), "decrementDesiredSize": True})
        assert answer.status_code == 500
        assert "node od-1: pod default/web-" in answer.json()["detail"]
        assert "local storage data would be lost" in answer.json()["detail"]
        assert (made.running(), made.desired, made.tainted(), made.orders()) == (["od-1", "od-2"], 2, [], [])


def test_its_own_node_is_no_victim(cluster: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESCHEDULER_NODE_NAME", "od-1")
    with world(cluster, tmp_path, 3) as made:
        assert made.post("/pool/size", {"desiredSize": 2}).status_code == 200
        assert (made.running(), made.desired) == (["od-1", "od-3"], 2)
        answer = made.post("/pool/terminate", {"machineId": made.id("od-1"), "decrementDesiredSize": True})
        assert (answer.status_code, "node od-1: this program runs there" in answer.json()["detail"]) == (500, True)
        assert (made.running(), made.tainted()) == (["od-1", "od-3"], [])


def test_an_unknown_machine(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as made:
        answer = made.post("/pool/terminate", {"machineId": "i-00000000000000000"})
        assert (answer.status_code, answer.json()["message"]) == (404, "failed to terminate machine")


def test_a_machine_is_detached_when_its_node_is_empty(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as made:
        made.deploy("web", 2, on="od-1")
        machine = made.id("od-1")
        answer = made.post("/pool/detach", {"machineId": machine, "decrementDesiredSize": True})
        assert (answer.status_code, answer.text) == (200, "")
        assert (made.running(), made.desired, made.nodes(), made.tainted()) == (
            ["od-1", "od-2"],
            1,
            ["od-1", "od-2"],
            [],
        )
        cluster.wait_for(lambda: set(made.pods().values()) == {"od-2"}, "the pods to move")
        assert not made.machine("od-1").member


def test_a_pool_whose_machines_are_no_nodes_fails_closed(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as made:
        for name in made.nodes():
            cluster.api.delete(f"/api/v1/nodes/{name}")
        cluster.apply([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"other-{n}"}} for n in range(2)])
        cluster.wait_for(lambda: made.nodes() == ["other-0", "other-1"], "other nodes")
        asked = {"desiredSize": 1}
        cluster.wait_for(lambda: made.post("/pool/size", asked).status_code == 500, "the proxy to see them")
        assert (made.running(), made.desired, made.orders()) == (["od-1", "od-2"], 2, [])


def test_machines_without_a_node_go_first(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as made:
        made.server.pool.set_config({"name": "od", "bootDelay": "1h"})
        made.server.pool.set_size(4)
        answer = made.post("/pool/size", {"desiredSize": 2})
        assert (answer.status_code, made.running(), made.desired) == (200, ["od-1", "od-2"], 2)


def test_a_budget_that_never_allows_it_keeps_the_node(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as made:
        made.deploy("web", 1, on="od-1")
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }
        cluster.apply([budget])
        made.deploy("other", 1, on="od-2")
        answer = made.post("/pool/terminate", {"machineId": made.id("od-1"), "decrementDesiredSize": True})
        assert answer.status_code == 500
        assert "PodDisruptionBudget" in answer.json()["detail"]
        assert (made.running(), made.tainted()) == (["od-1", "od-2"], [])


#: where the process is killed: (faults of the pool, what is seen then; nodes and desired size in the end)
KILLED: dict[str, tuple[list[Fault], Callable[[World], object], list[str], int]] = {
    "while pods are leaving": ([], lambda made: made.tainted() == ["od-1"], ["od-1", "od-2"], 2),
    "before the pool has read the order": ([HANGS], lambda made: made.orders(), ["od-2"], 1),
    "after the pool has acted on the order": ([ACTS], lambda made: made.running() == ["od-2"], ["od-2"], 1),
    "before the end of the machine was seen": (
        [Fault(path="/pool", method="GET", kind="hang", times=1)],
        lambda made: made.running() == ["od-2"],
        ["od-2"],
        1,
    ),
}


@pytest.mark.parametrize("when", KILLED)
def test_killed_at_any_step_everything_is_finished_or_taken_back(
    when: str, cluster: ControlPlane, tmp_path: Path
) -> None:
    faults, seen, nodes, desired = KILLED[when]
    with world(cluster, tmp_path, 2, second_termination="ok", nodes_stay=True) as made, ThreadPoolExecutor(1) as client:
        slow = {} if faults else {"annotations": {TERMINATE_AFTER: "never"}}
        made.deploy("web", 1, on="od-1", **slow)
        body = {"machineId": made.id("od-1"), "decrementDesiredSize": True}
        made.post("/pool/terminate", {"machineId": "i-0"})  # the cluster has been read
        made.server.face.inject(*[fault for fault in faults if fault.path != "/pool"])
        call = client.submit(httpx.post, f"{made.url}/pool/terminate", json=body, timeout=180)
        if faults and faults[0].path == "/pool":
            cluster.wait_for(made.tainted, "the drain to begin")
            cluster.wait_for(made.orders, "the order")
            made.server.face.inject(*faults)
        cluster.wait_for(lambda: seen(made), "the moment")
        made.stop(signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            call.result()
        made.start()
        cluster.wait_for(lambda: not made.tainted() and made.nodes() == nodes, "the end", seconds=180)
        assert (made.running(), made.desired) == (nodes, desired)


def test_told_to_stop_an_update_is_taken_back(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as made, ThreadPoolExecutor(1) as client:
        made.deploy("web", 1, on="od-1", annotations={TERMINATE_AFTER: "never"})
        made.post("/pool/terminate", {"machineId": "i-0"})
        body = {"machineId": made.id("od-1")}
        call = client.submit(httpx.post, f"{made.url}/pool/terminate", json=body, timeout=180)
        cluster.wait_for(made.tainted, "the drain to begin")
        assert made.stop() == 0
        assert call.result().status_code == 500
        assert (made.tainted(), made.running(), made.orders()) == ([], ["od-1", "od-2"], [])


def test_the_api_server_away_growing_goes_on(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 1) as made:
        cluster.stop_component("kube-apiserver")
        try:
            assert httpx.post(f"{made.url}/pool/size", json={"desiredSize": 2}, timeout=30).status_code == 200
            assert made.desired == 2
        finally:
            cluster.start_component("kube-apiserver")


def test_the_end_of_the_process_is_clean(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 1) as made:
        assert httpx.get(f"{made.url}/pool/size", timeout=60).json()["desiredSize"] == 1
        assert made.stop() == 0
        assert not [line for line in made.lines if "Traceback" in line]
