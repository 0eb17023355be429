"""The plans of nodes whose leftovers go to on-demand nodes that stay, in addition to the plans of other nodes.

A choice of nodes (:mod:`rescheduler.planning.answers.leftover_choices`) is played through, drain by drain, with the
scheduler's scoring. A node on which a leftover could land stays, and the search is repeated without it.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Final

from msgspec import structs

from rescheduler.planning.answers.all_nodes import in_turn
from rescheduler.planning.answers.leftover_choices import EFFORT, EmptiedNode, LeftoverChoice, LeftoverSearch, rank_of
from rescheduler.planning.answers.leftover_values import FEW, Values
from rescheduler.planning.answers.survival import Survival, longest_beginning
from rescheduler.planning.examined import examine
from rescheduler.planning.forms import count
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.outcome import Blocker, DrainKind, Plan, Reason, Rejected, counted_on, in_steps
from rescheduler.planning.placement.forecast import PLAYS, objection, with_forecast
from rescheduler.planning.placement.packing import Effort, Stuck
from rescheduler.planning.placement.search import Candidate
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.question import Attempt, Question, after, ask, drained, opened
from rescheduler.planning.rules.candidates import groups_at_minimum

#: How often the search among many nodes is repeated without those on which leftovers could land, or that could not be
#: drained.
_PLAYED: Final = 8

#: So many nodes of a choice stay one after the other, so that others can be emptied. Then all stay that cannot.
_STAYING: Final = 4

_RECEIVES: Final = "pods of other nodes that must not run on spot nodes go to it, or to room that it makes for them"


def plan_leftovers(
    shared: PlanningRound,
    plans: Sequence[Plan],
    prices: PriceList,
    survival: Survival,
    *,
    most: int | None,
    alone: Sequence[Plan] | None,
) -> tuple[tuple[Plan, ...], Mapping[str, Blocker]]:
    """Return *plans* and those of further nodes, in the order in which they are carried out, and what is not worth it.

    With *alone*, the plans in sequence without leftovers, of which *plans* are the first, nodes of few are chosen in
    place of theirs if more is freed so. At most *most* plans are added, all of them with forecasts. Of a group of
    Cluster Autoscaler, no more nodes are freed than its minimum allows.
    """
    few = alone is not None and are_few(shared)
    if not few and most is not None and any(plan.placements for plan in plans):
        return tuple(plans), {}
    before = [plan for plan in plans if plan.surges or not plan.placements] if few else plans
    replaced = [plan for plan in alone or () if few and plan.node not in {each.node for each in before}]
    forecasts = shared.forecaster.effort(shared.policy.planning_timeout)
    terms = _Terms(shared, prices, survival, most, forecasts)
    found = _found(terms, before, replaced, every=few)
    chosen = (*before, *found[:most]) if any(plan.leftovers for plan in found) else tuple(plans)
    return chosen, terms.unworthy


def are_few(shared: PlanningRound) -> bool:
    """Return whether all orders of the on-demand nodes are searched."""
    return len(shared.groups.on_demand) <= FEW


@dataclass(frozen=True, slots=True)
class _Terms:
    """What all steps of the search go by."""

    shared: PlanningRound
    prices: PriceList
    survival: Survival
    most: int | None  #: of the plans that are carried out; None: they are only displayed
    forecasts: Effort
    unworthy: dict[str, Blocker] = field(default_factory=dict)  #: why nodes are not worth what others would give


def _found(terms: _Terms, plans: Sequence[Plan], replaced: Sequence[Plan], *, every: bool) -> Sequence[Plan]:
    """Return the best plans that were found after *plans*; those *replaced* if there are no better ones.

    They are of nodes with leftovers, or of *every* node.
    """
    shared, staying, values = terms.shared, frozenset[str](), Values(terms.shared, plans, terms.prices)
    effort, best, rank = shared.effort(), replaced, values.rank(replaced)
    for _ in range(_PLAYED):
        own = Effort(effort.left * 3 // 4)
        effort.spend(own.left)
        with after(plans, shared, own) as attempt:
            search = LeftoverSearch(attempt, values, staying, every=every)
            choices, few = search.choices(), search.few
        effort.spend(-own.left)
        rejected = set[str]()
        for choice in choices:
            if rank_of(choice, values) <= rank:
                break
            # What is carried out now finds the nodes without pods as they are: open, as long as nobody removes them.
            before = [plan for plan in plans if plan.placements or terms.most is None]
            with after(before, shared, Effort(EFFORT)) as attempt:
                play = _Play(terms, attempt, plans, choice, values, few=few)
                played = play.run()
            found, beyond = _surviving(played, plans, terms)
            if (of_found := values.rank(found)) > rank:
                best, rank = found, of_found
            rejected |= play.rejected | beyond
            if (few or terms.most is not None) and terms.forecasts.exhausted:
                return best
        if not rejected or (terms.most is not None and best is not replaced):
            return best
        staying |= rejected
    return best


def _surviving(
    found: tuple[Plan, ...], plans: Sequence[Plan], terms: _Terms
) -> tuple[tuple[Plan, ...], frozenset[str]]:
    """Return as many of *found* as nothing objects to, and the nodes that stay therefore.

    They keep what must survive a loss, its room, and the minimum of each group.
    """
    shared, names = terms.shared, [plan.node for plan in found]
    beyond = groups_at_minimum(shared.snapshot, [*(plan.node for plan in plans), *names])
    stay = [name for name in names if name in beyond]
    first = names.index(stay[0]) if stay else len(names)
    with opened(shared, Effort(0), shared.pending):
        number, _ = longest_beginning(
            first, lambda some: terms.survival.against(shared, in_steps([*plans, *found[:some]]))
        )
    return found[:number], frozenset(names[number : number + 1] if number < first else stay)


def left_out(
    shared: PlanningRound, nodes: Sequence[str], plans: Sequence[Plan], survival: Survival
) -> tuple[list[Plan], list[Rejected]]:
    """Return the verdicts, after *plans*, on further *nodes*, which could be drained to spot nodes alone before."""
    steps = in_steps(plans)
    used = counted_on(steps)
    with after(steps, shared, Effort(0)) as attempt:
        verdicts = [in_turn(examine(node, shared), attempt) for node in nodes if node not in used]
    found: list[Plan] = []
    rejected = [Rejected(node, (Blocker(Reason.PINNED, _RECEIVES),)) for node in nodes if node in used]
    with opened(shared, Effort(0), shared.pending):
        for verdict in verdicts:
            if isinstance(verdict, Rejected):
                rejected.append(verdict)
                continue
            beyond = groups_at_minimum(shared.snapshot, [plan.node for plan in (*plans, *found, verdict)])
            against = survival.against(shared, [*steps, *found, verdict])
            if blockers := beyond.get(verdict.node) or tuple(filter(None, [against])):
                rejected.append(Rejected(verdict.node, blockers))
            else:
                found.append(verdict)
    return found, rejected


class _Play:
    """Plays a choice through in the state of *attempt*, after *plans*: in the steps of its drains, with forecasts.

    That other pods return to on-demand nodes is no objection to plans that are only displayed. Such a plan for whose
    forecast there is no time has none; otherwise there is no plan. Choices of *few* nodes are compared: none ends with
    the plans that are carried out.
    """

    def __init__(
        self,
        terms: _Terms,
        attempt: Attempt,
        plans: Sequence[Plan],
        choice: LeftoverChoice,
        values: Values,
        *,
        few: bool,
    ) -> None:
        self._values = values
        self._terms, self._displayed, self._few = terms, terms.most is None, few
        self._base, self._attempt, self._choice = terms.shared, attempt, choice
        self._leaving = {*(plan.node for plan in plans), *(each.candidate.node for each in choice)}
        self._shared = self._base.with_leftovers(self._leaving)
        self._found: dict[str, Plan] = {}
        self.rejected = set[str]()  #: nodes that have to stay
        self._attracting: dict[str, set[str]] = {}  # by node: on which nodes its leftovers could land instead

    def run(self) -> tuple[Plan, ...]:
        """Return the plans that can be carried out.

        While none of the others can, those nodes stay on which leftovers of the first could land, or else it.
        """
        idle = 0
        while left := [each for each in self._choice if each.candidate.node in self._leaving - self._found.keys()]:
            before = len(self._found)
            for emptied in left:
                if self._ended:
                    return tuple(self._found.values())
                self._try(emptied)
            if len(self._found) == before:
                names, idle = [each.candidate.node for each in left], idle + 1
                attracting = self._attracting.get(names[0], set()).intersection(names)
                self.rejected |= set(names) if idle > _STAYING else attracting or {names[0]}
                self._leaving -= self.rejected
                self._shared = self._base.with_leftovers(self._leaving)
        return tuple(self._found.values())

    @property
    def _ended(self) -> bool:
        most = self._terms.most
        if most is None:
            return False
        return self._terms.forecasts.exhausted or (not self._few and len(self._found) >= most)

    def _try(self, emptied: EmptiedNode) -> None:
        """Carry out the plan of a node in the trial, if there is one."""
        attempt, mark, moved = self._attempt, self._attempt.trial.savepoint(), deepcopy(self._attempt.moved)
        plan = self._plan(emptied)
        if plan is None:
            attempt.trial.revert(mark)
            attempt.moved = moved
            return
        self._found[plan.node] = plan
        attempt.trial.keep()
        attempt.preempted |= {pod.uid for pod in plan.preempts}

    def _plan(self, emptied: EmptiedNode) -> Plan | None:
        """Return the plan, with its moves in the trial, or None."""
        start, steps = self._attempt.trial.savepoint(), list[Plan]()
        gives = replace(self._attempt, shared=replace(self._base, kind=DrainKind.MAKES_ROOM))
        empties = replace(self._attempt, shared=self._shared if emptied.leftovers else self._base)
        for candidate in (*emptied.given, emptied.candidate):
            plan = self._checked(candidate, empties if candidate is emptied.candidate else gives)
            if plan is None:
                return None
            steps.append(plan)
        if emptied.given and not self._follows(emptied.candidate, empties, steps, start):
            return None
        plan = replace(steps[-1], first=tuple(steps[:-1]))
        return plan if not emptied.leftovers or self._pays(plan) else None

    def _follows(self, candidate: Candidate, attempt: Attempt, steps: Sequence[Plan], start: int) -> bool:
        """Return whether the node can be emptied wherever the scheduler puts the pods that make room first.

        The trial has the moves of *steps* since *start*, of which the last empties the node, and has them afterwards.
        """
        trial, names, (*first, _), follows = attempt.trial, self._base.snapshot.nodes.names, steps, True
        trial.revert(start)
        mark = trial.savepoint()
        for number, each in enumerate(first):
            for rows in attempt.shared.forecaster.outcomes(each):
                landed = tuple(
                    structs.replace(one, node=names[rows[key]]) if (key := str(one.pod)) in rows else one
                    for one in each.placements
                )
                other = replace(each, placements=landed)
                drained([*first[:number], other, *first[number + 1 :]], attempt, keep=False)
                # Shares of pools are not judged: the pods were counted where they are planned to go.
                follows = follows and self._checked(candidate, replace(attempt, moved={})) is not None
                trial.revert(mark)
        drained(steps, attempt, keep=False)
        return follows

    def _checked(self, candidate: Candidate, attempt: Attempt) -> Plan | None:
        """Return the plan with its forecast, and its moves in the trial; None if there is none, or what objects."""
        forecaster, mark = attempt.shared.forecaster, attempt.trial.savepoint()
        in_time = self._terms.forecasts.spend(PLAYS * len(candidate.movers))
        answer = ask(Question.of(candidate), attempt)
        if isinstance(answer, Stuck | Rejected):
            return None
        (plan,) = answer
        attempt.trial.revert(mark)
        if in_time or not self._displayed:
            forecast = forecaster.forecast(plan)
            against = objection(plan, forecast, attempt.shared.policy)
            if against is not None and (not self._displayed or forecast.strayed or forecast.returned):
                self._attracting[candidate.node] = set(forecast.strayed.values())
                return None
            plan = with_forecast(plan, forecast)
        within = forecaster.within_shares(plan, attempt.moved)
        if isinstance(within, Rejected):
            return None
        drained([within], attempt, keep=False)
        return within

    def _pays(self, plan: Plan) -> bool:
        """Return whether the node costs more than its pods, and those given for it, on spot nodes, and is worth it."""
        least, currency = self._base.policy.min_worth, self._terms.prices.currency
        blocker = self._base.worth_of_plan(plan).blocker(least, currency) if least and plan.first else None
        if blocker is not None:
            given = count(len(plan.moves) - len(plan.placements), "pod")
            detail = f"with {given} that other nodes give to make room, {blocker.detail}"
            self._terms.unworthy[plan.node] = replace(blocker, detail=detail)
            return False
        cost = self._values.costs([*self._found, plan.node])[plan.node]
        return cost is None or cost > self._values.share(plan)
