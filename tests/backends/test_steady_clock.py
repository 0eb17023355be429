"""Wall clocks that are corrected while a machine is ordered away, or between two processes that order it."""

import datetime as dt

from rescheduler.backends.base import Deleted
from rescheduler.clock import SteadyClock
from tests.backends.clocks import START, StepClock
from tests.backends.cloudpools import GROUP, node_of, providing, serving, settings

HOUR = dt.timedelta(hours=1)


class CorrectedClock(StepClock):
    """The wall clock is ahead of the monotonic one by *ahead*."""

    ahead = dt.timedelta()

    def now(self) -> dt.datetime:
        return super().now() + self.ahead


def test_a_steady_clock_does_not_follow_a_correction() -> None:
    clock = CorrectedClock()
    steady = SteadyClock(clock)
    clock.advance(5)
    clock.ahead = -HOUR
    clock.advance(5)
    assert (clock.now(), steady.now()) == (START + dt.timedelta(seconds=10) - HOUR, START + dt.timedelta(seconds=10))
    assert steady.monotonic() == clock.monotonic() == 10


def test_a_machine_is_ordered_away_although_the_clock_was_set_back() -> None:
    clock = CorrectedClock()
    with serving(settings(), SteadyClock(clock)) as server, providing(server, SteadyClock(clock)) as provider:
        [machine, *_] = server.pool.machines()
        clock.ahead = -HOUR
        outcomes = provider.delete_nodes(GROUP, [node_of(machine)], deadline=clock.monotonic() + 120)
        assert outcomes[machine.name] == Deleted("TERMINATED")


def test_an_order_of_an_earlier_process_whose_clock_was_ahead_is_given_again() -> None:
    clock = StepClock()
    with serving(settings(), clock) as server, providing(server, clock, settleTime="30s") as provider:
        clock.advance(300)  # what the pool saw before the process began proves nothing
        [machine, *_] = server.pool.machines()
        node = node_of(machine, ordered_at=clock.now() + HOUR)
        outcomes = provider.delete_nodes(GROUP, [node], deadline=clock.monotonic() + 120)
        assert outcomes[machine.name] == Deleted("TERMINATED")
