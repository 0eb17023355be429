"""Tests of drains that are stopped or cannot end: marks are renewed and removed, debts are handed over."""

import pytest

from rescheduler.draining import transitions
from rescheduler.draining.actions import (
    DeleteNode,
    Evict,
    LookAgain,
    Mark,
    OrderRemoval,
    Release,
    Renew,
    Step,
    StoreDebts,
    TryEviction,
)
from rescheduler.draining.events import (
    Cause,
    Done,
    DrainEvent,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    EvictionSkipped,
    Looked,
    NodeGone,
    NotDone,
    Outcome,
    PlannedAgain,
    PodGone,
    Removed,
    Stop,
)
from rescheduler.draining.state import Failure, Phase, Why
from rescheduler.planning.outcome import PodRef
from tests.draining.stories import (
    ASKED,
    EMPTY,
    LIMITS,
    MOVED,
    OPENING,
    ORDERED,
    PLAN,
    READ,
    RENEWED,
    REOPENED,
    RUNS,
    TAKEN,
    WEB,
    A,
    B,
    Story,
    begun,
    plan,
    planning,
    play,
    running,
    seen,
    step,
    workload,
)


def test_a_drain_ends_if_the_node_is_deleted_during_the_release() -> None:
    story: Story = [
        *ASKED,
        (6, Stop(Cause.TERMINATED), REOPENED),
        (7, NotDone(Release, "500"), ()),
        (8, NotDone(Mark, "timeout"), ()),
        (9, NotDone(Mark, "no node od", Outcome.GONE), ()),
        (10, PodGone("a"), ()),
    ]
    drain = play(transitions.start(PLAN, LIMITS), story)
    assert (drain.phase, drain.released) == (Phase.DONE, True)
    assert drain.failure is not None
    assert drain.failure.why is Why.STOPPED


def test_a_pause_rolls_a_drain_back_and_is_the_cause_of_its_failure() -> None:
    story: Story = [*ASKED, (6, Stop(Cause.PAUSED, "drains are paused: a release"), REOPENED), (7, Done(Release), ())]
    drain = play(transitions.start(PLAN, LIMITS), story)
    assert drain.failure is not None
    assert (drain.failure.why, drain.failure.detail) == (Why.PAUSED, "drains are paused: a release")


def test_the_mark_is_renewed_each_minute() -> None:
    """The mark contains the remaining debts, and is renewed in every phase in which the drain waits."""
    story: Story = [
        *OPENING[:4],
        (50, Done(Mark), (StoreDebts(),)),
        (50, Done(StoreDebts), (TryEviction(A), TryEviction(B))),
        (50, EvictionAccepted("a"), ()),
        (50, EvictionFailed("b", "500", retryable=True, retry_after=100), ()),
        (109.9, seen("a b"), ()),
        (110, seen("a b"), (RENEWED,)),
        (111, NotDone(Mark, "timeout"), ()),
        (150, seen("a b"), (TryEviction(B),)),
        (151, EvictionAccepted("b"), ()),
        (152, seen("a b", RUNS), (READ, planning())),
        (152, PlannedAgain(PLAN), (Evict(A),)),
        (169.9, seen("a b", RUNS), ()),
        (170, EvictionAccepted("a"), (RENEWED,)),
        (171, seen("b", RUNS), (planning(),)),
        *step(171, "b"),
        (200, seen("b", RUNS), ()),
        (231, seen("", RUNS), (LookAgain(),)),
    ]
    assert play(transitions.start(PLAN, LIMITS), story).phase is Phase.LOOKING


def test_the_mark_of_a_removal_is_renewed_each_minute() -> None:
    story: Story = [
        *TAKEN,
        *MOVED,
        *ORDERED,
        (70.9, NotDone(OrderRemoval, "booked", Outcome.UNKNOWN), ()),
        (71, seen(), (Renew(Step.REMOVING, group="pool", debts=(WEB.debt,)),)),
        (71, NotDone(Mark, "timeout"), ()),
        (80.9, seen(), (OrderRemoval("pool", again=True),)),
        (90, Removed(), (DeleteNode(),)),
        (131, seen(), (Renew(Step.REMOVING, group="pool", debts=(WEB.debt,)),)),
    ]
    assert play(transitions.start(PLAN, LIMITS), story).phase is Phase.DELETING


STOPPED = "stop requested during the drain"

#: State of the drain when it is stopped → its actions, and the pods in its failure.
STOPS: dict[str, tuple[Story, bool, tuple[PodRef, ...]]] = {
    "while the provider is asked": ([], False, ()),
    "while the node is marked": (OPENING[:1], True, ()),
    "while the cluster is read": (OPENING[:2], True, ()),
    "while the controllers are read": (OPENING[:3], True, (A, B)),
    "while the debts are written": (OPENING[:4], True, (A, B)),
    "while the debts are stored": (OPENING[:5], True, (A, B)),
    "while evictions are tried": (OPENING[:6], True, (A, B)),
    "before the first eviction": (OPENING, True, (A, B)),
    "while an eviction is in flight": (ASKED, True, (A, B)),
    "while a replacement pod is awaited": ([*ASKED, (5, EvictionAccepted("a"), ())], True, (B,)),
    "when everything runs": ([*OPENING, *MOVED], True, ()),
    "while the intent to remove is written": ([*TAKEN, *MOVED, ORDERED[0]], True, ()),
}


