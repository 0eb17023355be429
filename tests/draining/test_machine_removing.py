"""Machines that are ordered away, and removals that an earlier process may have ordered."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import ClassVar

import pytest

from rescheduler.draining import machine
from rescheduler.draining.intent import Step
from rescheduler.draining.messages import (
    Cause,
    ControllersUnread,
    DeleteNode,
    Event,
    Evict,
    LookAgain,
    Looked,
    LookFailed,
    Mark,
    Marked,
    MarkFailed,
    NodeDeleted,
    NodeDeletionFailed,
    OrderRemoval,
    PlannedAgain,
    Release,
    Released,
    RemovalFailed,
    RemovalPending,
    Removed,
    Renew,
    Stop,
)
from rescheduler.draining.state import Drain, Failure, Phase, Why
from rescheduler.planning.debts import Debt
from rescheduler.planning.outcome import Blocker, PodRef, Reason, Rejected
from tests.draining.stories import (
    EMPTY,
    LIMITS,
    MOVED,
    NO_ROOM,
    OFF,
    ORDERED,
    PLAN,
    TAKEN,
    WEB,
    Story,
    plan,
    planning,
    play,
    read,
    reading,
    running,
    seen,
    step,
)


class TestTheOrderIsAtWork:
    """Once the machine was ordered away, nothing is rolled back before the provider says that it stays."""

    BEGUN: ClassVar[Story] = [*TAKEN, *MOVED, *ORDERED]

    def test_it_is_not_waited_for_without_end(self) -> None:
        story: Story = [
            *self.BEGUN,
            (105, RemovalPending("booked"), (Renew(Step.REMOVING, group="pool"),)),
            (110.9, seen(), ()),
            (111, seen(), ()),
        ]
        drain = play(machine.start(PLAN, LIMITS), story)
        assert (drain.done, drain.handed_over, drain.succeeded, drain.failure) == (True, True, False, None)

    def test_an_answer_that_is_on_its_way_is_waited_for(self) -> None:
        renewed = Renew(Step.REMOVING, group="pool")
        story: Story = [
            *self.BEGUN,
            (111, seen(), (renewed,)),
            (120, Removed(), (DeleteNode(),)),
            (121, NodeDeleted(), ()),
        ]
        assert play(machine.start(PLAN, LIMITS), story).succeeded

    def test_told_to_stop_its_end_is_awaited_for_a_moment(self) -> None:
        story: Story = [*self.BEGUN, (12, Stop(Cause.TERMINATED), ()), (31.9, seen(), ()), (32, seen(), ())]
        assert play(machine.start(PLAN, LIMITS), story).handed_over

    def test_told_to_stop_it_is_finished_where_that_is_quick(self) -> None:
        story: Story = [
            *self.BEGUN,
            (12, Stop(Cause.TERMINATED), ()),
            (13, Removed(), (DeleteNode(),)),
            (14, NodeDeleted(), ()),
        ]
        assert play(machine.start(PLAN, LIMITS), story).succeeded

    def test_told_to_stop_while_the_node_is_deleted(self) -> None:
        story: Story = [
            *self.BEGUN,
            (12, Removed(), (DeleteNode(),)),
            (13, Stop(Cause.TERMINATED), ()),
            (33, seen(), ()),
        ]
        assert play(machine.start(PLAN, LIMITS), story).handed_over

    def test_told_to_stop_the_machine_that_stays_is_given_back(self) -> None:
        story: Story = [
            *self.BEGUN,
            (12, Stop(Cause.TERMINATED), ()),
            (13, RemovalFailed("protected"), (Release(),)),
            (14, Released(), ()),
        ]
        drain = play(machine.start(PLAN, LIMITS), story)
        assert (drain.failure, drain.released) == (Failure(Why.PROVIDER, "protected"), True)

    def test_a_node_that_cannot_be_deleted_is_left_for_later(self) -> None:
        story: Story = [
            *self.BEGUN,
            (109, Removed(), (DeleteNode(), Renew(Step.REMOVING, group="pool"))),
            (110, NodeDeletionFailed("500"), ()),
            (111, seen(), ()),
        ]
        assert play(machine.start(PLAN, LIMITS), story).handed_over

    def test_a_mark_that_is_not_ours_any_more_is_left_as_it_is(self) -> None:
        """The order was not sent, or its end is somebody else's to wait for."""
        story: Story = [*self.BEGUN, (12, MarkFailed("the annotation is not ours", lost=True), ())]
        drain = play(machine.start(PLAN, LIMITS), story)
        assert (drain.done, drain.released) == (True, False)
        assert drain.failure == Failure(Why.MARK_LOST, "the annotation is not ours")

    def test_a_renewal_that_fails_changes_nothing(self) -> None:
        story: Story = [
            *self.BEGUN,
            (12, MarkFailed("500"), ()),
            (13, Removed(), (DeleteNode(),)),
            (13, MarkFailed("500"), ()),
        ]
        assert play(machine.start(PLAN, LIMITS), story).phase is Phase.DELETING

    @pytest.mark.parametrize(
        "answer", [RemovalPending("booked"), Removed()], ids=["its order is at work", "its end is confirmed"]
    )
    def test_a_node_that_others_delete_when_its_machine_goes_is_deleted(self, answer: Event) -> None:
        """A cloud controller deletes Nodes of machines that are gone."""
        drain = play(machine.start(PLAN, LIMITS), self.BEGUN)
        drain, _ = machine.step(drain, answer, 12)
        drain, actions = machine.step(drain, MarkFailed("no node od", node_gone=True), 13)
        assert (drain.succeeded, actions) == (True, ())

    def test_a_node_that_was_deleted_before_the_order_was_sent(self) -> None:
        story: Story = [*self.BEGUN, (12, RemovalFailed("no node od", node_gone=True), ())]
        assert play(machine.start(PLAN, LIMITS), story).failure == Failure(Why.NODE_GONE, "no node od")


