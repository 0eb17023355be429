"""Tests of objects that cannot be decoded: which nodes they block."""

from typing import Any

import pytest

from predicates.objects import Unreadable, pod_node_name
from predicates.snapshot import Snapshot
from rescheduler.planning.outcome import Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, node, pod, snapshot, summary

STAYS = ["unreadable-object"]
A, B, BOTH = {"a": "s2"}, {"b": "s2"}, {"od1": {"a": "s2"}, "od2": {"b": "s2"}, "od3": {}}


def cluster(*unreadable: Unreadable) -> Snapshot:
    """Return a cluster: od1 has a pod of namespace default, od2 one of shop, od3 none; s2 is the fuller spot node."""
    result = snapshot(
        [
            *(node(f"od{n}", ON_DEMAND) for n in (1, 2, 3)),
            *(node("s1"), node("s2")),
            *(pod("a", "od1"), pod("shop/b", "od2"), pod("daemon", "od3", owner="DaemonSet"), pod("x", "s2")),
        ]
    )
    result.unreadable = unreadable
    return result


CASES: dict[str, tuple[Unreadable, dict[str, Any]]] = {
    "a pod on a node": (Unreadable("Pod", "default/p", "no", "od1"), BOTH | {"od1": STAYS}),
    "a pod on an empty node": (Unreadable("Pod", "default/p", "no", "od3"), BOTH | {"od3": STAYS}),
    "a pod on an unknown node": (Unreadable("Pod", "default/p", "no"), dict.fromkeys(BOTH, STAYS)),
    "a pod without a node": (Unreadable("Pod", "default/p", "no", ""), BOTH),
    "a pod on a spot node": (
        Unreadable("Pod", "default/p", "no", "s2"),
        {"od1": {"a": "s1"}, "od2": {"b": "s1"}, "od3": {}},
    ),
    "a budget": (Unreadable("PodDisruptionBudget", "default/b", "no"), BOTH | {"od1": STAYS}),
    "a budget of a namespace without pods": (Unreadable("PodDisruptionBudget", "none/b", "no"), BOTH),
    "a budget of an unknown namespace": (
        Unreadable("PodDisruptionBudget", "without a name", "no"),
        BOTH | {"od1": STAYS, "od2": STAYS},
    ),
    "a claim": (Unreadable("PersistentVolumeClaim", "shop/c", "no"), BOTH | {"od2": STAYS}),
    "a node": (Unreadable("Node", "od9", "no"), BOTH),
    "anything else": (Unreadable("StorageClass", "fast", "no"), BOTH),
}


@pytest.mark.parametrize(("unreadable", "expected"), CASES.values(), ids=CASES)
def test_an_unreadable_object_blocks_only_the_nodes_it_affects(
    unreadable: Unreadable, expected: dict[str, Any]
) -> None:
    planner = Planner(cluster(unreadable), Policy())
    assert summary(planner.plan_each(CIRCUMSTANCES)) == expected


def test_changes_of_the_snapshot_between_calls_are_respected() -> None:
    changing = cluster()
    planner = Planner(changing, Policy())
    assert summary(planner.plan_each(CIRCUMSTANCES)) == BOTH
    changing.unreadable = (Unreadable("Pod", "default/p", "no", "od1"),)
    assert summary(planner.plan_each(CIRCUMSTANCES)) == BOTH | {"od1": STAYS}


def test_objects_and_errors_are_reported_up_to_a_limit() -> None:
    many = [Unreadable("Pod", f"default/p{n}", f"Pod default/p{n}: no object", "od1") for n in range(9)]
    verdict = Planner(cluster(*many), Policy()).plan_node("od1", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    assert [(blocker.pod, blocker.detail) for blocker in verdict.blockers] == [
        (None, f"it cannot be decoded: Pod default/p{n}: no object") for n in range(5)
    ]


#: Pod in JSON → its node: "" if it is unbound or finished, None if the node is unknown.
NODES: dict[str, tuple[bytes, str | None]] = {
    "on a node": (b'{"spec":{"nodeName":"n","containers":7}}', "n"),
    "status is broken": (b'{"spec":{"nodeName":"n"},"status":7}', "n"),
    "without a node": (b'{"spec":{"containers":7}}', ""),
    "null for a node": (b'{"spec":{"nodeName":null,"containers":7}}', ""),
    "succeeded": (b'{"spec":{"nodeName":"n","containers":7},"status":{"phase":"Succeeded"}}', ""),
    "failed": (b'{"spec":{"nodeName":"n","containers":7},"status":{"phase":"Failed"}}', ""),
    "a number for a node": (b'{"spec":{"nodeName":7}}', None),
    "a number for its spec": (b'{"spec":7}', None),
    "no spec": (b'{"metadata":{}}', None),
    "not an object": (b"[]", None),
    "not JSON": (b'{"spec":{"nodeName":"n"', None),
    "not UTF-8": (b'{"spec":{"nodeName":"n","containers":"\xff"}}', "n"),
    "too deep": (b'{"spec":' + b"[" * 100_000, None),
}


@pytest.mark.parametrize(("raw", "expected"), NODES.values(), ids=NODES)
def test_the_node_of_an_undecodable_pod_is_read_from_its_json(raw: bytes, expected: str | None) -> None:
    assert pod_node_name(raw) == expected
