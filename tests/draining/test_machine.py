"""Tests of complete drains as (time, event, expected actions), without clock, threads or cluster."""

from datetime import UTC, datetime

import pytest

from rescheduler.draining import transitions
from rescheduler.draining.actions import (
    AskProvider,
    DeleteNode,
    Evict,
    LookAgain,
    Mark,
    OrderRemoval,
    Release,
    Step,
    StoreDebts,
)
from rescheduler.draining.events import (
    Cause,
    ControllersRead,
    Done,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    EvictionSkipped,
    Looked,
    NotDone,
    Outcome,
    PlannedAgain,
    PodGone,
    ProviderAnswered,
    Removed,
    Stop,
)
from rescheduler.draining.state import Drain, Failure, Phase, Victim, Why
from rescheduler.planning.outcome import Blocker, Plan, PodRef, Reason, Rejected
from tests.draining.stories import (
    ASKED,
    EMPTY,
    LEFT,
    LIMITS,
    MOVED,
    NO_ROOM,
    OFF,
    OPENING,
    ORDERED,
    PLAN,
    READ,
    RENEWED,
    REOPENED,
    RUNS,
    STORED,
    TAKEN,
    WEB,
    A,
    C,
    Story,
    begun,
    opening,
    plan,
    planning,
    play,
    read,
    reading,
    running,
    seen,
    step,
    workload,
)

LATE = workload("late", "c")
#: A pod of another Deployment was bound to the node just before the scheduler observed the taint.
CAME: Story = [
    (10, Looked(plan(LATE)), (reading(WEB, of=(LATE,)),)),
    (10, read(WEB, LATE), (Mark(Step.DRAINING, ("a", "b"), debts=(WEB.debt, LATE.debt)),)),
    (10, Done(Mark), (StoreDebts(),)),
    (10, Done(StoreDebts), ()),
    (11, seen("c", {WEB: running(2), LATE: running(1)}), (planning(),)),
    *step(11, "c"),
    (12, seen("", {WEB: running(2), LATE: running(1)}), (LookAgain(),)),
]

