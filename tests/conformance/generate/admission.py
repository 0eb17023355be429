"""Labels that the API server adds when it binds pods (PodTopologyLabels), and selectors that select them."""

from collections.abc import Iterator
from random import Random
from typing import Any

from tests.conformance.generate.world import REGION, ZONE, ZONES, Json

ADDED = (REGION, ZONE)


def bind(pod: Json, node: Json) -> None:
    """Set the node of *pod*, and copy the labels that the API server copies."""
    pod["spec"]["nodeName"] = node["metadata"]["name"]
    copied = {key: value for key, value in node["metadata"]["labels"].items() if key in ADDED}
    if copied:
        pod["metadata"]["labels"] = pod["metadata"].get("labels", {}) | copied


def own_labels(labels: Json) -> Json:
    """Return *labels* without those that the API server adds."""
    return {key: value for key, value in labels.items() if key not in ADDED}


def bind_again(pod: Json, node: Json, *, labels_added: bool) -> None:
    """Bind a pod that was created again to *node*. With *labels_added*, the API server adds labels."""
    pod["metadata"]["labels"] = own_labels(pod["metadata"].get("labels", {}))
    if labels_added:
        bind(pod, node)
    pod["spec"]["nodeName"] = node["metadata"]["name"]


def adds_labels(items: list[Json]) -> bool:
    """Return whether the API server of a cluster adds labels: some scheduled pod has them."""
    return any(
        pod["spec"].get("nodeName")
        and pod["status"].get("phase") not in {"Succeeded", "Failed"}
        and not pod["metadata"].get("labels", {}).keys().isdisjoint(ADDED)
        for pod in items
        if pod["kind"] == "Pod"
    )


def add_labels(rng: Random, nodes: list[Json], pods: list[Json]) -> None:
    """Add labels in half of the clusters: to all bound pods, to some others, and to some selectors."""
    if rng.random() < 0.5:
        return
    by_name = {node["metadata"]["name"]: node for node in nodes}
    for pod in pods:
        if (node := by_name.get(pod["spec"].get("nodeName", ""))) is not None:
            bind(pod, node)
        elif rng.random() < 0.3:
            pod["metadata"]["labels"][rng.choice(ADDED)] = rng.choice(ZONES)
        for selector in _selectors(pod["spec"]):
            if rng.random() < 0.4:
                selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), _expression(rng)]


def _selectors(at: Any) -> Iterator[Json]:
    """Yield the label selectors in *at*, at any depth."""
    for key, value in at.items() if isinstance(at, dict) else enumerate(at):
        if key == "labelSelector" and isinstance(value, dict):
            yield value
        elif isinstance(value, (dict, list)):
            yield from _selectors(value)


def _expression(rng: Random) -> Json:
    key, operator = rng.choice(ADDED), rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    values = {"values": rng.sample((*ZONES, "r1"), 2)} if operator in {"In", "NotIn"} else {}
    return {"key": key, "operator": operator, **values}
