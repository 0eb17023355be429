"""Machines that are ordered away, and removals that an earlier process may have ordered."""

from dataclasses import replace
from typing import ClassVar

import pytest

from rescheduler.draining import machine
from rescheduler.draining.intent import Step
from rescheduler.draining.messages import (
    Cause,
    DeleteNode,
    Event,
    MarkFailed,
    NodeDeleted,
    NodeDeletionFailed,
    OrderRemoval,
    Release,
    Released,
    RemovalFailed,
    RemovalPending,
    Removed,
    Renew,
    Stop,
)
from rescheduler.draining.state import Failure, Phase, Why
from tests.draining.stories import (
    LIMITS,
    LOOKED_TWICE,
    MOVED,
    ORDERED,
    ORDERED_AT,
    PLAN,
    TAKEN,
    Story,
    asked_again,
    play,
    seen,
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
            (13, RemovalFailed("protected", refused=True), (Release(),)),
            (14, Released(), ()),
        ]
        drain = play(machine.start(PLAN, LIMITS), story)
        assert (drain.failure, drain.released) == (Failure(Why.REFUSED, "protected"), True)

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
        ("answer", "confirmed"),
        [(RemovalPending("booked"), False), (Removed(), True)],
        ids=["its order is at work", "its end is confirmed"],
    )
    def test_a_node_that_others_delete_when_its_machine_goes(self, answer: Event, *, confirmed: bool) -> None:
        """A cloud controller deletes Nodes of machines that are gone. What was not seen of the machine is not told."""
        drain = play(machine.start(PLAN, LIMITS), self.BEGUN)
        drain, _ = machine.step(drain, answer, 12)
        drain, actions = machine.step(drain, MarkFailed("no node od", node_gone=True), 13)
        assert (drain.released, drain.succeeded, drain.handed_over, actions) == (True, confirmed, not confirmed, ())

    def test_a_node_that_is_gone_when_the_order_is_repeated(self) -> None:
        story: Story = [*self.BEGUN, (12, Removed(unseen=True), (DeleteNode(),)), (13, NodeDeleted(), ())]
        drain = play(machine.start(PLAN, LIMITS), story)
        assert (drain.released, drain.succeeded, drain.handed_over) == (True, False, True)

    def test_a_node_that_was_deleted_before_the_order_was_sent(self) -> None:
        """By somebody else, who removes the machine, too: it is not ordered."""
        story: Story = [*self.BEGUN, (12, RemovalFailed("no node od", node_gone=True), ())]
        drain = play(machine.start(PLAN, LIMITS), story)
        assert (drain.done, drain.failure, drain.removed_by) == (True, None, "no node od")

    def test_a_node_that_is_deleted_while_the_order_is_on_its_way(self) -> None:
        """The answer tells what became of the machine; it is not waited for without end."""
        gone = MarkFailed("no node od", node_gone=True)
        story: Story = [*self.BEGUN, (12, gone, ()), (13, gone, ())]
        drain = play(machine.start(PLAN, LIMITS), story)
        assert not drain.done
        assert play(drain, [(14, Removed(), (DeleteNode(),)), (15, gone, ())]).succeeded
        stopped = play(drain, [(14, Stop(Cause.TERMINATED), ()), (33.9, gone, ())])
        assert not stopped.done
        assert play(stopped, [(34, gone, ())]).handed_over


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
