"""Builders of small objects for tests."""

from typing import Any

from tests.conformance.generate.world import Json


def snapshot(*objects: Json) -> Json:
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}


def node(name: str, *, labels: Json | None = None, allocatable: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", **(allocatable or {})}},
    }


def pod(name: str, on: str = "", *, labels: Json | None = None, requests: Json | None = None, **spec: Any) -> Json:
    bound = {"nodeName": on} if on else {}
    containers = [{"name": "c", "image": "i", "resources": {"requests": requests or {}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels or {}},
        "spec": {"containers": containers, **bound, **spec},
        "status": {"phase": "Running" if on else "Pending"},
    }


def claim(
    name: str, storage_class: str | None = None, volume: str = "", modes: tuple[str, ...] = ("ReadWriteOnce",)
) -> Json:
    spec: Json = {"accessModes": list(modes), "resources": {"requests": {"storage": "1Gi"}}}
    annotations = {}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    if volume:
        spec["volumeName"] = volume
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations},
        "spec": spec,
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def volume(name: str, storage_class: str = "", *, labels: Json | None = None, zone: str = "", **spec: Any) -> Json:
    source: Json = {"csi": {"driver": "csi.example.com", "volumeHandle": name}} if not spec else {}
    if zone:
        term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}
        source["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "2Gi"},
            "storageClassName": storage_class,
            **source,
            **spec,
        },
        "status": {"phase": "Available"},
    }


def storage_class(name: str, mode: str = "WaitForFirstConsumer", provisioner: str = "csi.example.com") -> Json:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


def csi_node(name: str, limit: int) -> Json:
    driver = {"name": "csi.example.com", "nodeID": name, "topologyKeys": None, "allocatable": {"count": limit}}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": [driver]},
    }


def mounts(*claims: str) -> list[Json]:
    return [{"name": f"v-{name}", "persistentVolumeClaim": {"claimName": name}} for name in claims]


def apart(topology_key: str, labels: Json) -> Json:
    """Return anti-affinity to pods with *labels*."""
    return {"podAntiAffinity": _required(topology_key, labels)}


def together(topology_key: str, labels: Json) -> Json:
    """Return affinity to pods with *labels*."""
    return {"podAffinity": _required(topology_key, labels)}


def _required(topology_key: str, labels: Json) -> Json:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": topology_key}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def spread(topology_key: str, labels: Json) -> list[Json]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": topology_key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
    ]
