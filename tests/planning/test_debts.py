"""Tests of how debts are incurred, converted and paid."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import msgspec
import pytest

from predicates.objects import Pod
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import (
    Debt,
    Replicas,
    Shortfall,
    converted,
    count_replicas,
    counts_for,
    incur,
    paid,
    ready_for,
    shortfall,
)
from tests.planning.builders import node, pod, snapshot

WEB = Controller("default", "Deployment", "web", "web-uid")


def state(**fields: Any) -> ControllerState:
    return replace(ControllerState(WEB, frozenset({"rs-1", "rs-2"}), 3, "t1"), **fields)


def debt(**fields: Any) -> Debt:
    return msgspec.structs.replace(Debt(WEB, 3, 3, "t1"), **fields)


INCURRED: dict[str, tuple[ControllerState, Replicas, Debt]] = {
    "all run": (state(), Replicas(3, 3, 3), debt()),
    "one pod is not Ready": (state(), Replicas(3, 3, 2), debt(ready=2)),
    "one pod is not bound": (state(), Replicas(3, 2, 2), debt(ready=2, bound=2)),
    "more run than are wanted": (state(wanted=2), Replicas(3, 3, 3), debt(ready=2, bound=2)),
    "fewer run than are wanted": (state(wanted=9), Replicas(3, 3, 3), debt()),
    "unreadable kind: the running pods are the desired number": (
        state(wanted=None, template=""),
        Replicas(3, 3, 2),
        debt(ready=2, template=""),
    ),
    "pods that succeeded before are noted": (state(succeeded=4), Replicas(3, 3, 3), debt(succeeded=4)),
    "none runs": (state(), Replicas(), debt(ready=0, bound=0)),
}


@pytest.mark.parametrize(("known", "replicas", "owed"), INCURRED.values(), ids=INCURRED)
def test_a_debt_is_the_running_pods_up_to_the_desired_number(
    known: ControllerState, replicas: Replicas, owed: Debt
) -> None:
    expected = Debt(WEB, owed.ready, owed.bound, owed.template, owed.succeeded, ("rs-1", "rs-2"))
    assert incur(known, replicas) == expected


#: The rows of the table in `rescheduler.planning.debts`: the state after the change → Ready and bound pods owed.
CONVERTED: dict[str, tuple[ControllerState, tuple[int, int]]] = {
    "nothing changed": (state(), (3, 3)),
    "scaled up": (state(wanted=9), (3, 3)),
    "scaled down": (state(wanted=2), (2, 2)),
    "scaled to zero": (state(wanted=0), (0, 0)),
    "new template, rolling out": (state(template="t2", least_available=2), (2, 3)),
    "new template, rolling out, all pods stay available": (state(template="t2", least_available=3), (3, 3)),
    "new template, rolling out, no pod stays available": (state(template="t2", least_available=0), (3, 3)),
    "new template, rolling out, and scaled down": (state(template="t2", wanted=1, least_available=0), (1, 1)),
    "new template, rolling out, and scaled to zero": (state(template="t2", wanted=0, least_available=0), (0, 0)),
    "new template, paused, OnDelete or below the partition": (state(template="t2"), (3, 3)),
    "a template that cannot be read any more": (state(template=""), (3, 3)),
    "suspended": (state(wanted=0, suspended=True), (0, 0)),
    "finished": (state(wanted=0), (0, 0)),
    "being deleted, pods are orphaned": (state(deleting=True), (3, 3)),
    "being deleted otherwise": (state(deleting=True, wanted=0), (0, 0)),
    "deleted, two pods are orphaned": (state(wanted=2), (2, 2)),
    "deleted": (state(wanted=0, exists=False), (0, 0)),
    "created again with one pod": (state(wanted=1, template="t2"), (1, 1)),
    "cannot be read": (state(wanted=None, template=""), (3, 3)),
}


@pytest.mark.parametrize(("known", "owed"), CONVERTED.values(), ids=CONVERTED)
def test_a_change_of_the_controller_converts_the_debt(known: ControllerState, owed: tuple[int, int]) -> None:
    assert converted(debt(), known) == debt(ready=owed[0], bound=owed[1])


@pytest.mark.parametrize("known", [known for known, _ in CONVERTED.values()], ids=CONVERTED)
def test_a_change_that_is_reverted_leaves_the_debt_as_it_was(known: ControllerState) -> None:
    """The converted debt is not stored: the same number of pods is owed again."""
    owed = debt()
    converted(owed, known)
    assert converted(owed, state()) == owed


def test_pods_that_a_roll_out_may_make_unavailable_are_missing_before_an_eviction() -> None:
    rolling = state(template="t2", least_available=2)
    assert paid(shortfall(debt(), rolling, Replicas(3, 3, 2)))
    assert not paid(shortfall(debt(), rolling, Replicas(3, 3, 2), full=True))


SHORTFALLS: dict[str, tuple[Debt, ControllerState, Replicas, Shortfall]] = {
    "nothing is missing": (debt(), state(), Replicas(3, 3, 3), Shortfall(0, 0, 0)),
    "one pod is not created": (debt(), state(), Replicas(2, 2, 2), Shortfall(1, 1, 1)),
    "one pod is not bound": (debt(), state(), Replicas(3, 2, 2), Shortfall(0, 1, 1)),
    "one pod is not Ready": (debt(), state(), Replicas(3, 3, 2), Shortfall(0, 0, 1)),
    "one pod was never Ready": (debt(ready=2), state(), Replicas(3, 3, 2), Shortfall(0, 0, 0)),
    "more run than are owed": (debt(), state(wanted=9), Replicas(5, 5, 5), Shortfall(-2, -2, -2)),
    "scaled up: the debt is unchanged": (debt(), state(wanted=9), Replicas(2, 2, 2), Shortfall(1, 1, 1)),
    "scaled down by one pod": (debt(), state(wanted=2), Replicas(2, 2, 2), Shortfall(0, 0, 0)),
    "scaled down, and one more pod is missing": (debt(), state(wanted=2), Replicas(1, 1, 1), Shortfall(1, 1, 1)),
    "scaled to zero": (debt(), state(wanted=0), Replicas(), Shortfall(0, 0, 0)),
    "the kind cannot be read": (debt(), state(wanted=None), Replicas(2, 2, 2), Shortfall(1, 1, 1)),
    "one pod succeeded since": (debt(succeeded=4), state(succeeded=5), Replicas(2, 2, 2), Shortfall(0, 0, 0)),
    "those that had succeeded before do not count": (
        debt(succeeded=4),
        state(succeeded=4),
        Replicas(2, 2, 2),
        Shortfall(1, 1, 1),
    ),
    "a decreasing count of successes is not a new debt": (
        debt(succeeded=4),
        state(succeeded=0),
        Replicas(3, 3, 3),
        Shortfall(0, 0, 0),
    ),
}


@pytest.mark.parametrize(("owed", "known", "replicas", "missing"), SHORTFALLS.values(), ids=SHORTFALLS)
def test_the_shortfall_counts_missing_pods(
    owed: Debt, known: ControllerState, replicas: Replicas, missing: Shortfall
) -> None:
    assert shortfall(owed, known, replicas) == missing


@pytest.mark.parametrize(
    ("missing", "when_ready", "when_bound"),
    [
        (Shortfall(0, 0, 0), True, True),
        (Shortfall(-1, -1, -1), True, True),
        (Shortfall(0, 0, 1), False, True),
        (Shortfall(0, 1, 0), False, False),
        (Shortfall(1, 1, 1), False, False),
    ],
)
def test_a_debt_is_paid_when_enough_pods_run(missing: Shortfall, when_ready: bool, when_bound: bool) -> None:
    assert (paid(missing), paid(missing, ready=False)) == (when_ready, when_bound)


def pods(*manifests: dict[str, Any]) -> list[Pod]:
    return list(snapshot(manifests).pods.values())


def mine(name: str, on: str = "s1", **fields: Any) -> dict[str, Any]:
    manifest = pod(name, on, **fields)
    manifest["metadata"]["ownerReferences"] = [
        {"kind": "ReplicaSet", "name": "web-1", "uid": "rs-1", "controller": True}
    ]
    return manifest


UNSCHEDULABLE = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "lastTransitionTime": "2026-01-01T11:59:00Z",
        }
    ]
}
NOT_READY = {"conditions": [{"type": "Ready", "status": "False"}]}

COUNTED: dict[str, tuple[list[dict[str, Any]], Replicas | None]] = {
    "a pod that runs": ([mine("a")], Replicas(1, 1, 1)),
    "a pod that is not Ready": ([mine("a", status=NOT_READY)], Replicas(1, 1, 0, unready=("uid-a",))),
    "a pod that no kubelet has reported on": (
        [mine("a", status={"phase": "Pending", "conditions": []})],
        Replicas(1, 1, 0, unready=("uid-a",)),
    ),
    "a pod that the scheduler has not processed": (
        [mine("a", "", status={"conditions": []})],
        Replicas(1, 0, 0, unready=("uid-a",)),
    ),
    "unschedulable pods": (
        [mine("b", "", status=UNSCHEDULABLE), mine("a", "", status=UNSCHEDULABLE)],
        Replicas(2, 0, 0, ("default/a", "default/b"), ("uid-a", "uid-b")),
    ),
    "a pod that is being deleted": ([mine("a", deleted=True)], None),
    "a finished pod": ([mine("a", status={"phase": "Succeeded"})], None),
    "a pod that was evicted, before that shows": ([mine("gone")], None),
    "a pod that waits for its eviction": ([mine("staying", "od")], Replicas(1, 1, 1)),
    "a replacement pod on the node that is being drained": (
        [mine("a", "od")],
        Replicas(1, 0, 0, unready=("uid-a",), returned=1),
    ),
    "a pod of another controller": ([pod("a", "s1")], None),
    "a pod without a controller": ([pod("a", "s1", owner=None)], None),
    "a pod of another namespace that names the controller": ([mine("other/a")], None),
}


@pytest.mark.parametrize(("manifests", "expected"), COUNTED.values(), ids=COUNTED)
def test_pods_of_a_controller_are_counted_by_state(manifests: list[dict[str, Any]], expected: Replicas | None) -> None:
    counted = count_replicas(pods(*manifests), [state()], "od", {"uid-staying"}, {"uid-gone"})
    assert counted == ({} if expected is None else {WEB: expected})


def test_pods_of_several_controllers_are_counted_separately() -> None:
    other = Controller("default", "StatefulSet", "db", "db-uid")
    second = mine("b")
    second["metadata"]["ownerReferences"][0]["uid"] = "rs-2"
    third = mine("c")
    third["metadata"]["ownerReferences"][0] |= {"kind": "StatefulSet", "uid": "db-uid"}
    states = [state(), ControllerState(other, frozenset({"db-uid"}), 1)]
    counted = count_replicas(pods(mine("a"), second, third), states)
    assert counted == {WEB: Replicas(2, 2, 2), other: Replicas(1, 1, 1)}


def test_pods_of_an_orphaned_replica_set_count_for_it_and_for_its_former_deployment() -> None:
    orphaned = Controller("default", "ReplicaSet", "web-1", "rs-1")
    counted = count_replicas(pods(mine("a")), [state(), ControllerState(orphaned, frozenset({"rs-1"}), 1)])
    assert counted == {WEB: Replicas(1, 1, 1), orphaned: Replicas(1, 1, 1)}


@pytest.mark.parametrize(("seconds", "unavailable"), [(0, 0), (59, 0), (60, 1), (61, 1)])
def test_a_pod_that_was_not_ready_for_long_enough_is_not_available(seconds: int, unavailable: int) -> None:
    """Such a pod does not pay a debt, but is owed like any Ready pod. It may be Ready for 59.1 seconds, not 60."""
    since = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:59:00Z"}]}
    known = state(min_ready_seconds=seconds)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    counted = count_replicas(pods(mine("a", status=since)), [known], ready_for=ready_for(noon))[WEB]
    assert counted == Replicas(1, 1, 1, unavailable=unavailable, unsettled=unavailable)
    assert incur(known, counted).ready == 1
    assert shortfall(debt(ready=1, bound=1), known, counted) == Shortfall(0, 0, unavailable)


def ready_since(second: int, *starts: int, restarts: int = 0) -> dict[str, Any]:
    """Return the status of a pod that is Ready since *second* and whose containers started at the seconds *starts*."""
    at = "2026-01-01T11:59:{:02d}Z".format
    states = [{"state": {"running": {"startedAt": at(start)}}, "restartCount": restarts} for start in starts]
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": at(second)}
    return {"conditions": [condition], "containerStatuses": states}


#: At 12:00:00: the status of a Ready pod, the `minReadySeconds`, and whether it stays.
STAYING_PODS: Final[dict[str, tuple[dict[str, Any], int, bool]]] = {
    "Ready for 10 seconds and the second that conditions cut off": (ready_since(49), 0, True),
    "Ready for less": (ready_since(50), 0, False),
    "Ready for longer than its minReadySeconds": (ready_since(29), 30, True),
    "Ready for less than its minReadySeconds": (ready_since(30), 30, False),
    "minReadySeconds that are shorter change nothing": (ready_since(50), 5, False),
    "a container that started before": (ready_since(49, 40), 0, True),
    "a container that restarted, so fast that the pod stayed Ready": (ready_since(10, 55, restarts=1), 0, False),
    "the second container restarted": (ready_since(10, 5, 55), 0, False),
    "a restart long ago": (ready_since(10, 20, restarts=9), 0, True),
    "no time is known": ({"conditions": [{"type": "Ready", "status": "True"}]}, 0, True),
}


@pytest.mark.parametrize(("status", "min_ready", "stays"), STAYING_PODS.values(), ids=STAYING_PODS)
def test_a_pod_stays_after_it_was_ready_for_a_while_without_a_restart(
    status: dict[str, Any], min_ready: int, stays: bool
) -> None:
    known, owed = state(min_ready_seconds=min_ready), debt(ready=1, bound=1)
    times = ready_for(datetime(2026, 1, 1, 12, tzinfo=UTC))
    counted = count_replicas(pods(mine("a", status=status)), [known], ready_for=times)[WEB]
    assert (counted.ready, paid(shortfall(owed, known, counted, staying=True))) == (1, stays)


@pytest.mark.parametrize(("status", "min_ready", "stays"), STAYING_PODS.values(), ids=STAYING_PODS)
def test_a_count_holds_until_a_pod_has_been_ready_for_long_enough(
    status: dict[str, Any], min_ready: int, stays: bool
) -> None:
    known, noon = state(min_ready_seconds=min_ready), datetime(2026, 1, 1, 12, tzinfo=UTC)
    counted, ends = pods(mine("a", status=status)), [noon]
    while (rest := counts_for(counted, min_ready, ready_for(ends[-1]))) is not None:
        ends.append(ends[-1] + rest)
    assert (len(ends) > 1) is not stays
    for begin, end in pairwise([*ends, noon + timedelta(hours=1)]):
        moments = begin, end - timedelta(microseconds=1)
        first, last = (count_replicas(counted, [known], ready_for=ready_for(at)) for at in moments)
        assert first == last
    assert count_replicas(counted, [known], ready_for=ready_for(ends[-1]))[WEB].unsettled == 0


#: At 12:00:00 on the wall clock, and 100 s on the monotonic one, for a pod that is Ready since 11:59:30:
#: when it was seen to become Ready, and for how long it has been Ready at least.
READY_FOR: Final[dict[str, tuple[float | None, float]]] = {
    "Ready before it was watched: by its condition, which cuts off a second": (None, 29.0),
    "seen later: the clock of its node is behind, or this one ahead": (98.0, 2.0),
    "seen earlier: the clock of its node is ahead, or this one behind": (10.0, 90.0),
    "seen just now": (100.0, 0.0),
}


@pytest.mark.parametrize(("seen", "seconds"), READY_FOR.values(), ids=READY_FOR)
def test_what_was_seen_is_measured_by_the_monotonic_clock(seen: float | None, seconds: float) -> None:
    [ready] = pods(mine("a", status=ready_since(30)))
    times = ready_for(datetime(2026, 1, 1, 12, tzinfo=UTC), 100.0, lambda _: seen)
    assert times(ready) == timedelta(seconds=seconds)


def test_a_pod_that_soon_has_no_place_does_not_stay() -> None:
    nodes = {each.name: each for each in snapshot([node("s1"), node("s2")]).nodes}
    counted = count_replicas(
        pods(mine("a", "s1"), mine("b", "s2"), mine("c", "s2", status=NOT_READY)),
        [state()],
        node_of=nodes.get,
        at_risk=lambda pod, node: f"{pod.name} on {node.name}" if node.name == "s2" else "",
    )
    assert counted == {WEB: Replicas(3, 3, 2, unready=("uid-c",), unsettled=1, at_risk="b on s2")}
    owed = debt(ready=2, bound=2)
    missing = [shortfall(owed, state(), counted[WEB], staying=staying).ready for staying in (False, True)]
    assert missing == [0, 1]


def test_without_a_node_all_pods_count() -> None:
    assert count_replicas(pods(mine("a", "od")), [state()]) == {WEB: Replicas(1, 1, 1)}


#: Whether the Node of a Ready pod exists and is Ready, and how the pod counts.
NODES: Final[dict[str, tuple[list[dict[str, Any]], Replicas | None]]] = {
    "Ready": ([node("s1")], Replicas(1, 1, 1)),
    "not Ready": ([node("s1", ready="False")], Replicas(1, 1, 0, unready=("uid-a",))),
    "without a report of its kubelet": ([node("s1", ready="Unknown")], Replicas(1, 1, 0, unready=("uid-a",))),
    "gone, before the pod garbage collector deletes the pod": ([], None),
}


@pytest.mark.parametrize(("nodes", "expected"), NODES.values(), ids=NODES)
def test_a_ready_pod_counts_as_its_node_does(nodes: list[dict[str, Any]], expected: Replicas | None) -> None:
    known = {each.name: each for each in snapshot(nodes).nodes}
    counted = count_replicas(pods(mine("a")), [state()], node_of=known.get)
    assert counted == ({} if expected is None else {WEB: expected})


def test_a_pod_that_is_not_bound_needs_no_node() -> None:
    unbound = mine("a", "", status={"conditions": []})
    assert count_replicas(pods(unbound), [state()], node_of=lambda _: None)[WEB].live == 1
