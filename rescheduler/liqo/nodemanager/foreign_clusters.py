"""Which clusters lend us resources, by what Liqo's ForeignClusters and tenant namespaces say. No I/O.

Source: ``core.liqo.io/v1beta1`` and the controller that writes its status, Liqo v1.0 to v1.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from rescheduler.liqo.nodemanager.resources import CLUSTER_LABEL, Condition, Meta, Shape

#: In the status of the module authentication: whether our Identity at the cluster has its kubeconfig.
IDENTITY: Final = "AuthIdentityControlPlaneStatus"
#: In the status: what became of the last request to the cluster's API server.
API_SERVER: Final = "APIServerStatus"

_PROVIDERS: Final = frozenset({"Provider", "ConsumerAndProvider"})


class Module(Shape, frozen=True, kw_only=True):
    enabled: bool = False
    conditions: list[Condition] = msgspec.field(default_factory=list)


class Modules(Shape, frozen=True, kw_only=True):
    authentication: Module = Module()


class ForeignClusterStatus(Shape, frozen=True, kw_only=True):
    role: str = ""
    modules: Modules = Modules()
    conditions: list[Condition] = msgspec.field(default_factory=list)


class ForeignClusterSpec(Shape, frozen=True, kw_only=True):
    cluster_id: str = msgspec.field(default="", name="clusterID")


class ForeignCluster(Shape, frozen=True, kw_only=True):
    metadata: Meta
    spec: ForeignClusterSpec = ForeignClusterSpec()
    status: ForeignClusterStatus = ForeignClusterStatus()

    @property
    def id(self) -> str:
        return self.spec.cluster_id or self.metadata.name

    @property
    def identity(self) -> str:
        """Status of our Identity there; empty: there is none."""
        return _status(self.status.modules.authentication.conditions, IDENTITY)

    @property
    def lacks_identity(self) -> bool:
        """Whether it is called a provider without an Identity of ours.

        Since v1.2 a kubeconfig Secret is enough for that. The same status is left, for hours, by a peering that was
        ended: only the Secret itself tells them apart.
        """
        status = self.status
        return not self.identity and status.modules.authentication.enabled and status.role in _PROVIDERS

    @property
    def reachable(self) -> bool:
        return _status(self.status.conditions, API_SERVER) != "Error"


class Namespace(Shape, frozen=True, kw_only=True):
    metadata: Meta


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Our side of a peering with a cluster that lends us resources."""

    namespace: str  #: for the slices
    obstacle: str = ""  #: why no slice is asked for at present


def tenant_namespaces(namespaces: Sequence[Namespace]) -> dict[str, str]:
    """By cluster. A name is whatever its maker liked, so they are found by their labels."""
    return {
        cluster: each.metadata.name
        for each in namespaces
        if each.metadata.deletion_timestamp is None and (cluster := each.metadata.labels.get(CLUSTER_LABEL, ""))
    }


def tenancies(
    namespaces: Mapping[str, str], foreign: Sequence[ForeignCluster], kubeconfigs: Mapping[str, str]
) -> dict[str, Tenancy]:
    """By cluster: those that have given us credentials for their API server, and whose tenant namespace is here.

    That the module authentication is enabled does not say so: it is for mere consumers of ours, too, and may stay
    when a peering has ended. *kubeconfigs*: the clusters without an Identity that there is a kubeconfig Secret for, or
    the reason why that is not known.
    """
    return {
        each.id: Tenancy(namespaces[each.id], _obstacle(each, kubeconfigs))
        for each in foreign
        if each.id in namespaces and (each.identity == "Ready" or (each.lacks_identity and each.id in kubeconfigs))
    }


def _obstacle(cluster: ForeignCluster, kubeconfigs: Mapping[str, str]) -> str:
    if not cluster.reachable:
        return "its API server cannot be reached"
    return kubeconfigs.get(cluster.id, "") if cluster.lacks_identity else ""


def _status(conditions: Sequence[Condition], kind: str) -> str:
    return next((each.status for each in conditions if each.type == kind), "")
