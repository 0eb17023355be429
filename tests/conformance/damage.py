"""Damages snapshots: odd objects, for which verdicts are still defined, and broken ones that cannot be decoded."""

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, Final, TypeAlias

from tests.conformance.generate.world import Json

Items: TypeAlias = list[Any]
Damage: TypeAlias = Callable[[Items, Random], None]


def damage(snapshot: Json, rng: Random) -> Json:
    """Return *snapshot* with one to three oddities that clients of the API must handle."""
    return _damaged(snapshot, rng, rng.sample(list(ODD.values()), rng.randint(1, 3)))


def broken(snapshot: Json, rng: Random) -> Json:
    """Return *snapshot* with one error that prevents decoding."""
    return _damaged(snapshot, rng, [rng.choice(list(BROKEN.values()))])


def _damaged(snapshot: Json, rng: Random, damages: list[Damage]) -> Json:
    items = deepcopy(snapshot["items"])
    for apply in damages:
        apply(items, rng)
    return {**snapshot, "items": items}


def _of(items: Items, kind: str) -> list[Json]:
    return [item for item in items if isinstance(item, dict) and item.get("kind") == kind]


def _any(items: Items, kind: str, rng: Random) -> Json:
    """Return an object of *kind*; if there is none, a new one that is not in the list."""
    return rng.choice(_of(items, kind) or [{"kind": kind, "metadata": {}, "spec": {}, "status": {}}])


def _unknown_fields(items: Items, rng: Random) -> None:
    for item in rng.sample(items, min(8, len(items))):
        for part in (item, item.get("metadata"), item.get("spec"), item.get("status")):
            if isinstance(part, dict):
                part["fromTheFuture"] = rng.choice(({"a": [1, {}]}, None, [], "x", 1.5))


def _nulls(items: Items, rng: Random) -> None:
    paths = (
        ("metadata", "labels"),
        ("metadata", "annotations"),
        ("metadata", "ownerReferences"),
        ("spec", "affinity"),
        ("spec", "nodeSelector"),
        ("spec", "tolerations"),
        ("spec", "topologySpreadConstraints"),
        ("spec", "volumes"),
        ("spec", "initContainers"),
        ("spec", "taints"),
        ("spec", "unschedulable"),
        ("status", "conditions"),
        ("status", "containerStatuses"),
        ("status", "allocatable"),
    )
    for item in rng.sample(items, min(8, len(items))):
        part, field = rng.choice(paths)
        if isinstance(item.get(part), dict):
            item[part][field] = None


def _inner_nulls(items: Items, rng: Random) -> None:
    for pod in _of(items, "Pod")[: rng.randint(1, 5)]:
        for container in pod["spec"]["containers"]:
            container["resources"] = rng.choice((None, {"requests": None}, {"requests": None, "limits": None}))
            container["ports"] = None
        for term in pod["spec"].get("tolerations") or ():
            term["value"] = None


def _no_allocatable(items: Items, rng: Random) -> None:
    _any(items, "Node", rng)["status"].pop("allocatable", None)


def _bare_node(items: Items, rng: Random) -> None:
    node = _any(items, "Node", rng)
    node.pop("status", None)
    if rng.random() < 0.5:
        node.pop("spec", None)


def _unknown_node(items: Items, rng: Random) -> None:
    for _ in range(4):
        _any(items, "Pod", rng)["spec"]["nodeName"] = "no-such-node"


def _without(*kinds: str) -> Damage:
    def drop(items: Items, _: Random) -> None:
        items[:] = [item for item in items if item.get("kind") not in kinds]

    return drop


def _repeated(items: Items, rng: Random) -> None:
    items += deepcopy(rng.sample(items, min(5, len(items))))


def _shuffled(items: Items, rng: Random) -> None:
    rng.shuffle(items)


def _unknown_kinds(items: Items, rng: Random) -> None:
    items.insert(0, {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": 7})
    items.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": None})
    items.append(
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r", "namespace": "n"}, "spec": {}}
    )


def _half_missing(items: Items, rng: Random) -> None:
    items[:] = [item for item in items if rng.random() < 0.5]


#: Oddities that are accepted: the verdicts are those of the scheduler on the same objects.
ODD: Final[dict[str, Damage]] = {
    "unknown fields": _unknown_fields,
    "nulls": _nulls,
    "nulls within pods": _inner_nulls,
    "a node without allocatable": _no_allocatable,
    "a node without status": _bare_node,
    "pods bound to an unknown node": _unknown_node,
    "no namespaces": _without("Namespace"),
    "no claims": _without("PersistentVolumeClaim"),
    "no volumes": _without("PersistentVolume", "CSINode"),
    "no storage classes": _without("StorageClass"),
    "no nodes": _without("Node"),
    "no pods": _without("Pod"),
    "the same object twice": _repeated,
    "another order": _shuffled,
    "unknown kinds": _unknown_kinds,
    "half of the objects missing": _half_missing,
}


def _set(kind: str, path: tuple[str, ...], *values: Any) -> Damage:
    def change(items: Items, rng: Random) -> None:
        part = _any(items, kind, rng)
        for field in path[:-1]:
            part = part.setdefault(field, {})
        part[path[-1]] = rng.choice(values)

    return change


def _first_container(field: str, *values: Any) -> Damage:
    def change(items: Items, rng: Random) -> None:
        _any(items, "Pod", rng).setdefault("spec", {})["containers"] = [{"name": "c", field: rng.choice(values)}]

    return change


#: Errors that prevent decoding: the result is an error of one line, never a traceback.
BROKEN: Final[dict[str, Damage]] = {
    "an invalid quantity": _first_container("resources", {"requests": {"cpu": "many"}}, {"requests": {"cpu": "1 "}}),
    "a quantity of another type": _first_container("resources", {"requests": {"cpu": True}}, {"requests": {"cpu": {}}}),
    "requests that are a list": _first_container("resources", {"requests": [1]}, [], "x"),
    "a port that is a string": _first_container("ports", [{"hostPort": "http"}], {"hostPort": 1}),
    "allocatable with an invalid quantity": _set("Node", ("status", "allocatable"), "x", {"cpu": "1.2.3"}, {"cpu": []}),
    "labels that are a list": _set("Pod", ("metadata", "labels"), ["a"], "a=b", {"a": 1}),
    "a node name that is a number": _set("Pod", ("spec", "nodeName"), 7, ["a"]),
    "tolerations that are an object": _set("Pod", ("spec", "tolerations"), {}, "x", [7]),
    "taints that are a string": _set("Node", ("spec", "taints"), "x", [["a"]]),
    "affinity that is a list": _set("Pod", ("spec", "affinity"), [], {"nodeAffinity": 3}),
    "a spec that is a string": _set("Pod", ("spec",), "x", [], 3),
    "metadata that is a list": _set("Node", ("metadata",), [], "x"),
}


def texts(snapshot: Json, rng: Random) -> dict[str, bytes]:
    """Return files that are not snapshots, by the description of the error. Arrays and joined lists are snapshots."""
    whole = json.dumps(snapshot).encode()
    return {
        "empty": b"",
        "truncated": whole[: rng.randint(1, len(whole) - 2)],
        "not JSON": b"NAME STATUS\nnode-1 Ready\n",
        "a number": b"7",
        "null": b"null",
        "items that are not a list": b'{"kind":"List","items":{"a":1}}',
        "not UTF-8": whole[:-1] + b"\xff}",
        "nested too deeply": b'{"kind":"List","items":[' + b"[" * 100_000,
        "truncated gzip file": b"\x1f\x8b\x08\x00" + whole[:100],
    }
