"""Tests of the time limit of forecasts: the measured rate, and the forecasts that may start."""

import math
from collections.abc import Callable

from rescheduler.planning.pace import Allowance, Pace, unlimited
from rescheduler.planning.packing import Effort
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, node, pod, snapshot, summary


def ticking(seconds: float, step: float) -> Callable[[], float]:
    """Return a function that returns *seconds*, and *step* less with each call."""
    left = [seconds + step]

    def seconds_left() -> float:
        left[0] -= step
        return left[0]

    return seconds_left


def test_the_rate_is_unknown_until_it_is_measured() -> None:
    pace = Pace()
    pace.measure(0, 1)
    pace.measure(10, 0)
    pace.measure(10, math.nan)
    assert (pace.seconds(100), pace.effort(2, Effort(7))) == (0, Effort(7))


def test_later_measurements_change_the_rate_by_half_of_the_difference() -> None:
    pace = Pace()
    pace.measure(100, 1)
    assert (pace.seconds(50), pace.effort(2, Effort(7))) == (0.5, Effort(200))
    pace.measure(100, 0.5)
    assert (pace.seconds(300), pace.effort(2, Effort(7))) == (2, Effort(300))
    assert pace.effort(0, Effort(7)) == Effort(1)


def test_only_the_first_forecast_may_start_late() -> None:
    allowance = Allowance(Effort(1000), Pace(), lambda: -1)
    assert (allowance.takes(10), allowance.used_up) == (True, False)
    allowance.spend(10, before=0)
    assert (allowance.takes(10), allowance.used_up, allowance.effort) == (False, True, Effort(990))


def test_a_forecast_starts_only_if_it_is_expected_to_end_in_time() -> None:
    left = [1.0]
    allowance = Allowance(Effort(1000), Pace(), lambda: left[0])
    allowance.spend(100, before=2)
    assert [allowance.takes(pods) for pods in (100, 101)] == [True, False]


def test_forecasts_without_a_time_limit_are_limited_by_effort_alone() -> None:
    allowance = Allowance(Effort(20), Pace(), unlimited)
    allowance.spend(20, before=unlimited())
    assert (allowance.takes(1), allowance.pace.seconds(1)) == (False, 0)


def test_a_round_ends_when_its_time_is_used_up() -> None:
    """Each plan would return its pod to the other on-demand nodes, so each round continues with the next node."""
    nodes = [node(f"od{number}", ON_DEMAND, cpu="64") for number in range(4)]
    cluster = snapshot([*nodes, node("s"), *(pod(f"p{number}", f"od{number}") for number in range(4))])
    late, returns = ["planning-timeout"], ["returns-to-on-demand"]
    planner = Planner(cluster, Policy())
    in_time = planner.first_plan(CIRCUMSTANCES, seconds_left=ticking(100, 0.1))
    assert list(summary(in_time).values()) == [returns] * 4
    planner = Planner(cluster, Policy())
    rounds = [list(summary(planner.first_plan(CIRCUMSTANCES, seconds_left=ticking(3, 1))).values()) for _ in range(3)]
    assert rounds == [[returns, returns, late, late], [returns] * 4, [returns] * 4]
