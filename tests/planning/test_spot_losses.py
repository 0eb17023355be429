"""Tests of bursts of lost spot nodes: when they are detected, changes that are no losses, and how long drains wait."""

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


def test_without_a_settle_time_nothing_waits() -> None:
    assert waits_until([(0, spot(4)), (1, [])], timedelta()) == [None, None]
