"""The objects that Liqo makes, as manifests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from deploy.local import manifests

Json = dict[str, Any]

CRDS: Final = Path(__file__).with_name("crds.yaml")
FINALIZER: Final = "virtualnode-controller.liqo.io/finalizer"
TAINT: Final = {"key": "virtual-node.liqo.io/not-allowed", "value": "true", "effect": "NoExecute"}
#: What a pod needs that is to run on a virtual node; Liqo adds it where a namespace is offloaded.
TOLERATION: Final = {"key": TAINT["key"], "operator": "Exists"}


def definitions() -> list[Json]:
    return list(yaml.safe_load_all(CRDS.read_text(encoding="utf-8")))


def peering(cluster: str, namespace: str = "") -> list[Json]:
    """What a peering leaves in the cluster: the tenant namespace, and the ForeignCluster that says who we are there."""
    labels = {"liqo.io/remote-cluster-id": cluster, "liqo.io/tenant-namespace": "true"}
    enabled = {"enabled": True}
    return [
        manifests.namespace(namespace or f"liqo-tenant-{cluster}", labels=labels),
        {
            "apiVersion": "core.liqo.io/v1beta1",
            "kind": "ForeignCluster",
            "metadata": {"name": cluster, "labels": {"liqo.io/remote-cluster-id": cluster}},
            "spec": {"clusterID": cluster},
            "status": {
                "role": "Provider",
                "modules": {"networking": enabled, "authentication": enabled, "offloading": {"enabled": False}},
            },
        },
    ]


def conditions(**status: str) -> list[Json]:
    """By type."""
    return [{"type": kind, "status": text, "reason": text, "message": ""} for kind, text in status.items()]


def virtual_node(piece: Mapping[str, Any]) -> Json:
    """Of a slice that was accepted, and owned by it."""
    metadata = piece["metadata"]
    owner = {
        "apiVersion": piece["apiVersion"],
        "kind": piece["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    cluster = piece["spec"]["providerClusterID"]
    return {
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "VirtualNode",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {"liqo.io/remote-cluster-id": cluster, "liqo.io/resourceslice-name": metadata["name"]},
            "ownerReferences": [owner],
            "finalizers": [FINALIZER],
        },
        "spec": {
            "clusterID": cluster,
            "createNode": True,
            "labels": {"liqo.io/provider": "kwok"},
            "resourceQuota": {"hard": piece["spec"].get("resources", {})},
        },
    }


def node(virtual: Mapping[str, Any]) -> Json:
    """As the virtual kubelet registers it: Liqo sets no provider ID."""
    spec = virtual["spec"]
    labels = {
        "liqo.io/type": "virtual-node",
        "type": "virtual-kubelet",
        "kubernetes.io/role": "agent",
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        "liqo.io/remote-cluster-id": spec["clusterID"],
        **spec.get("labels", {}),
    }
    amounts = {name: str(amount) for name, amount in spec["resourceQuota"]["hard"].items()}
    return manifests.node(virtual["metadata"]["name"], labels=labels, taints=[TAINT], allocatable=amounts)
