"""Verdicts on single nodes, which are reused until one of their inputs changes. Separate from the planner, which
works the same when nothing is reused.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import TypeAlias

from predicates.filters import Filters
from predicates.objects import PodClass, PodDisruptionBudget
from predicates.snapshot import Snapshot, same_content
from rescheduler.planning.answers.node import all_obstacles, first_obstacles, rejection
from rescheduler.planning.answers.survival import Survival
from rescheduler.planning.examined import Examined, examine
from rescheduler.planning.outcome import Blocker, Plan, Planning, PodRef, Reason, Rejected, Verdict
from rescheduler.planning.placement.forecast import PLAYS
from rescheduler.planning.placement.forecast_checks import (
    Allowance,
    ForecastChecks,
    SearchPaces,
    SearchTime,
    SecondsLeft,
    unlimited,
    with_forecast_in_time,
)
from rescheduler.planning.placement.packing import Effort
from rescheduler.planning.planning_round import CommonGround, PlanningRound
from rescheduler.planning.policy import FOREVER, Policy
from rescheduler.planning.question import Attempt, opened
from rescheduler.planning.rules.pod_rules import is_left_to_responders
from rescheduler.planning.surges import NO_SURGES
from rescheduler.planning.waits import Cooldown

# The verdicts of earlier rounds that are still valid.
#
# While the ground is unchanged, a verdict follows from the findings on its node: the results of the rules and the
# budgets. The findings are computed again in these cases: a pod of the node was edited or replaced; a budget of these
# pods, the cooldown or vetoes of the node, or what commitments pay of it have changed; an instant that the rules depend
# on has been reached; a pod was edited or replaced whose times were used to estimate the steps under a budget. If the
# findings on the same pods are unchanged, so is the verdict. All verdicts are dropped when facts of other nodes have
# changed on which any may depend without a change of the ground (`SinglePlans._of_others`).

#: Takes an examined node; returns its verdict, and whether the verdict is final.
Judge: TypeAlias = Callable[[Examined], tuple[Verdict, bool]]


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of the rules and the budgets for a node."""

    blockers: tuple[Blocker, ...]
    movers: tuple[str, ...]  #: keys of the pods that may be evicted
    must_move: tuple[str, ...]  #: keys of all pods that must move
    incoming: tuple[PodClass, ...]  #: the classes of their replacement pods
    responders: tuple[str, ...]  #: keys of the pods whose evictions are the task of other components
    leaving: tuple[PodRef, ...]
    counts: bool  #: whether the node counts towards the minimum
    of_budgets: tuple[Blocker, ...]  #: blockers for all pods that must move
    of_movers: tuple[Blocker, ...]  #: blockers for the pods that may be evicted
    surging: frozenset[str]  #: keys of the pods that are moved by rolling updates
    shares: tuple[object, ...]  #: limits of the pods' controllers on pools of spot nodes, and their replicas


@dataclass(frozen=True, slots=True)
class Inputs:
    """The facts on which the findings depend, in addition to the ground."""

    changes: int  #: of the snapshot
    until: datetime | None  #: the findings are not valid from this instant on
    cooldown: Cooldown | None
    vetoes: tuple[Blocker, ...]
    paid: Decimal  #: the part of its price that commitments pay
    budgets: Mapping[str, PodDisruptionBudget]  #: those that select pods that must move
    budgets_version: object  #: of the snapshot
    estimated: frozenset[str]  #: budgets whose pods' time until Ready was estimated
    surging: bool  #: the rules were applied to pods of other nodes as well, which a rolling update would replace
    given_up: bool  #: a namespace of these pods had too many objects to judge in this round


@dataclass(slots=True)
class JudgedNode:
    """A verdict, and the inputs that it was derived from."""

    verdict: Verdict
    final: bool  #: False if a later round may reach a different verdict although nothing changes
    findings: Findings
    inputs: Inputs
    forecast: Verdict | None = None  #: the verdict with a forecast, if there is one
    within_shares: bool = False  #: whether the verdict keeps the limits on pools of spot nodes


