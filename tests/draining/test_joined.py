"""Tests of drains of nodes that another tool starts to remove: Cluster Autoscaler taints them during the drain."""

from dataclasses import replace

import pytest

from rescheduler.draining import transitions
from rescheduler.draining.actions import Evict, LookAgain, Mark, Release
from rescheduler.draining.events import Done, EvictionAccepted, Looked, NotDone, Outcome, PlannedAgain
from rescheduler.draining.state import Failure, Phase, Why
from rescheduler.planning.debts import Debt
from rescheduler.planning.outcome import Plan
from tests.draining.stories import (
    ASKED,
    JOINED,
    LIMITS,
    MOVED,
    OPENING,
    ORDERED,
    PLAN,
    REOPENED,
    RUNS,
    TAKEN,
    WEB,
    B,
    Story,
    opening,
    plan,
    planning,
    play,
    running,
    seen,
    step,
    workload,
)

AUTOSCALER = "taint ToBeDeletedByClusterAutoscaler of Cluster Autoscaler"
MISSING = {WEB: running(1, bound=2)}

#: Both pods are evicted; the replacement pod of the second is not Ready yet.
EVICTED: Story = [*OPENING, *MOVED[:-1]]

#: Observations and their start times → the remaining debts at the end.
HANDED_OVER: dict[str, tuple[Plan, Story, tuple[Debt, ...], str]] = {
    "all pods are evicted, a replacement pod is not Ready": (
        PLAN,
        [*EVICTED, (9, seen("", MISSING, removed_by=AUTOSCALER), REOPENED), (10, Done(Release), ())],
        (WEB.debt,),
        AUTOSCALER,
    ),
    "an evicted pod still exists": (
        PLAN,
        [*EVICTED, (9, seen("b", MISSING, removed_by=AUTOSCALER), REOPENED), (10, Done(Release), ())],
        (WEB.debt,),
        AUTOSCALER,
    ),
    "all replacement pods are Ready": (
        PLAN,
        [*EVICTED, (9, seen("", RUNS, removed_by=AUTOSCALER), REOPENED), (10, Done(Release), ())],
        (),
        AUTOSCALER,
    ),
    "the node is planned for the last time": (
        PLAN,
        [*OPENING, *MOVED, (10, Looked(JOINED), REOPENED), (11, Done(Release), ())],
        (),
        "another tool is removing it",
    ),
    "the node is deleted before the marks are removed": (
        PLAN,
        [
            *EVICTED,
            (9, seen("", MISSING, removed_by=AUTOSCALER), REOPENED),
            (10, NotDone(Release, "500"), ()),
            (11, NotDone(Mark, "no node od", Outcome.GONE), ()),
        ],
        (WEB.debt,),
        AUTOSCALER,
    ),
    "the node is gone immediately": (
        PLAN,
        [*EVICTED, (9, NotDone(Mark, "no node od", Outcome.GONE), ())],
        (WEB.debt,),
        "no node od",
    ),
    "the node is gone when it is planned for the last time": (
        PLAN,
        [*OPENING, *MOVED, (10, NotDone(LookAgain, "no node od", Outcome.GONE), ())],
        (),
        "no node od",
    ),
    "the node is gone when the intent to remove is written": (
        PLAN,
        [*TAKEN, *MOVED, ORDERED[0], (11, NotDone(Mark, "no node od", Outcome.GONE), ())],
        (),
        "no node od",
    ),
    "the other tool evicts the remaining pods": (
        PLAN,
        [
            *ASKED,
            (5, EvictionAccepted("a"), ()),
            (6, seen("a b", {WEB: running(1)}, removed_by=AUTOSCALER), ()),
            (7, seen("b", RUNS, removed_by=AUTOSCALER), ()),
            (8, seen("", {WEB: running(1)}, removed_by=AUTOSCALER), REOPENED),
            (9, Done(Release), ()),
        ],
        (WEB.debt,),
        AUTOSCALER,
    ),
    "the other tool starts while a step is planned": (
        PLAN,
        [
            *OPENING,
            *MOVED[:5],
            (7, PlannedAgain(JOINED), ()),
            (7.2, seen("b", RUNS, removed_by=AUTOSCALER), ()),
            (8, seen("", {WEB: running(1)}, removed_by=AUTOSCALER), REOPENED),
            (9, Done(Release), ()),
        ],
        (WEB.debt,),
        AUTOSCALER,
    ),
}


@pytest.mark.parametrize(("drain_plan", "story", "owed", "removed_by"), HANDED_OVER.values(), ids=HANDED_OVER)
def test_the_drain_is_handed_over(drain_plan: Plan, story: Story, owed: tuple[Debt, ...], removed_by: str) -> None:
    drain = play(transitions.start(drain_plan, LIMITS), story)
    assert (drain.phase, drain.failure, drain.released, drain.removed_by) == (Phase.DONE, None, True, removed_by)
    assert (drain.succeeded, drain.handed_over, drain.ordered) == (False, False, False)
    assert tuple(drain.owed.values()) == owed


def test_controllers_that_lost_no_pod_to_this_drain_are_owed_nothing() -> None:
    other = workload("other", "c")
    drain_plan = plan(WEB, other)
    story: Story = [
        *opening(drain_plan, other, WEB),
        (5, seen("a b c", {WEB: running(2), other: running(1)}), (planning(),)),
        *step(5, "a", drain_plan),
        (6, seen("", {WEB: running(1), other: running(0)}, removed_by=AUTOSCALER), REOPENED),
        (7, Done(Release), ()),
    ]
    assert tuple(play(transitions.start(drain_plan, LIMITS), story).owed.values()) == (WEB.debt,)


def test_the_drain_continues_if_the_other_tool_gives_up() -> None:
    story: Story = [
        *ASKED,
        (5, EvictionAccepted("a"), ()),
        (6, seen("b", RUNS, removed_by=AUTOSCALER), ()),
        (7, seen("b", RUNS), (planning(),)),
        (7, PlannedAgain(PLAN), (Evict(B),)),
    ]
    assert play(transitions.start(PLAN, LIMITS), story).phase is Phase.EVICTING


def test_waiting_for_evictions_by_the_other_tool_times_out() -> None:
    drain = play(transitions.start(PLAN, LIMITS), [*ASKED, (5, EvictionAccepted("a"), ())])
    drain = replace(drain, renew_at=1e9, read_at=1e9)
    end, actions = transitions.step(drain, seen("b", RUNS, removed_by=AUTOSCALER), 605)
    assert actions == REOPENED
    assert end.failure == Failure(
        Why.EVICTION_TIMEOUT,
        f"another tool did not evict 1 pod of the node that it removes: {AUTOSCALER}",
        (B,),
    )


def test_before_the_first_eviction_the_plan_is_invalid() -> None:
    drain = play(transitions.start(PLAN, LIMITS), [*OPENING[:2], (2, Looked(JOINED), REOPENED), (3, Done(Release), ())])
    why = "the plan is no longer valid: being-drained-by-another: another tool is removing it"
    assert (drain.failure, drain.removed_by) == (Failure(Why.PLAN_CHANGED, why), "")
