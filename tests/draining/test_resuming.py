"""Tests of drains and removals that another process or an earlier round started."""

from dataclasses import replace
from typing import ClassVar

import pytest

from rescheduler.draining import transitions
from rescheduler.draining.actions import (
    DeleteNode,
    Evict,
    LookAgain,
    Mark,
    OrderRemoval,
    ReadControllers,
    Release,
    Renew,
    Step,
    StoreDebts,
)
from rescheduler.draining.events import (
    Cause,
    Done,
    DrainEvent,
    EvictionAccepted,
    Looked,
    NotDone,
    Outcome,
    PlannedAgain,
    ProviderAnswered,
    Removed,
    RequestWithheld,
    Stop,
)
from rescheduler.draining.state import Drain, Failure, Phase, Why
from rescheduler.planning.debts import Debt
from rescheduler.planning.last_look import Ground
from rescheduler.planning.outcome import Blocker, PodRef, Reason, Rejected
from tests.draining.stories import (
    EMPTY,
    LIMITS,
    LOOKED_TWICE,
    MOVED,
    NO_ROOM,
    OFF,
    ORDERED_AT,
    PLAN,
    REMOVING,
    REOPENED,
    STORED,
    WEB,
    Story,
    asked_again,
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


class TestResumedDrains:
    """Another process has marked the node and may have evicted pods."""

    GONE = workload("gone", total=3)  # all pods of this controller were evicted

    def test_debts_of_the_mark_are_kept_and_dry_runs_are_skipped(self) -> None:
        """The previous evictions have already used part of the budgets."""
        noted = Debt(WEB.controller, 3, 3, "1", owner_uids=("uid-web",))
        story: Story = [
            (0, ProviderAnswered(None), (Mark(Step.DRAINING, ("a", "b"), debts=(noted, self.GONE.debt)),)),
            (1, Done(Mark), (LookAgain(),)),
            (2, Looked(plan(WEB)), (reading(WEB, self.GONE, of=(WEB,)),)),
            (3, read(WEB, self.GONE), (Mark(Step.DRAINING, ("a", "b"), debts=(noted, self.GONE.debt)),)),
            (4, Done(Mark), (StoreDebts(),)),
            (4, Done(StoreDebts), ()),
            (5, seen("a b", {WEB: running(3), self.GONE: running(3)}), (planning(),)),
        ]
        drain = play(transitions.resume("od", LIMITS, ("a", "b"), (noted, self.GONE.debt)), story)
        assert drain.owed == {}
        assert drain.debts[WEB.controller] == noted

    def test_controllers_not_in_the_mark_are_owed_their_running_pods(self) -> None:
        story: Story = [
            (0, ProviderAnswered(None), (Mark(Step.DRAINING, ("a",), debts=(self.GONE.debt,)),)),
            (1, Done(Mark), (LookAgain(),)),
            (2, Looked(plan(WEB)), (reading(self.GONE, of=(WEB,)),)),
            (3, read(WEB, self.GONE), (Mark(Step.DRAINING, ("a",), debts=(self.GONE.debt, WEB.debt)),)),
        ]
        play(transitions.resume("od", LIMITS, ("a",), (self.GONE.debt,)), story)

    def test_an_empty_node_is_released_when_all_pods_run(self) -> None:
        """Pods are counted by the owner UIDs in the mark, because their ReplicaSet may be gone."""
        noted = Debt(WEB.controller, 2, 2, "1", owner_uids=("replica-set",))
        story: Story = [
            (0, ProviderAnswered(None), (Mark(Step.DRAINING, ("a",), debts=(noted,)),)),
            (1, Done(Mark), (LookAgain(),)),
            (2, Looked(EMPTY), (reading(WEB),)),
            (3, read(WEB), (Mark(Step.DRAINING, ("a",), debts=(noted,)),)),
            (4, Done(Mark), (StoreDebts(),)),
            (4, Done(StoreDebts), ()),
            (5, seen("", {WEB: running(1)}), (reading(WEB, read_refusals=True),)),
            (7, seen("", {WEB: running(1, bound=2)}), ()),
            (8, seen("", {WEB: running(2)}), (LookAgain(),)),
            (9, Looked(EMPTY), REOPENED),
            (10, Done(Release), ()),
        ]
        drain = play(transitions.resume("od", LIMITS, ("a",), (noted,)), story)
        assert drain.succeeded
        assert drain.states[WEB.controller].owner_uids == {"uid-web", "replica-set"}

    def test_a_mark_without_debts_is_resumed(self) -> None:
        story: Story = [
            (0, ProviderAnswered(None), (Mark(Step.DRAINING, ("a",)),)),
            (1, Done(Mark), (LookAgain(),)),
            (2, Looked(EMPTY), REOPENED),
            (3, Done(Release), ()),
        ]
        assert play(transitions.resume("od", LIMITS, ("a",)), story).succeeded

    @pytest.mark.parametrize(
        ("story", "failure"),
        [
            ([(0, ProviderAnswered(None, "protected"), REOPENED)], Failure(Why.PROVIDER, "protected")),
            (
                [
                    (0, ProviderAnswered(None), (Mark(Step.DRAINING, ("a",), debts=(GONE.debt,)),)),
                    (1, Done(Mark), (LookAgain(),)),
                    (2, Looked(NO_ROOM), REOPENED),
                ],
                Failure(
                    Why.PLAN_CHANGED,
                    "the plan is no longer valid: no-room-on-spot: pod ns/a: Insufficient cpu (and 1 more)",
                ),
            ),
        ],
    )
    def test_a_failed_resumption_is_rolled_back_and_keeps_the_debts(self, story: Story, failure: Failure) -> None:
        drain = play(transitions.resume("od", LIMITS, ("a",), (self.GONE.debt,)), [*story, *OFF])
        assert (drain.failure, drain.released) == (failure, True)
        assert drain.owed == {self.GONE.controller: self.GONE.debt}


PROTECTED = Rejected("od", (Blocker(Reason.NOT_SAFE_TO_EVICT, "annotated", "ns/guard"),))
WHY = "the plan is no longer valid: not-safe-to-evict: pod ns/guard: annotated"
LOST = "another client removed or replaced our taint or annotation"
EARLIER = Debt(WEB.controller, 2, 2, "1", owner_uids=("uid-web",))


class TestResumedRemovals:
    """An earlier process or round may have requested machine termination."""

    def test_the_mark_is_written_first(self) -> None:
        drain, actions = transitions.resume_removal("od", LIMITS, "pool", ORDERED_AT, (EARLIER,))
        assert (drain.phase, actions) == (Phase.MARKING, (replace(REMOVING, debts=(EARLIER,)),))

    def test_the_time_of_the_first_request_is_kept(self) -> None:
        drain = asked_again()
        assert play(drain, [(21, Removed(), (DeleteNode(),)), (22, Done(DeleteNode), ())]).succeeded

    def test_a_slow_termination_is_checked_once_per_round(self) -> None:
        drain = asked_again(removal=0)
        assert not play(drain, [(20, seen(), ())]).done
        assert play(drain, [(21, NotDone(OrderRemoval, "booked", Outcome.UNKNOWN), ()), (21.2, seen(), ())]).handed_over

    def test_a_machine_that_stays_is_released(self) -> None:
        drain = asked_again()
        drain = play(drain, [(21, NotDone(OrderRemoval, "protected"), REOPENED), (22, Done(Release), ())])
        assert (drain.failure, drain.released) == (Failure(Why.PROVIDER, "protected"), True)

    #: Failures before the first eviction, and the reason for not requesting termination again.
    DOUBTED: ClassVar[dict[str, tuple[Story, Failure]]] = {
        "the mark cannot be written": ([(1, NotDone(Mark, "409"), ())], Failure(Why.API_ERROR, "409")),
        "the mark belongs to another process": (
            [(1, NotDone(Mark, "not ours", Outcome.REFUSED), ())],
            Failure(Why.MARK_LOST, "not ours"),
        ),
        "protected pods were scheduled to the node": (
            [*LOOKED_TWICE[:1], (2, Looked(PROTECTED), ())],
            Failure(Why.PLAN_CHANGED, WHY),
        ),
        "protected pods were scheduled before the last plan": (
            [*LOOKED_TWICE[:5], (7, Looked(PROTECTED), ())],
            Failure(Why.PLAN_CHANGED, WHY),
        ),
        "the cluster cannot be read": (
            [*LOOKED_TWICE[:1], (2, NotDone(LookAgain, "timeout"), ())],
            Failure(Why.API_ERROR, "timeout"),
        ),
        "the taint is removed": (
            [*LOOKED_TWICE[:3], (4, seen(tainted=False), ())],
            Failure(Why.MARK_LOST, LOST),
        ),
        "controllers of new pods cannot be read": (
            [
                *LOOKED_TWICE[:1],
                (2, Looked(PLAN), (reading(of=(WEB,)),)),
                (3, NotDone(ReadControllers, "forbidden"), ()),
            ],
            Failure(Why.API_ERROR, "forbidden"),
        ),
        "new pods do not fit any more": (
            [
                *LOOKED_TWICE[:1],
                (2, Looked(PLAN), (reading(of=(WEB,)),)),
                (3, read(WEB), (replace(REMOVING, debts=(WEB.debt,)),)),
                (4, Done(Mark), (StoreDebts(),)),
                (4, Done(StoreDebts), ()),
                (5, seen("a b", {WEB: running(2)}), (planning(),)),
                (5, PlannedAgain(NO_ROOM), ()),
            ],
            Failure(Why.TARGET_LOST, "no-room-on-spot: pod ns/a: Insufficient cpu"),
        ),
        "a pod deleted by others does not terminate": (
            [
                *LOOKED_TWICE[:1],
                (2, Looked(plan(leaving="x")), (reading(),)),
                (3, read(), (REMOVING,)),
                (4, Done(Mark), (StoreDebts(),)),
                (4, Done(StoreDebts), ()),
                (91.9, seen("x"), (Renew(Step.REMOVING, group="pool", since=ORDERED_AT),)),
                (92, seen("x"), ()),
            ],
            Failure(
                Why.TERMINATION_TIMEOUT,
                "pod ns/x did not terminate within the grace period and 30 s",
                (PodRef("ns", "x", "x"),),
            ),
        ),
        "the intent to remove cannot be written again": (
            [*LOOKED_TWICE[:6], (8, NotDone(Mark, "500"), ())],
            Failure(Why.API_ERROR, "500"),
        ),
    }

    @staticmethod
    def in_doubt(story: Story, why: Failure) -> Drain:
        """Return the drain when the provider is asked what became of the earlier order."""
        now, event, _ = story[-1]
        asked: Story = [*story[:-1], (now, event, (OrderRemoval("pool", ORDERED_AT, again=True, doubt=why.detail),))]
        return play(transitions.resume_removal("od", LIMITS, "pool", ORDERED_AT), asked)

    @pytest.mark.parametrize(("story", "why"), DOUBTED.values(), ids=DOUBTED)
    def test_while_an_earlier_order_may_take_effect_a_failure_postpones_the_removal(
        self, story: Story, why: Failure
    ) -> None:
        """The machine may be terminating, so its node keeps the mark; nothing is requested or evicted."""
        drain = play(self.in_doubt(story, why), [(95, NotDone(OrderRemoval, "booked", Outcome.UNKNOWN), ())])
        assert (drain.handed_over, drain.released, drain.postponed) == (True, False, why)

    @pytest.mark.parametrize(("story", "why"), DOUBTED.values(), ids=DOUBTED)
    @pytest.mark.parametrize(
        "answer",
        [RequestWithheld(Ground.DOUBT, "unknown"), NotDone(OrderRemoval, "no machine"), NotDone(OrderRemoval, "500")],
    )
    def test_the_node_is_reopened_if_no_earlier_order_can_take_effect(
        self, story: Story, why: Failure, answer: DrainEvent
    ) -> None:
        drain = play(self.in_doubt(story, why), [(95, answer, REOPENED), (96, Done(Release), ())])
        assert (drain.handed_over, drain.released, drain.failure) == (False, True, why)

    def test_the_node_is_deleted_if_an_earlier_order_has_taken_effect(self) -> None:
        doubted = self.in_doubt(*self.DOUBTED["protected pods were scheduled to the node"])
        drain = play(doubted, [(20, Removed(), (DeleteNode(),)), (21, Done(DeleteNode), ())])
        assert drain.succeeded

    @pytest.mark.parametrize("moments", range(1, 8))
    def test_stop_postpones_the_removal(self, moments: int) -> None:
        story = LOOKED_TWICE[: moments - 1]
        drain = play(transitions.resume_removal("od", LIMITS, "pool", ORDERED_AT), story)
        assert play(drain, [(19, Stop(Cause.TERMINATED), ())]).handed_over

    def test_the_drain_ends_if_the_node_is_gone(self) -> None:
        story: Story = [(1, NotDone(Mark, "no node od", Outcome.GONE), ())]
        drain = play(transitions.resume_removal("od", LIMITS, "pool", ORDERED_AT), story)
        assert (drain.failure, drain.released) == (Failure(Why.NODE_GONE, "no node od"), True)

    #: New evictable pods are moved. The mark keeps the step, the time and the group.
    CAME: ClassVar[Story] = [
        (1, Done(Mark), (LookAgain(),)),
        (2, Looked(PLAN), (reading(of=(WEB,)),)),
        (3, read(WEB), (replace(REMOVING, debts=(WEB.debt,)),)),
        (4, Done(Mark), (StoreDebts(),)),
        (4, Done(StoreDebts), ()),
        *MOVED[:3],
    ]

    def test_new_pods_are_moved_before_the_termination_is_requested(self) -> None:
        story: Story = [
            *self.CAME,
            *MOVED[3:],
            (10, Looked(EMPTY), (STORED, replace(REMOVING, debts=(WEB.debt,)))),
            (11, Done(Mark), (OrderRemoval("pool", ORDERED_AT, again=True),)),
            (12, Removed(), (DeleteNode(),)),
            (13, Done(DeleteNode), ()),
        ]
        assert play(transitions.resume_removal("od", LIMITS, "pool", ORDERED_AT), story).succeeded

    def test_the_mark_stays_the_mark_of_a_removal(self) -> None:
        renewed = Renew(Step.REMOVING, group="pool", since=ORDERED_AT, debts=(WEB.debt,))
        story: Story = [*self.CAME, (64, seen("b", {WEB: running(1, bound=2)}), (reading(WEB, of=(WEB,)), renewed))]
        play(transitions.resume_removal("od", LIMITS, "pool", ORDERED_AT), story)

    def test_the_provider_is_asked_if_evicted_pods_do_not_run_again(self) -> None:
        """The drained node may be the only node that accepts the pods, but its machine may end."""
        story: Story = [
            *self.CAME,
            (7, seen("b", {WEB: running(1)}), (reading(WEB, of=(WEB,), read_refusals=True),)),
            (8, read(WEB, web=WEB.state(refusal="exceeded quota")), ()),
            (22, seen("b", {WEB: running(1)}), (self.asking("replacement pod of Deployment ns/web: exceeded quota"),)),
        ]
        asked = play(transitions.resume_removal("od", LIMITS, "pool", ORDERED_AT), story)
        drain = play(asked, [(23, NotDone(OrderRemoval, "booked", Outcome.UNKNOWN), ())])
        assert (drain.handed_over, drain.released, drain.owed) == (True, False, {WEB.controller: WEB.debt})
        drain = play(asked, [(23, NotDone(OrderRemoval, "no machine"), REOPENED), *OFF])
        assert (drain.released, drain.owed) == (True, {WEB.controller: WEB.debt})
        assert drain.failure is not None
        assert drain.failure.why is Why.REPLACEMENT_REFUSED

    def test_an_eviction_in_flight_is_recorded_while_the_provider_is_asked(self) -> None:
        story: Story = [
            *self.CAME[:6],
            (5, PlannedAgain(PLAN), (Evict(WEB.pods[0]),)),
            (6, seen("a b", {WEB: running(2)}, tainted=False), (self.asking(LOST),)),
            (7, EvictionAccepted("a"), ()),
        ]
        drain = play(transitions.resume_removal("od", LIMITS, "pool", ORDERED_AT), story)
        assert drain.evicted == WEB.pods[:1]

    @staticmethod
    def asking(doubt: str) -> OrderRemoval:
        return OrderRemoval("pool", ORDERED_AT, again=True, doubt=doubt)

    def test_after_stop_the_mark_contains_the_debts(self) -> None:
        story: Story = [*self.CAME, (7, Stop(Cause.TERMINATED), ())]
        drain = play(transitions.resume_removal("od", LIMITS, "pool", ORDERED_AT), story)
        assert (drain.handed_over, drain.debts) == (True, {WEB.controller: WEB.debt})

    def test_debts_of_the_mark_are_paid_before_the_termination_is_requested(self) -> None:
        story: Story = [
            (1, Done(Mark), (LookAgain(),)),
            (2, Looked(EMPTY), (reading(WEB),)),
            (3, read(WEB), (replace(REMOVING, debts=(EARLIER,)),)),
            (4, Done(Mark), (StoreDebts(),)),
            (4, Done(StoreDebts), ()),
            (5, seen("", {WEB: running(1, bound=2)}), (reading(WEB),)),
            (9, seen("", {WEB: running(2)}), (LookAgain(),)),
            (10, Looked(EMPTY), (STORED, replace(REMOVING, debts=(EARLIER,)))),
        ]
        play(transitions.resume_removal("od", LIMITS, "pool", ORDERED_AT, (EARLIER,)), story)

    def test_the_drain_waits_for_steps_as_usual(self) -> None:
        story: Story = [
            *self.CAME,
            (6, seen("b", {WEB: running(1, live=2)}), (reading(WEB, of=(WEB,)),)),
            (7, seen("b", {WEB: running(2)}), (planning(),)),
            *step(7, "b"),
        ]
        play(transitions.resume_removal("od", LIMITS, "pool", ORDERED_AT), story)


def test_marks_without_a_known_intent_are_removed() -> None:
    begun = transitions.roll_back("od", LIMITS, (EARLIER,), 0)
    assert begun[1] == REOPENED
    drain = play(begun, [(1, Done(Release), ())])
    assert (drain.succeeded, drain.rolled_back, drain.debts) == (True, True, {WEB.controller: EARLIER})
