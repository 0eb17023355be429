"""Verdicts on single nodes in the current state, which are reused until one of their inputs changes."""

from collections.abc import Callable
from typing import TypeAlias

from predicates.filters import Filters
from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from rescheduler.planning.kept_verdicts import JudgedNode, KeptVerdicts
from rescheduler.planning.outcome import Plan, Planning, Reason, Rejected, Verdict
from rescheduler.planning.placement.forecast import PLAYS
from rescheduler.planning.placement.forecast_checks import ForecastChecks, with_forecast_in_time
from rescheduler.planning.placement.pace import Allowance, SearchPaces, SearchTime, SecondsLeft, unlimited
from rescheduler.planning.placement.packing import Effort
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.policy import Policy
from rescheduler.planning.verdicts import Attempt, Examined, all_obstacles, examine, first_obstacles, rejection

#: Takes the name of an empty node; returns whether the node would be removed.
TakeEmpty: TypeAlias = Callable[[str], bool]


class SinglePlans:
    """Judges on-demand nodes one by one. No trial may be open on *snapshot*."""

    def __init__(self, snapshot: Snapshot, policy: Policy, filters: Filters) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._filters = filters
        self._checks = ForecastChecks(policy)
        self._paces = SearchPaces()
        self._complete = KeptVerdicts(snapshot)  #: with all obstacles
        self._checked = KeptVerdicts(snapshot)  #: with the first obstacle, and after the checks of forecasts
        self._last_each: Planning | None = None
        self._last_first: Planning | None = None

    def each(self, shared: PlanningRound, seconds_left: SecondsLeft = unlimited) -> Planning:
        """Return a verdict for each on-demand node, with all obstacles."""
        planning = self._last_each = _last_if_equal(self._judge_each(shared, seconds_left), self._last_each)
        return planning

    def first(self, shared: PlanningRound, take_empty: TakeEmpty, seconds_left: SecondsLeft) -> Planning:
        """Return verdicts up to the first node that can be drained; see :meth:`.planner.Planner.first_plan`."""
        planning = self._last_first = _last_if_equal(
            self._search_first(shared, take_empty, seconds_left), self._last_first
        )
        return planning

    def verdict(self, node: str, shared: PlanningRound, steps: Callable[[Examined, Attempt], Verdict]) -> Verdict:
        """Return the verdict of *steps* on one node. Its search effort is the share of one node in a round."""
        return self._verdict(examine(node, shared), shared, steps, shared.effort(len(shared.groups.on_demand)))

    def _verdict(
        self,
        examined: Examined,
        shared: PlanningRound,
        steps: Callable[[Examined, Attempt], Verdict],
        effort: Effort,
        never_fitting: dict[PodClass, str] | None = None,
    ) -> Verdict:
        """Return the verdict of *steps*. All verdicts of a round share *never_fitting*; *effort* limits the search."""
        if examined.blockers and steps is first_obstacles:
            return rejection(examined, shared.remaining())
        self._filters.refresh(pod.cls for pod in examined.must_move)
        with self._snapshot.trial() as trial:
            never_fitting = {} if never_fitting is None else never_fitting
            return steps(examined, Attempt(shared, shared.remaining(), trial, effort, never_fitting=never_fitting))

    def checked(self, node: str, shared: PlanningRound) -> Verdict:
        """Return the verdict on one node, including the check of the forecast."""
        verdict = self.verdict(node, shared, first_obstacles)
        return self._checks.check(verdict, shared.forecaster) if isinstance(verdict, Plan) else verdict

    def _judge_each(self, shared: PlanningRound, seconds_left: SecondsLeft) -> Planning:
        never_fitting: dict[PodClass, str] = {}
        time = self._search_time(shared, seconds_left)

        def judge(examined: Examined) -> tuple[Verdict, bool]:
            return self._search_verdict(examined, shared, all_obstacles, time, never_fitting)

        judged = []
        for node in shared.groups.on_demand:
            time.next_node()
            judged.append(self._complete.of(node, shared, judge))
        allowance = self._checks.ahead(shared.forecaster, seconds_left)
        return shared.planning([_with_forecast(each, shared, allowance) for each in judged])

    def _search_first(self, shared: PlanningRound, take_empty: TakeEmpty, seconds_left: SecondsLeft) -> Planning:
        verdicts: list[Verdict] = []
        time = self._search_time(shared, seconds_left)
        allowance = self._checks.allowance(shared.forecaster, time.left_for_forecasts)

        def judge(examined: Examined) -> tuple[Verdict, bool]:
            return self._checked_verdict(allowance, time, examined, shared)

        for node in shared.groups.on_demand:
            time.next_node()
            verdict = self._checked.of(node, shared, judge).verdict
            verdicts.append(verdict)
            if isinstance(verdict, Plan) and (not _is_empty(verdict) or take_empty(node)):
                break
        self._checks.end_round(allowance)
        return shared.planning(verdicts)

    def _search_time(self, shared: PlanningRound, seconds_left: SecondsLeft) -> SearchTime:
        nodes = len(shared.groups.on_demand)
        return SearchTime(self._paces, nodes, shared.effort(nodes), seconds_left)

    def _search_verdict(
        self,
        examined: Examined,
        shared: PlanningRound,
        steps: Callable[[Examined, Attempt], Verdict],
        time: SearchTime,
        never_fitting: dict[PodClass, str] | None = None,
    ) -> tuple[Verdict, bool]:
        """Return the verdict of *steps* within *time*, and whether it is final until an input changes."""
        effort = time.share()
        share = effort.left
        verdict = self._verdict(examined, shared, steps, effort, never_fitting)
        time.spent(share - effort.left)
        return verdict, not (time.calibrating and effort.exhausted)

    def _checked_verdict(
        self, allowance: Allowance, time: SearchTime, examined: Examined, shared: PlanningRound
    ) -> tuple[Verdict, bool]:
        """Return the verdict with its forecast checked, and whether it is final until an input changes."""
        verdict, final = self._search_verdict(examined, shared, first_obstacles, time)
        if not isinstance(verdict, Plan) or not verdict.placements:
            return verdict, final
        was_rejected = self._checks.knows(verdict.node)
        checked = self._checks.within(allowance, verdict, shared.forecaster)
        timed_out = isinstance(checked, Rejected) and checked.reason is Reason.TIMEOUT
        return checked, not (was_rejected or timed_out)


def _last_if_equal(planning: Planning, last: Planning | None) -> Planning:
    """Return the last planning if it equals *planning*, so that callers can detect that nothing has changed."""
    return last if last == planning and last is not None else planning


def _is_empty(plan: Plan) -> bool:
    return not plan.placements and not plan.leaving


def _with_forecast(judged: JudgedNode, shared: PlanningRound, allowance: Allowance) -> Verdict:
    """Return the verdict, with a forecast if *allowance* permits it."""
    if isinstance(judged.forecast, Plan):
        spent = allowance.effort.spend(PLAYS * len(judged.forecast.placements))
        return judged.forecast if spent else judged.verdict
    verdict = with_forecast_in_time(judged.verdict, shared.forecaster, allowance)
    if verdict is not judged.verdict:
        judged.forecast = verdict
    return verdict
