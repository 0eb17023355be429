"""Tests of drains until the first eviction: mark, second plan, count, debts, dry run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from predicates.objects import OwnerReference
from rescheduler.draining import transitions
from rescheduler.draining.actions import (
    Action,
    Evict,
    LookAgain,
    Mark,
    ReadControllers,
    Release,
    Step,
    StoreDebts,
    TryEviction,
)
from rescheduler.draining.events import (
    ControllersRead,
    Done,
    DrainEvent,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    Looked,
    NotDone,
    Outcome,
    PlannedAgain,
    PodGone,
    ProviderAnswered,
)
from rescheduler.draining.state import Failure, Limits, Phase, Why, victims
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Debt, Replicas, Shortfall
from rescheduler.planning.outcome import Placement, Plan, PodRef
from tests.draining.stories import (
    LIMITS,
    MOVED,
    NO_ROOM,
    OFF,
    OPENING,
    ORDERED,
    PLAN,
    REOPENED,
    TAKEN,
    WEB,
    A,
    B,
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
    workload,
)

UNREAD = NotDone(ReadControllers, "timeout", Outcome.UNKNOWN)
NOTED = Mark(Step.DRAINING, ("a", "b"), debts=(WEB.debt,))
LOST = "another client removed or replaced our taint or annotation"

#: The story before a request of a drain, the request, and its failure.
REQUESTS: dict[str, tuple[Story, Action, DrainEvent]] = {
    "the mark is written": (OPENING[:1], Mark(Step.DRAINING, ("a", "b")), NotDone(Mark, "503", Outcome.UNKNOWN)),
    "the node is planned again": (
        OPENING[:2],
        LookAgain(frozenset({"s1"})),
        NotDone(LookAgain, "503", Outcome.UNKNOWN),
    ),
    "the controllers are read": (OPENING[:3], reading(of=(WEB,)), NotDone(ReadControllers, "503", Outcome.UNKNOWN)),
    "the debts are written": (OPENING[:4], NOTED, NotDone(Mark, "503", Outcome.UNKNOWN)),
    "the debts are stored": (OPENING[:5], NOTED, NotDone(StoreDebts, "conflict", Outcome.UNKNOWN)),
    "the intent to remove is written": (
        [*TAKEN, *MOVED, ORDERED[0]],
        Mark(Step.REMOVING, group="pool", debts=(WEB.debt,)),
        NotDone(Mark, "503", Outcome.UNKNOWN),
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_failed_request_is_retried(name: str) -> None:
    story, request, failed = REQUESTS[name]
    drain = play(transitions.start(PLAN, LIMITS), story)
    for now in range(100, 110, 2):
        drain = play(drain, [(now, failed, ()), (now + 1.9, seen("a b"), ()), (now + 2, seen("a b"), (request,))])
    play(drain, [(110, failed, REOPENED)])


FAILURES: dict[str, tuple[Story, Failure]] = {
    "the provider would not remove the machine: nothing is changed": (
        [(0, ProviderAnswered("pool", "below minimum"), ())],
        Failure(Why.REFUSED, "below minimum"),
    ),
    "the provider is unavailable: nothing is changed": (
        [(0, ProviderAnswered(None, "no answer"), ())],
        Failure(Why.PROVIDER, "no answer"),
    ),
    "the node is gone when the taint is added": (
        [OPENING[0], (1, NotDone(Mark, "not found", Outcome.GONE), ())],
        Failure(Why.NODE_GONE, "not found"),
    ),
    "a PATCH that may have been applied is reverted": (
        [OPENING[0], (1, NotDone(Mark, "timeout"), REOPENED), *OFF],
        Failure(Why.API_ERROR, "timeout"),
    ),
    "another process has marked the node": (
        [OPENING[0], (1, NotDone(Mark, "the annotation belongs to another process", Outcome.REFUSED), REOPENED), *OFF],
        Failure(Why.MARK_LOST, "the annotation belongs to another process"),
    ),
    "the plan is no longer valid after the taint is added": (
        [*OPENING[:2], (2, Looked(NO_ROOM), REOPENED), *OFF],
        Failure(
            Why.PLAN_CHANGED,
            "the plan is no longer valid: no-room-on-spot: pod ns/a: Insufficient cpu (and 1 more)",
        ),
    ),
    "the second plan fails": (
        [*OPENING[:2], (2, NotDone(LookAgain, "timeout"), REOPENED), *OFF],
        Failure(Why.API_ERROR, "timeout"),
    ),
    "the node is gone when it is planned again": (
        [*OPENING[:2], (2, NotDone(LookAgain, "no node od", Outcome.GONE), ())],
        Failure(Why.NODE_GONE, "no node od"),
    ),
    "the right to read a controller is missing": (
        [*OPENING[:3], (3, NotDone(ReadControllers, "deployments: forbidden"), REOPENED), *OFF],
        Failure(Why.API_ERROR, "deployments: forbidden"),
    ),
    "the controllers cannot be read within 10 s": (
        [
            *OPENING[:3],
            (3, UNREAD, ()),
            (4.9, seen("a b"), ()),
            (5, seen("a b"), (reading(of=(WEB,)),)),
            (13, UNREAD, REOPENED),
            *OFF,
        ],
        Failure(Why.API_ERROR, "timeout"),
    ),
    "the taint is removed while the controllers are read": (
        [*OPENING[:3], (3, seen("a b", tainted=False), REOPENED), *OFF],
        Failure(Why.MARK_LOST, LOST),
    ),
    "the debts cannot be written": (
        [*OPENING[:4], (4, NotDone(Mark, "500"), REOPENED), *OFF],
        Failure(Why.API_ERROR, "500"),
    ),
    "the mark is replaced before the debts are written": (
        [*OPENING[:4], (4, NotDone(Mark, "not ours", Outcome.REFUSED), REOPENED), *OFF],
        Failure(Why.MARK_LOST, "not ours"),
    ),
    "a budget rejects one of the evictions": (
        [*OPENING[:7], (5, EvictionRefused("b", "would violate web"), REOPENED), *OFF],
        Failure(Why.EVICTION_REFUSED, "would violate web", (B,)),
    ),
    "a webhook rejects one of the evictions": (
        [*OPENING[:7], (5, EvictionFailed("b", "denied", retryable=False), REOPENED), *OFF],
        Failure(Why.EVICTION_REFUSED, "denied", (B,)),
    ),
    "the taint is removed while evictions are tried": (
        [*OPENING[:7], (5, seen("a b", tainted=False), REOPENED), *OFF],
        Failure(Why.MARK_LOST, LOST),
    ),
}


@pytest.mark.parametrize(("story", "failure"), FAILURES.values(), ids=FAILURES)
def test_a_failure_before_evictions_owes_nothing(story: Story, failure: Failure) -> None:
    """Nothing was evicted, so nothing is owed. The taint is removed if it may be set."""
    drain = play(transitions.start(PLAN, LIMITS), story)
    assert (drain.phase, drain.failure, drain.released, drain.owed) == (Phase.DONE, failure, True, {})


class TestReadingControllers:
    def test_temporary_failures_are_retried(self) -> None:
        story: Story = [
            *OPENING[:3],
            (3, UNREAD, ()),
            (4.9, seen("a b"), ()),
            (5, seen("a b"), (reading(of=(WEB,)),)),
            (5.2, seen("a b"), ()),
            (6, read(WEB), (NOTED,)),
        ]
        assert play(transitions.start(PLAN, LIMITS), story).phase is Phase.NOTING

    @pytest.mark.parametrize(
        ("answer", "missing"),
        [
            (ControllersRead({WEB.controller: WEB.state()}, {}), "the controller of pod ns/a"),
            (
                ControllersRead({WEB.controller: WEB.state()}, {("other", "uid-web"): WEB.controller}),
                "the controller of pod ns/a",
            ),
            (ControllersRead({}, {("ns", "uid-web"): WEB.controller}), "ns/Deployment/web"),
        ],
    )
    def test_an_incomplete_response_is_retried(self, answer: ControllersRead, missing: str) -> None:
        """Otherwise a pod with an unknown controller would count as one without a debt."""
        story: Story = [
            *OPENING[:3],
            (3, answer, ()),
            (5, seen("a b"), (reading(of=(WEB,)),)),
            (33, answer, REOPENED),
        ]
        drain = play(transitions.start(PLAN, LIMITS), story)
        assert drain.failure == Failure(Why.API_ERROR, f"the response lacks {missing}")

    def test_all_pods_of_an_unreadable_owner_count_as_desired(self) -> None:
        """For an owner of an unknown kind, the number of its pods on all nodes is the desired number."""
        rollout = workload("web", "a", "b", kind="Rollout", total=5)
        drain_plan = plan(rollout)
        state = rollout.state(wanted=None, template="")
        story: Story = [
            (0, ProviderAnswered(None), (Mark(Step.DRAINING, ("a", "b")),)),
            (1, Done(Mark), (LookAgain(frozenset({"s1"})),)),
            (2, Looked(drain_plan), (reading(of=(rollout,)),)),
            (
                3,
                read(rollout, web=state),
                (Mark(Step.DRAINING, ("a", "b"), debts=(Debt(rollout.controller, 5, 5, owner_uids=("uid-web",)),)),),
            ),
        ]
        assert play(transitions.start(drain_plan, LIMITS), story).phase is Phase.NOTING


class TestDebts:
    """The debts written to the node before the first eviction."""

    def noted(self, state: ControllerState, replicas: Replicas) -> Mapping[Controller, Debt]:
        answer = ControllersRead(
            {WEB.controller: state}, {("ns", "uid-web"): WEB.controller}, {WEB.controller: replicas}
        )
        drain = play(transitions.start(PLAN, LIMITS), OPENING[:3])
        drain, actions = transitions.step(drain, answer, 3)
        assert actions == (Mark(Step.DRAINING, ("a", "b"), debts=tuple(drain.debts.values())),)
        return drain.debts

    @pytest.mark.parametrize(
        ("state", "replicas", "debts"),
        [
            (WEB.state(wanted=3), running(3), (3, 3)),
            (WEB.state(wanted=3), running(2, bound=3), (2, 3)),
            (WEB.state(wanted=3), running(1, bound=2, live=3), (1, 2)),
            (WEB.state(wanted=2), running(3), (2, 2)),
            (WEB.state(wanted=0), running(2), (0, 0)),
        ],
        ids=["all run", "one was never Ready", "one waits for a node", "scaled down", "scaled to zero"],
    )
    def test_the_debt_is_the_running_pods_up_to_the_desired_number(
        self, state: ControllerState, replicas: Replicas, debts: tuple[int, int]
    ) -> None:
        ready, bound = debts
        expected = Debt(WEB.controller, ready, bound, template="1", owner_uids=("uid-web",))
        assert self.noted(state, replicas) == {WEB.controller: expected}

    @pytest.mark.parametrize("change", [{"wanted": 0, "exists": False}, {"suspended": True}], ids=["gone", "suspended"])
    def test_a_controller_that_replaces_no_pods_is_owed_nothing(self, change: dict[str, Any]) -> None:
        drain = replace(begun(PLAN, WEB), states={WEB.controller: WEB.state(**change)}, replicas={})
        assert drain.shortfall(WEB.controller) == Shortfall(0, 0, 0)

    def test_a_controller_of_several_replica_sets_is_owed_once(self) -> None:
        old, new = (OwnerReference(kind="ReplicaSet", name=name, uid=name, controller=True) for name in ("old", "new"))
        drain_plan = Plan("od", (Placement(A, "s1", owner=old), Placement(B, "s1", owner=new)))
        state = WEB.state(owner_uids=frozenset({"old", "new"}))
        answer = ControllersRead(
            {WEB.controller: state},
            {("ns", "old"): WEB.controller, ("ns", "new"): WEB.controller},
            {WEB.controller: running(2)},
        )
        debt = Debt(WEB.controller, 2, 2, "1", owner_uids=("new", "old"))
        story: Story = [
            *OPENING[:2],
            (2, Looked(drain_plan), (ReadControllers(frozenset({("ns", old), ("ns", new)})),)),
            (3, answer, (Mark(Step.DRAINING, ("a", "b"), debts=(debt,)),)),
        ]
        drain = play(transitions.start(PLAN, LIMITS), story)
        assert drain.controllers == {"a": WEB.controller, "b": WEB.controller}


class TestDryRuns:
    def test_all_evictions_are_tried_before_the_first_one(self) -> None:
        drain = play(
            transitions.start(PLAN, LIMITS), [*OPENING[:7], (5, seen("a b"), ()), (6, EvictionAccepted("b"), ())]
        )
        assert (drain.phase, drain.evicted) == (Phase.EVICTING, ())

    @pytest.mark.parametrize(("migrations", "phase"), [(False, Phase.RELEASING), (True, Phase.EVICTING)])
    def test_a_webhook_that_moves_the_pod_by_itself_is_asked_once(self, migrations: bool, phase: Phase) -> None:
        denied = EvictionFailed("b", "webhook: evacuates", retryable=False, code=429, migrating=True)
        story: Story = [*OPENING[:7], (5, denied, () if migrations else REOPENED)]
        drain = play(transitions.start(PLAN, replace(LIMITS, migrations=migrations)), story)
        assert drain.phase is phase
        assert (drain.failure is None) is migrations
        if drain.failure is not None:
            assert (drain.failure.why, drain.failure.detail) == (Why.EVICTION_REFUSED, "webhook: evacuates")

    def test_a_busy_server_is_retried(self) -> None:
        story: Story = [
            *OPENING[:7],
            (5, EvictionFailed("b", "still being processed", retryable=True, retry_after=10), ()),
            (14.9, seen("a b"), ()),
            (15, seen("a b"), (TryEviction(B),)),
            (15.2, seen("a b"), ()),
            (16, EvictionFailed("b", "500", retryable=True), ()),
            (17.9, seen("a b"), ()),
            (18, seen("a b"), (TryEviction(B),)),
            (19, EvictionAccepted("b"), ()),
        ]
        assert play(transitions.start(PLAN, LIMITS), story).phase is Phase.EVICTING

    def test_retries_of_a_busy_server_time_out(self) -> None:
        limits = Limits(eviction=30, grace=60)
        story: Story = [
            *OPENING[:7],
            (33.9, EvictionFailed("b", "500", retryable=True, retry_after=0.1), ()),
            (34, seen("a b"), (TryEviction(B),)),
            (34, EvictionFailed("b", "500", retryable=True), REOPENED),
            (35, Done(Release), ()),
        ]
        drain = play(transitions.start(PLAN, limits), story)
        assert drain.failure == Failure(Why.EVICTION_REFUSED, "500", (B,))

    def test_pods_that_are_being_deleted_are_not_tried(self) -> None:
        drain_plan = plan(WEB, leaving="c")
        story = opening(drain_plan, WEB)
        drain = play(
            transitions.start(drain_plan, LIMITS), [*story, (5, EvictionAccepted("c"), ()), (5, PodGone("c"), ())]
        )
        assert (drain.phase, list(drain.victims)) == (Phase.EVICTING, ["c"])

    def test_the_grace_period_is_the_pods_own_up_to_the_limit(self) -> None:
        """An eviction sets a grace period only if it shortens the pod's own."""
        own = {A: 600, B: 5, C: None}
        drain_plan = Plan("od", tuple(Placement(pod, "s1", grace) for pod, grace in own.items()))
        story: Story = [
            (0, ProviderAnswered(None), (Mark(Step.DRAINING, ("a", "b", "c")),)),
            (0, Done(Mark), (LookAgain(frozenset({"s1"})),)),
            (0, Looked(drain_plan), (reading(),)),
            (0, ControllersRead({}, {}), (Mark(Step.DRAINING, ("a", "b", "c")),)),
            (0, Done(Mark), (StoreDebts(),)),
            (0, Done(StoreDebts), (TryEviction(A, 60), TryEviction(B), TryEviction(C))),
            *((0, EvictionAccepted(pod.uid), ()) for pod in own),
            (1, seen("a b c"), (planning(),)),
            (1, PlannedAgain(drain_plan), (Evict(A, 60), Evict(B), Evict(C))),
            *((1, EvictionAccepted(pod.uid), ()) for pod in own),
        ]
        drain = play(transitions.start(drain_plan, LIMITS), story)
        assert {uid: victim.leaves_by for uid, victim in drain.victims.items()} == {"a": 91, "b": 36, "c": 61}


