"""The proxy as a process: budgets, its own node, and clusters that it cannot match or read. More: tests/acceptance."""

import base64
import signal
from pathlib import Path

import httpx2
import pytest

from devcluster.manifests import pdb
from devcluster.plane import ControlPlane
from rescheduler.planning.memory import Memory, Reactivation, dump
from tests.proxy.world import world

pytestmark = pytest.mark.cluster


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


def test_a_pool_whose_machines_match_no_nodes_fails_closed(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 2) as env:
        for name in env.nodes():
            cluster.api.delete(f"/api/v1/nodes/{name}")
        cluster.apply([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"other-{n}"}} for n in range(2)])
        cluster.wait_for(lambda: env.nodes() == ["other-0", "other-1"], "other nodes")
        asked = {"desiredSize": 1}
        cluster.wait_for(lambda: env.post("/pool/size", asked).status_code == 500, "the proxy to see them")
        assert (env.running(), env.desired, env.orders()) == (["od-1", "od-2"], 2, [])


def test_pods_of_two_budgets_are_moved_in_steps(cluster: ControlPlane, tmp_path: Path) -> None:
    """Each budget allows fewer evictions at once than the node has pods."""
    pods = {"a": 3, "b": 3}
    with world(cluster, tmp_path, 2) as env:
        for name, replicas in pods.items():
            env.deploy(name, replicas, on="od-1")
        cluster.apply([pdb("a", max_unavailable=1), pdb("b", min_available=1)])
        body = {"machineId": env.id("od-1"), "decrementDesiredSize": True}
        response = env.post("/pool/terminate", body)
        assert (response.status_code, response.text) == (200, "")
        assert (env.running(), env.desired, env.tainted()) == (["od-2"], 1, [])
        assert sorted(env.pods().values()) == ["od-2"] * sum(pods.values())


def test_growing_works_without_the_api_server(cluster: ControlPlane, tmp_path: Path) -> None:
    with world(cluster, tmp_path, 1) as env:
        cluster.stop_component("kube-apiserver")
        try:
            assert httpx2.post(f"{env.url}/pool/size", json={"desiredSize": 2}, timeout=30).status_code == 200
            assert env.desired == 2
        finally:
            cluster.start_component("kube-apiserver")


def test_a_reactivation_that_a_killed_proxy_has_begun_is_finished_at_the_start(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    with world(cluster, tmp_path, 2) as env:
        env.stop(signal.SIGKILL)
        machine, size = env.id("od-1"), env.desired
        env.server.pool.set_membership(machine, active=False, evictable=False)
        content = base64.b64encode(dump(Memory(reactivation=Reactivation(machine, True, size)))).decode()
        name = {"name": "cloudpool-proxy-memory", "namespace": "default"}
        memory = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "binaryData": {"memory": content}}
        cluster.apply([memory])
        env.start()
        cluster.wait_for(lambda: env.machine("od-1").active, "the machine to be active again")
        cluster.wait_for(lambda: env.desired == size + 1, "the size to be raised")
