"""The status of a ForeignCluster, as Liqo v1.2 derives it from the objects of a peering, without I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from devcluster.liqo import objects

Json = dict[str, Any]

_ROLES: Final = {(True, True): "ConsumerAndProvider", (True, False): "Consumer", (False, True): "Provider"}


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects of a peering with a cluster."""

    identity: Mapping[str, Any] | None = None  #: our credentials in the cluster: it is a provider
    tenant: Mapping[str, Any] | None = None  #: its permissions in our cluster: it is a consumer
    secret: Mapping[str, Any] | None = None  #: a kubeconfig for the cluster; v1.2 accepts one without an Identity
    virtual_nodes: bool = False


def status(parts: Parts) -> Json:
    """Return the status, without the condition of the API server check."""
    consumer = parts.tenant is not None
    provider = parts.identity is not None or parts.secret is not None
    offloading = {"OffloadingVirtualNodeStatus": "Ready", "OffloadingNodeStatus": "Ready"}
    document: Json = {
        "role": _ROLES.get((consumer, provider or parts.virtual_nodes), "Unknown"),
        "modules": {
            "networking": {"enabled": False},
            "authentication": _module(_authentication(parts), enabled=consumer or provider),
            "offloading": _module(offloading if parts.virtual_nodes else {}, enabled=parts.virtual_nodes),
        },
    }
    if parts.tenant is not None:
        document["tenantNamespace"] = {"local": parts.tenant["metadata"]["namespace"]}
    if parts.identity is not None:
        document["apiServerUrl"] = parts.identity["spec"]["authParams"]["apiServer"]
        document["tenantNamespace"] = {"local": parts.identity["metadata"]["namespace"]}
    elif parts.secret is not None:
        document["apiServerUrl"] = f"https://{parts.secret['metadata']['labels'][objects.CLUSTER_LABEL]}.example:6443"
    return document


def _authentication(parts: Parts) -> dict[str, str]:
    """Return the authentication conditions; a kubeconfig without an Identity has none."""
    conditions = {}
    if parts.tenant is not None:
        conditions["AuthTenantStatus"] = (
            "Ready" if parts.tenant.get("status", {}).get("tenantNamespace") else "NotReady"
        )
    if parts.identity is not None:
        ready = parts.identity.get("status", {}).get("kubeconfigSecretRef", {}).get("name")
        conditions["AuthIdentityControlPlaneStatus"] = "Ready" if ready else "NotReady"
    return conditions


def _module(conditions: Mapping[str, str], *, enabled: bool) -> Json:
    return {"enabled": enabled, "conditions": objects.conditions(conditions)} if conditions else {"enabled": enabled}
