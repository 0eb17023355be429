"""Owners whose pods did not run in time, and the namespaces with several of them."""

import datetime as dt
from datetime import timedelta
from typing import Any

import pytest

from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt, OpenDebt
from rescheduler.planning.movements import NotRecovered, OwnerWait, blockers_by_node
from rescheduler.planning.outcome import Reason
from rescheduler.planning.waits import Waits
from tests.planning.builders import NOW, pod, snapshot

MINUTE = timedelta(minutes=1)
WAIT = Waits().recovery


def owner(name: str) -> Controller:
    namespace, _, short = name.partition("/")
    return Controller(namespace, "ReplicaSet", short, f"uid-{short}")


def after(*failures: tuple[int, str]) -> NotRecovered:
    """Return the waits after failures, each with its minute and its owner."""
    waits = NotRecovered()
    for minute, name in failures:
        waits = waits.failed(owner(name), NOW + minute * MINUTE, WAIT)
    return waits


#: Failures by minute and owner, and the minute at which each wait ends.
FAILED: dict[str, tuple[list[tuple[int, str]], dict[str, int]]] = {
    "one": ([(0, "a/x")], {"a/ReplicaSet/x": 10}),
    "one that waits already": ([(0, "a/x"), (5, "a/x")], {"a/ReplicaSet/x": 10}),
    "the same one again": ([(0, "a/x"), (10, "a/x")], {"a/ReplicaSet/x": 30}),
    "two of one namespace": ([(0, "a/x"), (5, "a/y")], {"a/ReplicaSet/x": 10, "a/ReplicaSet/y": 15, "a": 15}),
    "two of one namespace, one after the other": (
        [(0, "a/x"), (60, "a/y")],
        {"a/ReplicaSet/x": 10, "a/ReplicaSet/y": 70, "a": 70},
    ),
    "a third one while the namespace waits": (
        [(0, "a/x"), (5, "a/y"), (6, "a/z")],
        {"a/ReplicaSet/x": 10, "a/ReplicaSet/y": 15, "a/ReplicaSet/z": 16, "a": 15},
    ),
    "a third one later": (
        [(0, "a/x"), (5, "a/y"), (15, "a/z")],
        {"a/ReplicaSet/x": 10, "a/ReplicaSet/y": 15, "a/ReplicaSet/z": 25, "a": 35},
    ),
    "two of two namespaces": ([(0, "a/x"), (0, "aa/x")], {"a/ReplicaSet/x": 10, "aa/ReplicaSet/x": 10}),
}


