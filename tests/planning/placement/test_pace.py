"""Tests of the time limit of a round: the measured rates, shares of the search, and forecasts that may start."""

import math
from collections.abc import Callable
from typing import Any, Final

import pytest

from predicates.filters import Filters
from predicates.snapshot import Snapshot
from rescheduler.planning.outcome import Reason
from rescheduler.planning.placement.forecast import SimulatedScheduler
from rescheduler.planning.placement.forecast_checks import Allowance, Pace, SearchPaces, SearchTime, unlimited
from rescheduler.planning.placement.packing import EVALUATIONS_PER_SECOND, Effort
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, node, pod, snapshot, summary


class TimedMachine:
    """A machine on which each filter evaluation of the search and each simulated pod take a fixed time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, question: float = 0.0, simulated: float = 0.0) -> None:
        self.seconds = 0.0
        self._count(monkeypatch, Filters, "first", question)
        self._count(monkeypatch, Filters, "fits", question)
        self._count(monkeypatch, SimulatedScheduler, "choose", simulated)

    def _count(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, seconds: float) -> None:
        function = getattr(kind, name)

        def counted(*args: Any) -> Any:
            self.seconds += seconds
            return function(*args)

        monkeypatch.setattr(kind, name, counted)

    def seconds_left(self, limit: float) -> Callable[[], float]:
        end = self.seconds + limit
        return lambda: end - self.seconds


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
    seconds_left = [1.0]
    allowance = Allowance(Effort(1000), Pace(), lambda: seconds_left[0])
    allowance.spend(100, before=2)
    assert [allowance.takes(pods) for pods in (100, 101)] == [True, False]


def test_a_node_gets_its_share_of_the_time_on_this_machine() -> None:
    seconds_left = [10.0]
    time = SearchTime(SearchPaces(), 2, Effort(1000), lambda: seconds_left[0])
    time.next_node()
    assert (time.share(), time.calibrating) == (Effort(200), True)  # a tenth of the time of both
    seconds_left[0] = 8.0
    time.spent(200)
    time.next_node()
    assert (time.share(), time.calibrating) == (Effort(800), False)  # 8 s at 100 in a second
    assert time.left_for_forecasts() == 8
    seconds_left[0] = -1
    assert time.share() == Effort(1)


def test_forecasts_leave_time_for_the_nodes_that_follow() -> None:
    seconds_left = [10.0]
    time = SearchTime(SearchPaces(), 4, Effort(1000), lambda: seconds_left[0])
    time.next_node()
    time.share()
    seconds_left[0] = 9.5
    time.spent(100)
    assert time.left_for_forecasts() == 8
    time.next_node()
    assert time.left_for_forecasts() == 8.5


def test_forecasts_without_a_time_limit_are_limited_by_effort_alone() -> None:
    allowance = Allowance(Effort(20), Pace(), unlimited)
    allowance.spend(20, before=unlimited())
    assert (allowance.takes(1), allowance.pace.seconds(1)) == (False, 0)


def test_a_round_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plan would return its pod to the other on-demand nodes, so each round continues with the next node."""
    nodes = [node(f"od{number}", ON_DEMAND, cpu="64") for number in range(4)]
    cluster = snapshot([*nodes, node("s"), *(pod(f"p{number}", f"od{number}") for number in range(4))])
    late, returns = ["planning-timeout"], ["returns-to-on-demand"]
    machine = TimedMachine(monkeypatch, simulated=0.2)  # a second for a forecast
    planner = Planner(cluster, Policy())
    in_time = planner.first_plan(CIRCUMSTANCES, seconds_left=machine.seconds_left(100))
    assert list(summary(in_time).values()) == [returns] * 4
    planner = Planner(cluster, Policy())
    rounds = [
        list(summary(planner.first_plan(CIRCUMSTANCES, seconds_left=machine.seconds_left(2.5))).values())
        for _ in range(3)
    ]
    assert rounds == [[returns, returns, late, late], [returns] * 4, [returns] * 4]


#: Nodes whose pods do not fit together, so that each search uses all of its effort.
STUCK_NODES: Final = 20
STUCK_PODS: Final = 30


def stuck_cluster() -> Snapshot:
    nodes = [node(f"od{number}", ON_DEMAND, cpu="64") for number in range(STUCK_NODES)]
    spot = [node(f"s{number}", cpu="5") for number in range(11)]
    pods = [
        pod(f"p{at}-{number}", f"od{at}", cpu=str(1 + number % 3))
        for at in range(STUCK_NODES)
        for number in range(STUCK_PODS)
    ]
    return snapshot([*nodes, *spot, *pods])


@pytest.mark.parametrize("method", ["first_plan", "plan_each"])
@pytest.mark.parametrize("slower", [0.2, 1, 5], ids="{}×".format)
def test_a_round_ends_in_time_on_a_slower_machine(method: str, slower: float, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = TimedMachine(monkeypatch, question=slower / EVALUATIONS_PER_SECOND)
    policy = Policy()
    planner = Planner(stuck_cluster(), policy)
    for _ in range(3):
        start = machine.seconds
        getattr(planner, method)(CIRCUMSTANCES, seconds_left=machine.seconds_left(policy.planning_timeout))
        assert machine.seconds - start <= 1.1 * policy.planning_timeout
    assert machine.seconds > 0


def test_a_round_ends_in_time_if_each_plan_needs_a_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second of first-fit for all nodes, and a tenth for the forecast of each."""
    nodes = [node(f"od{number}", ON_DEMAND, cpu="64") for number in range(50)]
    cluster = snapshot([*nodes, node("s"), *(pod(f"p{number}", f"od{number}", cpu="10m") for number in range(50))])
    machine, policy = TimedMachine(monkeypatch, question=0.01, simulated=0.02), Policy()
    planner, rejected = Planner(cluster, policy), list[int]()
    for _ in range(8):
        start = machine.seconds
        planning = planner.first_plan(CIRCUMSTANCES, seconds_left=machine.seconds_left(policy.planning_timeout))
        assert machine.seconds - start <= 1.1 * policy.planning_timeout
        rejected.append(sum(verdict.reason is Reason.RETURNS_TO_ON_DEMAND for verdict in planning.rejected))
    assert rejected[0] >= 10
    assert rejected[-1] == 50


def test_a_fast_machine_gets_the_same_result_as_the_assumed_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = stuck_cluster()
    expected = Planner(cluster, Policy()).plan_each(CIRCUMSTANCES)
    machine = TimedMachine(monkeypatch, question=0.2 / EVALUATIONS_PER_SECOND)
    planner = Planner(cluster, Policy())
    rounds = [planner.plan_each(CIRCUMSTANCES, seconds_left=machine.seconds_left(2)) for _ in range(3)]
    assert rounds[-1] == expected
    assert rounds[-1] is rounds[-2]