@pytest.mark.parametrize(("limit", "sent"), [(0.5, 1), (1.0, 1), (1.9, 1), (59.5, 59)])
def test_a_short_limit_does_not_end_pods_at_once(limit: float, sent: int) -> None:
    """With 0, the API server would delete a pod before its kubelet has stopped its containers."""
    [victim] = victims(Plan("od", (Placement(A, "s1", 600),)), limit)
    assert victim.grace == sent


def test_pods_that_are_hard_to_replace_are_not_evicted_first() -> None:
    """Other pods show sooner whether replacement pods can run. Responses arrive in any order."""
    database, job = workload("db", "a", kind="StatefulSet"), workload("job", "b", kind="Job")
    api = workload("api", "c", "d")
    drain_plan, loads = plan(database, job, api), (api, database, job)
    story = opening(drain_plan, *loads)
    drain = play(transitions.start(drain_plan, LIMITS), [*story[:6], *reversed(story[6:])])
    assert [victim.pod.name for victim in drain.waiting] == ["c", "d", "a", "b"]


def test_pods_of_the_same_name_in_different_namespaces_are_distinct() -> None:
    here, there = workload("web", "a"), workload("web", "x", namespace="other")
    assert here.controller != there.controller
    drain = begun(plan(here, there), here, there)
    assert drain.controllers == {"a": here.controller, "x": there.controller}
    assert drain.waiting[1].pod == PodRef("other", "x", "x")