class TestAMachineThatTheProviderDoesNotKnow:
    """While the Node is Ready, an answer that lacks its machine is not believed at once: lists may be incomplete."""

    BEGUN: ClassVar[Story] = [*TAKEN, *MOVED, *ORDERED]

    def test_it_is_asked_for_twice(self) -> None:
        story: Story = [
            *self.BEGUN,
            (12, Removed(unproven=True), ()),
            (21.9, seen(), ()),
            (22, seen(), (OrderRemoval("pool", again=True),)),
            (23, Removed(unproven=True), (DeleteNode(),)),
            (24, NodeDeleted(), ()),
        ]
        assert play(machine.start(PLAN, LIMITS), story).succeeded

    def test_a_provider_that_knows_it_meanwhile_is_asked_twice_once_more(self) -> None:
        story: Story = [
            *self.BEGUN,
            (12, Removed(unproven=True), ()),
            (22, seen(), (OrderRemoval("pool", again=True),)),
            (23, RemovalPending("booked"), ()),
            (33, seen(), (OrderRemoval("pool", again=True),)),
            (34, Removed(unproven=True), ()),
            (44, seen(), (OrderRemoval("pool", again=True),)),
            (45, Removed(unproven=True), (DeleteNode(),)),
        ]
        play(machine.start(PLAN, LIMITS), story)

    def test_the_second_time_may_be_in_a_later_round(self) -> None:
        limits = replace(LIMITS, removal=0)
        first = asked_again(removal=0)
        drain = play(first, [(21, Removed(unproven=True), ()), (22, seen(), ())])
        assert (drain.handed_over, drain.absent) == (True, True)
        begun = machine.resume_removal("od", limits, "pool", ORDERED_AT, absent=drain.absent)
        drain = play(begun, LOOKED_TWICE)
        assert play(drain, [(21, Removed(unproven=True), (DeleteNode(),)), (22, NodeDeleted(), ())]).succeeded


ORDERED_AT = datetime(2026, 1, 1, tzinfo=UTC)
REMOVING = Mark(Step.REMOVING, group="pool", since=ORDERED_AT)

#: A removal is resumed, and no pods came; the order is given in second 20.
LOOKED_TWICE: Story = [
    (1, Marked(), (LookAgain(),)),
    (2, Looked(EMPTY), ()),
    (3, seen(), ()),
    (5.9, seen(), ()),
    (6, seen(), (LookAgain(),)),
    (7, Looked(EMPTY), (REMOVING,)),
    (20, Marked(), (OrderRemoval("pool", ORDERED_AT, again=True),)),
]


def asked_again(*, removal: float = 100) -> Drain:
    """A resumed removal, in second 20: the order was given again."""
    return play(machine.resume_removal("od", replace(LIMITS, removal=removal), "pool", ORDERED_AT), LOOKED_TWICE)


PROTECTED = Rejected("od", (Blocker(Reason.NOT_SAFE_TO_EVICT, "annotated", "ns/guard"),))
WHY = "the plan no longer holds: not-safe-to-evict: pod ns/guard: annotated"
EARLIER = Debt(WEB.controller, 2, 2, "1", owner_uids=("uid-web",))


