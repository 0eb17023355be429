"""Tests of Kubernetes Events on nodes and pods: the two reasons of k8s-spot-rescheduler, and our own."""

from dataclasses import replace

import pytest

from rescheduler.draining.events import EvictionResult
from rescheduler.draining.state import Failure, Why
from rescheduler.observe.events import (
    Chosen,
    CoolingDown,
    DrainStarted,
    Event,
    EventTexts,
    EvictionAnswered,
    InvolvedLease,
    InvolvedNode,
    MachineGone,
    MachineOrdered,
    PauseChanged,
    RemovalPostponed,
    RoomEnded,
    RoomEnding,
    RoomOrdered,
    SurgeEnded,
    SurgeResult,
    SurgeStarted,
    Sweep,
    Swept,
    Tainted,
)
from rescheduler.observe.kube_events import KubeEvents
from rescheduler.planning.outcome import PodRef
from tests.observe.builders import BLOCKED, NOW, OD, PLAN, WEB, ended, planned

RecordedCall = tuple[InvolvedNode | InvolvedLease | PodRef, str, str, bool]


def events_of(*events: Event, texts: EventTexts = EventTexts()) -> list[RecordedCall]:  # noqa: B008 - a value
    recorded: list[RecordedCall] = []

    def record(
        subject: InvolvedNode | InvolvedLease | PodRef, reason: str, message: str, *, warning: bool = False
    ) -> None:
        recorded.append((subject, reason, message, warning))

    listener = KubeEvents(record, texts)
    for event in events:
        listener(event)
    return recorded


OD_2 = InvolvedNode("od-2", "uid-od-2")
LEASE = InvolvedLease("kube-system", "k8s-spot-rescheduler", "uid-lease")
REASONS = (
    "the node is not drained: no-controller: pod default/bare: no <b>controller</b> recreates it; "
    "pod-disruption-budget: pod default/db-1: 0 of 1"
)

