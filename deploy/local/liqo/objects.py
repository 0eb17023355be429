"""The objects that Liqo v1.2 makes, as manifests. Names, labels and defaults are Liqo's own."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from deploy.local import manifests

Json = dict[str, Any]

CRDS: Final = Path(__file__).with_name("crds.yaml")
HOME: Final = "home"  #: the ID of the cluster that the stand-in runs in
NAMESPACE: Final = "liqo"
CLUSTER_LABEL: Final = "liqo.io/remote-cluster-id"
REPLICATION_LABEL: Final = "liqo.io/replication"
CONTROL_PLANE: Final = {"liqo.io/identity-type": "ControlPlane"}
VIRTUAL_KUBELET: Final = {"offloading.liqo.io/component": "virtual-kubelet"}
FINALIZER: Final = "virtualnode-controller.liqo.io/finalizer"
REPLICATOR_FINALIZER: Final = "crdreplicator.liqo.io/resource"
TAINT: Final = {"key": "virtual-node.liqo.io/not-allowed", "value": "true", "effect": "NoExecute"}
#: What a pod needs that is to run on a virtual node; Liqo adds it where a namespace is offloaded.
TOLERATION: Final = {"key": TAINT["key"], "operator": "Exists"}
#: What a provider grants of each resource that a slice does not ask for: Liqo's ``defaultNodeResources``.
DEFAULT_RESOURCES: Final = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "20Gi"}


def definitions() -> list[Json]:
    return list(yaml.safe_load_all(CRDS.read_text(encoding="utf-8")))


def installation() -> list[Json]:
    """What an installed Liqo says of its own cluster."""
    labels = {"app.kubernetes.io/name": "clusterid-configmap"}
    metadata = {"name": "liqo-clusterid-configmap", "namespace": NAMESPACE, "labels": labels}
    identity = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"CLUSTER_ID": HOME}}
    return [manifests.namespace(NAMESPACE), identity]


def peering(cluster: str, namespace: str = "") -> list[Json]:
    """What liqoctl makes of a peering with the provider *cluster*; Liqo's controllers do the rest."""
    return [tenant_namespace(cluster, namespace), identity(cluster, namespace)]


def tenant_namespace(cluster: str, namespace: str = "") -> Json:
    labels = {CLUSTER_LABEL: cluster, "liqo.io/tenant-namespace": "true"}
    return manifests.namespace(namespace or tenant_name(cluster), labels=labels)


def tenant_name(cluster: str) -> str:
    return f"liqo-tenant-{cluster}"


def identity(cluster: str, namespace: str = "") -> Json:
    """Our credentials for the API server of *cluster*."""
    name = f"controlplane-{cluster}"
    labels = {CLUSTER_LABEL: cluster}
    return {
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "Identity",
        "metadata": {"name": name, "namespace": namespace or tenant_name(cluster), "labels": labels},
        "spec": {
            "clusterID": cluster,
            "type": "ControlPlane",
            "authParams": {"apiServer": f"https://{cluster}.example:6443"},
            "namespace": tenant_name(HOME),
        },
    }


def kubeconfig_secret(cluster: str, namespace: str, owner: Mapping[str, Any] | None = None) -> Json:
    """The kubeconfig for *cluster*: made of an Identity, its *owner*, or by an administrator."""
    labels = {CLUSTER_LABEL: cluster, **CONTROL_PLANE}
    metadata: Json = {"name": f"kubeconfig-controlplane-{cluster}", "namespace": namespace, "labels": labels}
    if owner is not None:
        metadata["ownerReferences"] = [owner_reference(owner)]
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"kubeconfig": "{}"}}


def tenant(cluster: str) -> Json:
    """What the consumer *cluster* is here."""
    labels = {CLUSTER_LABEL: cluster}
    return {
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "Tenant",
        "metadata": {"name": cluster, "namespace": tenant_name(cluster), "labels": labels},
        "spec": {"clusterID": cluster, "tenantCondition": "Active"},
        "status": {"tenantNamespace": tenant_name(cluster)},
    }


