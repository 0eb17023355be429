"""Builders of pods, claims, volumes and CSI objects for tests."""

from collections.abc import Mapping
from typing import Any

from tests.conformance.builders import node, pod, volume
from tests.conformance.generate.world import Json

ZONE = "topology.kubernetes.io/zone"
CSI = "csi.example.com"


def mounting(*claims: str, name: str = "p", on: str = "", **spec: Any) -> Json:
    """Return a pod that mounts *claims*."""
    sources = [{"persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return with_volumes(*sources, name=name, on=on, **spec)


def with_volumes(*sources: Json, name: str = "p", on: str = "", **spec: Any) -> Json:
    return pod(name, on, volumes=[{"name": f"v{i}", **source} for i, source in enumerate(sources)], **spec)


def zoned(name: str, zone: str = "", **labels: str) -> Json:
    return node(name, labels={**({ZONE: zone} if zone else {}), **labels})


def local(name: str, *hosts: str, size: str = "2Gi", storage_class: str = "local", **spec: Any) -> Json:
    """Return a local volume that *hosts* can access."""
    local_volume = volume(name, storage_class, local={"path": "/mnt"}, **spec)
    local_volume["spec"]["capacity"] = {"storage": size}
    return accessible_from(local_volume, "kubernetes.io/hostname", *hosts)


def accessible_from(volume: Json, key: str, *values: str) -> Json:
    """Return *volume* with an affinity to nodes with a label."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
    volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return volume


def with_metadata(obj: Json, **meta: Any) -> Json:
    """Return *obj* with changed metadata."""
    return {**obj, "metadata": {**obj["metadata"], **meta}}


def limited(name: str, limits: Mapping[str, int | None], migrated: str = "") -> Json:
    """Return a CSINode with *limits* by driver."""
    drivers = [
        {"name": driver, "nodeID": name, **({} if limit is None else {"allocatable": {"count": limit}})}
        for driver, limit in limits.items()
    ]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": migrated}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"drivers": drivers},
    }


def attachment(name: str, on: str, of: str | None, attacher: str = CSI) -> Json:
    source = {} if of is None else {"persistentVolumeName": of}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": name},
        "spec": {"attacher": attacher, "nodeName": on, "source": source},
    }