@pytest.mark.parametrize(("failures", "ends"), FAILED.values(), ids=FAILED)
def test_an_owner_and_then_its_namespace_wait(failures: list[tuple[int, str]], ends: dict[str, int]) -> None:
    waits = after(*failures)
    assert {name: (wait.until - NOW) // MINUTE for name, wait in waits.by_name.items()} == ends


def test_an_owner_that_is_created_again_under_its_name_waits() -> None:
    again = Controller("a", "ReplicaSet", "x", "another")
    assert after((0, "a/x")).failed(again, NOW + 10 * MINUTE, WAIT).by_name["a/ReplicaSet/x"].failures == 2


TWO = after((0, "a/x"), (0, "a/y"), (0, "b/x"))

RELEASED: dict[str, tuple[set[str], set[str]]] = {
    "an owner": ({"a/ReplicaSet/x"}, {"a/ReplicaSet/y", "a", "b/ReplicaSet/x"}),
    "all owners of a namespace": ({"a/ReplicaSet/x", "a/ReplicaSet/y"}, {"b/ReplicaSet/x"}),
    "a namespace": ({"a"}, {"b/ReplicaSet/x"}),
    "something else": ({"c", "a/ReplicaSet/z"}, set(TWO.by_name)),
}


@pytest.mark.parametrize(("names", "left"), RELEASED.values(), ids=RELEASED)
def test_owners_and_namespaces_are_released(names: set[str], left: set[str]) -> None:
    assert set(TWO.released(names).by_name) == left


def test_a_namespace_waits_for_longer_than_its_owners() -> None:
    waits = NotRecovered({"a": OwnerWait(3, NOW + 40 * MINUTE)})
    assert waits.recovered([owner("b/x")]) is waits


def test_waits_expire_a_day_after_their_end() -> None:
    waits = after((0, "a/x"))
    assert waits.active(NOW + 10 * MINUTE) == {}
    assert waits.current(NOW + 10 * MINUTE + WAIT.longest - dt.timedelta.resolution, WAIT) is waits
    assert waits.current(NOW + 10 * MINUTE + WAIT.longest, WAIT) == NotRecovered()


def owned(name: str, on: str, kind: str, by: str, **fields: Any) -> dict[str, Any]:
    manifest = pod(name, on, owner=kind, **fields)
    manifest["metadata"]["ownerReferences"][0]["name"] = by
    return manifest


PODS = (
    owned("a/web-1", "od-1", "apps/v1/ReplicaSet", "web-6d8f", labels={"pod-template-hash": "6d8f"}),
    owned("a/agent", "od-2", "apps/v1/DaemonSet", "agent"),
    owned("a/other-1", "od-3", "apps/v1/StatefulSet", "other"),
    owned("b/web-1", "od-4", "apps/v1/ReplicaSet", "web-6d8f", labels={"pod-template-hash": "6d8f"}),
    owned("a/web-2", "spot-1", "apps/v1/ReplicaSet", "web-6d8f", labels={"pod-template-hash": "6d8f"}),
    owned("a/web-3", "", "apps/v1/ReplicaSet", "web-6d8f", labels={"pod-template-hash": "6d8f"}),
)


@pytest.mark.parametrize(
    ("names", "nodes"),
    [
        ({"a/Deployment/web"}, {"od-1": "a/web-1"}),
        ({"a"}, {"od-1": "a/web-1", "od-3": "a/other-1"}),
        ({"b", "a/StatefulSet/other"}, {"od-3": "a/other-1", "od-4": "b/web-1"}),
        (set(), {}),
    ],
)
def test_nodes_with_pods_that_must_not_be_moved_are_blocked(names: set[str], nodes: dict[str, str]) -> None:
    waits = {name: OwnerWait(1, NOW + MINUTE) for name in names}
    blocked = blockers_by_node(snapshot(PODS).pods.values(), waits, (), lambda node: node.startswith("od"))
    assert {node: blocker.pod for node, (blocker,) in blocked.items()} == nodes
    assert all(blocker.reason is Reason.NOT_RECOVERED for (blocker,) in blocked.values())


def test_the_nodes_that_owed_pods_left_are_blocked_whether_or_not_pods_are_on_them() -> None:
    web, db = Debt(Controller("a", "Deployment", "web", ""), 2, 3), Debt(Controller("c", "Foo", "db", ""), 1, 1)
    ledger = (
        OpenDebt("od-1", NOW, web),
        OpenDebt("od-9", NOW, web),
        OpenDebt("od-9", NOW, db),
        OpenDebt("gone", NOW, db),
    )
    blocked = blockers_by_node((), {}, ledger, lambda node: node.startswith("od"))
    named = {node: [blocker.detail.split(" away")[0] for blocker in blockers] for node, blockers in blocked.items()}
    of_web, of_db = "a drain moved pods of a/Deployment/web", "a drain moved pods of c/Foo/db"
    assert named == {"od-1": [of_web], "od-9": [of_web, of_db]}
    assert {(each.reason, each.pod) for blockers in blocked.values() for each in blockers} == {
        (Reason.NOT_RECOVERED, None)
    }


def test_a_failure_that_lasts_is_counted_once() -> None:
    wait, owner = Waits().recovery, Controller("a", "Deployment", "web", "")
    first = NotRecovered().failed(owner, NOW, wait, NOW - MINUTE)
    later = NOW + wait.after(1)
    again = first.failed(owner, later, wait, NOW - MINUTE).by_name[str(owner)]
    assert (again.failures, again.until) == (1, later + wait.after(1))
    next_one = first.failed(owner, later, wait, NOW + MINUTE).by_name[str(owner)]
    assert (next_one.failures, next_one.until) == (2, later + wait.after(2))
