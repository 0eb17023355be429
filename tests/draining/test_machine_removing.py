"""Tests of machine terminations, and of removals that an earlier process may have requested."""

from dataclasses import replace
from typing import ClassVar

import pytest

from rescheduler.draining import transitions
from rescheduler.draining.actions import DeleteNode, Mark, OrderRemoval, Release, Renew, Step
from rescheduler.draining.events import Cause, Done, DrainEvent, NotDone, Outcome, Removed, Stop
from rescheduler.draining.state import Failure, Phase, Why
from tests.draining.stories import (
    LIMITS,
    LOOKED_TWICE,
    MOVED,
    ORDERED,
    ORDERED_AT,
    PLAN,
    REOPENED,
    TAKEN,
    WEB,
    Story,
    asked_again,
    play,
    seen,
)


class TestTerminationInProgress:
    """After the termination request, nothing is rolled back unless the provider reports that the machine stays."""

    BEGUN: ClassVar[Story] = [*TAKEN, *MOVED, *ORDERED]

    def test_waiting_for_the_termination_times_out(self) -> None:
        story: Story = [
            *self.BEGUN,
            (
                105,
                NotDone(OrderRemoval, "booked", Outcome.UNKNOWN),
                (Renew(Step.REMOVING, group="pool", debts=(WEB.debt,)),),
            ),
            (110.9, seen(), ()),
            (111, seen(), ()),
        ]
        drain = play(transitions.start(PLAN, LIMITS), story)
        assert (drain.done, drain.handed_over, drain.succeeded, drain.failure) == (True, True, False, None)

    def test_the_drain_waits_for_a_response_in_flight(self) -> None:
        renewed = Renew(Step.REMOVING, group="pool", debts=(WEB.debt,))
        story: Story = [
            *self.BEGUN,
            (111, seen(), (renewed,)),
            (120, Removed(), (DeleteNode(),)),
            (121, Done(DeleteNode), ()),
        ]
        assert play(transitions.start(PLAN, LIMITS), story).succeeded

    def test_after_stop_the_wait_is_short(self) -> None:
        story: Story = [*self.BEGUN, (12, Stop(Cause.TERMINATED), ()), (31.9, seen(), ()), (32, seen(), ())]
        assert play(transitions.start(PLAN, LIMITS), story).handed_over

    def test_a_pause_does_not_change_a_removal(self) -> None:
        """The machine may be terminating already: the removal is followed for as long as without the pause."""
        story: Story = [
            *self.BEGUN,
            (12, Stop(Cause.PAUSED), ()),
            (33, seen(), ()),
            (34, Removed(), (DeleteNode(),)),
            (35, Stop(Cause.PAUSED), ()),
            (36, Done(DeleteNode), ()),
        ]
        assert play(transitions.start(PLAN, LIMITS), story).succeeded

    def test_after_stop_a_quick_removal_is_completed(self) -> None:
        story: Story = [
            *self.BEGUN,
            (12, Stop(Cause.TERMINATED), ()),
            (13, Removed(), (DeleteNode(),)),
            (14, Done(DeleteNode), ()),
        ]
        assert play(transitions.start(PLAN, LIMITS), story).succeeded

    def test_a_stop_during_the_deletion_of_the_node_ends_the_drain(self) -> None:
        story: Story = [
            *self.BEGUN,
            (12, Removed(), (DeleteNode(),)),
            (13, Stop(Cause.TERMINATED), ()),
            (33, seen(), ()),
        ]
        assert play(transitions.start(PLAN, LIMITS), story).handed_over

    def test_after_stop_a_machine_that_stays_is_released(self) -> None:
        story: Story = [
            *self.BEGUN,
            (12, Stop(Cause.TERMINATED), ()),
            (13, NotDone(OrderRemoval, "protected", Outcome.REFUSED), REOPENED),
            (14, Done(Release), ()),
        ]
        drain = play(transitions.start(PLAN, LIMITS), story)
        assert (drain.failure, drain.released) == (Failure(Why.REFUSED, "protected"), True)

    def test_a_node_that_cannot_be_deleted_is_retried_later(self) -> None:
        story: Story = [
            *self.BEGUN,
            (109, Removed(), (DeleteNode(), Renew(Step.REMOVING, group="pool", debts=(WEB.debt,)))),
            (110, NotDone(DeleteNode, "500"), ()),
            (111, seen(), ()),
        ]
        assert play(transitions.start(PLAN, LIMITS), story).handed_over

    def test_a_mark_that_is_no_longer_ours_is_not_changed(self) -> None:
        """The request was not sent, or another process waits for the termination."""
        story: Story = [
            *self.BEGUN,
            (12, NotDone(Mark, "the annotation belongs to another process", Outcome.REFUSED), ()),
        ]
        drain = play(transitions.start(PLAN, LIMITS), story)
        assert (drain.done, drain.released) == (True, False)
        assert drain.failure == Failure(Why.MARK_LOST, "the annotation belongs to another process")

    def test_a_failed_renewal_changes_nothing(self) -> None:
        story: Story = [
            *self.BEGUN,
            (12, NotDone(Mark, "500"), ()),
            (13, Removed(), (DeleteNode(),)),
            (13, NotDone(Mark, "500"), ()),
        ]
        assert play(transitions.start(PLAN, LIMITS), story).phase is Phase.DELETING

    @pytest.mark.parametrize(
        ("answer", "confirmed"),
        [(NotDone(OrderRemoval, "booked", Outcome.UNKNOWN), False), (Removed(), True)],
        ids=["the termination is in progress", "the termination is confirmed"],
    )
    def test_a_node_deleted_by_others_ends_the_drain(self, answer: DrainEvent, *, confirmed: bool) -> None:
        """A cloud controller deletes Nodes of deleted machines. The termination counts as not confirmed."""
        drain = play(transitions.start(PLAN, LIMITS), self.BEGUN)
        drain, _ = transitions.step(drain, answer, 12)
        drain, actions = transitions.step(drain, NotDone(Mark, "no node od", Outcome.GONE), 13)
        assert (drain.released, drain.succeeded, drain.handed_over, actions) == (True, confirmed, not confirmed, ())

    def test_a_node_that_is_gone_when_the_request_is_repeated_is_handed_over(self) -> None:
        story: Story = [*self.BEGUN, (12, Removed(unseen=True), (DeleteNode(),)), (13, Done(DeleteNode), ())]
        drain = play(transitions.start(PLAN, LIMITS), story)
        assert (drain.released, drain.succeeded, drain.handed_over) == (True, False, True)

    def test_a_node_deleted_before_the_request_ends_the_drain(self) -> None:
        """Whoever deleted the Node also removes the machine, so no termination is requested."""
        story: Story = [*self.BEGUN, (12, NotDone(OrderRemoval, "no node od", Outcome.GONE), ())]
        drain = play(transitions.start(PLAN, LIMITS), story)
        assert (drain.done, drain.failure, drain.removed_by) == (True, None, "no node od")

    def test_a_node_deleted_during_the_request_does_not_end_the_wait_for_its_response(self) -> None:
        """Only the response shows whether the machine is removed. The wait for it times out."""
        gone = NotDone(Mark, "no node od", Outcome.GONE)
        story: Story = [*self.BEGUN, (12, gone, ()), (13, gone, ())]
        drain = play(transitions.start(PLAN, LIMITS), story)
        assert not drain.done
        assert play(drain, [(14, Removed(), (DeleteNode(),)), (15, gone, ())]).succeeded
        stopped = play(drain, [(14, Stop(Cause.TERMINATED), ()), (33.9, gone, ())])
        assert not stopped.done
        assert play(stopped, [(34, gone, ())]).handed_over


