"""Tests of bursts of lost spot nodes: when they are detected, changes that are no losses, and how long drains wait."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from predicates.objects import Node
from rescheduler.planning.rules.interruptions import SpotState, SpotWatch, state_of
from tests.planning.builders import NOW, node, snapshot

SETTLE = timedelta(minutes=10)
ITN = {"taints": [{"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}]}
REMOVED = {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}
DISRUPTED = {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}
PREEMPTED = {"conditions": [{"type": "PreemptScheduled", "status": "True"}]}
CORDONED = {"unschedulable": True}
NOT_READY = {"ready": "False"}
UNHEARD = {"ready": "Unknown"}
SHUT_DOWN = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}

STATES: dict[str, tuple[dict[str, Any], SpotState]] = {
    "healthy": ({}, SpotState.USABLE),
    "interrupted": (ITN, SpotState.LOST),
    "interrupted by a condition": (PREEMPTED, SpotState.LOST),
    "not Ready": (NOT_READY, SpotState.LOST),
    "an unknown Ready condition": (UNHEARD, SpotState.LOST),
    "cordoned": (CORDONED, SpotState.WITHDRAWN),
    "cordoned and not Ready": (CORDONED | NOT_READY, SpotState.WITHDRAWN),
    "cordoned by the handler of an interruption": (CORDONED | ITN, SpotState.LOST),
    "removed by Cluster Autoscaler": (REMOVED, SpotState.WITHDRAWN),
    "removed by Karpenter": (DISRUPTED, SpotState.WITHDRAWN),
    "removed, and shut down for that": ({"taints": [*REMOVED["taints"], SHUT_DOWN]} | NOT_READY, SpotState.WITHDRAWN),
    "shut down": ({"taints": [SHUT_DOWN]} | NOT_READY, SpotState.LOST),
}


@pytest.mark.parametrize(("fields", "expected"), STATES.values(), ids=STATES)
def test_the_state_of_a_spot_node_is_derived_from_taints_and_conditions(
    fields: dict[str, Any], expected: SpotState
) -> None:
    [spot_node] = spot(1, {0: fields})
    assert state_of(spot_node) is expected


def test_a_node_that_is_being_deleted_is_withdrawn() -> None:
    [spot_node] = spot(1)
    meta = msgspec.structs.replace(spot_node.metadata, deletion_timestamp="2026-01-01T12:00:00Z")
    assert state_of(msgspec.structs.replace(spot_node, metadata=meta)) is SpotState.WITHDRAWN


def spot(count: int, changed: dict[int, dict[str, Any]] | None = None, gone: Iterable[int] = ()) -> list[Node]:
    """Return *count* spot nodes without those in *gone*. *changed* gives additional fields by node."""
    remaining = [number for number in range(count) if number not in set(gone)]
    return list(snapshot(node(f"s{number}", **(changed or {}).get(number, {})) for number in remaining).nodes)


Look = tuple[float, list[Node]]


def waits_until(looks: list[Look], settle: timedelta = SETTLE) -> list[float | None]:
    """Return for each call (minutes, spot nodes) until which minute drains wait."""
    watch = SpotWatch(settle)
    answers = (watch.update(nodes, NOW + timedelta(minutes=at)) for at, nodes in looks)
    return [_minutes(until) for until in answers]


def _minutes(until: datetime | None) -> float | None:
    return None if until is None else (until - NOW) / timedelta(minutes=1)


#: case: calls → until which minute drains wait, for each call
STORIES: dict[str, tuple[list[Look], list[float | None]]] = {
    "nothing happens": ([(0, spot(4)), (1, spot(4))], [None, None]),
    "the first call detects no losses": ([(0, spot(4, {0: ITN, 1: ITN}))], [None]),
    "one node of four is gone": ([(0, spot(4)), (1, spot(4, gone=[0]))], [None, None]),
    "two of four are gone": ([(0, spot(4)), (1, spot(4, gone=[0, 1]))], [None, 11]),
    "all are gone": ([(0, spot(2)), (1, [])], [None, 11]),
    "two of four are interrupted": ([(0, spot(4)), (1, spot(4, {0: ITN, 1: PREEMPTED}))], [None, 11]),
    "one node is gone, one is not Ready": ([(0, spot(4)), (1, spot(4, {1: NOT_READY}, gone=[0]))], [None, 11]),
    "two of twenty": ([(0, spot(20)), (1, spot(20, gone=[0, 1]))], [None, 11]),
    "two nodes of twenty-one": ([(0, spot(21)), (1, spot(21, gone=[0, 1]))], [None, None]),
    "three of thirty": ([(0, spot(30)), (1, spot(30, gone=[0, 1, 2]))], [None, 11]),
    "one after the other within five minutes": (
        [(0, spot(4)), (1, spot(4, gone=[0])), (6, spot(4, gone=[0, 1]))],
        [None, None, 16],
    ),
    "one after the other, in more than five minutes": (
        [(0, spot(4)), (1, spot(4, gone=[0])), (6.1, spot(4, gone=[0, 1]))],
        [None, None, None],
    ),
    "the wait ends": (
        [(0, spot(4)), (1, spot(4, gone=[0, 1])), (10.9, spot(4, gone=[0, 1])), (11, spot(4, gone=[0, 1]))],
        [None, 11, 11, None],
    ),
    "a further loss extends the wait": (
        [(0, spot(9)), (1, spot(9, gone=[0, 1])), (3, spot(9, gone=[0, 1, 2]))],
        [None, 11, 13],
    ),
    "a later single loss does not extend the wait": (
        [(0, spot(9)), (1, spot(9, gone=[0, 1])), (8, spot(9, gone=[0, 1, 2]))],
        [None, 11, 11],
    ),
    "interrupted, then gone: one loss each": (
        [(0, spot(4)), (1, spot(4, {0: ITN})), (2, spot(4, gone=[0]))],
        [None, None, None],
    ),
    "a flapping node counts as one loss": (
        [(0, spot(4)), (1, spot(4, {0: NOT_READY})), (2, spot(4)), (3, spot(4, {0: NOT_READY}))],
        [None] * 4,
    ),
    "new nodes do not hide a loss": (
        [(0, spot(20)), (1, [*spot(20, gone=[0, 1]), *spot(29, gone=range(20))])],
        [None, 11],
    ),
    "removed by Cluster Autoscaler": (
        [(0, spot(4)), (1, spot(4, {0: REMOVED, 1: REMOVED})), (2, spot(4, gone=[0, 1]))],
        [None] * 3,
    ),
    "removed by Karpenter": (
        [(0, spot(4)), (1, spot(4, {0: DISRUPTED, 1: DISRUPTED})), (2, spot(4, gone=[0, 1]))],
        [None] * 3,
    ),
    "cordoned by a person, then not Ready, then gone": (
        [
            (0, spot(4)),
            (1, spot(4, {0: CORDONED, 1: CORDONED})),
            (2, spot(4, {0: CORDONED | NOT_READY, 1: CORDONED | NOT_READY})),
            (3, spot(4, gone=[0, 1])),
        ],
        [None] * 4,
    ),
    "uncordoned, then lost": (
        [(0, spot(4, {0: CORDONED, 1: CORDONED})), (1, spot(4)), (2, spot(4, gone=[0, 1]))],
        [None, None, 12],
    ),
}


@pytest.mark.parametrize(("looks", "expected"), STORIES.values(), ids=STORIES)
def test_drains_wait_after_a_burst_of_losses(looks: list[Look], expected: list[float | None]) -> None:
    assert waits_until(looks) == expected


def test_machines_replaced_under_the_same_name_are_losses() -> None:
    others = [
        msgspec.structs.replace(
            spot_node, metadata=msgspec.structs.replace(spot_node.metadata, uid=f"other-{spot_node.name}")
        )
        for spot_node in spot(2)
    ]
    assert waits_until([(0, spot(2)), (1, others)]) == [None, 11]


POOL = {"topology.kubernetes.io/zone": "a", "node.kubernetes.io/instance-type": "m5.large"}
OTHER = {"topology.kubernetes.io/zone": "b", "node.kubernetes.io/instance-type": "m5.large"}
DRAINED = {"taints": [{"key": "status-taint.cluster-autoscaler.kubernetes.io/spot-rescheduler-draining"}]}


def in_pools(changed: dict[int, dict[str, Any]] | None = None, gone: Iterable[int] = ()) -> list[Node]:
    """Return the nodes s0 and s1 of one pool, and s2 of another one."""
    fields = {number: {"labels": OTHER if number == 2 else POOL} for number in range(3)}
    return spot(3, {number: fields[number] | (changed or {}).get(number, {}) for number in fields}, gone)


#: case: calls (minutes, spot nodes, last states of deleted nodes) → losses by pool after all calls
POOL_STORIES: dict[str, tuple[list[tuple[float, list[Node], list[Node]]], dict[str, int]]] = {
    "nothing happens": ([(0, in_pools(), []), (1, in_pools(), [])], {}),
    "the first call counts nothing": ([(0, in_pools({0: ITN}), [])], {}),
    "gone": ([(0, in_pools(), []), (1, in_pools(gone=[0]), [])], {"a/m5.large": 1}),
    "one of each pool": ([(0, in_pools(), []), (1, in_pools(gone=[1, 2]), [])], {"a/m5.large": 1, "b/m5.large": 1}),
    "a notice": ([(0, in_pools(), []), (1, in_pools({0: ITN}), [])], {"a/m5.large": 1}),
    "a notice by a condition": ([(0, in_pools(), []), (1, in_pools({2: PREEMPTED}), [])], {"b/m5.large": 1}),
    "a notice, then gone: one loss": (
        [
            (0, in_pools(), []),
            (1, in_pools({0: ITN}), []),
            (2, in_pools({0: ITN | NOT_READY}), []),
            (3, in_pools(gone=[0]), []),
        ],
        {"a/m5.large": 1},
    ),
    "a notice that is withdrawn, then gone: one loss": (
        [(0, in_pools(), []), (1, in_pools({0: ITN}), []), (2, in_pools(), []), (3, in_pools(gone=[0]), [])],
        {"a/m5.large": 1},
    ),
    "not Ready for a short time": (
        [
            (0, in_pools(), []),
            (1, in_pools({0: NOT_READY}), []),
            (5, in_pools({0: UNHEARD}), []),
            (5.9, in_pools(), []),
        ],
        {},
    ),
    "not Ready for good": (
        [(0, in_pools(), []), (1, in_pools({0: NOT_READY}), []), (6, in_pools({0: UNHEARD}), [])],
        {"a/m5.large": 1},
    ),
    "not Ready, then gone": (
        [(0, in_pools(), []), (1, in_pools({0: UNHEARD}), []), (2, in_pools(gone=[0]), [])],
        {"a/m5.large": 1},
    ),
    "not Ready again after it was Ready": (
        [
            (0, in_pools(), []),
            (1, in_pools({0: NOT_READY}), []),
            (4, in_pools(), []),
            (5, in_pools({0: NOT_READY}), []),
            (9, in_pools({0: NOT_READY}), []),
        ],
        {},
    ),
    "removed by Cluster Autoscaler": (
        [(0, in_pools(), []), (1, in_pools({0: REMOVED}), []), (2, in_pools(gone=[0]), [])],
        {},
    ),
    "removed by Cluster Autoscaler between two calls": (
        [(0, in_pools(), []), (1, in_pools(gone=[0]), in_pools({0: REMOVED})[:1])],
        {},
    ),
    "cordoned and deleted between two calls": (
        [(0, in_pools(), []), (1, in_pools(gone=[0, 1]), in_pools({0: CORDONED})[:2])],
        {"a/m5.large": 1},
    ),
    "reclaimed between two calls": (
        [(0, in_pools(), []), (1, in_pools(gone=[0]), in_pools({0: ITN})[:1])],
        {"a/m5.large": 1},
    ),
    "drained by another installation": (
        [(0, in_pools(), []), (1, in_pools({0: DRAINED}), []), (2, in_pools(gone=[0]), [])],
        {},
    ),
}


@pytest.mark.parametrize(("looks", "expected"), POOL_STORIES.values(), ids=POOL_STORIES)
def test_losses_are_counted_by_pool(
    looks: list[tuple[float, list[Node], list[Node]]], expected: dict[str, int]
) -> None:
    watch = SpotWatch(SETTLE)
    losses: Counter[str] = Counter()
    for at, nodes, departed in looks:
        watch.update(nodes, NOW + timedelta(minutes=at), departed)
        losses += watch.take_losses()
    assert dict(losses) == expected


def test_a_node_whose_spot_label_was_removed_is_not_lost() -> None:
    watch = SpotWatch(SETTLE)
    watch.update(in_pools(), NOW)
    watch.update([], NOW + timedelta(minutes=1), existing=["uid-s0", "uid-s1"])
    assert watch.take_losses() == {"b/m5.large": 1}


def test_notices_of_the_provider_count_once() -> None:
    watch, nodes = SpotWatch(SETTLE), in_pools()
    watch.notified(nodes)  # not known yet
    watch.update(nodes, NOW)
    watch.notified(nodes[:2])
    watch.notified(nodes[1:])
    assert watch.take_losses() == {"a/m5.large": 2, "b/m5.large": 1}
    watch.update([], NOW + timedelta(minutes=1))
    assert watch.take_losses() == {}


def test_other_labels_name_the_pools() -> None:
    watch = SpotWatch(SETTLE, ("node.kubernetes.io/instance-type",))
    watch.update(in_pools(), NOW)
    watch.update([], NOW + timedelta(minutes=1))
    assert watch.take_losses() == {"m5.large": 3}


def test_what_happens_while_another_replica_leads_is_no_loss_later() -> None:
    watch, nodes = SpotWatch(SETTLE), in_pools()
    watch.update(nodes, NOW)
    watch.forget()
    assert watch.update(nodes[:1], NOW + timedelta(hours=1)) is None
    assert watch.take_losses() == {}
    assert watch.update([], NOW + timedelta(hours=2)) is None
    assert watch.take_losses() == {"a/m5.large": 1}


def test_without_a_settle_time_nothing_waits() -> None:
    assert waits_until([(0, spot(4)), (1, [])], timedelta()) == [None, None]
