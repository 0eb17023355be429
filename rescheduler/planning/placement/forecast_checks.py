"""The last step of a verdict: simulate the plan with the scheduler's scoring, and reject it if necessary."""

from typing import Final

from rescheduler.planning.outcome import Blocker, Plan, Reason, Rejected, Verdict
from rescheduler.planning.placement.forecast import PLAYS, Forecast, Forecaster, objection, with_forecast
from rescheduler.planning.placement.pace import Allowance, Pace, SecondsLeft
from rescheduler.planning.placement.packing import Effort
from rescheduler.planning.policy import Policy

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
        return self._checked(plan, self._forecast(plan, forecaster))

    def _forecast(self, plan: Plan, forecaster: Forecaster) -> Forecast:
        """Simulate *plan* until an objection is certain, and return the forecast."""
        return forecaster.forecast(plan, until_stuck=not self._policy.allow_fragile_plans)

    def _checked(self, plan: Plan, forecast: Forecast) -> Verdict:
        blocker = objection(
            plan,
            forecast,
            allow_fragile=self._policy.allow_fragile_plans,
            allow_returning=self._policy.allow_returning_plans,
        )
        return with_forecast(plan, forecast) if blocker is None else Rejected(plan.node, (blocker,))

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
        verdict = self._checked(plan, forecast)
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
