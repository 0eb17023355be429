"""Builders of claims, volumes and what is around them, for tests that know the verdict beforehand."""

from collections.abc import Mapping
from typing import Any

from tests.conformance.builders import node, pod, volume
from tests.conformance.generate.world import Json

ZONE = "topology.kubernetes.io/zone"
CSI = "csi.example.com"


def mounting(*claims: str, name: str = "p", on: str = "", **spec: Any) -> Json:
    """A pod that mounts *claims*."""
    sources = [{"persistentVolumeClaim": {"claimName": one}} for one in claims]
    return with_volumes(*sources, name=name, on=on, **spec)


def with_volumes(*sources: Json, name: str = "p", on: str = "", **spec: Any) -> Json:
    return pod(name, on, volumes=[{"name": f"v{i}", **one} for i, one in enumerate(sources)], **spec)


def zoned(name: str, zone: str = "", **labels: str) -> Json:
    return node(name, labels={**({ZONE: zone} if zone else {}), **labels})


def local(name: str, *hosts: str, size: str = "2Gi", storage_class: str = "local", **spec: Any) -> Json:
    """A volume on the disk of *hosts*."""
    one = volume(name, storage_class, local={"path": "/mnt"}, **spec)
    one["spec"]["capacity"] = {"storage": size}
    return reaching(one, "kubernetes.io/hostname", *hosts)


def reaching(one: Json, key: str, *values: str) -> Json:
    """*one* with an affinity to nodes with a label."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
    one["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return one


def about(one: Json, **meta: Any) -> Json:
    """*one* with other metadata."""
    return {**one, "metadata": {**one["metadata"], **meta}}


def limited(name: str, limits: Mapping[str, int | None], migrated: str = "") -> Json:
    """A CSINode with the *limits* of its drivers."""
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
