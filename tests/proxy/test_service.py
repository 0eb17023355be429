"""The proxy as a process, between a real control plane and the reference cloudpool."""

import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from devcluster.api import Json
from devcluster.manifests import deployment, pdb, statefulset
from devcluster.plane import ControlPlane
from devcluster.stages import TERMINATE_AFTER
from devcluster.standin.faults import Fault
from tests.proxy.world import ProxyWorld, world

pytestmark = pytest.mark.cluster

HANGS = Fault(path="/pool/terminate", kind="hang")
ACTS = Fault(path="/pool/terminate", kind="hang", acted=True)


def test_a_pool_shrinks_by_its_emptiest_nodes_and_grows_again(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 4) as env:
        env.deploy("full", 3, on="od-1")
        env.deploy("light", 1, on="od-2")
        response = env.post("/pool/size", {"desiredSize": 2})
        assert (response.status_code, response.text) == (200, "")
        assert (env.running(), env.desired, env.tainted()) == (["od-1", "od-2"], 2, [])
        cluster.wait_for(lambda: env.nodes() == ["od-1", "od-2"], "the Nodes to go")
        response = env.post("/pool/size", {"desiredSize": 1})
        assert (response.status_code, response.text) == (200, "")
        assert (env.running(), env.desired, env.tainted()) == (["od-1"], 1, [])
        cluster.wait_for(lambda: set(env.pods().values()) == {"od-1"} and len(env.pods()) == 4, "the pods to move")
        assert env.post("/pool/size", {"desiredSize": 3}).status_code == 200
        assert env.desired == 3


