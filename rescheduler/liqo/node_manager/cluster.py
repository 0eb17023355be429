"""Access to the cluster in which Liqo runs: reads of its state, and three kinds of changes."""

from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from rescheduler import decoding
from rescheduler.errors import Conflict, Forbidden, NotFound, Permanent, Retryable
from rescheduler.kube.client import JSON, MERGE_PATCH, Client
from rescheduler.liqo.node_manager.resources import (
    CLUSTER_LABEL,
    TENANT_LABEL,
    VIRTUAL_NODE_LABEL,
    ForeignCluster,
    LiqoNode,
    LiqoObjects,
    LiqoResource,
    ResourceMeta,
    ResourceSlice,
    Tenancy,
    TenantNamespace,
    VirtualNode,
    index_objects,
    tenancies,
    tenant_namespaces,
)

SLICES: Final = "/apis/authentication.liqo.io/v1beta1"
VIRTUAL_NODES: Final = "/apis/offloading.liqo.io/v1beta1/virtualnodes"
FOREIGN_CLUSTERS: Final = "/apis/core.liqo.io/v1beta1/foreignclusters"
_PAGE: Final = "500"
#: The label of the kubeconfig Secrets with which Liqo accesses the API servers of other clusters.
_CONTROL_PLANE: Final = "liqo.io/identity-type=ControlPlane"
_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

S = TypeVar("S", bound=LiqoResource)


class LiqoCluster(Protocol):
    """A cluster with Liqo. Verbs raise the errors of API requests; further errors are documented per verb."""

    def read(self) -> LiqoObjects: ...

    def peerings(self) -> Mapping[str, Tenancy]:
        """Return our tenancies, by the cluster that shares resources with us."""
        ...

    def make_slice(self, namespace: str, manifest: Mapping[str, Any]) -> None:
        """Create a slice. An existing slice, from a call whose response was lost, is accepted."""
        ...

    def delete_slice(self, resource_slice: ResourceSlice) -> None:
        """Delete exactly this slice and the objects that depend on it. Raises NotFound if it is gone."""
        ...

    def mark_node(self, node: LiqoNode, provider_id: str, labels: Mapping[str, str]) -> None:
        """Set the provider ID and labels of a Node. Raises Conflict if the Node has changed."""
        ...


class ResourceListMeta(LiqoResource, frozen=True, kw_only=True):
    continue_: str = msgspec.field(default="", name="continue")


class ResourcePage(LiqoResource, frozen=True, kw_only=True):
    items: list[msgspec.Raw] | None  #: null if a list of metadata is empty
    metadata: ResourceListMeta = ResourceListMeta()


class OwnedMeta(ResourceMeta, frozen=True, kw_only=True):
    owner_references: list[msgspec.Raw] = msgspec.field(default_factory=list)


class OwnedObject(LiqoResource, frozen=True, kw_only=True):
    """Any object's metadata, with its owners."""

    metadata: OwnedMeta


class KubeLiqo:
    """Access through the API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def read(self) -> LiqoObjects:
        return index_objects(
            self._list(f"{SLICES}/resourceslices", ResourceSlice),
            self._list(VIRTUAL_NODES, VirtualNode),
            self._list("/api/v1/nodes", LiqoNode, f"{VIRTUAL_NODE_LABEL}=virtual-node"),
        )

    def peerings(self) -> Mapping[str, Tenancy]:
        namespaces = tenant_namespaces(self._list("/api/v1/namespaces", TenantNamespace, f"{TENANT_LABEL}=true"))
        foreign = self._list(FOREIGN_CLUSTERS, ForeignCluster)
        unclear = [cluster.id for cluster in foreign if cluster.lacks_identity and cluster.id in namespaces]
        doubts = {cluster: self._kubeconfig(namespaces[cluster], cluster) for cluster in unclear}
        return tenancies(namespaces, foreign, {name: doubt for name, doubt in doubts.items() if doubt is not None})

    def make_slice(self, namespace: str, manifest: Mapping[str, Any]) -> None:
        act = f"create resourceslice {namespace}/{manifest['metadata']['name']}"
        try:
            self._client.request(act, "POST", f"{SLICES}/namespaces/{namespace}/resourceslices", body=manifest)
        except Conflict:
            return
        except NotFound as error:
            raise Permanent(str(error)) from error

    def delete_slice(self, resource_slice: ResourceSlice) -> None:
        """Delete in the foreground, so that the slice exists until the VirtualNode that it owns is gone."""
        meta = resource_slice.metadata
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": meta.uid},
            "propagationPolicy": "Foreground",
        }
        path = f"{SLICES}/namespaces/{meta.namespace}/resourceslices/{meta.name}"
        try:
            self._client.request(f"delete resourceslice {meta.namespace}/{meta.name}", "DELETE", path, body=body)
        except Conflict as error:  # the slice has another UID: our slice is gone
            raise NotFound(str(error)) from error

    def mark_node(self, node: LiqoNode, provider_id: str, labels: Mapping[str, str]) -> None:
        meta = node.metadata
        own = {"uid": meta.uid, "resourceVersion": meta.resource_version, "labels": dict(labels)}
        body = {"metadata": own, "spec": {"providerID": provider_id}}
        self._client.request(
            f"patch node {meta.name}", "PATCH", f"/api/v1/nodes/{meta.name}", body=body, content_type=MERGE_PATCH
        )

    def _kubeconfig(self, namespace: str, cluster: str) -> str | None:
        """Return "" if a user created a kubeconfig Secret for *cluster*, `None` if not, or why that is unknown.

        Secrets created by Liqo have their Identity as owner and do not count. Only metadata is read. The shipped
        manifests do not grant the permission to list Secrets.
        """
        selector = f"{_CONTROL_PLANE},{CLUSTER_LABEL}={cluster}"
        try:
            secrets = self._list(f"/api/v1/namespaces/{namespace}/secrets", OwnedObject, selector, accept=_METADATA)
        except Forbidden as error:
            return f"it has no Identity here, and its kubeconfig cannot be checked: {error}"
        return "" if any(not secret.metadata.owner_references for secret in secrets) else None

    def _list(self, path: str, shape: type[S], selector: str = "", accept: str = JSON) -> list[S]:
        objects: list[S] = []
        following = ""
        plural = path.rpartition("/")[2]
        while True:
            query = {"limit": _PAGE, "labelSelector": selector, "continue": following}
            try:
                response = self._client.request(
                    f"list {plural}",
                    "GET",
                    path,
                    query={key: text for key, text in query.items() if text},
                    accept=accept,
                )
            except NotFound as error:
                raise Permanent(f"{error}: expected Liqo 1.0 or later in the cluster") from error
            page = _decoded(response.body, ResourcePage, plural)
            objects += [_decoded(item, shape, plural) for item in page.items or ()]
            following = page.metadata.continue_
            if not following:
                return objects


def _decoded(raw: bytes | msgspec.Raw, shape: type[S], plural: str) -> S:
    try:
        return decoding.decode(raw, shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Retryable(f"list {plural}: the response does not match the API: {error}") from error