class TestResumedRemovals:
    """An earlier process, or an earlier round, may have ordered the machine."""

    def test_the_mark_comes_first(self) -> None:
        drain, actions = machine.resume_removal("od", LIMITS, "pool", ORDERED_AT, (EARLIER,))
        assert (drain.phase, actions) == (Phase.MARKING, (replace(REMOVING, debts=(EARLIER,)),))

    def test_it_continues_with_the_time_of_the_first_order(self) -> None:
        drain = asked_again()
        assert play(drain, [(21, Removed(), (DeleteNode(),)), (22, NodeDeleted(), ())]).succeeded

    def test_one_that_takes_its_time_is_asked_about_once_in_a_round(self) -> None:
        drain = asked_again(removal=0)
        assert not play(drain, [(20, seen(), ())]).done
        assert play(drain, [(21, RemovalPending("booked"), ()), (21.2, seen(), ())]).handed_over

    def test_a_machine_that_stays_is_given_back(self) -> None:
        drain = asked_again()
        drain = play(drain, [(21, RemovalFailed("protected"), (Release(),)), (22, Released(), ())])
        assert (drain.failure, drain.released) == (Failure(Why.PROVIDER, "protected"), True)

    #: What keeps the machine from being ordered again before anything was evicted, and why.
    POSTPONED: ClassVar[dict[str, tuple[Story, Failure]]] = {
        "the mark cannot be written": ([(1, MarkFailed("409"), ())], Failure(Why.API_ERROR, "409")),
        "the mark is somebody else's": (
            [(1, MarkFailed("not ours", lost=True), ())],
            Failure(Why.MARK_LOST, "not ours"),
        ),
        "protected pods came": ([*LOOKED_TWICE[:1], (2, Looked(PROTECTED), ())], Failure(Why.PLAN_CHANGED, WHY)),
        "protected pods came before the last look": (
            [*LOOKED_TWICE[:5], (7, Looked(PROTECTED), ())],
            Failure(Why.PLAN_CHANGED, WHY),
        ),
        "the cluster cannot be read": (
            [*LOOKED_TWICE[:1], (2, LookFailed("timeout"), ())],
            Failure(Why.API_ERROR, "timeout"),
        ),
        "the taint is removed": (
            [*LOOKED_TWICE[:3], (4, seen(tainted=False), ())],
            Failure(Why.MARK_LOST, "our taint or annotation was removed or replaced by somebody else"),
        ),
        "controllers of pods that came cannot be read": (
            [
                *LOOKED_TWICE[:1],
                (2, Looked(PLAN), (reading(of=(WEB,)),)),
                (3, ControllersUnread("forbidden", retryable=False), ()),
            ],
            Failure(Why.API_ERROR, "forbidden"),
        ),
        "pods that came do not fit any more": (
            [
                *LOOKED_TWICE[:1],
                (2, Looked(PLAN), (reading(of=(WEB,)),)),
                (3, read(WEB), (replace(REMOVING, debts=(WEB.debt,)),)),
                (4, Marked(), ()),
                (5, seen("a b", {WEB: running(2)}), (planning(),)),
                (5, PlannedAgain(NO_ROOM), ()),
            ],
            Failure(Why.TARGET_LOST, "no-room-on-spot: pod ns/a: Insufficient cpu"),
        ),
        "a pod that somebody deletes does not end": (
            [
                *LOOKED_TWICE[:1],
                (2, Looked(plan(leaving="x")), (reading(),)),
                (3, read(), (REMOVING,)),
                (4, Marked(), ()),
                (91.9, seen("x"), (Renew(Step.REMOVING, group="pool", since=ORDERED_AT),)),
                (92, seen("x"), ()),
            ],
            Failure(
                Why.TERMINATION_TIMEOUT,
                "pod ns/x did not end within the grace period and 30 s",
                (PodRef("ns", "x", "x"),),
            ),
        ),
        "the intent to remove cannot be written again": (
            [*LOOKED_TWICE[:6], (8, MarkFailed("500"), ())],
            Failure(Why.API_ERROR, "500"),
        ),
    }

    @pytest.mark.parametrize(("story", "why"), POSTPONED.values(), ids=POSTPONED)
    def test_as_long_as_nothing_was_evicted_it_is_left_for_later(self, story: Story, why: Failure) -> None:
        """The machine may be on its way out, so its node is not opened; nothing is ordered and nothing evicted."""
        drain = play(machine.resume_removal("od", LIMITS, "pool", ORDERED_AT), story)
        assert (drain.handed_over, drain.released, drain.postponed) == (True, False, why)

    @pytest.mark.parametrize("moments", range(1, 8))
    def test_told_to_stop_it_is_left_for_later(self, moments: int) -> None:
        story = LOOKED_TWICE[: moments - 1]
        drain = play(machine.resume_removal("od", LIMITS, "pool", ORDERED_AT), story)
        assert play(drain, [(19, Stop(Cause.TERMINATED), ())]).handed_over

    def test_a_node_that_is_gone_is_done(self) -> None:
        story: Story = [(1, MarkFailed("no node od", node_gone=True), ())]
        drain = play(machine.resume_removal("od", LIMITS, "pool", ORDERED_AT), story)
        assert (drain.failure, drain.released) == (Failure(Why.NODE_GONE, "no node od"), True)

    #: Pods that may go came: they are moved. The mark keeps the step, the time and the group.
    CAME: ClassVar[Story] = [
        (1, Marked(), (LookAgain(),)),
        (2, Looked(PLAN), (reading(of=(WEB,)),)),
        (3, read(WEB), (replace(REMOVING, debts=(WEB.debt,)),)),
        (4, Marked(), ()),
        *MOVED[:3],
    ]

    def test_pods_that_may_go_are_moved_and_then_the_machine_is_ordered(self) -> None:
        story: Story = [
            *self.CAME,
            *MOVED[3:],
            (10, Looked(EMPTY), (REMOVING,)),
            (11, Marked(), (OrderRemoval("pool", ORDERED_AT, again=True),)),
            (12, Removed(), (DeleteNode(),)),
            (13, NodeDeleted(), ()),
        ]
        assert play(machine.resume_removal("od", LIMITS, "pool", ORDERED_AT), story).succeeded

    def test_the_mark_stays_that_of_a_removal(self) -> None:
        renewed = Renew(Step.REMOVING, group="pool", since=ORDERED_AT, debts=(WEB.debt,))
        story: Story = [*self.CAME, (64, seen("b", {WEB: running(1, bound=2)}), (reading(WEB, of=(WEB,)), renewed))]
        play(machine.resume_removal("od", LIMITS, "pool", ORDERED_AT), story)

    def test_where_evicted_pods_do_not_run_again_the_node_is_opened(self) -> None:
        """It may be the only one that takes them."""
        story: Story = [
            *self.CAME,
            (7, seen("b", {WEB: running(1)}), (reading(WEB, of=(WEB,), words=True),)),
            (22, seen("b", {WEB: running(1)}), (Release(),)),
            *OFF,
        ]
        drain = play(machine.resume_removal("od", LIMITS, "pool", ORDERED_AT), story)
        assert (drain.handed_over, drain.released, drain.debts) == (False, True, {WEB.controller: WEB.debt})
        assert drain.failure is not None
        assert drain.failure.why is Why.REPLACEMENT_REFUSED

    def test_an_eviction_that_was_asked_for_counts_as_one(self) -> None:
        story: Story = [
            *self.CAME[:5],
            (5, PlannedAgain(PLAN), (Evict(WEB.pods[0]),)),
            (6, seen("a b", {WEB: running(2)}, tainted=False), (Release(),)),
        ]
        play(machine.resume_removal("od", LIMITS, "pool", ORDERED_AT), story)

    def test_told_to_stop_the_mark_tells_what_is_owed(self) -> None:
        story: Story = [*self.CAME, (7, Stop(Cause.TERMINATED), ())]
        drain = play(machine.resume_removal("od", LIMITS, "pool", ORDERED_AT), story)
        assert (drain.handed_over, drain.debts) == (True, {WEB.controller: WEB.debt})

    def test_debts_of_the_mark_are_paid_before_the_machine_is_ordered(self) -> None:
        story: Story = [
            (1, Marked(), (LookAgain(),)),
            (2, Looked(EMPTY), (reading(WEB),)),
            (3, read(WEB), (replace(REMOVING, debts=(EARLIER,)),)),
            (4, Marked(), ()),
            (5, seen("", {WEB: running(1, bound=2)}), (reading(WEB),)),
            (9, seen("", {WEB: running(2)}), (LookAgain(),)),
            (10, Looked(EMPTY), (REMOVING,)),
        ]
        play(machine.resume_removal("od", LIMITS, "pool", ORDERED_AT, (EARLIER,)), story)

    def test_steps_are_waited_for_as_in_any_drain(self) -> None:
        story: Story = [
            *self.CAME,
            (6, seen("b", {WEB: running(1, live=2)}), (reading(WEB, of=(WEB,)),)),
            (7, seen("b", {WEB: running(2)}), (planning(),)),
            *step(7, "b"),
        ]
        play(machine.resume_removal("od", LIMITS, "pool", ORDERED_AT), story)


def test_marks_of_which_nobody_knows_anything_are_removed() -> None:
    begun = machine.roll_back("od", LIMITS, (EARLIER,), 0)
    assert begun[1] == (Release(),)
    drain = play(begun, [(1, Released(), ())])
    assert (drain.succeeded, drain.rolled_back, drain.debts) == (True, True, {WEB.controller: EARLIER})