class KeptVerdicts:
    """The verdicts of one kind, by node. Valid for one snapshot and one policy.

    *of_others* returns what all of them depend on besides the ground and their own node.
    """

    def __init__(self, snapshot: Snapshot, of_others: Callable[[PlanningRound], object]) -> None:
        self._snapshot = snapshot
        self._of_others = of_others
        self._checked: PlanningRound | None = None  #: for which all of them were valid
        self._valid_for: tuple[CommonGround, object] | None = None
        self._by_node: dict[str, JudgedNode] = {}
        self._edited: tuple[int, Mapping[str, int]] = -1, {}

    def of(self, node: str, shared: PlanningRound, judge: Judge) -> JudgedNode:
        """Return the kept verdict on *node* if it is valid. Otherwise *judge* the node, and keep a final verdict."""
        self._drop_if_outdated(shared)
        stored = self._by_node.get(node)
        if stored is not None and self._has_inputs(node, stored.inputs, shared):
            return stored
        examined, findings, inputs = _apply_rules(node, shared)
        same_pods = stored is not None and self._snapshot.placed_on.get(node, 0) <= stored.inputs.changes
        if stored is not None and same_pods and stored.findings == findings:
            stored.inputs = inputs
            return stored
        self._by_node.pop(node, None)
        judged = JudgedNode(*judge(examined), findings, inputs)
        if judged.final:
            self._by_node[node] = judged
        return judged

    def valid_until(self, nodes: Iterable[str], now: datetime) -> datetime:
        """Return until when the verdicts on *nodes* are valid if nothing else changes; *now* if one is not final."""
        judged = [self._by_node.get(node) for node in nodes]
        instants = [FOREVER if each is None else each.inputs.until or FOREVER for each in judged]
        return now if None in judged else min(instants, default=FOREVER)

    def _drop_if_outdated(self, shared: PlanningRound) -> None:
        """Drop all verdicts if the ground has changed, or what else all of them depend on."""
        if self._checked is not shared:
            self._checked, valid_for = shared, (shared.ground, self._of_others(shared))
            if self._valid_for != valid_for:
                self._by_node.clear()
            self._valid_for = valid_for

    def _has_inputs(self, node: str, inputs: Inputs, shared: PlanningRound) -> bool:
        now, cooling, vetoes = shared.circumstances.now, shared.circumstances.cooling, shared.circumstances.vetoes
        return (
            not (inputs.surging or inputs.given_up)
            and (inputs.until is None or now < inputs.until)
            and inputs.cooldown == cooling.get(node)
            and inputs.vetoes == vetoes.get(node, ())
            and inputs.paid == shared.worths.paid(node)
            and self._snapshot.edited_on.get(node, 0) <= inputs.changes
            and self._snapshot.placed_on.get(node, 0) <= inputs.changes
            and _are_budgets_unchanged(inputs, shared)
            and (not inputs.estimated or not self._edited_since(inputs, shared))
        )

    def _edited_since(self, inputs: Inputs, shared: PlanningRound) -> bool:
        """Return whether a pod of one of the estimated budgets was edited or replaced after the node was judged."""
        if self._edited[0] != self._snapshot.changes:
            last_edits: dict[str, int] = {}
            for class_and_labels, change in self._snapshot.edited_of.items():
                for key in shared.budgets.of_class(*class_and_labels):
                    last_edits[key] = max(change, last_edits.get(key, 0))
            self._edited = self._snapshot.changes, last_edits
        return any(self._edited[1].get(key, 0) > inputs.changes for key in inputs.estimated)


def _are_budgets_unchanged(inputs: Inputs, shared: PlanningRound) -> bool:
    """Return whether the budgets say what the verdict of *inputs* is based on, in their texts as well."""
    if inputs.budgets_version == shared.budgets.built_from:
        return True
    return all(same_content(budget, shared.budgets.get(key)) for key, budget in inputs.budgets.items())


