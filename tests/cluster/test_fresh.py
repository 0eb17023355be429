"""Consistent reads of a real API server agree with the watched state after the watch has caught up."""

import dataclasses
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from devcluster.manifests import deployment, node, pdb, pod
from devcluster.plane import ControlPlane
from devcluster.stages import NEVER, TERMINATE_AFTER
from rescheduler.clock import SystemClock
from rescheduler.kube.client import Client
from rescheduler.kube.cluster import KubeCluster
from rescheduler.kube.connection import Kubeconfig
from rescheduler.kube.state import ClusterState
from rescheduler.planning.last_look import Fresh, lag
from tests.cluster.waiting import eventually

MANY_NODES = tuple(f"n{number}" for number in range(12))


@pytest.fixture
def kube(cluster: ControlPlane) -> KubeCluster:
    return KubeCluster(Client(Kubeconfig(str(cluster.kubeconfig)), SystemClock()))


@pytest.fixture
def state(cluster: ControlPlane) -> Iterator[ClusterState]:
    state = ClusterState(Client(Kubeconfig(str(cluster.kubeconfig)), SystemClock()), SystemClock())
    state.start()
    eventually(lambda: state.synced)
    yield state
    state.stop()


def agreed(
    kube: KubeCluster, state: ClusterState, targets: tuple[str, ...], namespaces: tuple[str, ...] = ("default",)
) -> Fresh:
    """Return a read for a drain of n0 that agrees with the watched state."""

    def read() -> Fresh | None:
        fresh = kube.read_fresh("n0", targets, namespaces)
        return None if lag(fresh, state.snapshot()) else fresh

    return eventually(read) or pytest.fail("never")


@pytest.mark.parametrize("targets", [MANY_NODES[1:3], MANY_NODES[1:]], ids=["few", "many"])
def test_consistent_reads_agree_with_the_watched_state(
    cluster: ControlPlane, kube: KubeCluster, state: ClusterState, targets: tuple[str, ...]
) -> None:
    cluster.apply([node(name) for name in MANY_NODES])
    cluster.apply([deployment("web", 6), pdb("web", max_unavailable=1), pod("bare", nodeName="n1")])
    cluster.apply([pod("pending", nodeSelector={"nowhere": "true"})])
    eventually(lambda: len(cluster.api.items("/api/v1/pods", fieldSelector="status.phase=Running")) == 7)
    eventually(
        lambda: cluster.api.items("/apis/policy/v1/poddisruptionbudgets")[0]["status"].get("currentHealthy") == 6
    )
    fresh = agreed(kube, state, targets)
    assert set(fresh.nodes) == {"n0", *targets}
    by_key = {pod.key: pod.node for pod in fresh.pods.values()}
    assert (by_key["default/bare"], by_key["default/pending"]) == ("n1", "")
    expected = {
        pod["metadata"]["uid"]
        for pod in cluster.api.items("/api/v1/pods")
        if pod["spec"].get("nodeName", "") in {"", "n0", *targets}
    }
    assert set(fresh.pods) == expected
    assert fresh.budgets["default/web"].status.disruptions_allowed == 1


def test_a_change_is_a_lag_until_it_is_watched(cluster: ControlPlane, kube: KubeCluster, state: ClusterState) -> None:
    cluster.apply([node("n0"), node("n1"), pod("p", nodeName="n0", annotations={TERMINATE_AFTER: NEVER})])
    eventually(lambda: cluster.api.get("/api/v1/namespaces/default/pods/p")["status"]["phase"] == "Running")
    before = agreed(kube, state, ("n1",))
    cluster.api.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
    cluster.api.delete("/api/v1/namespaces/default/pods/p")
    after = agreed(kube, state, ("n1",))
    [uid] = after.pods
    assert (before.pods[uid].terminating, after.pods[uid].terminating) == (False, True)
    assert (before.nodes["n1"].spec.unschedulable, after.nodes["n1"].spec.unschedulable) == (False, True)
    outdated = dataclasses.replace(after, nodes=before.nodes)
    assert lag(outdated, state.snapshot()) == ""
    open_node = before.nodes["n1"]
    unwatched = replace(open_node, metadata=replace(open_node.metadata, resource_version=str(10**15)))
    assert lag(dataclasses.replace(after, nodes={"n1": unwatched}), state.snapshot()) != ""


def test_pods_that_are_replaced_all_the_time_are_no_lag(
    cluster: ControlPlane, kube: KubeCluster, state: ClusterState
) -> None:
    """A pod that is gone when the read is compared is missing in the watched state, which is newer."""
    cluster.apply([node("n0"), pod("p", nodeSelector={"nowhere": "true"})])
    fresh = kube.read_fresh("n0", (), ("default",))
    assert [pod.key for pod in fresh.pods.values()] == ["default/p"]
    for number in range(3):
        cluster.api.delete("/api/v1/namespaces/default/pods/p", gracePeriodSeconds=0)
        cluster.apply([pod("p", nodeSelector={"nowhere": str(number)})])
    eventually(lambda: lag(fresh, state.snapshot()) == "")
