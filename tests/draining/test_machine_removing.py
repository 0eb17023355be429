"""Machines that were ordered away, and drains that somebody else began: no clock, no threads, no cluster."""

from datetime import UTC, datetime
from typing import ClassVar

import pytest

from rescheduler.draining import machine
from rescheduler.draining.intent import Step
from rescheduler.draining.messages import (
    Cause,
    DeleteNode,
    Event,
    LookAgain,
    Mark,
    Marked,
    MarkFailed,
    NodeDeleted,
    OrderRemoval,
    ProviderAnswered,
    Release,
    Released,
    RemovalFailed,
    RemovalPending,
    Removed,
    Stop,
)
from rescheduler.draining.state import Failure, Why
from tests.draining.stories import ACCEPTED, EMPTIED, LEFT, LIMITS, OFF, ORDERED, PLAN, TAKEN, Story, play, seen


class TestTheOrderIsAtWork:
    """Once the machine was ordered away, nothing is rolled back before the provider says that it stays."""

    begun: ClassVar[Story] = [*TAKEN, *ACCEPTED, *EMPTIED, *ORDERED]

    def test_it_is_not_waited_for_without_end(self) -> None:
        story: Story = [*self.begun, (8, RemovalPending("booked"), ()), (107, seen(), ())]
        drain = play(machine.start(PLAN, LIMITS), story)
        assert (drain.done, drain.handed_over, drain.succeeded, drain.failure) == (True, True, False, None)

    def test_told_to_stop_its_end_is_awaited_for_a_moment(self) -> None:
        story: Story = [*self.begun, (8, Stop(Cause.TERMINATED), ()), (27.9, seen(), ()), (28, seen(), ())]
        assert play(machine.start(PLAN, LIMITS), story).handed_over

    def test_told_to_stop_it_is_finished_where_that_is_quick(self) -> None:
        story: Story = [
            *self.begun,
            (8, Stop(Cause.TERMINATED), ()),
            (9, Removed(), (DeleteNode(),)),
            (10, NodeDeleted(), ()),
        ]
        assert play(machine.start(PLAN, LIMITS), story).succeeded

    def test_told_to_stop_the_machine_that_stays_is_given_back(self) -> None:
        story: Story = [
            *self.begun,
            (8, Stop(Cause.TERMINATED), ()),
            (9, RemovalFailed("protected"), (Release(),)),
            (10, Released(), ()),
        ]
        drain = play(machine.start(PLAN, LIMITS), story)
        assert (drain.failure, drain.released) == (Failure(Why.PROVIDER, "protected"), True)

    def test_told_to_stop_while_the_intent_is_written(self) -> None:
        story: Story = [*self.begun[:-1], (7, Stop(Cause.TERMINATED), (Release(),)), (8, Released(), ())]
        drain = play(machine.start(PLAN, LIMITS), story)
        assert (drain.done, drain.released) == (True, True)


class TestResume:
    ORDERED_AT = datetime(2026, 1, 1, tzinfo=UTC)

    def test_an_emptied_node_is_freed(self) -> None:
        """The one before us evicted all pods and went: what is left to do is to take the taint off."""
        story: Story = [
            (0, ProviderAnswered(None), (Mark(Step.DRAINING, ("a",)),)),
            (1, Marked(), (LookAgain(),)),
            *LEFT,
        ]
        assert play(machine.resume("od", LIMITS, ("a",)), story).succeeded

    def test_what_cannot_go_on_is_rolled_back(self) -> None:
        story: Story = [(0, ProviderAnswered(None, "protected"), (Release(),)), *OFF]
        drain = play(machine.resume("od", LIMITS, ()), story)
        assert (drain.failure, drain.released) == (Failure(Why.PROVIDER, "protected"), True)

    def test_a_removal_goes_on_with_the_time_of_the_first_order(self) -> None:
        begun = machine.resume_removal("od", LIMITS, "pool", self.ORDERED_AT)
        assert begun[1] == (Mark(Step.REMOVING, group="pool", since=self.ORDERED_AT),)
        story: Story = [
            (0, Marked(), (OrderRemoval("pool", self.ORDERED_AT),)),
            (1, Removed(), (DeleteNode(),)),
            (2, NodeDeleted(), ()),
        ]
        assert play(begun, story).succeeded

    @pytest.mark.parametrize("event", [MarkFailed("409"), Stop(Cause.TERMINATED)])
    def test_a_removal_that_cannot_go_on_is_left_for_later(self, event: Event) -> None:
        drain = play(machine.resume_removal("od", LIMITS, "pool", self.ORDERED_AT), [(0, event, ())])
        assert drain.handed_over

    def test_marks_of_which_nobody_knows_anything_are_taken_off(self) -> None:
        begun = machine.roll_back("od", LIMITS, 0)
        assert begun[1] == (Release(),)
        assert play(begun, [(1, Released(), ())]).succeeded
