"""rescheduler.kube reads a real API server: pages, watches, restarts, permissions."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from devcluster.manifests import namespace, node, pod
from devcluster.plane import ControlPlane
from predicates.wire import Interner
from rescheduler.clock import SystemClock
from rescheduler.errors import Forbidden, Permanent, Unauthorized
from rescheduler.kube.client import Client
from rescheduler.kube.codec import JsonCodec
from rescheduler.kube.connection import Kubeconfig
from rescheduler.kube.lister import RESOURCES, Lister
from rescheduler.kube.state import ClusterState, read_cluster
from tests.cluster.rich import RICH
from tests.cluster.waiting import eventually


def connect(kubeconfig: Path) -> Client:
    return Client(Kubeconfig(str(kubeconfig)), SystemClock())


@pytest.fixture
def rich(cluster: ControlPlane) -> Iterator[set[str]]:
    """Creates the rich objects and returns their kinds; the cluster's cleanup does not delete all of these objects."""
    yield {item["kind"] for item in cluster.apply([node("n1"), *RICH])}
    for item in RICH:
        if item["kind"] in ("VolumeAttachment", "CSIStorageCapacity", "ResourceClaim", "DeviceClass"):
            cluster.api.delete(cluster.api.path(item))


@contextmanager
def reading(cluster: ControlPlane, page_size: int = 500) -> Iterator[ClusterState]:
    state = ClusterState(connect(cluster.kubeconfig), SystemClock(), page_size=page_size)
    state.start()
    try:
        eventually(lambda: state.synced)
        yield state
    finally:
        state.stop()


def test_existing_and_changed_objects_are_in_the_snapshot(cluster: ControlPlane) -> None:
    cluster.apply([node("n1"), node("n2"), *(namespace(f"team-{number}") for number in range(5))])
    cluster.apply([pod(f"before-{number}", nodeName="n1") for number in range(5)])
    with reading(cluster, page_size=2) as state:
        snapshot = state.snapshot()
        assert {f"default/before-{number}" for number in range(5)} <= set(snapshot.pods)
        assert {"n1", "n2"} <= set(snapshot.nodes.row)
        assert {f"team-{number}" for number in range(5)} <= set(snapshot.of("Namespace"))

        cluster.apply([pod("after", nodeName="n2"), node("n3")])
        cluster.api.delete("/api/v1/nodes/n1")
        cluster.api.delete("/api/v1/namespaces/default/pods/before-0", gracePeriodSeconds=0)
        eventually(lambda: "default/after" in state.snapshot().pods_on["n2"])
        eventually(lambda: "default/before-0" not in state.snapshot().pods)
        eventually(lambda: "n1" not in state.snapshot().nodes.row and "n3" in state.snapshot().nodes.row)
        assert state.errors == {}
        assert state.unreadable == {}


def test_every_kind_of_a_real_server_is_decoded(cluster: ControlPlane, rich: set[str]) -> None:
    client, kinds = connect(cluster.kubeconfig), set[str]()
    for resource in RESOURCES:
        listing = Lister(resource, client, JsonCodec(resource.kind, Interner()), SystemClock()).list()
        assert listing.unreadable == {}
        if listing.objects:
            kinds.add(resource.kind)
    assert {"Node", "Namespace", *rich} <= kinds


def test_no_change_is_missed_when_the_server_restarts(cluster: ControlPlane) -> None:
    """The new process rejects the watch as too old (410); the snapshot loses objects deleted during the restart."""
    cluster.apply([namespace("stays"), namespace("goes")])
    with reading(cluster) as state:
        eventually(lambda: {"stays", "goes"} <= set(state.snapshot().of("Namespace")))
        cluster.stop_component("kube-apiserver")
        etcd = f"http://127.0.0.1:{cluster._setting.etcd_port}"
        key = base64.b64encode(b"/registry/namespaces/goes").decode()
        assert httpx2.post(f"{etcd}/v3/kv/deleterange", json={"key": key}, timeout=60).json()["deleted"] == "1"
        eventually(lambda: state.errors)
        cluster.start_component("kube-apiserver")
        cluster.apply([namespace("comes")])
        eventually(lambda: {"stays", "comes"} <= set(state.snapshot().of("Namespace")) and not state.errors)
        assert "goes" not in state.snapshot().of("Namespace")


def test_reading_once_gives_the_same_snapshot_as_watching(cluster: ControlPlane) -> None:
    cluster.apply([node("n1"), pod("p", nodeName="n1")])
    snapshot = read_cluster(connect(cluster.kubeconfig), SystemClock())
    assert "default/p" in snapshot.pods_on["n1"]


def test_missing_permissions_are_named_in_the_error(cluster: ControlPlane) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": "default"}}
    cluster.apply([account])
    client = connect(cluster.service_account_kubeconfig("default", "nobody"))
    with pytest.raises(Forbidden) as caught:
        read_cluster(client, SystemClock())
    assert str(caught.value) == (
        'list namespaces: namespaces is forbidden: User "system:serviceaccount:default:nobody" cannot list '
        'resource "namespaces" in API group "" at the cluster scope (403)'
    )


def test_an_unknown_token_is_rejected(cluster: ControlPlane) -> None:
    client = connect(cluster.token_kubeconfig("stranger", "not-a-token"))
    with pytest.raises(Unauthorized, match="the token may have expired"):
        read_cluster(client, SystemClock())


def test_an_untrusted_server_is_not_contacted(cluster: ControlPlane, tmp_path: Path) -> None:
    stranger = tmp_path / "kubeconfig"
    trusted = cluster.kubeconfig.read_text()
    stranger.write_text(
        "".join(line for line in trusted.splitlines(keepends=True) if "certificate-authority" not in line)
    )
    assert stranger.read_text() != trusted
    with pytest.raises(Permanent, match=r"no trusted connection to https://127\.0\.0\.1:"):
        read_cluster(connect(stranger), SystemClock())
