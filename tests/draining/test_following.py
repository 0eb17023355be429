"""Tests of replacement pods: how they fail, and when nothing is owed any more."""

from dataclasses import replace
from typing import Any, ClassVar, Final

import msgspec
import pytest

from rescheduler.draining import transitions
from rescheduler.draining.actions import Evict, LookAgain, PlanAgain, ReadControllers, Release
from rescheduler.draining.events import Cause, EvictionAccepted, EvictionRefused, NotDone, Outcome, PlannedAgain, Stop
from rescheduler.draining.state import Drain, Failure, Limits, Phase, Why
from rescheduler.planning.controllers import JobFacts
from rescheduler.planning.debts import Replicas
from tests.draining.stories import (
    EMPTY,
    LIMITS,
    PLAN,
    REOPENED,
    WEB,
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

ONE_POD = workload("web", "a")
LONG_LIMITS = replace(LIMITS, removal=1000, eviction=1000)


def evicted(each: Workload = ONE_POD, limits: Limits = LONG_LIMITS) -> Drain:
    """Return a story in which the only pod of *each* on the node is evicted at second 5.

    Controllers are not read again. The next read was requested after the eviction.
    """
    story: Story = [
        (5, seen("a", {each: each.running}), (planning(),)),
        *step(5, "a"),
    ]
    return replace(play(begun(plan(each), each, limits=limits), story), renew_at=1e9, asked_at=5.5)


def watch(drain: Drain, each: Workload, *phases: tuple[float, str, Replicas], every: float = 0.5) -> float:
    """Return the time of the failure. *phases* are the observations: start time, pods, replicas."""
    now = phases[0][0]
    while now < 2000:
        _, pods, replicas = next(phase for phase in reversed(phases) if phase[0] <= now)
        drain, actions = transitions.step(drain, seen(pods, {each: replicas}), now)
        if Release() in actions:
            return now
        now += every
    raise AssertionError("the drain did not fail")


UNSCHEDULABLE = running(0, live=1, unschedulable=("ns/a2",))
PENDING = running(0, live=1)
BACK = running(0, live=1, returned=1)

#: Observations and their start times → when and why the drain gives up.
FAILURES: dict[str, tuple[list[tuple[float, str, Replicas]], float, Why, str]] = {
    "it is not created": (
        [(6, "", running(0))],
        605,
        Why.REPLACEMENT_NOT_CREATED,
        "not created within 600 s after the last eviction",
    ),
    "it is unschedulable": (
        [(6, "", UNSCHEDULABLE)],
        21,
        Why.REPLACEMENT_UNSCHEDULABLE,
        "the scheduler cannot place ns/a2",
    ),
    "it is unschedulable: the timer starts when the evicted pod is gone": (
        [(6, "a", UNSCHEDULABLE), (34, "", UNSCHEDULABLE)],
        49,
        Why.REPLACEMENT_UNSCHEDULABLE,
        "the scheduler cannot place ns/a2",
    ),
    "it is unschedulable repeatedly": (
        [(6, "", UNSCHEDULABLE), (20, "", PENDING), (21, "", UNSCHEDULABLE)],
        36,
        Why.REPLACEMENT_UNSCHEDULABLE,
        "the scheduler cannot place ns/a2",
    ),
    "it is not bound: the scheduler does not run": (
        [(6, "", PENDING)],
        66,
        Why.REPLACEMENT_NOT_BOUND,
        "not bound to a node within 60 s",
    ),
    "it is created late and not bound": (
        [(6, "", running(0)), (20, "", PENDING)],
        80,
        Why.REPLACEMENT_NOT_BOUND,
        "not bound to a node within 60 s",
    ),
    "it is not bound: the timer starts when the evicted pod is gone": (
        [(6, "a", PENDING), (30, "", PENDING)],
        90,
        Why.REPLACEMENT_NOT_BOUND,
        "not bound to a node within 60 s",
    ),
    "it is scheduled to the drained node again": (
        [(6, "", BACK)],
        66,
        Why.PODS_RETURN,
        "it was scheduled to the drained node again, because it tolerates the taint",
    ),
}


@pytest.mark.parametrize(("phases", "when", "why", "message"), FAILURES.values(), ids=FAILURES)
def test_a_replacement_fails(phases: list[tuple[float, str, Replicas]], when: float, why: Why, message: str) -> None:
    drain = evicted()
    assert watch(drain, ONE_POD, *phases) == when
    for since, pods, replicas in [*phases, (when, *phases[-1][1:])]:
        drain, actions = transitions.step(drain, seen(pods, {ONE_POD: replicas}), since)
    assert actions == REOPENED
    assert drain.failure == Failure(why, f"replacement pod of Deployment ns/web: {message}")
    assert drain.owed == {ONE_POD.controller: ONE_POD.debt}


HINDERED: Final = "pod ns/a2: container app waits: ImagePullBackOff: Back-off pulling image app:2"


def test_the_landing_timeout_says_why_pods_do_not_run() -> None:
    """It is read shortly before the timeout."""
    starting = {ONE_POD: running(0, bound=1)}
    story: Story = [
        (580, seen("", starting), (reading(ONE_POD),)),
        (580, read(ONE_POD), ()),
        (591, seen("", starting), (reading(ONE_POD, read_refusals=True),)),
        (591, read(ONE_POD, web=ONE_POD.state(hindrance=HINDERED)), ()),
        (605, seen("", starting), REOPENED),
    ]
    failure = play(replace(evicted(), read_at=570), story).failure
    assert failure is not None
    assert (failure.why, failure.detail.endswith(f"(1 missing); {HINDERED}")) == (Why.LANDING_TIMEOUT, True)


def test_an_unschedulable_replacement_says_what_the_scheduler_says() -> None:
    said = "pod ns/a2: 0/2 nodes are available: 2 Insufficient cpu."
    story: Story = [
        (6, seen("", {ONE_POD: UNSCHEDULABLE}), ()),
        (8, seen("", {ONE_POD: UNSCHEDULABLE}), (reading(ONE_POD, read_refusals=True),)),
        (8, read(ONE_POD, web=ONE_POD.state(hindrance=said)), ()),
        (21, seen("", {ONE_POD: UNSCHEDULABLE}), REOPENED),
    ]
    failure = play(replace(evicted(), read_at=6), story).failure
    assert failure is not None
    assert failure.detail.endswith(f"the scheduler cannot place ns/a2; {said}")


def test_replacements_that_do_not_become_ready_time_out() -> None:
    """The time starts at the last eviction."""
    story: Story = [
        (604.9, seen("", {ONE_POD: running(0, bound=1)}), ()),
        (605, seen("", {ONE_POD: running(0, bound=1)}), REOPENED),
    ]
    drain = play(evicted(), story)
    why = "replacement pods are not Ready 600 s after the last eviction: ns/Deployment/web (1 missing)"
    assert drain.failure == Failure(Why.LANDING_TIMEOUT, why)


def test_a_landing_timeout_lists_the_first_controllers() -> None:
    each = [workload(name, name, total=3) for name in "abcde"]
    drain = replace(begun(plan(*each), *each, limits=LONG_LIMITS), renew_at=1e9, read_at=1e9)
    well = {known: running(3) for known in each}
    story: Story = [
        (5, seen("a b c d e", well), (planning(),)),
        *step(5, "a"),
        (6, seen("b c d e", well), (planning(),)),
        *step(6, "b"),
        (6, seen("c d e", well), (planning(),)),
        *step(6, "c"),
        (6, seen("d e", well), (planning(),)),
        *step(6, "d"),
        (6, seen("e", well), (planning(),)),
        *step(6, "e"),
        (606, seen("", {known: running(1, bound=3) for known in each}), REOPENED),
    ]
    failure = play(drain, story).failure
    assert failure is not None
    assert failure.detail == (
        "replacement pods are not Ready 600 s after the last eviction: ns/Deployment/a (2 missing), "
        "ns/Deployment/b (2 missing), ns/Deployment/c (2 missing)"
    )


def test_a_pod_that_waits_for_its_volume_has_until_the_landing_timeout() -> None:
    """The failure names the volume that is still attached to the drained node."""
    drain = replace(begun(plan(ONE_POD), ONE_POD, limits=LONG_LIMITS), renew_at=1e9, read_at=1e9)
    why = "ns/x waits until its volume disk is detached from node od"
    waiting = seen("", {ONE_POD: running(0, bound=1)}, detaching={ONE_POD.controller: why})
    story: Story = [
        (5, seen("a", {ONE_POD: running(1)}), (planning(),)),
        *step(5, "a"),
        (6, waiting, ()),
        (604, waiting, ()),
        (606, waiting, REOPENED),
    ]
    failure = play(drain, story).failure
    assert failure is not None
    assert failure.why is Why.LANDING_TIMEOUT
    assert failure.detail.endswith(f"(1 missing); {why}")


class TestSlowPods:
    """Pods that move one at a time, and take almost the landing timeout each: others must not wait for all of them."""

    SLOW: ClassVar = workload("db", "a", "b", "c", "d", kind="StatefulSet")
    QUICK: ClassVar = workload("web", "w", namespace="other")

    def steps(self, seconds: float, *, beside: bool = False) -> tuple[Drain, float]:
        """Return the drain and the time at which no more pods are evicted. Replacements take *seconds*."""
        moved = [self.SLOW, *([self.QUICK] if beside else [])]
        drain = replace(begun(plan(*moved), *moved, limits=LONG_LIMITS), renew_at=1e9, read_at=1e9)
        left, back_at, now = [*("a", "b", "c", "d"), *(["w"] if beside else [])], dict[str, float](), 5.0
        while drain.phase is Phase.EVICTING:
            missing = {name for name, at in back_at.items() if at > now}
            ready = {self.SLOW: running(4 - len(missing - {"w"})), self.QUICK: running(1 - len(missing & {"w"}))}
            drain, actions = transitions.step(drain, seen(" ".join(left), ready), now)
            if any(isinstance(action, PlanAgain) for action in actions):
                drain, actions = transitions.step(drain, PlannedAgain(EMPTY), now)
                for action in actions:
                    assert isinstance(action, Evict)
                    drain, _ = transitions.step(drain, EvictionAccepted(action.pod.uid), now)
                    left.remove(action.pod.uid)
                    back_at[action.pod.uid] = now + (seconds if action.pod.uid != "w" else 5)
            now += 5
        return drain, now

    def test_no_step_begins_after_two_landing_timeouts(self) -> None:
        drain, ended = self.steps(590)
        why = "pods of namespace ns run again too slowly: the drain waited 1755 s for them, 1 of them remains, and "
        assert drain.failure == Failure(Why.LANDING_TIMEOUT, why + "other nodes wait")
        assert drain.failure.owners == (self.SLOW.controller,)
        assert drain.owed == {}
        assert ended < 3 * LONG_LIMITS.landing

    def test_pods_of_other_namespaces_are_not_blamed(self) -> None:
        drain, _ = self.steps(590, beside=True)
        assert drain.failure is not None
        assert drain.failure.owners == (self.SLOW.controller,)

    def test_all_move_within_two_landing_timeouts(self) -> None:
        drain, _ = self.steps(299)
        assert drain.phase is Phase.LOOKING
        assert drain.failure is None

    def test_time_in_which_nothing_is_missing_does_not_count(self) -> None:
        drain = replace(begun(plan(self.SLOW), self.SLOW, limits=LONG_LIMITS), renew_at=1e9, read_at=1e9)
        unready = running(3, bound=4, unready=("elsewhere",))
        drain, _ = transitions.step(drain, seen("a b c d", {self.SLOW: unready}), 5)
        drain, _ = transitions.step(drain, seen("a b c d", {self.SLOW: unready}), 500)
        assert drain.kept_waiting == {}


def test_evictions_time_out_while_other_replicas_are_not_ready() -> None:
    sick = running(2, bound=3, unready=("elsewhere",))
    database = workload("db", "a", "b", kind="StatefulSet", total=3, replicas=sick)
    drain = replace(begun(plan(database), database), renew_at=1e9)
    story: Story = [
        (603.9, seen("a b", {database: sick}), ()),
        (604, seen("a b", {database: sick}), REOPENED),
    ]
    drain = play(drain, story)
    why = "2 pods could not be evicted: other pods of ns/StatefulSet/db are missing or not Ready"
    assert drain.failure == Failure(Why.EVICTION_TIMEOUT, why, database.pods)


class TestJobs:
    """The Job controller's back-off before it replaces a failed pod doubles each time."""

    @pytest.mark.parametrize(("failures", "delay"), [(0, 10), (1, 20), (3, 80), (6, 600), (5, 320), (2000, 600)])
    def test_the_drain_waits_for_the_back_off(self, failures: int, delay: float) -> None:
        job = workload("sum", "a", kind="Job")
        drain = play(
            evicted(job, replace(LONG_LIMITS, landing=2000)),
            [
                (6, read(job, sum=job.state(job=JobFacts(failures=failures))), ()),
            ],
        )
        drain = replace(drain, read_at=1e9)
        refused = replace(drain.states[job.controller], refusal="exceeded quota")
        failing = replace(drain, states={job.controller: refused})
        assert watch(failing, job, (7, "", running(0)), every=1) == 7 + 15 + delay
        assert watch(drain, job, (7, "", PENDING), every=1) == 7 + 60 + delay
        assert watch(drain, job, (7, "", UNSCHEDULABLE)) == 7 + 15

    def test_a_succeeded_pod_counts_as_a_replacement(self) -> None:
        job = workload("sum", "a", kind="Job", total=2)
        story: Story = [
            (6, read(job, sum=job.state(succeeded=1)), ()),
            (7, seen("", {job: running(1)}), (LookAgain(),)),
        ]
        assert play(evicted(job), story).owed == {}

    def test_a_finished_job_is_owed_nothing(self) -> None:
        job = workload("sum", "a", kind="Job", total=2)
        story: Story = [(6, read(job, sum=job.state(wanted=0)), ()), (7, seen(""), (LookAgain(),))]
        assert play(evicted(job), story).owed == {}


class TestReading:
    def test_events_of_a_controller_that_cannot_create_pods_are_reported(self) -> None:
        """Events are read as soon as a replacement pod is missing."""
        message = 'pods "web-2" is forbidden: exceeded quota: none'
        story: Story = [
            (5.5, read(ONE_POD), ()),
            (6, seen("", {ONE_POD: running(0)}), ()),
            (7.5, seen("", {ONE_POD: running(0)}), (reading(ONE_POD, read_refusals=True),)),
            (8, read(ONE_POD, web=ONE_POD.state(refusal=message)), ()),
            (10, seen("", {ONE_POD: running(0)}), (reading(ONE_POD, read_refusals=True),)),
            (21, seen("", {ONE_POD: running(0)}), REOPENED),
        ]
        drain = play(evicted(), story)
        assert drain.failure == Failure(Why.REPLACEMENT_REFUSED, f"replacement pod of Deployment ns/web: {message}")

    def test_controllers_are_read_more_often_while_pods_are_missing(self) -> None:
        """Otherwise a controller that was scaled down could be mistaken for one that cannot create pods."""
        all_run, one_misses = {WEB: running(2)}, {WEB: running(1)}
        story: Story = [
            (5, seen("a b", all_run), (planning(),)),
            (5, PlannedAgain(PLAN), (Evict(PLAN.placements[0].pod),)),
            (5, EvictionRefused("a", "budget", 100), ()),
            (6, read(WEB), ()),
            (15.9, seen("a b", all_run), ()),
            (16, seen("a b", all_run), (reading(WEB, of=(WEB,)),)),
            (17, NotDone(ReadControllers, "timeout", Outcome.UNKNOWN), ()),
            (26.9, seen("a b", all_run), ()),
            (27, seen("a b", one_misses), (reading(WEB, of=(WEB,), read_refusals=True),)),
            (28, read(WEB), ()),
            (29.9, seen("a b", one_misses), ()),
            (30, seen("a b", one_misses), (reading(WEB, of=(WEB,), read_refusals=True),)),
            (31, read(WEB), ()),
            (32, seen("a b", all_run), ()),
            (36, seen("a b", one_misses), (reading(WEB, of=(WEB,), read_refusals=True),)),
        ]
        play(begun(PLAN, WEB), story)

    def test_a_lost_permission_ends_the_drain(self) -> None:
        story: Story = [(6, NotDone(ReadControllers, "deployments: forbidden"), REOPENED)]
        assert play(evicted(), story).failure == Failure(Why.API_ERROR, "deployments: forbidden")

    def test_pods_of_deleted_replica_sets_are_still_counted(self) -> None:
        drain = play(evicted(), [(6, read(ONE_POD, web=ONE_POD.state(owner_uids=frozenset({"new"}))), ())])
        assert drain.states[ONE_POD.controller].owner_uids == {"uid-web", "new"}


#: After the only pod was evicted: state of the controller, its pods → whether the drain ends.
LESS_OWED: dict[str, tuple[dict[str, Any], Replicas, bool]] = {
    "nothing changes": ({}, running(2), False),
    "nothing changes, and the replacement is Ready": ({}, running(3), True),
    "scaled up": ({"wanted": 5}, running(3), True),
    "scaled down by the missing number": ({"wanted": 2}, running(2), True),
    "scaled down, and more is missing": ({"wanted": 2}, running(1), False),
    "scaled to zero": ({"wanted": 0}, running(0), True),
    "deleted": ({"wanted": 0, "exists": False}, running(0), True),
    "being deleted with its pods": ({"wanted": 0, "deleting": True}, running(0), True),
    "being deleted, pods are orphaned": ({"deleting": True}, running(0), False),
    "suspended": ({"suspended": True}, running(0), True),
    "on a new template that does not roll out": ({"template": "2"}, running(2), False),
    "on a new template, and nothing has to stay available": (
        {"template": "2", "least_available": 0},
        running(0),
        False,
    ),
    "on a new template, and enough stay available": ({"template": "2", "least_available": 2}, running(2, 3), True),
    "on a new template, and a pod is not created": ({"template": "2", "least_available": 2}, running(2), False),
    "on a template that cannot be read": ({"template": ""}, running(0), False),
}


@pytest.mark.parametrize(("change", "runs", "over"), LESS_OWED.values(), ids=LESS_OWED)
def test_debts_are_converted(change: dict[str, Any], runs: Replicas, over: bool) -> None:
    three = workload("web", "a", total=3)
    story: Story = [
        (6, read(three, web=three.state(**change)), ()),
        (7, seen("", {three: runs}), (LookAgain(),) if over else ()),
    ]
    drain = play(evicted(three), story)
    assert drain.owed == ({} if over else {three.controller: three.debt})
    assert drain.debts == {three.controller: three.debt}


class TestRollOutDuringDrain:
    """A roll-out may make pods unavailable, but evictions wait until all owed pods are Ready."""

    MANY = workload("web", "a", "b", total=5)
    ROLLING = MANY.state(template="2", least_available=4)

    def test_the_next_step_waits_for_all_pods(self) -> None:
        many = self.MANY
        story: Story = [
            (5, seen("a b", {many: running(5)}), (planning(),)),
            *step(5, "a"),
            (6, read(many, web=self.ROLLING), ()),
            (7, seen("b", {many: running(4, bound=6)}), ()),
            (8, seen("b", {many: running(5, bound=6)}), (planning(),)),
            *step(8, "b"),
        ]
        play(begun(plan(many), many), story)

    def test_the_end_waits_for_the_pods_that_the_roll_out_leaves_available(self) -> None:
        one = workload("web", "a", total=5)
        story: Story = [
            (5, seen("a", {one: running(5)}), (planning(),)),
            *step(5, "a"),
            (6, read(one, web=one.state(template="2", least_available=4)), ()),
            (7, seen("", {one: running(3, bound=6)}), ()),
            (8, seen("", {one: running(4, bound=6)}), (LookAgain(),)),
        ]
        assert play(begun(plan(one), one), story).phase is Phase.LOOKING

    def test_after_the_roll_out_all_pods_are_owed_again(self) -> None:
        one = workload("web", "a", total=5)
        story: Story = [
            (5, seen("a", {one: running(5)}), (planning(),)),
            *step(5, "a"),
            (6, read(one, web=one.state(template="2", least_available=4)), ()),
            (7, seen("", {one: running(3, bound=6)}), ()),
            (8, read(one, web=one.state(template="2")), ()),
            (9, seen("", {one: running(4, bound=5)}), ()),
            (10, seen("", {one: running(5)}), (LookAgain(),)),
        ]
        assert play(begun(plan(one), one), story).phase is Phase.LOOKING


def test_a_pod_that_a_scale_up_added_before_the_eviction_is_not_a_replacement() -> None:
    """The Deployment wanted two pods when it was read, but has three when one is evicted; no replacement is created."""
    two = workload("web", "a", total=2)
    story: Story = [
        (5, seen("a", {two: running(3)}), (planning(),)),
        *step(5, "a"),
        (6, seen("", {two: running(2)}), (reading(two),)),
        (6.5, read(two, web=two.state(wanted=3)), ()),
        (7, seen("", {two: running(2)}), ()),
        (8, seen("", {two: running(3)}), (LookAgain(),)),
    ]
    assert play(replace(begun(plan(two), two), read_at=4), story).phase is Phase.LOOKING


def test_pods_beyond_the_desired_number_are_not_owed() -> None:
    """A roll-out may run more pods than wanted; the next read of the controller shows the number."""
    two = workload("web", "a", total=2)
    story: Story = [
        (5, seen("a", {two: running(3)}), (planning(),)),
        *step(5, "a"),
        (6, seen("", {two: running(2)}), (reading(two),)),
        (6.5, read(two), ()),
        (7, seen("", {two: running(2)}), (LookAgain(),)),
    ]
    assert play(replace(begun(plan(two), two), read_at=4), story).phase is Phase.LOOKING


class TestPodsThatAreLostAgain:
    """A paid debt is looked at again: the spot node of the replacement pods may go, or they may be preempted."""

    FIRST, SECOND = workload("a", "a"), workload("b", "b", "c")
    WELL: ClassVar[dict[Workload, Replicas]] = {FIRST: running(1), SECOND: running(2)}
    BEGUN: ClassVar[Story] = [
        (5, seen("a b c", WELL), (planning(),)),
        *step(5, "a"),
        (6, seen("b c", WELL), (planning(),)),
        *step(6, "b"),
    ]

    def drain(self) -> Drain:
        both = self.FIRST, self.SECOND
        return replace(play(begun(plan(*both), *both), self.BEGUN), renew_at=1e9, asked_at=6.5)

    def test_no_pod_of_any_controller_is_evicted_until_they_run_again(self) -> None:
        lost = {**self.WELL, self.FIRST: running(0, live=1)}
        story: Story = [(7, seen("c", lost), ()), (8, seen("c", lost), ()), (9, seen("c", self.WELL), (planning(),))]
        play(self.drain(), story)

    def test_a_pod_that_is_not_ready_any_more_is_lost(self) -> None:
        lost = {**self.WELL, self.FIRST: running(0, bound=1)}
        story: Story = [(7, seen("c", lost), ()), (9, seen("c", self.WELL), (planning(),))]
        play(self.drain(), story)

    def test_an_unschedulable_pod_reopens_the_node(self) -> None:
        lost = {**self.WELL, self.FIRST: running(0, live=1, unschedulable=("ns/a2",))}
        story: Story = [(7, seen("c", lost), ()), (21.9, seen("c", lost), ()), (22, seen("c", lost), REOPENED)]
        drain = play(self.drain(), story)
        assert drain.failure is not None
        assert drain.failure.why is Why.REPLACEMENT_UNSCHEDULABLE
        assert drain.owed == {self.FIRST.controller: self.FIRST.debt}

    def test_the_machine_is_not_ordered(self) -> None:
        lost = {**self.WELL, self.FIRST: running(0, live=1)}
        story: Story = [
            (7, seen("c", self.WELL), (planning(),)),
            *step(7, "c"),
            (8, seen("", lost), ()),
            (9, seen("", self.WELL), (LookAgain(),)),
        ]
        assert play(self.drain(), story).phase is Phase.LOOKING

    def test_a_pod_of_a_controller_that_lost_none_to_this_drain_holds_only_its_own_steps(self) -> None:
        """The first pod is evicted although a pod of the other controller is not Ready."""
        sick = {**self.WELL, self.SECOND: running(1, bound=2)}
        play(begun(plan(self.FIRST, self.SECOND), self.FIRST, self.SECOND), [(5, seen("a b c", sick), (planning(),))])


def test_a_debt_is_not_paid_while_pods_of_the_controller_remain() -> None:
    story: Story = [
        (5, seen("a b", {WEB: running(2)}), (planning(),)),
        *step(5, "a"),
        (6, seen("b", {WEB: running(2)}), (planning(),)),
        (6, PlannedAgain(EMPTY), (Evict(B),)),
        (7, EvictionRefused("b", "budget", 100), ()),
        (8, seen("b", {WEB: running(2)}), ()),
        (9, seen("b", {WEB: running(1)}), ()),
    ]
    assert play(begun(PLAN, WEB), story).owed == {WEB.controller: WEB.debt}


class TestWithoutLanding:
    """Clients of a cloudpool proxy wait for its response, so bound pods are enough."""

    LIMITS = replace(LIMITS, landing=0)

    def test_bound_pods_are_sufficient_at_the_end(self) -> None:
        drain = evicted(ONE_POD, self.LIMITS)
        play(
            drain,
            [(6, seen("", {ONE_POD: PENDING}), ()), (7, seen("", {ONE_POD: running(0, bound=1)}), (LookAgain(),))],
        )

    def test_steps_still_wait_for_ready_pods(self) -> None:
        story: Story = [
            (5, seen("a b", {WEB: running(2)}), (planning(),)),
            *step(5, "a"),
            (6, seen("b", {WEB: running(1, bound=2)}), ()),
            (7, seen("b", {WEB: running(2)}), (planning(),)),
        ]
        play(begun(PLAN, WEB, limits=self.LIMITS), story)

    def test_a_step_without_ready_replacements_times_out(self) -> None:
        drain = begun(PLAN, WEB, limits=self.LIMITS)
        story: Story = [
            (5, seen("a b", {WEB: running(2)}), (planning(),)),
            *step(5, "a"),
        ]
        drain = replace(play(drain, story), renew_at=1e9)
        assert watch(drain, WEB, (6, "b", running(1, bound=2))) == 125

    def test_unbound_pods_have_a_separate_timeout(self) -> None:
        """The limit of evictions may be shorter than the time in which a replacement pod must be bound."""
        drain = begun(PLAN, WEB, limits=replace(self.LIMITS, eviction=15))
        story: Story = [
            (5, seen("a b", {WEB: running(2)}), (planning(),)),
            *step(5, "a"),
        ]
        drain = replace(play(drain, story), renew_at=1e9)
        assert watch(drain, WEB, (6, "b", running(1, live=2))) == 66


class TestExposure:
    """Termination is requested at least five seconds after the taint, when pods that were being bound are visible."""

    def test_the_last_plan_waits_until_five_seconds_after_the_taint(self) -> None:
        quick = begun(plan(ONE_POD), ONE_POD)
        quick = replace(quick, tainted_at=4.0)
        story: Story = [
            (5, seen("a", {ONE_POD: running(1)}), (planning(),)),
            *step(5, "a"),
            (6, seen("", {ONE_POD: running(1)}), ()),
            (8.9, seen("", {ONE_POD: running(1)}), ()),
            (9, seen("", {ONE_POD: running(1)}), (LookAgain(),)),
        ]
        assert play(quick, story).landing_seconds == 1


class TestControllerWithMissingPods:
    """The drain did not evict the missing pods, so it does not fail. It evicts no other pod before they run."""

    SICK, WEB = workload("a-sick", "a", total=2), workload("b-web", "b")

    def test_the_drain_waits_for_the_missing_pods(self) -> None:
        ill, well = running(1), running(2)
        story: Story = [
            (5, seen("a b", {self.SICK: ill, self.WEB: running(1)}), ()),
            (200, seen("a b", {self.SICK: ill, self.WEB: running(1)}), ()),
            (201, seen("a b", {self.SICK: well, self.WEB: running(1)}), (planning(),)),
        ]
        play(replace(begun(plan(self.SICK, self.WEB), self.SICK, self.WEB), renew_at=1e9), story)

    def test_waiting_for_the_missing_pods_times_out(self) -> None:
        ill = {self.SICK: running(1), self.WEB: running(1)}
        story: Story = [(603.9, seen("a b", ill), ()), (604, seen("a b", ill), REOPENED)]
        drain = replace(begun(plan(self.SICK, self.WEB), self.SICK, self.WEB), renew_at=1e9)
        drain = play(drain, story)
        why = f"2 pods could not be evicted: other pods of {self.SICK.controller} are missing or not Ready"
        assert drain.failure == Failure(Why.EVICTION_TIMEOUT, why, (*self.SICK.pods, *self.WEB.pods))
        assert drain.owed == {}


class TestAPodThatBecomesReadyAfterTheMark:
    """A pod that is Ready when it is evicted is owed a Ready replacement, any other pod only a bound one."""

    STARTING = workload("web", "a", total=2, replicas=running(1, bound=2, unready=("a",)))

    @pytest.mark.parametrize(("replicas", "ready"), [(running(2), 2), (running(1, bound=2, unready=("a",)), 1)])
    def test_ready_pods_at_the_eviction_are_owed(self, replicas: Replicas, ready: int) -> None:
        story: Story = [(5, seen("a", {self.STARTING: replicas}), (planning(),)), *step(5, "a")]
        drain = play(begun(plan(self.STARTING), self.STARTING), story)
        debt = self.STARTING.debt
        assert drain.owed == {self.STARTING.controller: msgspec.structs.replace(debt, ready=ready)}


class TestStaying:
    """Pods that run, but may not stay: once all pods have moved, they are not enough."""

    READY: ClassVar = running(1)
    UNSETTLED: ClassVar = replace(READY, unsettled=1)
    AT_RISK: ClassVar = replace(UNSETTLED, at_risk="node s of pod ns/a2: taken; no other node has room for the pod")

    def test_the_drain_goes_on_once_they_have_been_ready_for_a_while(self) -> None:
        drain = evicted()
        for at, replicas in ((6, self.UNSETTLED), (15, self.UNSETTLED), (16, self.READY)):
            drain, actions = transitions.step(drain, seen("", {ONE_POD: replicas}), at)
        assert actions == (LookAgain(),)
        assert drain.landed_at == 16

    def test_between_steps_ready_pods_are_enough(self) -> None:
        drain = play(begun(PLAN, WEB), [(5, seen("a b", {WEB: WEB.running}), (planning(),)), *step(5, "a")])
        _, actions = transitions.step(drain, seen("b", {WEB: replace(WEB.running, unsettled=1)}), 6)
        assert [type(action) for action in actions] == [PlanAgain]

    def test_between_steps_of_an_owner_whose_pods_were_lost_again_they_are_not(self) -> None:
        drain = play(begun(PLAN, WEB), [(5, seen("a b", {WEB: WEB.running}), (planning(),)), *step(5, "a")])
        waiting = replace(drain, planning_at=None, read_at=None)
        for at, replicas, plans in (
            (6, replace(WEB.running, unsettled=1, ready=WEB.running.ready - 1), False),
            (7, replace(WEB.running, unsettled=1), False),
            (17, WEB.running, True),
        ):
            waiting, actions = transitions.step(
                replace(waiting, settled=frozenset({WEB.controller})), seen("b", {WEB: replicas}), at
            )
            assert any(isinstance(action, PlanAgain) for action in actions) is plans

    def test_pods_that_never_stay_are_not_waited_for_for_ever(self) -> None:
        assert watch(evicted(), ONE_POD, (6, "", self.UNSETTLED)) == 615

    def test_pods_that_stop_being_ready_fail_at_the_landing_timeout(self) -> None:
        down = running(0, live=1, bound=1)
        phases = [(at, "", self.UNSETTLED if at % 15 < 3 else down) for at in range(6, 700)]
        assert 605 <= watch(evicted(), ONE_POD, *phases) <= 620

    @pytest.mark.parametrize("at", [6, 300])
    def test_the_node_is_reopened_as_soon_as_a_pod_has_no_other_place(self, at: float) -> None:
        drain = evicted()
        drain, _ = transitions.step(drain, seen("", {ONE_POD: self.UNSETTLED}), 6)
        drain, actions = transitions.step(drain, seen("", {ONE_POD: self.AT_RISK}), at)
        assert actions == REOPENED
        assert drain.failure == Failure(Why.TARGET_LOST, f"ns/Deployment/web: {self.AT_RISK.at_risk}")
        assert drain.owed == {ONE_POD.controller: ONE_POD.debt}

    def test_enough_other_pods_pay_the_debt(self) -> None:
        more = replace(self.AT_RISK, live=2, bound=2, ready=2)
        _, actions = transitions.step(evicted(), seen("", {ONE_POD: more}), 6)
        assert actions == (LookAgain(),)

    def test_a_failed_drain_owes_what_is_paid_by_pods_that_may_not_stay(self) -> None:
        drain = play(begun(PLAN, WEB), [(5, seen("a b", {WEB: WEB.running}), (planning(),)), *step(5, "a")])
        drain, _ = transitions.step(drain, seen("b", {WEB: replace(WEB.running, unsettled=1)}), 6)
        assert (set(drain.paid), list(drain.owed)) == ({WEB.controller}, [])
        drain, _ = transitions.step(drain, Stop(Cause.TERMINATED), 7)
        assert drain.owed == {WEB.controller: WEB.debt}
