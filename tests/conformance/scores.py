"""Additions to random clusters for scoring: images, soft taints, soft constraints and owners of pods."""

import random
from copy import deepcopy

from tests.conformance.generate import cluster
from tests.conformance.generate.admission import own_labels
from tests.conformance.generate.world import Json

_MEGABYTE = 1024 * 1024


def scored_cluster(seed: int, family: str) -> Json:
    """Return a random cluster of the *family* with objects that affect scores."""
    rng, snapshot = random.Random(seed), cluster(seed, family)
    items = snapshot["items"]
    pods = [item for item in items if item["kind"] == "Pod"]
    images = sorted(
        {container["image"] for pod in pods for container in pod["spec"]["containers"] if container.get("image")}
    )
    for item in items:
        if item["kind"] == "Node":
            _add_images_and_taints(item, images, rng)
    for pod in pods:
        for constraint in pod["spec"].get("topologySpreadConstraints") or ():
            if rng.random() < 0.5:
                constraint["whenUnsatisfiable"] = "ScheduleAnyway"
    _add_image_volumes(pods, images, random.Random(f"image volumes of {family}/{seed}"))
    items += _replica_sets(pods)
    return snapshot


def _add_images_and_taints(node: Json, images: list[str], rng: random.Random) -> None:
    present = [image for image in images if rng.random() < 0.4]
    node["status"]["images"] = [
        {
            "names": [image if ":" in image else f"{image}:latest"],
            "sizeBytes": rng.choice((5, 90, 700, 4000)) * _MEGABYTE,
        }
        for image in present
    ]
    for key in ("slow", "costly"):
        if rng.random() < 0.3:
            node["spec"]["taints"] = [
                *(node["spec"].get("taints") or ()),
                {"key": key, "effect": "PreferNoSchedule"},
            ]


def _add_image_volumes(pods: list[Json], images: list[str], rng: random.Random) -> None:
    for pod in pods if images else ():
        if rng.random() < 0.2:
            mounted = {"name": "content", "image": {"reference": rng.choice(images)}}
            pod["spec"]["volumes"] = [*(pod["spec"].get("volumes") or ()), mounted]


def _replica_sets(pods: list[Json]) -> list[Json]:
    """Return the ReplicaSets whose pods all have the same labels, with these labels as selector."""
    labels: dict[tuple[str, str], list[Json]] = {}
    for pod in pods:
        meta = pod["metadata"]
        for owner in meta.get("ownerReferences") or ():
            if owner["kind"] == "ReplicaSet" and owner.get("controller"):
                owner["apiVersion"] = "apps/v1"
                labels.setdefault((meta["namespace"], owner["name"]), []).append(_template_labels(pod))
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"selector": {"matchLabels": pod_labels[0]}},
        }
        for (namespace, name), pod_labels in labels.items()
        if pod_labels[0] and all(other == pod_labels[0] for other in pod_labels)
    ]


def _template_labels(pod: Json) -> Json:
    """Return the labels of the pod's template: those of the pod, without those that were added when it was bound."""
    labels = pod["metadata"].get("labels") or {}
    return own_labels(labels) if pod["spec"].get("nodeName") else labels


def with_known_owners(snapshot: Json) -> Json:
    """Return *snapshot* with a Job instead of each owner that the scheduler would not find."""
    items = deepcopy(snapshot["items"])
    replica_sets = (item["metadata"] for item in items if item["kind"] == "ReplicaSet")
    known = {(meta["namespace"], meta["name"]) for meta in replica_sets}
    for pod in (item for item in items if item["kind"] == "Pod"):
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner["kind"] != "DaemonSet" and (pod["metadata"]["namespace"], owner["name"]) not in known:
                owner.update(kind="Job", apiVersion="batch/v1")
    return {**snapshot, "items": items}