@pytest.mark.parametrize(("story", "marked", "pods"), STOPS.values(), ids=STOPS)
def test_a_stop_rolls_the_drain_back(story: Story, marked: bool, pods: tuple[PodRef, ...]) -> None:
    """The drain is rolled back, and nothing more is evicted."""
    now = story[-1][0] if story else 0
    after: Story = [
        (now, Stop(Cause.TERMINATED), REOPENED if marked else ()),
        (now, Stop(Cause.TERMINATED), ()),
        (now, seen("a b", RUNS), ()),
        (now, Done(Release), ()),
        (now, EvictionSkipped("a"), ()),
    ]
    drain = play(transitions.start(PLAN, LIMITS), [*story, *after])
    assert (drain.phase, drain.failure, drain.released) == (Phase.DONE, Failure(Why.STOPPED, STOPPED, pods), True)


@pytest.mark.parametrize("answered", [True, False])
def test_marks_replaced_by_others_are_not_removed(answered: bool) -> None:
    lost = NotDone(Release, "the annotation belongs to another process", Outcome.REFUSED)
    story: Story = [*OPENING, *MOVED, (10, Looked(EMPTY), REOPENED), (11, lost, ())]
    if not answered:
        story = [
            *ASKED,
            (6, NotDone(Mark, "not ours", Outcome.REFUSED), REOPENED),
            (7, lost, ()),
            (9, seen("a b", RUNS), (Release(),)),
            (9, EvictionSkipped("a"), ()),
            (10, lost, ()),
        ]
    drain = play(transitions.start(PLAN, LIMITS), story)
    assert (drain.phase, drain.released, drain.failure and drain.failure.why) == (Phase.DONE, False, Why.MARK_LOST)


#: Response to an eviction that is in flight when the drain fails → the pods that the drain has evicted.
LATE_ANSWERS: dict[str, tuple[DrainEvent, tuple[PodRef, ...]]] = {
    "accepted": (EvictionAccepted("a"), (A,)),
    "refused": (EvictionRefused("a", "budget"), ()),
    "failed": (EvictionFailed("a", "500", retryable=True), ()),
    "the pod is gone": (PodGone("a"), ()),
    "not sent": (EvictionSkipped("a"), ()),
}


@pytest.mark.parametrize(("answer", "evicted"), LATE_ANSWERS.values(), ids=LATE_ANSWERS)
@pytest.mark.parametrize("order", ["before the marks are off", "after it"])
def test_the_drain_ends_after_all_eviction_responses(
    answer: DrainEvent, evicted: tuple[PodRef, ...], order: str
) -> None:
    """Otherwise a pod that is about to be evicted would count as running in the next round."""
    late: Story = [(6, Done(Release), ()), (7, answer, ())]
    story: Story = [*ASKED, (6, Stop(Cause.TERMINATED), REOPENED), *(late if order == "after it" else late[::-1])]
    assert play(transitions.start(PLAN, LIMITS), story[:-1]).phase is Phase.RELEASING
    drain = play(transitions.start(PLAN, LIMITS), story)
    assert (drain.phase, drain.released, drain.evicted) == (Phase.DONE, True, evicted)


@pytest.mark.parametrize("story", [*(story for story, *_ in STOPS.values()), [*TAKEN, *MOVED, *ORDERED]])
def test_after_losing_the_lease_nothing_is_written(story: Story) -> None:
    now = story[-1][0] if story else 0
    drain = play(transitions.start(PLAN, LIMITS), [*story, (now, Stop(Cause.LEADERSHIP_LOST), ())])
    assert (drain.phase, drain.released, drain.succeeded) == (Phase.DONE, False, False)
    assert drain.failure is not None
    assert drain.failure.why is Why.LEADERSHIP_LOST


def test_a_failed_drain_owes_only_controllers_that_lost_pods() -> None:
    api = workload("api", "c")
    replicas = {WEB: running(2), api: running(1)}
    story: Story = [
        (5, seen("a b c", replicas), (planning(),)),
        (5, PlannedAgain(EMPTY), (Evict(A),)),
        (6, Stop(Cause.TERMINATED), REOPENED),
    ]
    drain = play(begun(plan(WEB, api), WEB, api), story)
    assert drain.owed == {WEB.controller: WEB.debt}


def test_a_taint_that_cannot_be_removed_is_reported() -> None:
    """A later round removes the taint. The drain has failed, although the moved pods run."""
    story: Story = [
        *OPENING,
        *MOVED,
        (10, Looked(EMPTY), REOPENED),
        *((now, NotDone(Release, "no answer"), ()) for now in (14, 19, 27)),
        (28, NotDone(Release, "no answer"), ()),
    ]
    drain = play(transitions.start(PLAN, LIMITS), story)
    assert (drain.done, drain.released, drain.failure) == (True, False, Failure(Why.API_ERROR, "no answer"))


def test_the_drain_ends_when_the_node_is_gone_and_an_eviction_gets_no_response() -> None:
    story: Story = [*ASKED, (6, Stop(Cause.TERMINATED), REOPENED), (7, NodeGone("deleted"), ())]
    drain = play(transitions.start(PLAN, LIMITS), story)
    assert drain.phase is Phase.RELEASING
    assert play(drain, [(6 + LIMITS.release, NodeGone("deleted"), ())]).phase is Phase.DONE


def test_a_skipped_eviction_is_not_in_flight_when_the_drain_is_stopped() -> None:
    story: Story = [
        *ASKED,
        (6, EvictionSkipped("a"), ()),
        (6, Stop(Cause.TERMINATED), REOPENED),
        (7, Done(Release), ()),
    ]
    assert play(transitions.start(PLAN, LIMITS), story).phase is Phase.DONE