def _apply_rules(node: str, shared: PlanningRound) -> tuple[Examined, Findings, Inputs]:
    """Apply the rules and the budgets to *node*. Return the findings and their inputs."""
    deadlines, steps, circumstances = shared.circumstances.deadlines, shared.steps, shared.circumstances
    deadlines.take()
    steps.take_estimated()
    examined = examine(node, shared)
    candidate = examined.candidate
    all_move = len(candidate.movers) == len(examined.must_move)
    must_move = tuple([pod.key for pod in examined.must_move])
    remaining = shared.remaining()
    of_budgets = tuple(map(examined.surges.explained, remaining.blockers(examined.evictions)))
    findings = Findings(
        blockers=examined.blockers,
        movers=must_move if all_move else tuple([pod.key for pod in candidate.movers]),
        must_move=must_move,
        incoming=tuple([pod.cls for pod in examined.incoming]),
        responders=tuple([pod.key for pod in examined.special if is_left_to_responders(pod)]),
        leaving=candidate.leaving,
        counts=candidate.counts,
        of_budgets=of_budgets,
        of_movers=of_budgets if all_move else tuple(remaining.lacking(candidate.evicted)),
        surging=examined.surges.keys,
        shares=shared.forecaster.shares.facts(candidate.movers),
    )
    selecting = {key for _, keys in shared.budgets.selecting(examined.must_move) for key in keys}
    inputs = Inputs(
        changes=shared.snapshot.changes,
        until=deadlines.take(),
        cooldown=circumstances.cooling.get(node),
        vetoes=circumstances.vetoes.get(node, ()),
        paid=shared.worths.paid(node),
        budgets={key: shared.budgets.get(key) for key in selecting},
        budgets_version=shared.budgets.built_from,
        estimated=steps.take_estimated(),
        surging=examined.surges != NO_SURGES,
        given_up=shared.gives_up(examined.must_move),
    )
    return examined, findings, inputs


#: Takes the name of an empty node; returns whether the node would be removed.
TakeEmpty: TypeAlias = Callable[[str], bool]


