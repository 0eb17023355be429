"""The last step of a verdict: simulate the plan with the scheduler's scoring, as far as the round's time allows."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from rescheduler.planning.outcome import Blocker, Plan, Reason, Rejected, Verdict
from rescheduler.planning.placement.forecast import PLAYS, Forecast, Forecaster, objection, with_forecast
from rescheduler.planning.placement.packing import Effort
from rescheduler.planning.policy import Policy

# Limits the optional work of a round to the available time.
#
# Planning reads no clock. A caller with a time limit passes a function that returns the seconds that are left. It is
# called between units of work, never within one, so the result of each unit is the same on any machine.

#: Returns the seconds that are left for a round; negative if it is late.
SecondsLeft: TypeAlias = Callable[[], float]

#: The weight of the latest measurement in the rate.
_LATEST: Final = 0.5


def unlimited() -> float:
    """Return infinity, as the seconds left if there is no time limit."""
    return math.inf


class Pace:
    """The rate of one kind of work on this machine, measured while it is done; unknown at first.

    The unit of work is a simulated pod, a filter evaluation, or a searched node.
    """

    def __init__(self) -> None:
        self._per_second: float | None = None

    def measure(self, work: int, seconds: float) -> None:
        """Record that *work* took *seconds*, which are not known (nan) without a time limit."""
        if work and seconds > 0:
            rate = work / seconds
            self._per_second = (
                rate if self._per_second is None else self._per_second + _LATEST * (rate - self._per_second)
            )

    @property
    def known(self) -> bool:
        """Return whether the rate was measured."""
        return self._per_second is not None

    def seconds(self, work: int) -> float:
        """Return the expected seconds for *work*; 0 if the rate is unknown."""
        return work / self._per_second if self._per_second is not None else 0.0

    def effort(self, seconds: float, assumed: Effort) -> Effort:
        """Return how much work can be done in *seconds*, at least one unit; *assumed* if the rate is unknown."""
        return assumed if self._per_second is None else Effort(max(1, int(seconds * self._per_second)))


#: At the assumed rate, the first node may use one part in this many of the time, in order to measure the real rate.
_CALIBRATION: Final = 10


@dataclass(frozen=True, slots=True)
class SearchPaces:
    """The rates of the search: of filter evaluations, and of nodes."""

    evaluations: Pace = field(default_factory=Pace)
    nodes: Pace = field(default_factory=Pace)


class SearchTime:
    """The time that the search of one round may still use, divided equally among the nodes that are left.

    A node gets its share in filter evaluations before it is planned, and no clock is read while it is planned.
    """

    def __init__(self, paces: SearchPaces, nodes: int, share: Effort, seconds_left: SecondsLeft = unlimited) -> None:
        """Set *share*, the effort for one of the *nodes* at the assumed rate."""
        self._pace = paces.evaluations
        self._of_nodes = paces.nodes
        self._nodes = nodes
        self._share = share.left
        self._seconds_left = seconds_left
        self._before = math.inf
        self.calibrating = False  #: whether the last share was reduced because the rate is unknown

    def next_node(self) -> None:
        """Proceed to the next node."""
        self._nodes -= 1

    def share(self) -> Effort:
        """Return the effort for the current node: its share, or less if this machine is slower than assumed."""
        self._before = self._seconds_left()
        if math.isinf(self._before):
            return Effort(self._share)
        nodes = self._nodes + 1
        calibration = Effort(max(1, self._share * nodes // _CALIBRATION))
        affordable = self._pace.effort(max(0.0, self._before) / nodes, calibration).left
        self.calibrating = not self._pace.known and affordable < self._share
        return Effort(min(self._share, affordable))

    def spent(self, evaluations: int) -> None:
        """Record the number of evaluations since the last call of :meth:`share`."""
        seconds = self._before - self._seconds_left()
        self._pace.measure(evaluations, seconds)
        self._of_nodes.measure(1, seconds)

    def left_for_forecasts(self) -> float:
        """Return the seconds that are left for forecasts if the remaining nodes are also searched."""
        return self._seconds_left() - self._of_nodes.seconds(self._nodes)


@dataclass(slots=True)
class Allowance:
    """The budget for the forecasts of one round. The first is always made, so that each round makes progress."""

    effort: Effort
    pace: Pace
    seconds_left: SecondsLeft = unlimited
    started: bool = False
    used_up: bool = False  #: whether a forecast was not allowed to start

    def takes(self, pods: int) -> bool:
        """Return whether a simulation of up to this many *pods* may start."""
        if self.effort.exhausted:
            self.used_up = True
            return False
        return self.has_time(pods)

    def has_time(self, pods: int) -> bool:
        """Return whether there is time for a simulation of up to this many *pods*, regardless of the effort."""
        is_late = self.started and self.pace.seconds(pods) > self.seconds_left()
        self.used_up = self.used_up or is_late
        return not is_late

    def spend(self, pods: int, before: float) -> None:
        """Record that *pods* were simulated since ``seconds_left()`` was *before*."""
        self.effort.spend(pods)
        self.measure(pods, before)

    def measure(self, pods: int, before: float) -> None:
        """Record the time of a simulation of *pods*, whose effort was spent before."""
        self.started = True
        self.pace.measure(pods, before - self.seconds_left())


_NO_FORECAST: Final = "no forecast: --planning-timeout was used up by earlier nodes; a later round computes it"


def with_optional_forecast(verdict: Verdict, forecaster: Forecaster, effort: Effort) -> Verdict:
    """Return *verdict*, with a forecast if it is a plan and *effort* allows it. A rejection is returned unchanged."""
    if isinstance(verdict, Plan) and effort.spend(PLAYS * len(verdict.placements)):
        return with_forecast(verdict, forecaster.forecast(verdict))
    return verdict


def with_forecast_in_time(verdict: Verdict, forecaster: Forecaster, allowance: Allowance) -> Verdict:
    """Return *verdict*, with a forecast if it is a plan and *allowance* permits it; a rejection is unchanged."""
    if not isinstance(verdict, Plan) or allowance.effort.exhausted:
        return verdict
    pods = PLAYS * len(verdict.placements)
    if not allowance.has_time(pods):
        return verdict
    before = allowance.seconds_left()
    planned = with_optional_forecast(verdict, forecaster, allowance.effort)
    if planned is not verdict:
        allowance.measure(pods, before)
    return planned


class ForecastChecks:
    """Rejects plans because of their forecasts.

    If a round ends before all plans have a forecast, its rejections are kept, so that the next round reaches other
    nodes.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._rejections: dict[str, Rejected] = {}  #: by node
        self._pace = Pace()

    def check(self, plan: Plan, forecaster: Forecaster) -> Verdict:
        """Return *plan* with its forecast, or a rejection if the forecast does not allow the plan."""
        return self._checked(plan, self._forecast(plan, forecaster), forecaster)

    def _forecast(self, plan: Plan, forecaster: Forecaster) -> Forecast:
        """Simulate *plan* until an objection is certain, and return the forecast."""
        return forecaster.forecast(plan, until_stuck=not self._policy.allow_fragile_plans)

    def _checked(self, plan: Plan, forecast: Forecast, forecaster: Forecaster) -> Verdict:
        if (blocker := objection(plan, forecast, self._policy)) is not None:
            return Rejected(plan.node, (blocker,))
        return forecaster.within_shares(with_forecast(plan, forecast), {})

    def allowance(self, forecaster: Forecaster, seconds_left: SecondsLeft) -> Allowance:
        """Return the allowance for the forecasts of a round: the planning time-out, and at most *seconds_left*."""
        seconds = self._policy.planning_timeout
        return Allowance(self._pace.effort(seconds, forecaster.effort(seconds)), self._pace, seconds_left)

    def ahead(self, forecaster: Forecaster, seconds_left: SecondsLeft) -> Allowance:
        """Return the allowance for forecasts of plans that are only displayed."""
        return Allowance(forecaster.ahead(), self._pace, seconds_left)

    def within(self, allowance: Allowance, plan: Plan, forecaster: Forecaster) -> Verdict:
        """Return the result of :meth:`check`, or a rejection if *allowance* is used up."""
        if (known := self._rejections.get(plan.node)) is not None:
            return known
        if not allowance.takes(PLAYS * len(plan.placements)):
            return Rejected(plan.node, (Blocker(Reason.TIMEOUT, _NO_FORECAST),))
        before = allowance.seconds_left()
        forecast = self._forecast(plan, forecaster)
        allowance.spend(forecast.plays * len(plan.placements), before)
        verdict = self._checked(plan, forecast, forecaster)
        if isinstance(verdict, Rejected):
            self._rejections[plan.node] = verdict
        return verdict

    def knows(self, node: str) -> bool:
        """Return whether a rejection of *node* by an earlier round is kept."""
        return node in self._rejections

    def end_round(self, allowance: Allowance) -> None:
        """Drop the rejections if all plans of the round have a forecast."""
        if not (allowance.used_up or allowance.effort.exhausted):
            self._rejections.clear()
