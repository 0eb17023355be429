"""Verdicts on single nodes in the current state, which are reused until one of their inputs changes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from predicates.filters import Filters
from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from rescheduler.planning.ground import Ground, timeless
from rescheduler.planning.kept_verdicts import JudgedNode, KeptVerdicts
from rescheduler.planning.outcome import Plan, Planning, Reason, Rejected, Verdict
from rescheduler.planning.placement.forecast import PLAYS
from rescheduler.planning.placement.forecast_checks import ForecastChecks, with_forecast_in_time
from rescheduler.planning.placement.pace import Allowance, SearchPaces, SearchTime, SecondsLeft, unlimited
from rescheduler.planning.placement.packing import Effort
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.verdicts import Attempt, Examined, all_obstacles, examine, first_obstacles, rejection

#: Takes the name of an empty node; returns whether the node would be removed.
TakeEmpty: TypeAlias = Callable[[str], bool]

_NO_RESULTS: Final[Mapping[str, bool]] = {}


@dataclass(frozen=True, slots=True)
class _KeptPlanning:
    """A planning, and the inputs that it depends on."""

    planning: Planning
    ground: Ground
    changes: int  #: of the snapshot
    circumstances: Circumstances  #: without the time
    until: datetime | None  #: it is not valid from this instant on
    take_empty_results: Mapping[str, bool]  #: the results of *take_empty*, by node

    def is_valid(self, shared: PlanningRound) -> bool:
        return (
            self.changes == shared.changes
            and (self.until is None or shared.circumstances.now < self.until)
            and self.ground == shared.ground
            and self.circumstances == timeless(shared.circumstances)
        )

    def has_same_results(self, take_empty: TakeEmpty) -> bool:
        return all(take_empty(node) is result for node, result in self.take_empty_results.items())


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
        self._each: _KeptPlanning | None = None
        self._first: _KeptPlanning | None = None

    def each(self, shared: PlanningRound, seconds_left: SecondsLeft = unlimited) -> Planning:
        """Return a verdict for each on-demand node, with all obstacles."""
        if self._each is not None and self._each.is_valid(shared):
            return self._each.planning
        planning, self._each = self._judge_each(shared, seconds_left)
        return planning

    def first(self, shared: PlanningRound, take_empty: TakeEmpty, seconds_left: SecondsLeft) -> Planning:
        """Return verdicts up to the first node that can be drained; see :meth:`.planner.Planner.first_plan`."""
        last_result = self._first
        if last_result is not None and last_result.is_valid(shared) and last_result.has_same_results(take_empty):
            return last_result.planning
        planning, self._first = self._search_first(shared, take_empty, seconds_left)
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

    def _judge_each(self, shared: PlanningRound, seconds_left: SecondsLeft) -> tuple[Planning, _KeptPlanning | None]:
        """Return the planning, and its record for later rounds, or None if a later round may find more."""
        never_fitting: dict[PodClass, str] = {}
        time = self._search_time(shared, seconds_left)

        def judge(examined: Examined) -> tuple[Verdict, bool]:
            return self._search_verdict(examined, shared, all_obstacles, time, never_fitting)

        judged = []
        for node in shared.groups.on_demand:
            time.next_node()
            judged.append(self._complete.of(node, shared, judge))
        allowance = self._checks.ahead(shared.forecaster, seconds_left)
        planning = shared.planning([_with_forecast(each, shared, allowance) for each in judged])
        planning = _last_if_equal(planning, self._each)
        final = not allowance.used_up and all(each.final for each in judged)
        return planning, _kept_planning(planning, shared, judged) if final else None

    def _search_first(
        self, shared: PlanningRound, take_empty: TakeEmpty, seconds_left: SecondsLeft
    ) -> tuple[Planning, _KeptPlanning | None]:
        """Return the planning, and its record for later rounds, or None if a later round may find more."""
        judged: list[JudgedNode] = []
        take_empty_results: dict[str, bool] = {}
        time = self._search_time(shared, seconds_left)
        allowance = self._checks.allowance(shared.forecaster, time.left_for_forecasts)

        def judge(examined: Examined) -> tuple[Verdict, bool]:
            return self._checked_verdict(allowance, time, examined, shared)

        for node in shared.groups.on_demand:
            time.next_node()
            judged.append(self._checked.of(node, shared, judge))
            verdict = judged[-1].verdict
            if isinstance(verdict, Plan):
                if not _is_empty(verdict):
                    break
                take_empty_results[node] = take_empty(node)
                if take_empty_results[node]:
                    break
        self._checks.end_round(allowance)
        planning = _last_if_equal(shared.planning(each.verdict for each in judged), self._first)
        final = all(each.final for each in judged)
        return planning, _kept_planning(planning, shared, judged, take_empty_results) if final else None

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


def _last_if_equal(planning: Planning, last: _KeptPlanning | None) -> Planning:
    """Return the last planning if it equals *planning*, so that callers can detect that nothing has changed."""
    return last.planning if last is not None and last.planning == planning else planning


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


def _kept_planning(
    planning: Planning,
    shared: PlanningRound,
    judged: Iterable[JudgedNode],
    take_empty_results: Mapping[str, bool] = _NO_RESULTS,
) -> _KeptPlanning:
    return _KeptPlanning(
        planning=planning,
        ground=shared.ground,
        changes=shared.changes,
        circumstances=timeless(shared.circumstances),
        until=min(filter(None, (shared.order_until, *(each.inputs.until for each in judged))), default=None),
        take_empty_results=take_empty_results,
    )