def test_the_last_node_is_kept(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as env:
        response = env.post("/pool/size", {"desiredSize": 0})
        assert (response.status_code, env.desired, len(env.running())) == (200, 1, 1)
        assert "1 of 2 machines were removed" in response.json()["detail"]
        assert "no other node that is Ready and schedulable remains" in response.json()["detail"]


def test_a_termination_is_graceful_and_repeatable(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 3) as env:
        env.deploy("web", 2, on="od-2")
        body = {"machineId": env.id("od-2"), "decrementDesiredSize": True}
        for _ in range(2):
            response = env.post("/pool/terminate", body)
            assert (response.status_code, response.text) == (200, "")
        assert (env.running(), env.desired, len(env.orders())) == (["od-1", "od-3"], 2, 1)
        cluster.wait_for(lambda: len(env.pods()) == 2 and "od-2" not in env.pods().values(), "the pods to move")


def test_a_termination_without_decrement_is_replaced(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as env:
        env.deploy("web", 1, on="od-1")
        assert env.post("/pool/terminate", {"machineId": env.id("od-1")}).status_code == 200
        assert env.desired == 2
        cluster.wait_for(lambda: env.running() == ["od-2", "od-3"], "the replacement")


@pytest.mark.parametrize("path", ["/pool/terminate", "/pool/detach"])
def test_protected_nodes_are_kept(path: str, cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as env:
        env.deploy("web", 1, on="od-1", volumes=[{"name": "data", "emptyDir": {}}])
        response = env.post(path, {"machineId": env.id("od-1"), "decrementDesiredSize": True})
        assert response.status_code == 500
        assert "node od-1: pod default/web-" in response.json()["detail"]
        assert "local storage data would be lost" in response.json()["detail"]
        assert (env.running(), env.desired, env.tainted(), env.orders()) == (["od-1", "od-2"], 2, [], [])


def test_the_node_of_the_proxy_is_not_a_victim(
    cluster: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCHEDULER_NODE_NAME", "od-1")
    with world(cluster, tmp_path, 3) as env:
        assert env.post("/pool/size", {"desiredSize": 2}).status_code == 200
        assert (env.running(), env.desired) == (["od-1", "od-3"], 2)
        response = env.post("/pool/terminate", {"machineId": env.id("od-1"), "decrementDesiredSize": True})
        assert (response.status_code, "node od-1: this program runs there" in response.json()["detail"]) == (500, True)
        assert (env.running(), env.tainted()) == (["od-1", "od-3"], [])


def test_an_unknown_machine_is_not_found(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as env:
        response = env.post("/pool/terminate", {"machineId": "i-00000000000000000"})
        assert (response.status_code, response.json()["message"]) == (404, "failed to terminate machine")


def test_a_machine_is_detached_when_its_node_is_empty(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as env:
        env.deploy("web", 2, on="od-1")
        machine = env.id("od-1")
        response = env.post("/pool/detach", {"machineId": machine, "decrementDesiredSize": True})
        assert (response.status_code, response.text) == (200, "")
        assert (env.running(), env.desired, env.nodes(), env.tainted()) == (
            ["od-1", "od-2"],
            1,
            ["od-1", "od-2"],
            [],
        )
        cluster.wait_for(lambda: set(env.pods().values()) == {"od-2"}, "the pods to move")
        assert not env.machine("od-1").member


def test_a_pool_whose_machines_match_no_nodes_fails_closed(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as env:
        for name in env.nodes():
            cluster.api.delete(f"/api/v1/nodes/{name}")
        cluster.apply([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"other-{n}"}} for n in range(2)])
        cluster.wait_for(lambda: env.nodes() == ["other-0", "other-1"], "other nodes")
        asked = {"desiredSize": 1}
        cluster.wait_for(lambda: env.post("/pool/size", asked).status_code == 500, "the proxy to see them")
        assert (env.running(), env.desired, env.orders()) == (["od-1", "od-2"], 2, [])


def test_machines_without_a_node_are_removed_first(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as env:
        env.server.pool.set_config({"name": "od", "bootDelay": "1h"})
        env.server.pool.set_size(4)
        response = env.post("/pool/size", {"desiredSize": 2})
        assert (response.status_code, env.running(), env.desired) == (200, ["od-1", "od-2"], 2)


def test_a_budget_that_allows_no_eviction_keeps_the_node(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as env:
        env.deploy("web", 1, on="od-1")
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }
        cluster.apply([budget])
        env.deploy("other", 1, on="od-2")
        response = env.post("/pool/terminate", {"machineId": env.id("od-1"), "decrementDesiredSize": True})
        assert response.status_code == 500
        assert "PodDisruptionBudget" in response.json()["detail"]
        assert (env.running(), env.tainted()) == (["od-1", "od-2"], [])


def replica_set(name: str, replicas: int, **fields: Any) -> Json:
    return deployment(name, replicas, **fields) | {"kind": "ReplicaSet"}


#: budget that allows fewer evictions at once than a node has pods: (kind of the controllers, their pods, the budgets)
IN_STEPS: dict[str, tuple[Callable[..., Json], Mapping[str, int], list[Json]]] = {
    "maxUnavailable": (deployment, {"a": 4}, [pdb("a", max_unavailable=3)]),
    "minAvailable": (deployment, {"a": 4}, [pdb("a", min_available=3)]),
    "minAvailable in percent": (deployment, {"a": 4}, [pdb("a", min_available="70%")]),
    "a StatefulSet": (statefulset, {"a": 3}, [pdb("a", max_unavailable=1)]),
    "a bare ReplicaSet": (replica_set, {"a": 3}, [pdb("a", min_available="50%")]),
    "two budgets": (deployment, {"a": 3, "b": 3}, [pdb("a", max_unavailable=1), pdb("b", min_available=1)]),
}


@pytest.mark.parametrize("case", IN_STEPS)
def test_pods_of_one_budget_are_moved_in_steps(case: str, cluster: ControlPlane, tmp_path: Path) -> None:
    build, pods, budgets = IN_STEPS[case]
    with world(cluster, tmp_path, 2) as env:
        for name, replicas in pods.items():
            env.deploy(name, replicas, on="od-1", build=build)
        cluster.apply(budgets)
        body = {"machineId": env.id("od-1"), "decrementDesiredSize": True}
        response = env.post("/pool/terminate", body)
        assert (response.status_code, response.text) == (200, "")
        assert (env.running(), env.desired, env.tainted()) == (["od-2"], 1, [])
        assert sorted(env.pods().values()) == ["od-2"] * sum(pods.values())


@pytest.mark.parametrize("size", [3, 1])
def test_a_pool_shrinks_by_nodes_with_more_pods_than_their_budget_allows_at_once(
    size: int, cluster: ControlPlane, tmp_path: Path
) -> None:
    with world(cluster, tmp_path, 4) as env:
        for node in env.nodes():
            env.deploy(f"web-{node}", 4, on=node, labels={"of": "web"})
        budget = pdb("web", max_unavailable=3)
        budget["spec"]["selector"] = {"matchLabels": {"of": "web"}}
        cluster.apply([budget])
        response = env.post("/pool/size", {"desiredSize": size}, timeout=300)
        assert (response.status_code, response.text) == (200, "")
        assert (len(env.running()), env.desired, env.tainted()) == (size, size, [])
        cluster.wait_for(lambda: len(env.pods()) == 16, "the pods to run")


#: when the process is killed: (faults of the pool, condition for the kill, final nodes, final desired size)
KILLED: dict[str, tuple[list[Fault], Callable[[ProxyWorld], object], list[str], int]] = {
    "while pods are terminating": ([], lambda env: env.tainted() == ["od-1"], ["od-1", "od-2"], 2),
    "before the pool has read the order": ([HANGS], lambda env: env.orders(), ["od-2"], 1),
    "after the pool has acted on the order": ([ACTS], lambda env: env.running() == ["od-2"], ["od-2"], 1),
    "before the termination was confirmed": (
        [Fault(path="/pool", method="GET", kind="hang", times=1)],
        lambda env: env.running() == ["od-2"],
        ["od-2"],
        1,
    ),
}


@pytest.mark.parametrize("when", KILLED)
def test_after_a_kill_at_any_step_the_update_is_completed_or_rolled_back(
    when: str, cluster: ControlPlane, tmp_path: Path
) -> None:
    faults, seen, nodes, desired = KILLED[when]
    with world(cluster, tmp_path, 2, second_termination="ok", nodes_stay=True) as env, ThreadPoolExecutor(1) as client:
        slow: dict[str, Any] = {} if faults else {"annotations": {TERMINATE_AFTER: "never"}}
        env.deploy("web", 1, on="od-1", **slow)
        body = {"machineId": env.id("od-1"), "decrementDesiredSize": True}
        env.post("/pool/terminate", {"machineId": "i-0"})  # the cluster has been read
        env.server.faulty_app.inject(*[fault for fault in faults if fault.path != "/pool"])
        call = client.submit(httpx2.post, f"{env.url}/pool/terminate", json=body, timeout=180)
        if faults and faults[0].path == "/pool":
            cluster.wait_for(env.tainted, "the drain to begin")
            cluster.wait_for(env.orders, "the order")
            env.server.faulty_app.inject(*faults)
        cluster.wait_for(lambda: seen(env), "the moment")
        env.stop(signal.SIGKILL)
        with pytest.raises(httpx2.TransportError):
            call.result()
        env.start()
        cluster.wait_for(lambda: not env.tainted() and env.nodes() == nodes, "the end", seconds=180)
        assert (env.running(), env.desired) == (nodes, desired)


def test_sigterm_rolls_back_an_update(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as env, ThreadPoolExecutor(1) as client:
        env.deploy("web", 1, on="od-1", annotations={TERMINATE_AFTER: "never"})
        env.post("/pool/terminate", {"machineId": "i-0"})
        body = {"machineId": env.id("od-1")}
        call = client.submit(httpx2.post, f"{env.url}/pool/terminate", json=body, timeout=180)
        cluster.wait_for(env.tainted, "the drain to begin")
        assert env.stop() == 0
        assert call.result().status_code == 500
        assert (env.tainted(), env.running(), env.orders()) == ([], ["od-1", "od-2"], [])


def test_growing_works_without_the_api_server(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 1) as env:
        cluster.stop_component("kube-apiserver")
        try:
            assert httpx2.post(f"{env.url}/pool/size", json={"desiredSize": 2}, timeout=30).status_code == 200
            assert env.desired == 2
        finally:
            cluster.start_component("kube-apiserver")


def test_the_process_exits_cleanly(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 1) as env:
        assert httpx2.get(f"{env.url}/pool/size", timeout=60).json()["desiredSize"] == 1
        assert env.stop() == 0
        assert not [line for line in env.lines if "Traceback" in line]
