"""What is asked of the API server, and what its answers mean."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.liqo import foreign, objects
from rescheduler.clock import SystemClock
from rescheduler.errors import Conflict, Forbidden, NotFound, Permanent, Retryable
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from rescheduler.liqo.nodemanager.cluster import FOREIGN_CLUSTERS, KubeLiqo
from rescheduler.liqo.nodemanager.foreign_clusters import Tenancy
from rescheduler.liqo.nodemanager.resources import GROUP_LABEL, Meta, Node, ResourceSlice, slice_manifest
from tests.kube.conftest import kubeconfig
from tests.kube.edge import Edge, Reply, serving

SLICES = "/apis/authentication.liqo.io/v1beta1/resourceslices"
OF_ROME = "/apis/authentication.liqo.io/v1beta1/namespaces/of-rome/resourceslices"
VIRTUAL_NODES = "/apis/offloading.liqo.io/v1beta1/virtualnodes"
NODES = "/api/v1/nodes"
PIECE = ResourceSlice(metadata=Meta(name="rome-1", namespace="of-rome", uid="u-1"))


@pytest.fixture
def edge() -> Iterator[Edge]:
    with serving() as one:
        yield one


@pytest.fixture
def liqo(edge: Edge, tmp_path: Path) -> KubeLiqo:
    return KubeLiqo(Client(Kubeconfig(str(kubeconfig(tmp_path, edge.url))), SystemClock()))


def page(*names: str, following: str = "", group: str = "G", cluster: str = "rome") -> Reply:
    metadata = {"continue": following} if following else {}
    labels = {"liqo.io/replication": "true", **({GROUP_LABEL: group} if group else {})}
    items = [
        {"metadata": {"name": name, "namespace": cluster, "labels": labels}, "spec": {"providerClusterID": cluster}}
        for name in names
    ]
    return Reply({"metadata": metadata, "items": items})


def test_lists_are_read_page_by_page(edge: Edge, liqo: KubeLiqo) -> None:
    edge.on("GET", SLICES, page("a", "b", following="more"), page("c"))
    edge.on("GET", VIRTUAL_NODES, page("a"))
    edge.on("GET", NODES, page())
    seen = liqo.look()
    assert (list(seen.slices), list(seen.virtual_nodes), list(seen.nodes)) == (["a", "b", "c"], ["a"], [])
    assert [one.query for one in edge.seen(path=SLICES)] == [{"limit": "500"}, {"limit": "500", "continue": "more"}]
    assert edge.seen(path=NODES)[0].query["labelSelector"] == "liqo.io/type=virtual-node"


def test_slices_of_others_keep_their_clusters_in_use(edge: Edge, liqo: KubeLiqo) -> None:
    edge.on("GET", SLICES, page("pool", "more", group="", following="1"), page("pool", group="", cluster="milan"))
    edge.on("GET", VIRTUAL_NODES, page("pool"))
    edge.on("GET", NODES, page())
    seen = liqo.look()
    assert (list(seen.slices), sorted(seen.lenders)) == ([], ["milan", "rome"])


def tenant(cluster: str) -> dict[str, object]:
    return {"metadata": {"name": f"of-{cluster}", "labels": {"liqo.io/remote-cluster-id": cluster}}}


def without_identity(cluster: str) -> dict[str, object]:
    status = foreign.status(foreign.Parts(secret=objects.kubeconfig_secret(cluster, f"of-{cluster}")))
    return {"metadata": {"name": cluster}, "spec": {"clusterID": cluster}, "status": status}


SECRETS = {
    "an administrator's": (Reply({"items": [{"metadata": {"name": "k"}}]}), {"rome": Tenancy("of-rome")}),
    "one that Liqo made of an Identity": (
        Reply({"items": [{"metadata": {"name": "k", "ownerReferences": [{"kind": "Identity"}]}}]}),
        {},
    ),
    "none": (Reply({"items": None}), {}),
    "one that we may not see": (
        Reply({}, 403),
        {
            "rome": Tenancy(
                "of-rome",
                "it has no Identity here, and its kubeconfig cannot be looked for: list secrets: Forbidden (403)",
            )
        },
    ),
}


@pytest.mark.parametrize(("reply", "expected"), SECRETS.values(), ids=SECRETS)
def test_a_provider_without_an_identity_has_a_kubeconfig_of_an_administrators(
    reply: Reply, expected: dict[str, Tenancy], edge: Edge, liqo: KubeLiqo
) -> None:
    """After unpeering, and without an Identity from the start, the ForeignCluster says the same. Only Secrets tell."""
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
def test_what_cannot_be_listed_is_an_error_and_not_nothing(
    reply: Reply, kind: type[Exception], edge: Edge, liqo: KubeLiqo
) -> None:
    edge.on("GET", SLICES, reply)
    with pytest.raises(kind, match="list resourceslices"):
        liqo.look()


def test_a_slice_is_made_once(edge: Edge, liqo: KubeLiqo) -> None:
    edge.on("POST", OF_ROME, Reply({}, 201), Reply({}, 409), Reply({}, 404), Reply({}, 422))
    manifest = slice_manifest("rome-1", "rome", {"cpu": "2"}, {})
    liqo.make_slice("of-rome", manifest)
    liqo.make_slice("of-rome", manifest)
    assert edge.seen("POST")[0].body == manifest
    for _ in range(2):
        with pytest.raises(Permanent, match="create resourceslice of-rome/rome-1"):
            liqo.make_slice("of-rome", manifest)


def test_the_very_slice_is_deleted_in_the_foreground(edge: Edge, liqo: KubeLiqo) -> None:
    edge.on("DELETE", f"{OF_ROME}/rome-1", Reply(), Reply({}, 404), Reply({}, 409), Reply({}, 500))
    liqo.delete_slice(PIECE)
    body = edge.seen("DELETE")[0].body
    assert (body["preconditions"], body["propagationPolicy"]) == ({"uid": "u-1"}, "Foreground")
    for kind in (NotFound, NotFound, Retryable):
        with pytest.raises(kind):
            liqo.delete_slice(PIECE)


def test_a_node_is_marked_as_it_was_seen(edge: Edge, liqo: KubeLiqo) -> None:
    edge.on("PATCH", f"{NODES}/rome-1", Reply(), Reply({}, 409))
    node = Node(metadata=Meta(name="rome-1", uid="u-2", resource_version="7"))
    liqo.mark_node(node, "liqo://rome-1", {"team": "a"})
    [request] = edge.seen("PATCH")
    assert request.headers["content-type"] == "application/merge-patch+json"
    assert request.body == {
        "metadata": {"uid": "u-2", "resourceVersion": "7", "labels": {"team": "a"}},
        "spec": {"providerID": "liqo://rome-1"},
    }
    with pytest.raises(Conflict):
        liqo.mark_node(node, "liqo://rome-1", {})