SUCCESSES: dict[str, tuple[Plan, Story]] = {
    "pods are evicted in steps, and run elsewhere": (PLAN, [*OPENING, *MOVED, *LEFT]),
    "pods that are gone already need no eviction": (
        PLAN,
        [
            *OPENING[:6],
            (4, PodGone("a"), ()),
            (4, PodGone("b"), ()),
            (5, seen("", RUNS), ()),
            (6, seen("", RUNS), (LookAgain(),)),
            *LEFT,
        ],
    ),
    "a pod that is gone needs no eviction": (
        PLAN,
        [
            *OPENING,
            (5, seen("a b", RUNS), (planning(),)),
            (5, PlannedAgain(PLAN), (Evict(A),)),
            (5, PodGone("a"), ()),
            (6, seen("b", RUNS), (planning(),)),
            *step(6, "b"),
            (7, seen("", RUNS), (LookAgain(),)),
            *LEFT,
        ],
    ),
    "a pod that was reported gone but exists is evicted": (
        PLAN,
        [
            *OPENING,
            (5, seen("a b", RUNS), (planning(),)),
            (5, PlannedAgain(PLAN), (Evict(A),)),
            (5, PodGone("a"), ()),
            (5.5, seen("a b", RUNS), ()),
            (6, seen("a b", RUNS), (Evict(A),)),
            (6, EvictionAccepted("a"), ()),
            (7, seen("b", RUNS), (planning(),)),
            *step(7, "b"),
            (8, seen("", RUNS), (LookAgain(),)),
            *LEFT,
        ],
    ),
    "a pod that leaves while its eviction is refused is gone": (
        PLAN,
        [
            *OPENING,
            (5, seen("a b", RUNS), (planning(),)),
            (5, PlannedAgain(PLAN), (Evict(A),)),
            (5, EvictionRefused("a", "budget"), ()),
            (6, seen("b", RUNS), (planning(),)),
            *step(6, "b"),
            (7, seen("", RUNS), (LookAgain(),)),
            *LEFT,
        ],
    ),
    "pods without a controller cause no debts": (
        plan(bare="ab"),
        [
            *opening(plan(bare="ab")),
            (5, seen("a b"), (planning(),)),
            *step(5, "a b"),
            (6, seen("b"), ()),
            (7, seen(), (LookAgain(),)),
            *LEFT,
        ],
    ),
    "pods that are being deleted are waited for, and not evicted": (
        plan(leaving="c"),
        [
            (0, ProviderAnswered(None), (Mark(Step.DRAINING),)),
            (1, Done(Mark), (LookAgain(),)),
            (2, Looked(plan(leaving="c")), (reading(),)),
            (3, ControllersRead({}, {}), (Mark(Step.DRAINING),)),
            (4, Done(Mark), (StoreDebts(),)),
            (4, Done(StoreDebts), ()),
            (5, seen("c"), ()),
            (6, seen(), (LookAgain(),)),
            *LEFT,
        ],
    ),
    "pods scheduled after the plan are moved, too": (PLAN, [*OPENING, *MOVED, *CAME, *LEFT]),
    "an empty node without a provider is released immediately": (
        EMPTY,
        [
            (0, ProviderAnswered(None), (Mark(Step.DRAINING),)),
            (1, Done(Mark), (LookAgain(),)),
            (2, Looked(EMPTY), REOPENED),
            (3, Done(Release), ()),
        ],
    ),
    "the machine of a node without pods is terminated after late pods could be observed": (
        EMPTY,
        [
            (0, ProviderAnswered("pool"), (Mark(Step.DRAINING),)),
            (1, Done(Mark), (LookAgain(),)),
            (2, Looked(EMPTY), ()),
            (3, seen(), ()),
            (5.9, seen(), ()),
            (6, seen(), (LookAgain(),)),
            (7, Looked(EMPTY), (STORED, Mark(Step.REMOVING, group="pool"))),
            (8, Done(Mark), (OrderRemoval("pool"),)),
            (9, Removed(), (DeleteNode(),)),
            (10, Done(DeleteNode), ()),
        ],
    ),
    "termination is requested once all pods run, and the Node is deleted": (
        PLAN,
        [*TAKEN, *MOVED, *ORDERED, (12, Removed(), (DeleteNode(),)), (13, Done(DeleteNode), ())],
    ),
    "a slow termination is checked again": (
        PLAN,
        [
            *TAKEN,
            *MOVED,
            *ORDERED,
            (12, NotDone(OrderRemoval, "booked", Outcome.UNKNOWN), ()),
            (21, seen(), ()),
            (22, seen(), (OrderRemoval("pool", again=True),)),
            (23, Removed(), (DeleteNode(),)),
            (24, NotDone(DeleteNode, "500"), ()),
            (25, seen(), ()),
            (26, seen(), (DeleteNode(),)),
            (27, Done(DeleteNode), ()),
        ],
    ),
    "a failed release is retried": (
        PLAN,
        [
            *OPENING,
            *MOVED,
            (10, Looked(EMPTY), REOPENED),
            (11, NotDone(Release, "timeout"), ()),
            (12, seen(), ()),
            (13, seen(), (Release(),)),
            (14, Done(Release), ()),
        ],
    ),
    "late responses are ignored": (
        PLAN,
        [
            *OPENING,
            (5, seen("a b", RUNS), (planning(),)),
            (5, EvictionAccepted("b"), ()),
            *step(5, "a", PLAN),
            (5, EvictionAccepted("a"), ()),
            (5, EvictionRefused("a", "late"), ()),
            (5, EvictionFailed("c", "late", retryable=False), ()),
            *MOVED[3:],
            (10, Looked(EMPTY), REOPENED),
            (10, EvictionAccepted("a"), ()),
            (10, EvictionRefused("b", "late"), ()),
            (10, Done(Mark), ()),
            (11, Done(Release), ()),
            (12, seen("a"), ()),
            (12, Stop(Cause.TERMINATED), ()),
        ],
    ),
}


@pytest.mark.parametrize(("drain_plan", "story"), SUCCESSES.values(), ids=SUCCESSES)
def test_complete_drains_succeed(drain_plan: Plan, story: Story) -> None:
    drain = play(transitions.start(drain_plan, LIMITS), story)
    assert (drain.phase, drain.failure, drain.succeeded, drain.owed) == (Phase.DONE, None, True, {})


