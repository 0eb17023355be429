"""Tests of drains whose pods have placeholders, as (time, event, expected actions)."""

from rescheduler.draining import transitions
from rescheduler.draining.actions import DeletePlaceholder, Evict
from rescheduler.draining.events import Done, NodeSeen, NotDone, Outcome, PlannedAgain
from rescheduler.draining.state import Failure, Why
from rescheduler.planning.outcome import PodRef
from tests.draining.stories import (
    EMPTY,
    LIMITS,
    NO_ROOM,
    OPENING,
    PLAN,
    REOPENED,
    RUNS,
    WEB,
    A,
    B,
    Story,
    planning,
    play,
    running,
    seen,
    step,
)

ROOM_A, ROOM_B = PodRef("room", "room-a", "x"), PodRef("room", "room-b", "y")
BOTH = {"a": ROOM_A, "b": ROOM_B}


def kept(placeholders: dict[str, PodRef], pods: str = "a b", **fields: object) -> NodeSeen:
    """Return an observation of *placeholders*, while all owed pods run."""
    return seen(pods, RUNS, placeholders=placeholders, **fields)


#: The first pod's placeholder is being deleted.
DELETION_REQUESTED: Story = [
    *OPENING,
    (5, kept(BOTH), (planning(),)),
    (5, PlannedAgain(PLAN), (DeletePlaceholder(ROOM_A, "a"),)),
]


def test_each_pod_is_evicted_once_its_placeholder_is_gone_and_the_pods_fit_again() -> None:
    story: Story = [
        *DELETION_REQUESTED,
        (6, Done(DeletePlaceholder, "a"), ()),
        (6, kept(BOTH), ()),
        (7, kept({"b": ROOM_B}), (planning(),)),
        *step(7, "a", drain_plan=PLAN),
        (8, seen("b", {WEB: running(2)}, placeholders={"b": ROOM_B}), (planning(),)),
        (8, PlannedAgain(PLAN), (DeletePlaceholder(ROOM_B, "b"),)),
        (9, kept({}, "b"), (planning(),)),
        (9, PlannedAgain(EMPTY), (Evict(B),)),
    ]
    assert not play(transitions.start(PLAN, LIMITS), story).done


def test_a_placeholder_that_others_delete_before_its_pod_is_due_is_not_deleted() -> None:
    story: Story = [
        *OPENING,
        (5, kept({"b": ROOM_B}), (planning(),)),
        (5, PlannedAgain(PLAN), (Evict(A),)),
    ]
    assert not play(transitions.start(PLAN, LIMITS), story).done


def test_a_failed_deletion_is_retried() -> None:
    story: Story = [
        *DELETION_REQUESTED,
        (6, NotDone(DeletePlaceholder, "timeout", Outcome.UNKNOWN, uid="a"), ()),
        (6.5, kept(BOTH), ()),
        (7, kept(BOTH), (DeletePlaceholder(ROOM_A, "a"),)),
        (8, NotDone(DeletePlaceholder, "timeout", Outcome.UNKNOWN, uid="a"), ()),
        (9, kept({"b": ROOM_B}), (planning(),)),
        (9, PlannedAgain(PLAN), (Evict(A),)),
    ]
    assert not play(transitions.start(PLAN, LIMITS), story).done


def test_the_room_is_taken_while_the_placeholder_is_deleted() -> None:
    story: Story = [
        *DELETION_REQUESTED,
        (6, kept({"b": ROOM_B}), (planning(),)),
        (6, PlannedAgain(NO_ROOM), REOPENED),
    ]
    assert play(transitions.start(PLAN, LIMITS), story).evicted == ()


ENDS: dict[str, tuple[Story, str]] = {
    "it may not be deleted": (
        [*DELETION_REQUESTED, (6, NotDone(DeletePlaceholder, "forbidden", uid="a"), REOPENED)],
        "forbidden",
    ),
    "it is not gone in time": (
        [*DELETION_REQUESTED, (6, Done(DeletePlaceholder, "a"), ()), (65, kept(BOTH), REOPENED)],
        "placeholder room/room-a is not gone after 60 s: it is still terminating",
    ),
    "its deletion fails for too long": (
        [
            *DELETION_REQUESTED,
            (63, NotDone(DeletePlaceholder, "timeout", Outcome.UNKNOWN, uid="a"), ()),
            (65, kept(BOTH), REOPENED),
        ],
        "placeholder room/room-a is not gone after 60 s: timeout",
    ),
}


def test_a_placeholder_that_is_not_gone_fails_the_drain() -> None:
    for story, detail in ENDS.values():
        drain = play(transitions.start(PLAN, LIMITS), story)
        assert drain.failure == Failure(Why.PLACEHOLDER_NOT_DELETED, detail)
        assert drain.evicted == ()