class SinglePlans:
    """Judges on-demand nodes one by one. No trial may be open on *snapshot*."""

    def __init__(self, snapshot: Snapshot, policy: Policy, filters: Filters, survival: Survival) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._filters = filters
        self._survival = survival
        self._checks = ForecastChecks(policy)
        self._paces = SearchPaces()
        self._complete = KeptVerdicts(snapshot, self._of_others)  #: with all obstacles
        #: With the first obstacle, and after the checks of forecasts.
        self._checked = KeptVerdicts(snapshot, self._of_others)
        self._last_each: Planning | None = None
        self._last_first: Planning | None = None

    def each(self, shared: PlanningRound, seconds_left: SecondsLeft = unlimited, *, forecasts: bool = True) -> Planning:
        """Return a verdict for each on-demand node, with all obstacles, and with *forecasts* as far as time allows."""
        with shared.pending.trial_if_needed(self._snapshot) as begin:
            judged = self._judge_each(shared, seconds_left, begin, forecasts=forecasts)
        planning = self._last_each = _last_if_equal(judged, self._last_each)
        return planning

    def first(self, shared: PlanningRound, take_empty: TakeEmpty, seconds_left: SecondsLeft) -> Planning:
        """Return verdicts up to the first node that can be drained; see :meth:`.planner.Planner.first_plan`."""
        with shared.pending.trial_if_needed(self._snapshot) as begin:
            found = self._search_first(shared, take_empty, seconds_left, begin)
        planning = self._last_first = _last_if_equal(found, self._last_first)
        return planning

    def first_until(self, shared: PlanningRound) -> datetime:
        """Return until when the last :meth:`first`, which found no plan, stands if nothing else changes."""
        until = self._checked.valid_until(shared.groups.on_demand, shared.circumstances.now)
        return min(until, shared.order_until or FOREVER, self._survival.valid_until(shared))

    def _of_others(self, shared: PlanningRound) -> object:
        """Return what all verdicts depend on besides the ground and their own node, for comparisons."""
        yielding = shared.room.yielding
        return shared.minimum, self._survival.basis(shared), None if yielding is None else yielding.names

    def verdict(self, node: str, shared: PlanningRound) -> Verdict:
        """Return the verdict on one node, with all obstacles. Its search effort is the share of one node in a round."""
        effort = shared.effort(len(shared.groups.on_demand))
        with opened(shared, effort, shared.pending):
            return self._verdict(examine(node, shared), shared, all_obstacles, effort)

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
        with opened(shared, effort) as attempt:
            if never_fitting is not None:
                attempt.never_fitting = never_fitting
            return steps(examined, attempt)

    def checked(self, node: str, shared: PlanningRound) -> Verdict:
        """Return the verdict on one node, including the check of the forecast."""
        effort = shared.effort(len(shared.groups.on_demand))
        with opened(shared, effort, shared.pending):
            verdict = self._verdict(examine(node, shared), shared, first_obstacles, effort)
            checked = self._checks.check(verdict, shared.forecaster) if isinstance(verdict, Plan) else verdict
            return self._surviving(checked, shared)

    def _surviving(self, verdict: Verdict, shared: PlanningRound) -> Verdict:
        """Return the rejection of a plan that breaks the certificate or leaves too little room, or *verdict*."""
        if not isinstance(verdict, Plan):
            return verdict
        blocker = self._survival.against(shared, [verdict])
        return verdict if blocker is None else Rejected(verdict.node, (blocker,))

    def _judge_each(
        self, shared: PlanningRound, seconds_left: SecondsLeft, begin: Callable[[], None], *, forecasts: bool
    ) -> Planning:
        never_fitting: dict[PodClass, str] = {}
        time = self._search_time(shared, seconds_left)

        def judge(examined: Examined) -> tuple[Verdict, bool]:
            begin()
            verdict, final = self._search_verdict(examined, shared, all_obstacles, time, never_fitting)
            return self._surviving(verdict, shared), final

        judged = []
        for node in shared.groups.on_demand:
            time.next_node()
            judged.append(self._complete.of(node, shared, judge))
        ahead = self._checks.ahead(shared.forecaster, seconds_left)
        allowance = ahead if forecasts else replace(ahead, effort=Effort(0))
        return shared.planning([_with_forecast(each, shared, allowance, begin) for each in judged])

    def _search_first(
        self, shared: PlanningRound, take_empty: TakeEmpty, seconds_left: SecondsLeft, begin: Callable[[], None]
    ) -> Planning:
        verdicts: list[Verdict] = []
        time = self._search_time(shared, seconds_left)
        allowance = self._checks.allowance(shared.forecaster, time.left_for_forecasts)

        def judge(examined: Examined) -> tuple[Verdict, bool]:
            begin()
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
            return self._surviving(verdict, shared), final
        was_rejected = self._checks.knows(verdict.node)
        checked = self._checks.within(allowance, verdict, shared.forecaster)
        timed_out = isinstance(checked, Rejected) and checked.reason is Reason.TIMEOUT
        return self._surviving(checked, shared), not (was_rejected or timed_out)


def _last_if_equal(planning: Planning, last: Planning | None) -> Planning:
    """Return the last planning if it equals *planning*, so that callers can detect that nothing has changed."""
    return last if last == planning and last is not None else planning


def _is_empty(plan: Plan) -> bool:
    return not plan.placements and not plan.leaving


def _with_forecast(
    judged: JudgedNode, shared: PlanningRound, allowance: Allowance, begin: Callable[[], None]
) -> Verdict:
    """Return the verdict, with a forecast if *allowance* permits it."""
    if isinstance(judged.forecast, Rejected):
        return judged.forecast
    if isinstance(judged.forecast, Plan):
        spent = allowance.effort.spend(PLAYS * len(judged.forecast.placements))
        return judged.forecast if spent else judged.verdict
    if isinstance(judged.verdict, Plan) and not (allowance.effort.exhausted and judged.within_shares):
        begin()
    verdict = with_forecast_in_time(judged.verdict, shared.forecaster, allowance)
    if isinstance(verdict, Plan) and not judged.within_shares:
        verdict = shared.forecaster.within_shares(verdict, {})
        judged.within_shares = isinstance(verdict, Plan)
    if verdict is not judged.verdict:
        judged.forecast = verdict
    return verdict
