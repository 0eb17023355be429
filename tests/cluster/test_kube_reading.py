"""rescheduler.kube reads a real API server: pages, watches, both encodings, restarts, permissions."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from devcluster.manifests import deployment, namespace, node, pdb, pod
from devcluster.plane import ControlPlane
from predicates.objects import Object, Pod, PodClass
from predicates.snapshot import key_of
from predicates.wire import Interner
from rescheduler.clock import SystemClock
from rescheduler.errors import Forbidden, Permanent, Unauthorized
from rescheduler.kube.client import Client
from rescheduler.kube.codec import decode_page
from rescheduler.kube.codecs import codecs
from rescheduler.kube.connection import Kubeconfig
from rescheduler.kube.lister import Lister
from rescheduler.kube.resources import RESOURCES
from rescheduler.kube.state import ClusterState, read_cluster
from rescheduler.settings import JSON, PROTOBUF
from tests.cluster.rich import RICH
from tests.cluster.waiting import eventually

CONTENT_TYPES = pytest.mark.parametrize("content_type", [JSON, PROTOBUF], ids=["json", "protobuf"])


def connect(kubeconfig: Path) -> Client:
    return Client(Kubeconfig(str(kubeconfig)), SystemClock())


@contextmanager
def reading(cluster: ControlPlane, content_type: str, page_size: int = 500) -> Iterator[ClusterState]:
    state = ClusterState(connect(cluster.kubeconfig), SystemClock(), content_type, page_size=page_size)
    state.start()
    try:
        eventually(lambda: state.synced)
        yield state
    finally:
        state.stop()


@CONTENT_TYPES
def test_existing_and_changed_objects_are_in_the_snapshot(cluster: ControlPlane, content_type: str) -> None:
    cluster.apply([node("n1"), node("n2"), *(namespace(f"team-{number}") for number in range(5))])
    cluster.apply([pod(f"before-{number}", nodeName="n1") for number in range(5)])
    with reading(cluster, content_type, page_size=2) as state:
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


def all_objects(cluster: ControlPlane, content_type: str) -> dict[tuple[str, str], object]:
    client, interner, clock = connect(cluster.kubeconfig), Interner(), SystemClock()
    objects: dict[tuple[str, str], object] = {}
    for resource in RESOURCES:
        lister = Lister(resource, client, codecs(resource.kind, content_type, interner), clock)
        listing = lister.list()
        assert listing.unreadable == {}
        objects |= {(resource.kind, key_of(item)): plain(item) for item in listing.objects}
    return objects


def plain(item: Object) -> object:
    """Return a comparable form of an object; for pods, the fields of their class, which compares by identity."""
    if isinstance(item, Pod):
        fields = {name: getattr(item, name) for name in Pod.__struct_fields__ if name != "cls"}
        return fields, {name: getattr(item.cls, name) for name in PodClass.__struct_fields__}
    return item


@pytest.fixture
def rich(cluster: ControlPlane) -> Iterator[set[str]]:
    """Creates the rich objects and returns their kinds; the cluster's cleanup does not delete all of these objects."""
    yield {item["kind"] for item in cluster.apply([node("n1"), *RICH])}
    for item in RICH:
        if item["kind"] in ("VolumeAttachment", "CSIStorageCapacity", "ResourceClaim", "DeviceClass"):
            cluster.api.delete(cluster.api.path(item))


def test_json_and_protobuf_of_a_real_server_give_equal_objects(cluster: ControlPlane, rich: set[str]) -> None:
    cluster.apply([node("n2", ready=False, taints=[{"key": "a", "effect": "NoExecute"}])])
    cluster.apply([deployment("web", 3), pdb("web", max_unavailable="34%")])
    eventually(lambda: len(cluster.api.items("/api/v1/pods", fieldSelector="status.phase=Running")) >= 3)
    for _ in range(20):  # heartbeats may change nodes in between
        as_json, as_protobuf = all_objects(cluster, JSON), all_objects(cluster, PROTOBUF)
        if as_json == as_protobuf:
            break
    assert as_protobuf == as_json
    kinds = {kind for kind, _ in as_json}
    assert rich <= kinds
    assert {"Node", "Pod", "PodDisruptionBudget", "Namespace"} <= kinds


@CONTENT_TYPES
def test_no_change_is_missed_when_the_server_restarts(cluster: ControlPlane, content_type: str) -> None:
    """The new process rejects the watch as too old (410); the snapshot loses objects deleted during the restart."""
    cluster.apply([namespace("stays"), namespace("goes")])
    with reading(cluster, content_type) as state:
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


def test_a_custom_resource_is_returned_in_json_although_protobuf_was_requested(cluster: ControlPlane) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.test"},
        "spec": {
            "group": "example.test",
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    path = "/apis/example.test/v1/things"
    [stored] = cluster.apply([crd])
    try:
        client, reader = connect(cluster.kubeconfig), codecs("Namespace", PROTOBUF, Interner())
        eventually(lambda: client.send("list things", "GET", path).ok)
        cluster.api.post(path, {"apiVersion": "example.test/v1", "kind": "Thing", "metadata": {"name": "one"}})
        response = client.request("list things", "GET", path, accept=reader.accept)
        assert response.content_type.startswith(JSON)
        assert [key_of(item) for item in decode_page(reader.of(response.content_type), response.body).objects] == [
            "one"
        ]
    finally:
        cluster.api.delete(cluster.api.path(stored))


def test_reading_once_gives_the_same_snapshot_as_watching(cluster: ControlPlane) -> None:
    cluster.apply([node("n1"), pod("p", nodeName="n1")])
    snapshot = read_cluster(connect(cluster.kubeconfig), SystemClock(), PROTOBUF)
    assert "default/p" in snapshot.pods_on["n1"]


def test_missing_permissions_are_named_in_the_error(cluster: ControlPlane) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": "default"}}
    cluster.apply([account])
    client = connect(cluster.service_account_kubeconfig("default", "nobody"))
    for content_type in (JSON, PROTOBUF):  # errors have the requested content type
        with pytest.raises(Forbidden) as caught:
            read_cluster(client, SystemClock(), content_type)
        assert str(caught.value) == (
            'list namespaces: namespaces is forbidden: User "system:serviceaccount:default:nobody" cannot list '
            'resource "namespaces" in API group "" at the cluster scope (403)'
        )


def test_an_unknown_token_is_rejected(cluster: ControlPlane) -> None:
    client = connect(cluster.token_kubeconfig("stranger", "not-a-token"))
    with pytest.raises(Unauthorized, match="the token may have expired"):
        read_cluster(client, SystemClock(), PROTOBUF)


def test_an_untrusted_server_is_not_contacted(cluster: ControlPlane, tmp_path: Path) -> None:
    stranger = tmp_path / "kubeconfig"
    trusted = cluster.kubeconfig.read_text()
    stranger.write_text(
        "".join(line for line in trusted.splitlines(keepends=True) if "certificate-authority" not in line)
    )
    assert stranger.read_text() != trusted
    with pytest.raises(Permanent, match=r"no trusted connection to https://127\.0\.0\.1:"):
        read_cluster(connect(stranger), SystemClock())
