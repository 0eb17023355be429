"""The clusters that share resources with us, according to ForeignClusters and tenant namespaces. No I/O.

Source: ``core.liqo.io/v1beta1`` and the controller that writes its status, Liqo v1.0 to v1.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from rescheduler.liqo_services.node_manager.resources import (
    CLUSTER_LABEL,
    LiqoResource,
    ResourceCondition,
    ResourceMeta,
)

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
