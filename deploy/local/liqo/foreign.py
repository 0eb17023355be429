"""The status of a ForeignCluster, as Liqo v1.2 derives it from what the peering has left in the cluster. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from deploy.local.liqo import objects

Json = dict[str, Any]

_ROLES: Final = {(True, True): "ConsumerAndProvider", (True, False): "Consumer", (False, True): "Provider"}


@dataclass(frozen=True, slots=True)
class Parts:
    """What there is of one cluster."""

    identity: Mapping[str, Any] | None = None  #: our credentials there: it is a provider
    tenant: Mapping[str, Any] | None = None  #: its rights here: it is a consumer
    secret: Mapping[str, Any] | None = None  #: a kubeconfig for it; v1.2 takes one without an Identity, too
    virtual_nodes: bool = False


def status(parts: Parts) -> Json:
    """Without what the check of its API server adds."""
    consumer = parts.tenant is not None
    provider = parts.identity is not None or parts.secret is not None
    offloading = {"OffloadingVirtualNodeStatus": "Ready", "OffloadingNodeStatus": "Ready"}
    made: Json = {
        "role": _ROLES.get((consumer, provider or parts.virtual_nodes), "Unknown"),
        "modules": {
            "networking": {"enabled": False},
            "authentication": _module(_authentication(parts), enabled=consumer or provider),
            "offloading": _module(offloading if parts.virtual_nodes else {}, enabled=parts.virtual_nodes),
        },
    }
    if parts.tenant is not None:
        made["tenantNamespace"] = {"local": parts.tenant["metadata"]["namespace"]}
    if parts.identity is not None:
        made["apiServerUrl"] = parts.identity["spec"]["authParams"]["apiServer"]
        made["tenantNamespace"] = {"local": parts.identity["metadata"]["namespace"]}
    elif parts.secret is not None:
        made["apiServerUrl"] = f"https://{parts.secret['metadata']['labels'][objects.CLUSTER_LABEL]}.example:6443"
    return made


def _authentication(parts: Parts) -> dict[str, str]:
    """A kubeconfig without an Identity has no condition."""
    made = {}
    if parts.tenant is not None:
        made["AuthTenantStatus"] = "Ready" if parts.tenant.get("status", {}).get("tenantNamespace") else "NotReady"
    if parts.identity is not None:
        ready = parts.identity.get("status", {}).get("kubeconfigSecretRef", {}).get("name")
        made["AuthIdentityControlPlaneStatus"] = "Ready" if ready else "NotReady"
    return made


def _module(conditions: Mapping[str, str], *, enabled: bool) -> Json:
    return {"enabled": enabled, "conditions": objects.conditions(conditions)} if conditions else {"enabled": enabled}