CASES: dict[str, tuple[Event, list[RecordedCall]]] = {
    "a node that is not drained": (planned(BLOCKED), [(OD_2, "DrainBlocked", REASONS, False)]),
    "a node that can be drained": (planned(PLAN), []),
    "a drain begins": (
        DrainStarted(OD, PLAN), [(OD, "DrainPlanned", "moving 1 pod to spot nodes: default/web-1 → spot-1", False)],
    ),
    "a resumed drain": (DrainStarted(OD, None), []),
    "a pause": (
        PauseChanged(LEASE, "drains are paused: a release"),
        [(LEASE, "DrainsPaused", "drains are paused: a release", False)],
    ),
    "the end of a pause": (
        PauseChanged(LEASE, ""),
        [(LEASE, "DrainsResumed", "drains are no longer paused", False)],
    ),
    "the taint": (Tainted(OD), [(OD, "Rescheduler", "marked the node as draining: it accepts no more pods", False)]),
    "an eviction": (
        EvictionAnswered(OD, WEB, EvictionResult.EVICTED),
        [(WEB, "Rescheduler", "evicted from on-demand node od-1 to move to another node", False)],
    ),
    "a temporary rejection": (EvictionAnswered(OD, WEB, EvictionResult.REFUSED, "x"), []),
    "a failed eviction": (
        EvictionAnswered(OD, WEB, EvictionResult.FAILED, "forbidden"),
        [(WEB, "ReschedulerFailed", "not evicted: forbidden", True)],
    ),
    "a roll-out": (
        SurgeStarted(OD, "web/api", 2),
        [(OD, "SurgeStarted", "rolling out Deployment web/api to move 2 pods", False)],
    ),
    "its end": (
        SurgeEnded(OD, "web/api", SurgeResult.DONE),
        [(OD, "SurgeDone", "Deployment web/api has rolled out: its pods run elsewhere", False)],
    ),
    "an undone roll-out": (
        SurgeEnded(OD, "web/api", SurgeResult.ROLLED_BACK),
        [(OD, "SurgeRolledBack", "Deployment web/api has its former template again", True)],
    ),
    "a roll-out of another client": (
        SurgeEnded(OD, "web/api", SurgeResult.STOPPED),
        [(OD, "SurgeStopped", "another client changed Deployment web/api: it is left alone", True)],
    ),
    "a termination request": (
        MachineOrdered(OD, "pool", "g"),
        [(OD, "MachineRemovalOrdered", "requested termination of the machine in group g from pool", False)],
    ),
    "a postponed termination request": (
        RemovalPostponed(OD, Failure(Why.PLAN_CHANGED, "no-controller: pod a/b")),
        [
            (
                OD,
                "MachineRemovalPostponed",
                ("machine termination may have been requested before; not requested again for now: no-controller: "
                "pod a/b"),
                True,
            )
        ],
    ),
    "a drain completed by another tool": (
        replace(ended(), removed_by="another tool is removing it (a taint)"),
        [
            (OD, "NodeDrained", "drained in 12 s, 1 pod evicted; another tool is removing it (a taint)", False),
            (OD, "Rescheduler", "drained the node: its pods are evicted, another tool is removing it", False),
        ],
    ),
    "a termination requested by an earlier drain": (
        MachineGone(OD),
        [(OD, "MachineRemoved", "the machine is terminating or gone, and the Node was deleted", False)],
    ),
    "the end": (
        ended(),
        [
            (OD, "NodeDrained", "drained in 12 s, 1 pod evicted", False),
            (OD, "Rescheduler", "drained the node: its pods run elsewhere", False),
        ],
    ),
    "a failure": (
        ended(Why.EVICTION_TIMEOUT),
        [
            (OD, "DrainFailed", "eviction-timeout: it took too long", True),
            (OD, "ReschedulerFailed", "failed to drain the node: eviction-timeout", True),
            (WEB, "ReschedulerFailed", "still on od-1: eviction-timeout", True),
        ],
    ),
    "a cool-down": (
        CoolingDown(OD, NOW, 1),
        [(OD, "DrainCoolDown", "no new attempt before 2026-01-01T12:00:00Z after 1 consecutive failed drains", False)],
    ),
    "an order of room": (
        RoomOrdered(OD, 4, 2, "spot-1", "frees 4 vCPU and adds 4", NOW),
        [
            (
                OD,
                "SpotRoomOrdered",
                "created 4 placeholders: expecting 2 new spot nodes like spot-1 by 2026-01-01T12:00:00Z",
                False,
            )
        ],
    ),
    "an order of spot nodes": (
        RoomOrdered(OD, 4, 2, "spot-1", "frees 4 vCPU and adds 4", NOW, "pool"),
        [
            (
                OD,
                "SpotRoomOrdered",
                "requested 2 spot nodes in group pool from the provider for 4 pods by 2026-01-01T12:00:00Z",
                False,
            )
        ],
    ),
    "room that was filled": (RoomEnded(OD, RoomEnding.FILLED, ""), [(OD, "SpotRoomEnded", "filled", False)]),
    "room that was refused": (
        RoomEnded(OD, RoomEnding.REFUSED, "forbidden"),
        [(OD, "SpotRoomEnded", "refused: forbidden", True)],
    ),
    "room that did not come": (
        RoomEnded(OD, RoomEnding.TIMED_OUT, "1 of 4 run"),
        [(OD, "NoSpotCapacity", "no room was made in time: 1 of 4 run", True)],
    ),
    "marks": (Swept(OD, "x", Sweep.RESUMED), [(OD, "DrainSwept", "a drain by x was resumed", False)]),
}  # fmt: skip


@pytest.mark.parametrize(("event", "expected"), CASES.values(), ids=CASES)
def test_each_event_becomes_its_kubernetes_events(event: Event, expected: list[RecordedCall]) -> None:
    assert events_of(event) == expected


@pytest.mark.parametrize("why", Why)
def test_each_cause_of_a_failed_drain_is_reported(why: Why) -> None:
    assert events_of(ended(why))[:2] == [
        (OD, "DrainFailed", f"{why}: it took too long", True),
        (OD, "ReschedulerFailed", f"failed to drain the node: {why}", True),
    ]


def test_blockers_are_reported_when_they_change() -> None:
    assert len(events_of(planned(BLOCKED), planned(BLOCKED))) == 1
    assert len(events_of(planned(BLOCKED), planned(PLAN, complete=False), planned(BLOCKED))) == 1
    assert len(events_of(planned(BLOCKED), planned(PLAN), planned(BLOCKED))) == 2


def test_a_proxy_reports_rejected_nodes_once() -> None:
    chosen = Chosen((PLAN,), (BLOCKED,), {"od-1": OD, "od-2": OD_2})
    assert events_of(chosen, chosen) == [(OD_2, "DrainBlocked", REASONS, False)]


def test_texts_of_the_daemon_and_the_proxy_differ() -> None:
    texts = EventTexts(targets="to others", evicted="evicted from {node}")
    recorded = events_of(DrainStarted(OD, PLAN), EvictionAnswered(OD, WEB, EvictionResult.EVICTED), texts=texts)
    assert [message for _, _, message, _ in recorded] == [
        "moving 1 pod to others: default/web-1 → spot-1",
        "evicted from od-1",
    ]