FAILURES: dict[str, tuple[Story, Failure]] = {
    "the last plan fails": (
        [*OPENING, *MOVED, (10, NotDone(LookAgain, "timeout"), REOPENED), *OFF],
        Failure(Why.API_ERROR, "timeout"),
    ),
    "a budget rejects the eviction until the timeout": (
        [
            *ASKED,
            (6, EvictionRefused("a", "would violate web", 100), ()),
            (105.9, seen("a b", RUNS), (READ, RENEWED)),
            (106, seen("a b", RUNS), (planning(),)),
            (106, PlannedAgain(PLAN), (Evict(A),)),
            (107, EvictionRefused("a", "would violate web", 100), ()),
            (124.9, seen("a b", RUNS), ()),
            (125, seen("a b", RUNS), REOPENED),
            *OFF,
            (144.9, seen("a b", RUNS), ()),
            (145, seen("a b", RUNS), ()),
        ],
        Failure(Why.EVICTION_TIMEOUT, "pod ns/a could not be evicted within 120 s: would violate web", (A,)),
    ),
    "an eviction gets no response": (
        [
            *ASKED,
            (124.9, seen("a b", RUNS), (READ, RENEWED)),
            (125, seen("a b", RUNS), REOPENED),
            *OFF,
            (144.9, seen("a b", RUNS), ()),
            (145, seen("a b", RUNS), ()),
        ],
        Failure(Why.EVICTION_TIMEOUT, "pod ns/a could not be evicted within 120 s", (A,)),
    ),
    "an eviction is forbidden": (
        [*ASKED, (6, EvictionFailed("a", "forbidden", retryable=False), REOPENED), *OFF],
        Failure(Why.EVICTION_FAILED, "forbidden", (A,)),
    ),
    "a pod does not terminate within its grace period": (
        [
            *ASKED,
            (5, EvictionAccepted("a"), ()),
            (64.9, seen("a b", {WEB: running(1, bound=2)}), (READ, RENEWED)),
            (65, seen("a b", {WEB: running(1, bound=2)}), REOPENED),
            *OFF,
        ],
        Failure(Why.TERMINATION_TIMEOUT, "pod ns/a did not terminate within the grace period and 30 s", (A,)),
    ),
    "pods are scheduled to the node repeatedly": (
        [
            *OPENING,
            *MOVED,
            *CAME,
            (10, Looked(plan(LATE)), (reading(WEB, LATE, of=(LATE,)),)),
            *CAME[1:],
            (10, Looked(plan(LATE, leaving="d")), REOPENED),
            *OFF,
        ],
        Failure(
            Why.PODS_RETURN,
            "pods were scheduled to the node 3 times during the drain: they tolerate its taint",
            (C, PodRef("ns", "d", "d")),
        ),
    ),
    "the taint is removed": (
        [*ASKED, (6, seen("a b", RUNS, tainted=False), REOPENED), *OFF, (8, EvictionSkipped("a"), ())],
        Failure(Why.MARK_LOST, "another client removed or replaced our taint or annotation"),
    ),
    "the annotation is replaced": (
        [
            *ASKED,
            (6, NotDone(Mark, "the annotation belongs to another process", Outcome.REFUSED), REOPENED),
            (6, EvictionRefused("a", "budget"), ()),
            *OFF,
        ],
        Failure(Why.MARK_LOST, "another client removed or replaced our taint or annotation"),
    ),
    "the node is gone when the mark is renewed": (
        [*ASKED, (6, NotDone(Mark, "no node od", Outcome.GONE), ())],
        Failure(Why.NODE_GONE, "no node od"),
    ),
    "the provider refuses the removal later": (
        [*TAKEN, *MOVED, *ORDERED, (12, NotDone(OrderRemoval, "protected", Outcome.REFUSED), REOPENED), *OFF],
        Failure(Why.REFUSED, "protected"),
    ),
    "the provider fails": (
        [*TAKEN, *MOVED, *ORDERED, (12, NotDone(OrderRemoval, "no luck"), REOPENED), *OFF],
        Failure(Why.PROVIDER, "no luck"),
    ),
    "the intent to remove cannot be written": (
        [*TAKEN, *MOVED, ORDERED[0], (11, NotDone(Mark, "409"), REOPENED), *OFF],
        Failure(Why.API_ERROR, "409"),
    ),
    "the mark is no longer ours when the intent to remove is written": (
        [*TAKEN, *MOVED, ORDERED[0], (11, NotDone(Mark, "not ours", Outcome.REFUSED), REOPENED), *OFF],
        Failure(Why.MARK_LOST, "not ours"),
    ),
    "a target is lost, and the others have no room": (
        [
            *ASKED,
            (5, EvictionAccepted("a"), ()),
            (6, seen("b", {WEB: running(1, live=2)}, lost="node s1: it is cordoned"), (READ, planning("a"))),
            (6, PlannedAgain(NO_ROOM), REOPENED),
            *OFF,
        ],
        Failure(Why.TARGET_LOST, "no-room-on-spot: pod ns/a: Insufficient cpu"),
    ),
    "the targets are filled by others between two steps": (
        [*OPENING, *MOVED[:5], (7, PlannedAgain(NO_ROOM), REOPENED), *OFF],
        Failure(Why.TARGET_LOST, "no-room-on-spot: pod ns/a: Insufficient cpu"),
    ),
    "a remaining pod may not be evicted any more": (
        [
            *OPENING,
            (5, seen("a b", RUNS), (planning(),)),
            (5, PlannedAgain(Rejected("od", (Blocker(Reason.DO_NOT_DISRUPT, "annotated", "ns/b"),))), REOPENED),
            *OFF,
        ],
        Failure(Why.PLAN_CHANGED, "do-not-disrupt: pod ns/b: annotated"),
    ),
}


