"""The parts of Liqo's custom resources and of virtual Nodes that are used, and the clusters that they describe.
No I/O.

Source: Liqo's API types, ``authentication.liqo.io/v1beta1`` and ``offloading.liqo.io/v1beta1``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

#: Label of slices and Nodes: their group.
GROUP_LABEL: Final = "spot-rescheduler/node-group"
#: Label of slices, VirtualNodes, Nodes and tenant namespaces: their cluster.
CLUSTER_LABEL: Final = "liqo.io/remote-cluster-id"
TENANT_LABEL: Final = "liqo.io/tenant-namespace"
VIRTUAL_NODE_LABEL: Final = "liqo.io/type"
#: Label of slices: ``true`` on the original, which is replicated to the provider, and ``false`` on the replica.
REPLICATION_LABEL: Final = "liqo.io/replication"

#: The class of slices that Liqo's own controller grants.
DEFAULT_CLASS: Final = "default"

DENIED: Final = "Denied"
#: The reason of a provider that has switched the default class off, from v1.3 on
#: (``authentication/remoteresourceslice-controller``).
CLASS_DISABLED: Final = "DefaultResourceSliceClassDisabled"
DRAINING: Final = "Draining"
DELETING: Final = "Deleting"


class LiqoResource(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The base class of resources; unknown fields are ignored."""


class ResourceMeta(LiqoResource, frozen=True, kw_only=True):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class ResourceCondition(LiqoResource, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class SliceSpec(LiqoResource, frozen=True, kw_only=True):
    resources: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    provider: str = msgspec.field(default="", name="providerClusterID")


class SliceStatus(LiqoResource, frozen=True, kw_only=True):
    conditions: list[ResourceCondition] = msgspec.field(default_factory=list)
    resources: dict[str, str | int | float] = msgspec.field(default_factory=dict)


class ResourceSlice(LiqoResource, frozen=True, kw_only=True):
    metadata: ResourceMeta
    spec: SliceSpec = SliceSpec()
    status: SliceStatus = SliceStatus()

    @property
    def cluster(self) -> str:
        return self.spec.provider or self.metadata.labels.get(CLUSTER_LABEL, "")

    @property
    def local(self) -> bool:
        """Whether this cluster is the consumer. Only this label distinguishes a replica from its original."""
        return self.metadata.labels.get(REPLICATION_LABEL) == "true"

    @property
    def denied(self) -> ResourceCondition | None:
        return next((condition for condition in self.status.conditions if condition.status == DENIED), None)


class VirtualNodeStatus(LiqoResource, frozen=True, kw_only=True):
    conditions: list[ResourceCondition] = msgspec.field(default_factory=list)


class VirtualNode(LiqoResource, frozen=True, kw_only=True):
    metadata: ResourceMeta
    status: VirtualNodeStatus = VirtualNodeStatus()

    @property
    def ending(self) -> bool:
        leaving = any(condition.status in {DRAINING, DELETING} for condition in self.status.conditions)
        return leaving or self.metadata.deletion_timestamp is not None


class LiqoNodeSpec(LiqoResource, frozen=True, kw_only=True):
    provider_id: str = msgspec.field(default="", name="providerID")


class LiqoNodeStatus(LiqoResource, frozen=True, kw_only=True):
    conditions: list[ResourceCondition] = msgspec.field(default_factory=list)


class LiqoNode(LiqoResource, frozen=True, kw_only=True):
    metadata: ResourceMeta
    spec: LiqoNodeSpec = LiqoNodeSpec()
    status: LiqoNodeStatus = LiqoNodeStatus()

    @property
    def ready(self) -> bool:
        return any((condition.type, condition.status) == ("Ready", "True") for condition in self.status.conditions)


@dataclass(frozen=True, slots=True)
class LiqoObjects:
    """The state of the cluster at one time, by name."""

    slices: Mapping[str, ResourceSlice] = field(default_factory=dict)  #: local slices that have a group
    virtual_nodes: Mapping[str, VirtualNode] = field(default_factory=dict)
    nodes: Mapping[str, LiqoNode] = field(default_factory=dict)  #: virtual ones
    lenders: frozenset[str] = frozenset()  #: the clusters of all local slices, including those without a group


def index_objects(
    slices: Sequence[ResourceSlice], virtual_nodes: Sequence[VirtualNode], nodes: Sequence[LiqoNode]
) -> LiqoObjects:
    """Index the objects by name. The names of our slices are unique; the names of other slices may not be."""
    local = [resource_slice for resource_slice in slices if resource_slice.local]
    return LiqoObjects(
        slices={
            resource_slice.metadata.name: resource_slice
            for resource_slice in local
            if GROUP_LABEL in resource_slice.metadata.labels
        },
        virtual_nodes={virtual.metadata.name: virtual for virtual in virtual_nodes},
        nodes={node.metadata.name: node for node in nodes},
        lenders=frozenset(resource_slice.cluster for resource_slice in local),
    )


def slice_manifest(
    name: str, cluster: str, resources: Mapping[str, str], labels: Mapping[str, str], slice_class: str = DEFAULT_CLASS
) -> dict[str, Any]:
    """Return a ResourceSlice with which Liqo requests *resources* from *cluster* and creates a VirtualNode."""
    return {
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": name,
            "labels": {
                CLUSTER_LABEL: cluster,
                "liqo.io/remoteID": cluster,
                REPLICATION_LABEL: "true",
                **labels,
            },
            "annotations": {"liqo.io/create-virtual-node": "true"},
        },
        "spec": {"class": slice_class, "providerClusterID": cluster, "resources": dict(resources)},
    }


