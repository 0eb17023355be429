"""The cluster in which Liqo runs: what is read of it, and the three things that are changed."""

from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from rescheduler import shapes
from rescheduler.errors import Conflict, Forbidden, NotFound, Permanent, Retryable
from rescheduler.kube.client import JSON, MERGE_PATCH, Client
from rescheduler.liqo.nodemanager.foreign_clusters import (
    ForeignCluster,
    Namespace,
    Tenancy,
    tenancies,
    tenant_namespaces,
)
from rescheduler.liqo.nodemanager.resources import (
    CLUSTER_LABEL,
    TENANT_LABEL,
    VIRTUAL_NODE_LABEL,
    Meta,
    Node,
    ResourceSlice,
    Seen,
    Shape,
    VirtualNode,
    seen,
)

SLICES: Final = "/apis/authentication.liqo.io/v1beta1"
VIRTUAL_NODES: Final = "/apis/offloading.liqo.io/v1beta1/virtualnodes"
FOREIGN_CLUSTERS: Final = "/apis/core.liqo.io/v1beta1/foreignclusters"
_PAGE: Final = "500"
#: The label of the kubeconfig Secrets with which Liqo talks to the API servers of other clusters.
_CONTROL_PLANE: Final = "liqo.io/identity-type=ControlPlane"
_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

S = TypeVar("S", bound=Shape)


class Liqo(Protocol):
    """Raises what requests to the API server raise; see each verb for what means more than that."""

    def look(self) -> Seen: ...

    def peerings(self) -> Mapping[str, Tenancy]:
        """With the clusters that lend us resources, by cluster."""
        ...

    def make_slice(self, namespace: str, manifest: Mapping[str, Any]) -> None:
        """One that is there already, from a call whose answer was lost, will do."""
        ...

    def delete_slice(self, piece: ResourceSlice) -> None:
        """The very one that was seen, with all that came of it. NotFound where it has gone."""
        ...

    def mark_node(self, node: Node, provider_id: str, labels: Mapping[str, str]) -> None:
        """Conflict where the node is not as it was seen."""
        ...


class Metadata(Shape, frozen=True, kw_only=True):
    continue_: str = msgspec.field(default="", name="continue")


class Page(Shape, frozen=True, kw_only=True):
    items: list[msgspec.Raw] | None  #: null where a list of metadata is empty
    metadata: Metadata = Metadata()


class OwnedMeta(Meta, frozen=True, kw_only=True):
    owner_references: list[msgspec.Raw] = msgspec.field(default_factory=list)


class Owned(Shape, frozen=True, kw_only=True):
    """Any object's metadata, with its owners."""

    metadata: OwnedMeta


class KubeLiqo:
    """Over the API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def look(self) -> Seen:
        return seen(
            self._list(f"{SLICES}/resourceslices", ResourceSlice),
            self._list(VIRTUAL_NODES, VirtualNode),
            self._list("/api/v1/nodes", Node, f"{VIRTUAL_NODE_LABEL}=virtual-node"),
        )

    def peerings(self) -> Mapping[str, Tenancy]:
        namespaces = tenant_namespaces(self._list("/api/v1/namespaces", Namespace, f"{TENANT_LABEL}=true"))
        foreign = self._list(FOREIGN_CLUSTERS, ForeignCluster)
        unclear = [each.id for each in foreign if each.lacks_identity and each.id in namespaces]
        found = {each: self._kubeconfig(namespaces[each], each) for each in unclear}
        return tenancies(namespaces, foreign, {name: doubt for name, doubt in found.items() if doubt is not None})

    def make_slice(self, namespace: str, manifest: Mapping[str, Any]) -> None:
        act = f"create resourceslice {namespace}/{manifest['metadata']['name']}"
        try:
            self._client.request(act, "POST", f"{SLICES}/namespaces/{namespace}/resourceslices", body=manifest)
        except Conflict:
            return
        except NotFound as error:
            raise Permanent(str(error)) from error

    def delete_slice(self, piece: ResourceSlice) -> None:
        """In the foreground: the slice stays, as a record, until the VirtualNode that it owns has gone."""
        meta = piece.metadata
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": meta.uid},
            "propagationPolicy": "Foreground",
        }
        path = f"{SLICES}/namespaces/{meta.namespace}/resourceslices/{meta.name}"
        try:
            self._client.request(f"delete resourceslice {meta.namespace}/{meta.name}", "DELETE", path, body=body)
        except Conflict as error:  # another uid: ours has gone
            raise NotFound(str(error)) from error

    def mark_node(self, node: Node, provider_id: str, labels: Mapping[str, str]) -> None:
        meta = node.metadata
        own = {"uid": meta.uid, "resourceVersion": meta.resource_version, "labels": dict(labels)}
        body = {"metadata": own, "spec": {"providerID": provider_id}}
        self._client.request(
            f"patch node {meta.name}", "PATCH", f"/api/v1/nodes/{meta.name}", body=body, content_type=MERGE_PATCH
        )

    def _kubeconfig(self, namespace: str, cluster: str) -> str | None:
        """Whether somebody has put a kubeconfig for *cluster* there: empty if so, or why that cannot be said.

        One that Liqo made goes with its Identity and does not count. Only the metadata is read. The right to list
        Secrets is not among those of the shipped manifests.
        """
        selector = f"{_CONTROL_PLANE},{CLUSTER_LABEL}={cluster}"
        try:
            secrets = self._list(f"/api/v1/namespaces/{namespace}/secrets", Owned, selector, accept=_METADATA)
        except Forbidden as error:
            return f"it has no Identity here, and its kubeconfig cannot be looked for: {error}"
        return "" if any(not each.metadata.owner_references for each in secrets) else None

    def _list(self, path: str, shape: type[S], selector: str = "", accept: str = JSON) -> list[S]:
        found: list[S] = []
        following = ""
        plural = path.rpartition("/")[2]
        while True:
            query = {"limit": _PAGE, "labelSelector": selector, "continue": following}
            try:
                answer = self._client.request(
                    f"list {plural}",
                    "GET",
                    path,
                    query={key: text for key, text in query.items() if text},
                    accept=accept,
                )
            except NotFound as error:
                raise Permanent(f"{error}: expected Liqo 1.0 or later in the cluster") from error
            page = _decoded(answer.body, Page, plural)
            found += [_decoded(one, shape, plural) for one in page.items or ()]
            following = page.metadata.continue_
            if not following:
                return found


def _decoded(raw: bytes | msgspec.Raw, shape: type[S], plural: str) -> S:
    try:
        return shapes.decode(raw, shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Retryable(f"list {plural}: not what the API promises: {error}") from error