class TestMachineUnknownToTheProvider:
    """While the Node is Ready, a response without its machine is verified: lists may be incomplete."""

    BEGUN: ClassVar[Story] = [*TAKEN, *MOVED, *ORDERED]

    def test_the_provider_is_queried_twice(self) -> None:
        story: Story = [
            *self.BEGUN,
            (12, Removed(unproven=True), ()),
            (21.9, seen(), ()),
            (22, seen(), (OrderRemoval("pool", again=True),)),
            (23, Removed(unproven=True), (DeleteNode(),)),
            (24, Done(DeleteNode), ()),
        ]
        assert play(transitions.start(PLAN, LIMITS), story).succeeded

    def test_the_count_restarts_if_the_provider_lists_the_machine_in_between(self) -> None:
        story: Story = [
            *self.BEGUN,
            (12, Removed(unproven=True), ()),
            (22, seen(), (OrderRemoval("pool", again=True),)),
            (23, NotDone(OrderRemoval, "booked", Outcome.UNKNOWN), ()),
            (33, seen(), (OrderRemoval("pool", again=True),)),
            (34, Removed(unproven=True), ()),
            (44, seen(), (OrderRemoval("pool", again=True),)),
            (45, Removed(unproven=True), (DeleteNode(),)),
        ]
        play(transitions.start(PLAN, LIMITS), story)

    def test_the_second_request_may_be_in_a_later_round(self) -> None:
        limits = replace(LIMITS, removal=0)
        first = asked_again(removal=0)
        drain = play(first, [(21, Removed(unproven=True), ()), (22, seen(), ())])
        assert (drain.handed_over, drain.absent) == (True, True)
        begun = transitions.resume_removal("od", limits, "pool", ORDERED_AT, absent=drain.absent)
        drain = play(begun, LOOKED_TWICE)
        assert play(drain, [(21, Removed(unproven=True), (DeleteNode(),)), (22, Done(DeleteNode), ())]).succeeded