# The clusters that share resources with us, according to ForeignClusters and tenant namespaces. No I/O.
#
# Source: ``core.liqo.io/v1beta1`` and the controller that writes its status, Liqo v1.0 to v1.2.

#: In the status of the module authentication: whether our Identity for the cluster has its kubeconfig.
IDENTITY: Final = "AuthIdentityControlPlaneStatus"
#: In the status: the result of the last request to the cluster's API server.
API_SERVER: Final = "APIServerStatus"

_PROVIDERS: Final = frozenset({"Provider", "ConsumerAndProvider"})


class Module(LiqoResource, frozen=True, kw_only=True):
    enabled: bool = False
    conditions: list[ResourceCondition] = msgspec.field(default_factory=list)


class Modules(LiqoResource, frozen=True, kw_only=True):
    authentication: Module = Module()


class ForeignClusterStatus(LiqoResource, frozen=True, kw_only=True):
    role: str = ""
    modules: Modules = Modules()
    conditions: list[ResourceCondition] = msgspec.field(default_factory=list)


class ForeignClusterSpec(LiqoResource, frozen=True, kw_only=True):
    cluster_id: str = msgspec.field(default="", name="clusterID")


class ForeignCluster(LiqoResource, frozen=True, kw_only=True):
    metadata: ResourceMeta
    spec: ForeignClusterSpec = ForeignClusterSpec()
    status: ForeignClusterStatus = ForeignClusterStatus()

    @property
    def id(self) -> str:
        return self.spec.cluster_id or self.metadata.name

    @property
    def identity(self) -> str:
        """The status of our Identity for this cluster; "" if there is none."""
        return _status(self.status.modules.authentication.conditions, IDENTITY)

    @property
    def lacks_identity(self) -> bool:
        """Whether the status shows a provider although there is no Identity for the cluster.

        Since v1.2, a kubeconfig Secret is sufficient for that. The same status remains, for hours, after a peering was
        ended: only the Secret itself distinguishes the two.
        """
        status = self.status
        return not self.identity and status.modules.authentication.enabled and status.role in _PROVIDERS

    @property
    def reachable(self) -> bool:
        return _status(self.status.conditions, API_SERVER) != "Error"


class TenantNamespace(LiqoResource, frozen=True, kw_only=True):
    metadata: ResourceMeta


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Our side of a peering with a cluster that shares resources with us."""

    namespace: str  #: namespace of the slices
    obstacle: str = ""  #: why no slice is currently requested


def tenant_namespaces(namespaces: Sequence[TenantNamespace]) -> dict[str, str]:
    """Return the tenant namespaces by cluster. Labels identify them, because their names are arbitrary."""
    return {
        cluster: namespace.metadata.name
        for namespace in namespaces
        if namespace.metadata.deletion_timestamp is None
        and (cluster := namespace.metadata.labels.get(CLUSTER_LABEL, ""))
    }


def tenancies(
    namespaces: Mapping[str, str], foreign: Sequence[ForeignCluster], kubeconfigs: Mapping[str, str]
) -> dict[str, Tenancy]:
    """Return, by cluster, the tenancies that have credentials for its API server and a tenant namespace here.

    An enabled authentication module is not sufficient: it is also enabled for our consumers, and may stay so after a
    peering has ended. *kubeconfigs* contains the clusters without an Identity: the value is "" if the cluster has a
    kubeconfig Secret, or the reason why that is unknown.
    """
    return {
        cluster.id: Tenancy(namespaces[cluster.id], _obstacle(cluster, kubeconfigs))
        for cluster in foreign
        if cluster.id in namespaces
        and (cluster.identity == "Ready" or (cluster.lacks_identity and cluster.id in kubeconfigs))
    }


def _obstacle(cluster: ForeignCluster, kubeconfigs: Mapping[str, str]) -> str:
    if not cluster.reachable:
        return "its API server is unreachable"
    return kubeconfigs.get(cluster.id, "") if cluster.lacks_identity else ""


def _status(conditions: Sequence[ResourceCondition], kind: str) -> str:
    return next((condition.status for condition in conditions if condition.type == kind), "")
