"""Tests of differences between the watched state and a consistent read."""

from typing import Any

import pytest

from predicates.objects import Node, PodDisruptionBudget
from predicates.snapshot import PLACEHOLDER, ROOM_NAMESPACE
from rescheduler.planning.last_look import Fresh, FreshPod, lag
from tests.planning.builders import ON_DEMAND, Manifest, budget, node, pod, snapshot

#: The objects of a cluster by name.
Objects = dict[str, Manifest | None]

BASE: Objects = {
    "od": node("od", ON_DEMAND),
    "spot": node("spot"),
    "other": node("other"),
    "web-1": pod("web-1", "od"),
    "web-2": pod("web-2", "spot"),
    "new": pod("new"),
    "web": budget("web", "web", allowed=1),
}


def fresh(objects: Objects) -> Fresh:
    """Return *objects* as a consistent read for a drain of ``od`` with the target ``spot``."""
    there = snapshot([manifest for manifest in objects.values() if manifest is not None and manifest["kind"] != "Pod"])
    pods = [manifest for manifest in objects.values() if manifest is not None and manifest["kind"] == "Pod"]
    budgets = there.of("PodDisruptionBudget")
    return Fresh(
        node="od",
        asked=frozenset({"od", "spot"}),
        nodes={node.name: node for node in there.nodes if isinstance(node, Node) and node.name != "other"},
        pods={pod["metadata"]["uid"]: fresh_pod(pod) for pod in pods},
        budgets={key: budget for key, budget in budgets.items() if isinstance(budget, PodDisruptionBudget)},
    )


def fresh_pod(pod: Manifest) -> FreshPod:
    meta = pod["metadata"]
    return FreshPod(
        meta["namespace"],
        meta["name"],
        pod["spec"]["nodeName"],
        terminating="deletionTimestamp" in meta,
        finished=pod["status"]["phase"] in ("Succeeded", "Failed"),
        version=meta.get("resourceVersion", ""),
    )


def again(name: str, on: str, **fields: Any) -> Manifest:
    """Return a different pod with the same name."""
    manifest = pod(name, on, **fields)
    return manifest | {"metadata": manifest["metadata"] | {"uid": "uid-of-another"}}


PLACED = pod(f"{ROOM_NAMESPACE}/room", "spot", labels={PLACEHOLDER: "true"})
ENDED = {"phase": "Succeeded"}
TAINT = {"key": "full", "effect": "NoSchedule"}

