"""Manifests of the objects that Liqo v1.2 creates, with Liqo's names, labels and defaults."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from devcluster import manifests

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
#: The toleration that pods on virtual nodes need; Liqo adds it to pods of offloaded namespaces.
TOLERATION: Final = {"key": TAINT["key"], "operator": "Exists"}
#: The amounts that a provider grants of resources that a slice does not request: Liqo's ``defaultNodeResources``.
DEFAULT_RESOURCES: Final = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "20Gi"}


def definitions() -> list[Json]:
    return list(yaml.safe_load_all(CRDS.read_text(encoding="utf-8")))


def installation() -> list[Json]:
    """Return the objects with which a Liqo installation identifies its cluster."""
    labels = {"app.kubernetes.io/name": "clusterid-configmap"}
    metadata = {"name": "liqo-clusterid-configmap", "namespace": NAMESPACE, "labels": labels}
    identity = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"CLUSTER_ID": HOME}}
    return [manifests.namespace(NAMESPACE), identity]


def peering(cluster: str, namespace: str = "") -> list[Json]:
    """Return the objects that liqoctl creates for a peering with the provider *cluster*."""
    return [tenant_namespace(cluster, namespace), identity(cluster, namespace)]


def tenant_namespace(cluster: str, namespace: str = "") -> Json:
    labels = {CLUSTER_LABEL: cluster, "liqo.io/tenant-namespace": "true"}
    return manifests.namespace(namespace or tenant_name(cluster), labels=labels)


def tenant_name(cluster: str) -> str:
    return f"liqo-tenant-{cluster}"


def identity(cluster: str, namespace: str = "") -> Json:
    """Return our credentials for the API server of *cluster*."""
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
    """Return the kubeconfig Secret for *cluster*, owned by an Identity, or by none if an administrator created it."""
    labels = {CLUSTER_LABEL: cluster, **CONTROL_PLANE}
    metadata: Json = {"name": f"kubeconfig-controlplane-{cluster}", "namespace": namespace, "labels": labels}
    if owner is not None:
        metadata["ownerReferences"] = [owner_reference(owner)]
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"kubeconfig": "{}"}}


def tenant(cluster: str) -> Json:
    """Return the Tenant of the consumer *cluster*."""
    labels = {CLUSTER_LABEL: cluster}
    return {
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "Tenant",
        "metadata": {"name": cluster, "namespace": tenant_name(cluster), "labels": labels},
        "spec": {"clusterID": cluster, "tenantCondition": "Active"},
        "status": {"tenantNamespace": tenant_name(cluster)},
    }


def replicated(name: str, consumer: str, labels: Mapping[str, str], resources: Mapping[str, str]) -> Json:
    """Return the replica of a slice of *consumer*, which has all labels of the original."""
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


def conditions(pairs: Mapping[str, str], **fields: str) -> list[Json]:
    """Return conditions from types and statuses; *fields* are the common reason and message."""
    return [
        {"type": kind, "status": status, "reason": fields.get("reason", status), "message": fields.get("message", "")}
        for kind, status in pairs.items()
    ]


def slice_conditions(pairs: Mapping[str, str]) -> list[Json]:
    """Return conditions with the reasons and messages of Liqo's provider."""
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


def virtual_node(resource_slice: Mapping[str, Any]) -> Json:
    """Return the VirtualNode of an accepted slice, with the granted resources."""
    metadata, cluster = resource_slice["metadata"], resource_slice["metadata"]["labels"][CLUSTER_LABEL]
    return {
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "VirtualNode",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {CLUSTER_LABEL: cluster, "liqo.io/resourceslice-name": metadata["name"]},
            "ownerReferences": [owner_reference(resource_slice)],
            "finalizers": [FINALIZER],
        },
        "spec": {
            "clusterID": cluster,
            "createNode": True,
            "labels": dict(resource_slice["status"].get("nodeLabels", {})),
            "resourceQuota": {"hard": dict(resource_slice["status"]["resources"])},
        },
    }


def virtual_kubelet(virtual: Mapping[str, Any]) -> Json:
    """Return the Deployment of the virtual kubelet."""
    name, cluster = virtual["metadata"]["name"], virtual["spec"]["clusterID"]
    labels = {**VIRTUAL_KUBELET, CLUSTER_LABEL: cluster, "liqo.io/virtual-node": name}
    deployment = manifests.deployment(f"vk-{name}", namespace=virtual["metadata"]["namespace"])
    deployment["metadata"]["labels"] = labels
    deployment["spec"]["selector"] = {"matchLabels": labels}
    deployment["spec"]["template"]["metadata"]["labels"] = labels
    return deployment


def node(virtual: Mapping[str, Any]) -> Json:
    """Return the Node that the virtual kubelet registers, without a provider ID, as in Liqo."""
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


def granted(requested: Mapping[str, Any], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the grant of the default class: the requested amounts, and the provider's defaults for other resources."""
    return {**defaults, **{name: str(amount) for name, amount in requested.items()}}


def without(finalizers: Iterable[str], finalizer: str) -> list[str]:
    return [each for each in finalizers if each != finalizer]
