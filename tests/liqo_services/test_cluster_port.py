"""Requests to the API server, and interpretation of its responses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.liqo import foreign, objects
from rescheduler.clock import SystemClock
from rescheduler.errors import Conflict, Forbidden, NotFound, Permanent, Retryable
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from rescheduler.liqo.node_manager.cluster import FOREIGN_CLUSTERS, KubeLiqo
from rescheduler.liqo.node_manager.resources import (
    GROUP_LABEL,
    LiqoNode,
    ResourceMeta,
    ResourceSlice,
    Tenancy,
    slice_manifest,
)
from tests.kube.conftest import kubeconfig
from tests.kube.edge import Reply, ScriptedApiServer, serving

SLICES = "/apis/authentication.liqo.io/v1beta1/resourceslices"
OF_ROME = "/apis/authentication.liqo.io/v1beta1/namespaces/of-rome/resourceslices"
VIRTUAL_NODES = "/apis/offloading.liqo.io/v1beta1/virtualnodes"
NODES = "/api/v1/nodes"
PIECE = ResourceSlice(metadata=ResourceMeta(name="rome-1", namespace="of-rome", uid="u-1"))


@pytest.fixture
def edge() -> Iterator[ScriptedApiServer]:
    with serving() as server:
        yield server


@pytest.fixture
def liqo(edge: ScriptedApiServer, tmp_path: Path) -> KubeLiqo:
    return KubeLiqo(Client(Kubeconfig(str(kubeconfig(tmp_path, edge.url))), SystemClock()))


def page(*names: str, following: str = "", group: str = "G", cluster: str = "rome") -> Reply:
    metadata = {"continue": following} if following else {}
    labels = {"liqo.io/replication": "true", **({GROUP_LABEL: group} if group else {})}
    items = [
        {"metadata": {"name": name, "namespace": cluster, "labels": labels}, "spec": {"providerClusterID": cluster}}
        for name in names
    ]
    return Reply({"metadata": metadata, "items": items})


def test_lists_are_read_page_by_page(edge: ScriptedApiServer, liqo: KubeLiqo) -> None:
    edge.on("GET", SLICES, page("a", "b", following="more"), page("c"))
    edge.on("GET", VIRTUAL_NODES, page("a"))
    edge.on("GET", NODES, page())
    objects = liqo.read()
    assert (list(objects.slices), list(objects.virtual_nodes), list(objects.nodes)) == (["a", "b", "c"], ["a"], [])
    assert [request.query for request in edge.seen(path=SLICES)] == [
        {"limit": "500"},
        {"limit": "500", "continue": "more"},
    ]
    assert edge.seen(path=NODES)[0].query["labelSelector"] == "liqo.io/type=virtual-node"


def test_slices_of_other_owners_keep_their_clusters_in_use(edge: ScriptedApiServer, liqo: KubeLiqo) -> None:
    edge.on("GET", SLICES, page("pool", "more", group="", following="1"), page("pool", group="", cluster="milan"))
    edge.on("GET", VIRTUAL_NODES, page("pool"))
    edge.on("GET", NODES, page())
    objects = liqo.read()
    assert (list(objects.slices), sorted(objects.lenders)) == ([], ["milan", "rome"])


def tenant(cluster: str) -> dict[str, object]:
    return {"metadata": {"name": f"of-{cluster}", "labels": {"liqo.io/remote-cluster-id": cluster}}}


def without_identity(cluster: str) -> dict[str, object]:
    status = foreign.status(foreign.Parts(secret=objects.kubeconfig_secret(cluster, f"of-{cluster}")))
    return {"metadata": {"name": cluster}, "spec": {"clusterID": cluster}, "status": status}


SECRETS = {
    "an administrator's": (Reply({"items": [{"metadata": {"name": "k"}}]}), {"rome": Tenancy("of-rome")}),
    "a Secret that Liqo created from an Identity": (
        Reply({"items": [{"metadata": {"name": "k", "ownerReferences": [{"kind": "Identity"}]}}]}),
        {},
    ),
    "none": (Reply({"items": None}), {}),
    "no permission": (
        Reply({}, 403),
        {
            "rome": Tenancy(
                "of-rome",
                "it has no Identity here, and its kubeconfig cannot be checked: list secrets: Forbidden (403)",
            )
        },
    ),
}


@pytest.mark.parametrize(("reply", "expected"), SECRETS.values(), ids=SECRETS)
def test_a_provider_without_an_identity_uses_an_administrators_kubeconfig(
    reply: Reply, expected: dict[str, Tenancy], edge: ScriptedApiServer, liqo: KubeLiqo
) -> None:
    """The ForeignCluster is the same after unpeering and without an Identity from the start; only Secrets differ."""
    edge.on("GET", "/api/v1/namespaces", Reply({"items": [tenant("rome")]}))
    edge.on("GET", FOREIGN_CLUSTERS, Reply({"items": [without_identity("rome"), without_identity("turin")]}))
    edge.on("GET", "/api/v1/namespaces/of-rome/secrets", reply)
    assert liqo.peerings() == expected
    [request] = edge.seen(path="/api/v1/namespaces/of-rome/secrets")
    assert request.headers["accept"].startswith("application/json;as=PartialObjectMetadataList;")
    selector = "liqo.io/identity-type=ControlPlane,liqo.io/remote-cluster-id=rome"
    assert request.query["labelSelector"] == selector


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply({}, 404), Permanent),
        (Reply({}, 403), Forbidden),
        (Reply({}, 503), Retryable),
        (Reply({"items": "none"}), Retryable),
        (Reply({"items": [{"metadata": {}}]}), Retryable),
    ],
)
def test_a_failed_list_is_an_error_and_not_an_empty_list(
    reply: Reply, kind: type[Exception], edge: ScriptedApiServer, liqo: KubeLiqo
) -> None:
    edge.on("GET", SLICES, reply)
    with pytest.raises(kind, match="list resourceslices"):
        liqo.read()


def test_a_slice_is_created_once(edge: ScriptedApiServer, liqo: KubeLiqo) -> None:
    edge.on("POST", OF_ROME, Reply({}, 201), Reply({}, 409), Reply({}, 404), Reply({}, 422))
    manifest = slice_manifest("rome-1", "rome", {"cpu": "2"}, {})
    liqo.make_slice("of-rome", manifest)
    liqo.make_slice("of-rome", manifest)
    assert edge.seen("POST")[0].body == manifest
    for _ in range(2):
        with pytest.raises(Permanent, match="create resourceslice of-rome/rome-1"):
            liqo.make_slice("of-rome", manifest)


def test_a_slice_is_deleted_by_uid_in_the_foreground(edge: ScriptedApiServer, liqo: KubeLiqo) -> None:
    edge.on("DELETE", f"{OF_ROME}/rome-1", Reply(), Reply({}, 404), Reply({}, 409), Reply({}, 500))
    liqo.delete_slice(PIECE)
    body = edge.seen("DELETE")[0].body
    assert (body["preconditions"], body["propagationPolicy"]) == ({"uid": "u-1"}, "Foreground")
    for kind in (NotFound, NotFound, Retryable):
        with pytest.raises(kind):
            liqo.delete_slice(PIECE)


def test_a_node_is_patched_at_its_observed_version(edge: ScriptedApiServer, liqo: KubeLiqo) -> None:
    edge.on("PATCH", f"{NODES}/rome-1", Reply(), Reply({}, 409))
    node = LiqoNode(metadata=ResourceMeta(name="rome-1", uid="u-2", resource_version="7"))
    liqo.mark_node(node, "liqo://rome-1", {"team": "a"})
    [request] = edge.seen("PATCH")
    assert request.headers["content-type"] == "application/merge-patch+json"
    assert request.body == {
        "metadata": {"uid": "u-2", "resourceVersion": "7", "labels": {"team": "a"}},
        "spec": {"providerID": "liqo://rome-1"},
    }
    with pytest.raises(Conflict):
        liqo.mark_node(node, "liqo://rome-1", {})
