"""Tests of evictions that are rejected, fail or are delayed, as (time, event, expected actions)."""

from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

from rescheduler.draining import transitions
from rescheduler.draining.actions import Evict, LookAgain
from rescheduler.draining.events import EvictionAccepted, EvictionFailed, EvictionRefused, PlannedAgain
from rescheduler.draining.state import Drain, Why
from rescheduler.planning.debts import Replicas
from tests.draining.stories import (
    ASKED,
    EMPTY,
    LEFT,
    LIMITS,
    MOVED,
    NO_ROOM,
    OPENING,
    PLAN,
    READ,
    REOPENED,
    RUNS,
    WEB,
    A,
    B,
    Story,
    Workload,
    begun,
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


class TestRejectedEvictions:
    def test_retries_back_off(self) -> None:
        drain, asked, now = play(transitions.start(PLAN, replace(LIMITS, eviction=1000)), ASKED), [5.0], 5.0
        while len(asked) < 8:
            drain, actions = transitions.step(drain, EvictionRefused("a", "budget"), now)
            while Evict(A) not in actions:
                now += 0.5
                drain, actions = transitions.step(drain, seen("a b", RUNS), now)
                if planning() in actions:
                    drain, actions = transitions.step(drain, PlannedAgain(PLAN), now)
            asked.append(now)
        assert [later - earlier for earlier, later in pairwise(asked)] == [1, 2, 4, 8, 10, 10, 10]

    def test_retry_after_is_respected(self) -> None:
        story: Story = [
            *ASKED,
            (6, EvictionFailed("a", "busy", retryable=True, retry_after=7), ()),
            (12.5, seen("a b", RUNS), ()),
            (13, seen("a b", RUNS), (READ, planning())),
            (13, PlannedAgain(PLAN), (Evict(A),)),
            (13.5, seen("a b", RUNS), ()),
        ]
        assert not play(transitions.start(PLAN, LIMITS), story).done

    FIRST, X, Y = ALL = (
        workload("first", "a"),
        workload("x", "x", namespace="two"),
        workload("y", "y", namespace="three"),
    )
    RUNNING: ClassVar[dict[Workload, Replicas]] = dict.fromkeys(ALL, running(1))
    #: After the first pod, evictions in two other namespaces are requested at the same time.
    TWO: ClassVar[Story] = [
        (5, seen("a x y", RUNNING), (planning(),)),
        *step(5, "a"),
        (6, seen("x y", RUNNING), (planning(),)),
        (6, PlannedAgain(EMPTY), (Evict(X.pods[0]), Evict(Y.pods[0]))),
    ]

    def test_retries_are_sooner_after_another_pod_has_left(self) -> None:
        story: Story = [
            *self.TWO,
            (6, EvictionAccepted("x"), ()),
            (6, EvictionRefused("y", "budget", 100), ()),
            (7, seen("y", self.RUNNING), ()),
            (8, seen("y", self.RUNNING), (Evict(self.Y.pods[0]),)),
            (9, seen("y", self.RUNNING), ()),
        ]
        assert not play(begun(plan(*self.ALL), *self.ALL), story).done

    def test_an_eviction_in_flight_is_not_retried(self) -> None:
        story: Story = [
            *self.TWO,
            (6, EvictionRefused("y", "budget", 1), ()),
            (7, seen("x y", self.RUNNING), (Evict(self.Y.pods[0]),)),
            (8, EvictionAccepted("x"), ()),
            (9, seen("y", self.RUNNING), ()),
            (11, seen("y", self.RUNNING), ()),
            (11, EvictionAccepted("y"), ()),
            (12, seen("y", self.RUNNING), ()),
        ]
        assert not play(begun(plan(*self.ALL), *self.ALL), story).done


class TestEvictionsThatAreRequestedAgainLater:
    """They are planned again, like a step: room, owner and other pods may have changed since the first request."""

    LATER: ClassVar[Story] = [
        (5, seen("a b", RUNS), (planning(),)),
        (5, PlannedAgain(PLAN), (Evict(A),)),
        (6, EvictionRefused("a", "budget", 60), ()),
        (65, seen("a b", RUNS), ()),
        (66, seen("a b", RUNS), (planning(),)),
        (66.5, seen("a b", RUNS), ()),
    ]

    def after(self, story: Story) -> Drain:
        return play(replace(begun(PLAN, WEB), renew_at=1e9, read_at=1e9), [*self.LATER, *story])

    def test_their_pods_still_fit(self) -> None:
        drain = self.after([(67, PlannedAgain(PLAN), (Evict(A),)), (67, EvictionAccepted("a"), ())])
        assert drain.evicted == (A,)

    def test_their_pods_do_not_fit_any_more(self) -> None:
        drain = self.after([(67, PlannedAgain(NO_ROOM), REOPENED)])
        assert drain.failure is not None
        assert (drain.failure.why, drain.evicted) == (Why.TARGET_LOST, ())

    def test_another_pod_has_to_move_first(self) -> None:
        other_order = replace(PLAN, placements=PLAN.placements[::-1], one_by_one=True)
        story: Story = [
            (67, PlannedAgain(other_order), ()),
            (68, seen("a b", RUNS), (planning(),)),
            (68, PlannedAgain(other_order), ()),
            (69, seen("a b", RUNS), (planning(),)),
            (69, PlannedAgain(other_order), (Evict(B),)),
        ]
        assert [victim.pod for victim in self.after(story).waiting] == [A]

    def test_their_owner_is_gone(self) -> None:
        gone = read(WEB, web=WEB.state(exists=False))
        drain = self.after([(67, PlannedAgain(PLAN, gone), ()), (68, seen("a b", RUNS), ())])
        assert "no-controller" in drain.unowned
        assert [victim.pod for victim in drain.victims.values()] == [A]

    def test_another_pod_of_their_owner_is_missing(self) -> None:
        missing = replace(read(WEB), replicas={WEB.controller: running(1)})
        story: Story = [
            (67, PlannedAgain(PLAN, missing), ()),
            (68, seen("a b", {WEB: running(1)}), ()),
            (69, seen("a b", RUNS), (planning(),)),
            (69, PlannedAgain(PLAN), (Evict(A),)),
        ]
        assert self.after(story).evicted == ()

    def test_a_soon_request_needs_no_plan(self) -> None:
        story: Story = [
            *ASKED,
            (6, EvictionRefused("a", "budget", 4), ()),
            (10, seen("a b", RUNS), (Evict(A),)),
            (10, EvictionRefused("a", "budget", 1), ()),
            (11, seen("a b", RUNS), (planning(),)),
        ]
        play(transitions.start(PLAN, LIMITS), story)


def test_a_pod_of_a_stateful_set_is_evicted_after_its_rejection() -> None:
    """The rejected pod itself does not count as one that leaves."""
    alone = workload("db", "a", kind="StatefulSet")
    drain = replace(begun(plan(alone), alone), renew_at=1e9, read_at=1e9)
    run = {alone: running(1)}
    story: Story = [
        (5, seen("a", run), (planning(),)),
        (5, PlannedAgain(plan(alone)), (Evict(A),)),
        (6, EvictionRefused("a", "budget", 60), ()),
        (66, seen("a", run), (planning(),)),
        (66, PlannedAgain(plan(alone)), (Evict(A),)),
    ]
    play(drain, story)


def test_nothing_is_evicted_while_a_node_of_the_plan_is_lost() -> None:
    """Even an eviction that a budget rejected is not retried before the pods fit on other nodes."""
    story: Story = [
        *ASKED,
        (6, EvictionRefused("a", "budget", 1), ()),
        (7, seen("a b", RUNS, lost="node s1: it is gone"), (planning(),)),
        (7, PlannedAgain(PLAN), ()),
        (8, seen("a b", RUNS), (Evict(A),)),
        (8, EvictionRefused("a", "budget", 1), ()),
        (9, seen("a", RUNS, lost="node s1: it is gone"), (READ, planning())),
        (9, PlannedAgain(NO_ROOM), REOPENED),
    ]
    assert play(transitions.start(PLAN, LIMITS), story).evicted == ()


def test_nothing_is_evicted_or_terminated_while_a_watch_is_silent() -> None:
    """The watched state may be outdated. Controllers are still read."""
    story: Story = [
        *ASKED,
        (6, EvictionRefused("a", "budget", 1), ()),
        (13, seen("a b", RUNS, stale=True), (READ,)),
        (14, seen("a b", RUNS), (planning(),)),
        (14, PlannedAgain(PLAN), (Evict(A),)),
        (14, EvictionAccepted("a"), ()),
        (15, seen("b", RUNS, stale=True), ()),
        (16, seen("b", RUNS), (planning(),)),
        *step(16, "b"),
        (17, seen("", RUNS, stale=True), ()),
        (18, seen("", RUNS), (LookAgain(),)),
    ]
    play(transitions.start(PLAN, LIMITS), story)


def test_a_lost_node_that_no_pod_needs_is_ignored() -> None:
    story: Story = [
        *OPENING,
        *MOVED[:-2],
        (8, seen("b", {WEB: running(1, bound=2)}, lost="node s1: it is gone"), (READ,)),
        MOVED[-1],
        *LEFT,
    ]
    assert play(transitions.start(PLAN, LIMITS), story).succeeded


def test_an_eviction_that_is_accepted_after_the_drain_failed_counts() -> None:
    """A replacement for its pod is owed, too."""
    story: Story = [
        *ASKED,
        (6, seen("a b", RUNS, tainted=False), REOPENED),
        (7, EvictionAccepted("a"), ()),
        (7, EvictionAccepted("a"), ()),
        (7, EvictionAccepted("b"), ()),
    ]
    drain = play(transitions.start(PLAN, LIMITS), story)
    assert (drain.evicted, drain.debts) == ((A,), {WEB.controller: WEB.debt})


def test_a_late_dry_run_response_does_not_count() -> None:
    story: Story = [
        *OPENING[:6],
        (5, EvictionRefused("a", "budget"), REOPENED),
        (6, EvictionAccepted("b"), ()),
    ]
    assert play(transitions.start(PLAN, LIMITS), story).evicted == ()


def test_failures_name_the_first_pods_and_count_the_rest() -> None:
    drain_plan = plan(bare="abcdefgh")
    story: Story = [
        (5, seen("a b c d e f g h"), (planning(),)),
        (5, PlannedAgain(drain_plan), tuple(Evict(placement.pod) for placement in drain_plan.placements)),
        (125, seen("a b c d e f g h"), REOPENED),
    ]
    failure = play(begun(drain_plan), story).failure
    assert failure is not None
    assert failure.detail == "pods ns/a, ns/b, ns/c, ns/d, ns/e and 3 more could not be evicted within 120 s"


class TestPodsDeletedByOthers:
    """A scale-down during a drain."""

    def test_the_drain_waits_for_deleted_pods_and_does_not_evict_them(self) -> None:
        b_leaves = plan(WEB, leaving="b")
        story: Story = [
            *OPENING,
            (5, seen("a b", RUNS), (planning(),)),
            *step(5, "a", drain_plan=PLAN),
            (7, seen("b", RUNS), (planning(),)),
            (7, PlannedAgain(b_leaves), ()),
            (8, seen("b", RUNS), (reading(WEB, of=(WEB,)),)),
            (9, seen("", RUNS), (LookAgain(),)),
        ]
        assert [pod.name for pod in play(transitions.start(PLAN, LIMITS), story).evicted] == ["a"]

    def test_waiting_for_deleted_pods_times_out(self) -> None:
        story: Story = [
            *OPENING,
            (5, seen("a b", RUNS), (planning(),)),
            (5, PlannedAgain(plan(WEB, leaving="a")), ()),
            (94.9, seen("a b", RUNS), ()),
        ]
        drain, actions = transitions.step(play(transitions.start(PLAN, LIMITS), story[:-1]), seen("a b", RUNS), 95)
        assert actions == REOPENED
        assert drain.failure is not None
        assert drain.failure.why is Why.TERMINATION_TIMEOUT