@pytest.mark.parametrize(("story", "failure"), FAILURES.values(), ids=FAILURES)
def test_a_failure_removes_the_taint(story: Story, failure: Failure) -> None:
    """After every failure the taint is removed if it may be set."""
    drain = play(transitions.start(PLAN, LIMITS), story)
    assert (drain.phase, drain.failure, drain.released) == (Phase.DONE, failure, True)


def test_a_drain_queries_the_provider_first() -> None:
    assert transitions.start(PLAN, LIMITS)[1] == (AskProvider(),)
    assert transitions.resume("od", LIMITS, ("a",))[1] == (AskProvider(),)


def test_landing_is_measured_from_the_last_eviction() -> None:
    """There is no value before all pods run, or if nothing was evicted."""
    moved = play(transitions.start(PLAN, LIMITS), [*OPENING, *MOVED])
    _, story = SUCCESSES["pods that are being deleted are waited for, and not evicted"]
    released = play(transitions.start(EMPTY, LIMITS), story)
    assert (moved.landing_seconds, begun(PLAN, WEB).landing_seconds, released.landing_seconds) == (2, None, None)


_LATE_POD = Victim(PodRef("ns", "late", "uid-of-late"), None, 30.0)
_REQUESTED_AT = datetime(2026, 1, 1, tzinfo=UTC)
PAUSES: dict[str, tuple[Drain, bool]] = {
    "a drain that evicts": (Drain("od", LIMITS, Phase.EVICTING, waiting=(_LATE_POD,)), True),
    "a drain before its first eviction": (Drain("od", LIMITS, Phase.COUNTING), True),
    "a removal that was requested": (Drain("od", LIMITS, Phase.REMOVING, ordered_at=_REQUESTED_AT), False),
    "a requested removal whose node is planned again": (
        Drain("od", LIMITS, Phase.LOOKING, ordered_at=_REQUESTED_AT, waiting=(_LATE_POD,)),
        False,
    ),
    "a requested removal of a node with late pods": (
        Drain("od", LIMITS, Phase.EVICTING, ordered_at=_REQUESTED_AT, waiting=(_LATE_POD,)),
        True,
    ),
    "a requested removal whose late pods were evicted": (
        Drain("od", LIMITS, Phase.EVICTING, ordered_at=_REQUESTED_AT),
        False,
    ),
}


@pytest.mark.parametrize(("drain", "expected"), PAUSES.values(), ids=PAUSES)
def test_a_pause_stops_a_drain_unless_its_removal_was_requested(drain: Drain, expected: bool) -> None:
    assert transitions.is_stopped_by_pause(drain) is expected
