"""What makes a random cluster worth scoring: images, soft taints, soft constraints, and the owners of pods."""

import random
from copy import deepcopy

from tests.conformance.generate import cluster
from tests.conformance.generate.world import Json

_MEGABYTE = 1024 * 1024


def scored_cluster(seed: int, family: str) -> Json:
    """A random cluster of the *family*, with more for the score plugins to look at."""
    dice, found = random.Random(seed), cluster(seed, family)
    items = found["items"]
    pods = [one for one in items if one["kind"] == "Pod"]
    images = sorted({box["image"] for pod in pods for box in pod["spec"]["containers"] if box.get("image")})
    for one in items:
        if one["kind"] == "Node":
            _furnish(one, images, dice)
    for pod in pods:
        if not _names_all(pod["spec"]):
            _settle(pod["status"])
        for constraint in pod["spec"].get("topologySpreadConstraints") or ():
            if dice.random() < 0.5:
                constraint["whenUnsatisfiable"] = "ScheduleAnyway"
    items += _replica_sets(pods)
    return found


def _names_all(spec: Json) -> bool:
    """Whether the scheduler's defaults add nothing to the pod."""
    boxes = [*spec["containers"], *(spec.get("initContainers") or ())]
    return all({"cpu", "memory"} <= set((box.get("resources") or {}).get("requests") or ()) for box in boxes)


def _settle(status: Json) -> None:
    """End any resize: beside defaults it is told apart only by the pod, and we go by the class."""
    for name in ("containerStatuses", "initContainerStatuses", "resources", "allocatedResources"):
        status.pop(name, None)


def _furnish(node: Json, images: list[str], dice: random.Random) -> None:
    held = [image for image in images if dice.random() < 0.4]
    node["status"]["images"] = [
        {
            "names": [image if ":" in image else f"{image}:latest"],
            "sizeBytes": dice.choice((5, 90, 700, 4000)) * _MEGABYTE,
        }
        for image in held
    ]
    for key in ("slow", "costly"):
        if dice.random() < 0.3:
            node["spec"]["taints"] = [
                *(node["spec"].get("taints") or ()),
                {"key": key, "effect": "PreferNoSchedule"},
            ]


def _replica_sets(pods: list[Json]) -> list[Json]:
    """Those whose pods all carry the same labels, which they select."""
    labels: dict[tuple[str, str], list[Json]] = {}
    for pod in pods:
        meta = pod["metadata"]
        for owner in meta.get("ownerReferences") or ():
            if owner["kind"] == "ReplicaSet" and owner.get("controller"):
                owner["apiVersion"] = "apps/v1"
                labels.setdefault((meta["namespace"], owner["name"]), []).append(meta.get("labels") or {})
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"selector": {"matchLabels": found[0]}},
        }
        for (namespace, name), found in labels.items()
        if found[0] and all(one == found[0] for one in found)
    ]


def with_known_owners(snapshot: Json) -> Json:
    """*snapshot* without owners that the scheduler would look up in vain: their pods become those of Jobs."""
    items = deepcopy(snapshot["items"])
    known = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in items if one["kind"] == "ReplicaSet"}
    for one in items:
        for owner in one["metadata"].get("ownerReferences") or () if one["kind"] == "Pod" else ():
            if owner["kind"] != "DaemonSet" and (one["metadata"]["namespace"], owner["name"]) not in known:
                owner.update(kind="Job", apiVersion="batch/v1")
    return {**snapshot, "items": items}
