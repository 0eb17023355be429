"""Wall clock corrections during a termination, or between two processes that request it."""

import datetime as dt

from rescheduler.clock import SteadyClock
from rescheduler.providers.base import Deleted
from tests.providers.clocks import START, StepClock
from tests.providers.cloudpools import GROUP, node_of, providing, serving, settings

HOUR = dt.timedelta(hours=1)


class CorrectedClock(StepClock):
    """The wall clock is *ahead* of the monotonic clock."""

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


def test_a_machine_is_terminated_although_the_clock_was_set_back() -> None:
    clock = CorrectedClock()
    with serving(settings(), SteadyClock(clock)) as server, providing(server, SteadyClock(clock)) as provider:
        [machine, *_] = server.pool.machines()
        clock.ahead = -HOUR
        outcomes = provider.delete_nodes(GROUP, [node_of(machine)], deadline=clock.monotonic() + 120)
        assert outcomes[machine.name] == Deleted("TERMINATED")


def test_an_order_of_an_earlier_process_with_a_fast_clock_is_repeated() -> None:
    clock = StepClock()
    with serving(settings(), clock) as server, providing(server, clock, settleTime="30s") as provider:
        clock.advance(300)  # observations from before the process started are ignored
        [machine, *_] = server.pool.machines()
        node = node_of(machine, ordered_at=clock.now() + HOUR)
        outcomes = provider.delete_nodes(GROUP, [node], deadline=clock.monotonic() + 120)
        assert outcomes[machine.name] == Deleted("TERMINATED")