def replicated(name: str, consumer: str, labels: Mapping[str, str], resources: Mapping[str, str]) -> Json:
    """A slice that *consumer* asks of us, as its replicator writes it here: with all labels that it has there."""
    return {
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": name,
            "namespace": tenant_name(consumer),
            "labels": {
                **labels,
                CLUSTER_LABEL: consumer,
                REPLICATION_LABEL: "false",
                "liqo.io/remoteID": HOME,
                "liqo.io/originID": consumer,
                "liqo.io/replicated": "true",
            },
            "annotations": {"liqo.io/create-virtual-node": "true"},
        },
        "spec": {
            "class": "default",
            "consumerClusterID": consumer,
            "providerClusterID": HOME,
            "csr": "Y3Ny",
            "resources": dict(resources),
        },
    }


def conditions(pairs: Mapping[str, str], **words: str) -> list[Json]:
    """By type and status; *words* are the reason and the message of all."""
    return [
        {"type": kind, "status": status, "reason": words.get("reason", status), "message": words.get("message", "")}
        for kind, status in pairs.items()
    ]


def slice_conditions(pairs: Mapping[str, str]) -> list[Json]:
    """With the words of Liqo's provider."""
    return [
        {
            "type": kind,
            "status": status,
            "reason": f"ResourceSlice{kind}{status}",
            "message": f"ResourceSlice {kind.lower()} {status.lower()}",
        }
        for kind, status in pairs.items()
    ]


def owner_reference(owner: Mapping[str, Any]) -> Json:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def virtual_node(piece: Mapping[str, Any]) -> Json:
    """Of a slice that was accepted, and owned by it: it has what was granted."""
    metadata, cluster = piece["metadata"], piece["metadata"]["labels"][CLUSTER_LABEL]
    return {
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "VirtualNode",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {CLUSTER_LABEL: cluster, "liqo.io/resourceslice-name": metadata["name"]},
            "ownerReferences": [owner_reference(piece)],
            "finalizers": [FINALIZER],
        },
        "spec": {
            "clusterID": cluster,
            "createNode": True,
            "labels": dict(piece["status"].get("nodeLabels", {})),
            "resourceQuota": {"hard": dict(piece["status"]["resources"])},
        },
    }


def virtual_kubelet(virtual: Mapping[str, Any]) -> Json:
    """The Deployment of the process that plays the kubelet of the virtual node."""
    name, cluster = virtual["metadata"]["name"], virtual["spec"]["clusterID"]
    labels = {**VIRTUAL_KUBELET, CLUSTER_LABEL: cluster, "liqo.io/virtual-node": name}
    made = manifests.deployment(f"vk-{name}", namespace=virtual["metadata"]["namespace"])
    made["metadata"]["labels"] = labels
    made["spec"]["selector"] = {"matchLabels": labels}
    made["spec"]["template"]["metadata"]["labels"] = labels
    return made


def node(virtual: Mapping[str, Any]) -> Json:
    """As the virtual kubelet registers it: Liqo sets no provider ID."""
    spec = virtual["spec"]
    labels = {
        "kubernetes.io/role": "agent",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "liqo.io/type": "virtual-node",
        CLUSTER_LABEL: spec["clusterID"],
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        "alpha.service-controller.kubernetes.io/exclude-balancer": "true",
        "storage.liqo.io/available": "false",
        **spec.get("labels", {}),
    }
    amounts = {name: str(amount) for name, amount in spec["resourceQuota"]["hard"].items()}
    return manifests.node(virtual["metadata"]["name"], labels=labels, taints=[TAINT], allocatable=amounts)


def granted(asked: Mapping[str, Any], defaults: Mapping[str, str]) -> dict[str, str]:
    """What the default class grants: all that is asked, and the provider's defaults for what is not named."""
    return {**defaults, **{name: str(amount) for name, amount in asked.items()}}


def without(finalizers: Iterable[str], finalizer: str) -> list[str]:
    return [each for each in finalizers if each != finalizer]