#: Changes to BASE in the read, changes to BASE in the watched state, and the reported difference.
CASES: dict[str, tuple[Objects, Objects, str]] = {
    "the same": ({}, {}, ""),
    "a pod on a target is not watched": ({}, {"web-2": None}, "pod default/web-2 is not in the cache yet"),
    "a pod on a target is gone": ({"web-2": None}, {}, ""),
    "a pod on a target has finished": ({"web-2": pod("web-2", "spot", status=ENDED)}, {"web-2": None}, ""),
    "a pod on a target is watched on another node": (
        {},
        {"web-2": pod("web-2")},
        "pod default/web-2 is not bound to node spot in the cache yet",
    ),
    "a different pod of the same name is watched": (
        {},
        {"web-2": again("web-2", "spot")},
        "pod default/web-2 is not in the cache yet",
    ),
    "a pending pod is not watched": ({}, {"new": None}, "pod default/new is not in the cache yet"),
    "a pending pod was bound since": ({}, {"new": pod("new", "other")}, ""),
    "a pending pod was created since": ({"new": None}, {}, ""),
    "a pod on the drained node is not watched": ({}, {"web-1": None}, "pod default/web-1 is not in the cache yet"),
    "a pod on the drained node is gone": (
        {"web-1": None},
        {},
        "pod default/web-1 is gone, but is still on node od in the cache",
    ),
    "a pod on the drained node has finished": (
        {"web-1": pod("web-1", "od", status=ENDED)},
        {},
        "pod default/web-1 is gone, but is still on node od in the cache",
    ),
    "a pod on the drained node has finished, which is observed": (
        {"web-1": pod("web-1", "od", status=ENDED)},
        {"web-1": pod("web-1", "od", status=ENDED)},
        "",
    ),
    "a placeholder on a target": ({"room": PLACED}, {"room": PLACED}, ""),
    "a placeholder on a target is not watched": (
        {"room": PLACED},
        {},
        f"pod {ROOM_NAMESPACE}/room is not in the cache yet",
    ),
    "a deletion is not watched": (
        {"web-1": pod("web-1", "od", deleted=True)},
        {},
        "the deletion of pod default/web-1 is not in the cache yet",
    ),
    "a deletion since": ({}, {"web-1": pod("web-1", "od", deleted=True)}, ""),
    "a target is gone": ({"spot": None}, {}, "node spot was deleted, but is still in the cache"),
    "a target is gone, and that is watched": ({"spot": None}, {"spot": None}, ""),
    "a target is not watched": ({}, {"spot": None}, "node spot is not in the cache yet"),
    "a target was cordoned": (
        {"spot": node("spot", unschedulable=True)},
        {},
        "a change of node spot is not in the cache yet",
    ),
    "a target was tainted": (
        {"spot": node("spot", taints=[TAINT])},
        {},
        "a change of node spot is not in the cache yet",
    ),
    "a target is not Ready": (
        {"spot": node("spot", ready="False")},
        {},
        "a change of node spot is not in the cache yet",
    ),
    "a target shrank": ({"spot": node("spot", cpu="1")}, {}, "a change of node spot is not in the cache yet"),
    "a label of a target": ({"spot": node("spot", zone="b")}, {}, "a change of node spot is not in the cache yet"),
    "an annotation of a target": ({"spot": node("spot", annotations={"a": "b"})}, {}, ""),
    "the taint of the drained node": (
        {"od": node("od", ON_DEMAND, taints=[TAINT])},
        {},
        "a change of node od is not in the cache yet",
    ),
    "a node that was not requested": ({}, {"other": None}, ""),
    "a budget is used up": (
        {"web": budget("web", "web", allowed=0)},
        {},
        "a change of PodDisruptionBudget default/web is not in the cache yet",
    ),
    "a budget has another selector": (
        {"web": budget("web", "api", allowed=1)},
        {},
        "a change of PodDisruptionBudget default/web is not in the cache yet",
    ),
    "a budget counts other pods": ({"web": budget("web", "web", allowed=1, healthy=7)}, {}, ""),
    "a budget is not watched": ({}, {"web": None}, "PodDisruptionBudget default/web is not in the cache yet"),
    "a budget is gone": ({"web": None}, {}, ""),
}


@pytest.mark.parametrize(("listed", "watched", "expected"), CASES.values(), ids=CASES)
def test_the_first_lag_is_described(listed: Objects, watched: Objects, expected: str) -> None:
    seen = snapshot([manifest for manifest in (BASE | watched).values() if manifest is not None])
    nodes = len(seen.pods_on)
    assert lag(fresh(BASE | listed), seen) == expected
    assert len(seen.pods_on) == nodes


#: What a read contains and the watched state does not: the kind, and the text of the difference.
LISTED: dict[str, tuple[str, Objects, str]] = {
    "a pending pod": ("Pod", {"new": None}, "pod default/new is not in the cache yet"),
    "a pod on the drained node": ("Pod", {"web-1": None}, "pod default/web-1 is not in the cache yet"),
    "a target": ("Node", {"spot": None}, "node spot is not in the cache yet"),
    "a changed target": ("Node", {"spot": node("spot", cpu="1")}, "a change of node spot is not in the cache yet"),
    "a budget": ("PodDisruptionBudget", {"web": None}, "PodDisruptionBudget default/web is not in the cache yet"),
}


@pytest.mark.parametrize(("watched_to", "lags"), [("99", True), ("100", False), ("101", False), ("", True)])
@pytest.mark.parametrize(("kind", "watched", "expected"), LISTED.values(), ids=LISTED)
def test_what_changed_again_after_the_read_is_no_lag(
    kind: str, watched: Objects, expected: str, watched_to: str, lags: bool
) -> None:
    """Objects that are replaced every second would otherwise keep the drain waiting for ever."""
    read = fresh({name: manifest and versioned(manifest, "100") for name, manifest in BASE.items()})
    seen = snapshot([manifest for manifest in (BASE | watched).values() if manifest is not None])
    seen.watched_to = {kind: watched_to}
    assert lag(read, seen) == (expected if lags else "")


def versioned(manifest: Manifest, version: str) -> Manifest:
    return manifest | {"metadata": manifest["metadata"] | {"resourceVersion": version}}
