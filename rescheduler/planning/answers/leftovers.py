"""The plans of nodes whose leftovers go to on-demand nodes that stay, in addition to the plans of other nodes.

A choice of nodes (:mod:`rescheduler.planning.answers.leftover_choices`) is played through, drain by drain, with the
scheduler's scoring. A node on which a leftover could land stays, and the search is repeated without it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from rescheduler.planning.answers.all_nodes import in_turn
from rescheduler.planning.answers.leftover_choices import (
    EFFORT,
    FEW,
    EmptiedNode,
    LeftoverChoice,
    LeftoverNode,
    LeftoverSearch,
    Rank,
    rank_of,
)
from rescheduler.planning.answers.survival import Survival, longest_beginning
from rescheduler.planning.examined import examine
from rescheduler.planning.money.prices import NodeFacts, PriceList, node_facts
from rescheduler.planning.money.worth import NOTHING, Value, covered, spot_share, value_of
from rescheduler.planning.outcome import Blocker, DrainKind, Plan, Reason, Rejected, in_steps
from rescheduler.planning.placement.forecast import PLAYS, objection, with_forecast
from rescheduler.planning.placement.packing import Effort, Stuck
from rescheduler.planning.placement.search import Candidate
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.policy import Survive
from rescheduler.planning.pool_shares import Moved
from rescheduler.planning.question import Attempt, Question, ask, drained, evictions_after, opened

#: How often the search among many nodes is repeated without those on which leftovers could land, or that could not be
#: drained.
_PLAYED: Final = 8

_RECEIVES: Final = "pods of other nodes that must not run on spot nodes go to it, or to room that it makes for them"

#: How often a node that could not be emptied for lack of room is tried again, after others are emptied or stay.
_TRIES: Final = 3


def plan_leftovers(
    shared: PlanningRound,
    plans: Sequence[Plan],
    prices: PriceList,
    survival: Survival,
    *,
    kept: Collection[str],
    most: int | None,
    alone: Sequence[Plan] | None,
) -> tuple[Plan, ...]:
    """Return *plans* and those of further nodes, in the order in which they are carried out.

    With *alone*, the plans in sequence without leftovers, of which *plans* are the first, nodes of few are chosen in
    place of theirs if more is freed so. The nodes *kept* stay. At most *most* plans are added, all of them with
    forecasts.
    """
    forecasts = shared.forecaster.effort(shared.policy.planning_timeout)
    terms = _Terms(shared, prices, survival, frozenset(kept), most, forecasts)
    if alone is None or not are_few(shared):
        if most is not None and any(plan.placements for plan in plans):
            return tuple(plans)
        return (*plans, *_found(terms, plans, None)[:most])
    before = [plan for plan in plans if plan.surges or not plan.placements]
    others = [plan for plan in alone if plan.node not in {each.node for each in before}]
    values = _values(terms, before)
    least = _rank(others, values)
    found = _found(terms, before, least)
    if _rank(found, values) <= least or not any(plan.leftovers for plan in found):
        return tuple(plans)
    return (*before, *found[:most])


def are_few(shared: PlanningRound) -> bool:
    """Return whether all orders of the on-demand nodes are searched."""
    return len(shared.groups.on_demand) <= FEW


@dataclass(frozen=True, slots=True)
class _Terms:
    """What all steps of the search go by."""

    shared: PlanningRound
    prices: PriceList
    survival: Survival
    kept: frozenset[str]  #: names of nodes that stay
    most: int | None  #: of the plans that are carried out; None: they are only displayed
    forecasts: Effort


def _rank(plans: Iterable[Plan], values: Mapping[str, Value]) -> Rank:
    """Return how good *plans* are, as the choice of their nodes."""
    return value_of(values[plan.node] for plan in plans), -sum(len(plan.moves) for plan in plans)


def _found(terms: _Terms, plans: Sequence[Plan], least: Rank | None) -> Sequence[Plan]:
    """Return the best plans that were found after *plans*; with *least*, also of nodes without leftovers.

    Choices that do not rank higher than *least* are left out.
    """
    shared, staying, values = terms.shared, terms.kept, _values(terms, plans)
    effort, best = shared.effort(), tuple[Plan, ...]()
    for _ in range(_PLAYED):
        own = Effort(effort.left * 3 // 4)
        effort.spend(own.left)
        with opened(shared, own, shared.pending) as attempt:
            search = LeftoverSearch(attempt, plans, values, staying, every=least is not None)
            choices, few = search.choices(), search.few
        effort.spend(-own.left)
        rejected = frozenset[str]()
        for choice in choices:
            known = _rank(best, values)
            if rank_of(choice) <= max(known, least or known):
                return best
            with opened(shared, Effort(EFFORT), shared.pending) as attempt:
                play = _Play(terms, attempt, plans, choice, known if few else None)
                played = play.run()
            found, rejected = _surviving(played, plans, terms)
            best = max(best, found, key=lambda each: _rank(each, values))
            if not few:  # of few nodes, other choices are there in place of those that the forecasts reject
                rejected |= play.rejected
            if (few or terms.most is not None) and terms.forecasts.exhausted:
                return best
            if rejected:
                break
        if not rejected or (terms.most is not None and best):
            return best
        staying |= rejected
    return best


def _values(terms: _Terms, plans: Sequence[Plan]) -> dict[str, Value]:
    """Return what each of the nodes is worth that stay after *plans*; nothing if commitments pay for it."""
    shared, prices = terms.shared, terms.prices
    freed = {plan.node: node_facts(shared.snapshot, plan.node, spot=False) for plan in reversed(plans)}
    names = [name for name in shared.groups.on_demand if name not in freed]
    facts = {name: node_facts(shared.snapshot, name, spot=False) for name in names}
    parts = covered([*facts.values(), *freed.values()], prices, shared.circumstances.now.date())
    values = {}
    for name, node in facts.items():
        price, unpaid = prices.per_hour(node), 1 - parts.get(name, Decimal(0))
        money = (price or Decimal(0)) * unpaid
        values[name] = NOTHING if price is not None and money <= 0 else (money, 1, node.cpu)
    return values


def _surviving(
    found: tuple[Plan, ...], plans: Sequence[Plan], terms: _Terms
) -> tuple[tuple[Plan, ...], frozenset[str]]:
    """Return as many of *found* as keep what must survive a loss, and its room, and the node that stays therefore."""
    shared = terms.shared
    with opened(shared, Effort(0), shared.pending):
        number, _ = longest_beginning(
            len(found), lambda some: _objection(shared, [*plans, *found[:some]], terms.survival)
        )
    return found[:number], frozenset(plan.node for plan in found[number : number + 1])


def left_out(
    shared: PlanningRound, nodes: Sequence[str], plans: Sequence[Plan], survival: Survival
) -> tuple[list[Plan], list[Rejected]]:
    """Return the verdicts, after *plans*, on further *nodes*, which could be drained to spot nodes alone before."""
    used = {each.node for plan in plans for each in plan.placements if each.pod.uid in plan.leftovers}
    used |= {each.node for plan in plans for each in plan.first}
    with opened(shared, Effort(0), shared.pending) as attempt:
        drained(in_steps(plans), attempt)
        attempt.remaining = evictions_after(in_steps(plans), shared)
        attempt.emptied = sum(plan.node in shared.minimum.counted for plan in plans)
        moved = _moved_to_pools(in_steps(plans), shared)
        verdicts = [in_turn(examine(node, shared), attempt, moved) for node in nodes if node not in used]
    found: list[Plan] = []
    rejected = [Rejected(node, (Blocker(Reason.PINNED, _RECEIVES),)) for node in nodes if node in used]
    for verdict in verdicts:
        with opened(shared, Effort(0), shared.pending):
            against = None if isinstance(verdict, Rejected) else _objection(shared, [*plans, *found, verdict], survival)
        if isinstance(verdict, Rejected):
            rejected.append(verdict)
        elif against is not None:
            rejected.append(Rejected(verdict.node, (against,)))
        else:
            found.append(verdict)
    return found, rejected


def _objection(shared: PlanningRound, plans: Sequence[Plan], survival: Survival) -> Blocker | None:
    """Return why *plans* would not keep what must survive a loss, or its room, from the present state."""
    if shared.policy.survive is Survive.OFF and not shared.policy.fallback_headroom:
        return None
    every = list(in_steps(plans))
    return survival.headroom.objection(shared, every) or survival.objection(shared, every)


def _moved_to_pools(plans: Iterable[Plan], shared: PlanningRound) -> Moved:
    """Return the replicas that *plans* move to pools of spot nodes."""
    moved: Moved = {}
    for plan in plans:
        shared.forecaster.shares.take(plan, moved)
    return moved


class _Play:
    """Plays a choice through, in the trial of *attempt*, after *plans*: in the steps of its drains, with forecasts.

    That other pods return to on-demand nodes is no objection to plans that are only displayed. Such a plan for whose
    forecast there is no time has none; otherwise there is no plan. Of few nodes, other choices are there: a part of
    this one that is no better than what is *known* is not looked for.
    """

    def __init__(
        self, terms: _Terms, attempt: Attempt, plans: Sequence[Plan], choice: LeftoverChoice, known: Rank | None
    ) -> None:
        self._terms, self._displayed = terms, terms.most is None
        self._base, self._attempt, self._choice, self._known = terms.shared, attempt, choice, known
        # What is carried out now finds the nodes without pods as they are: open, as long as nobody removes them.
        drained([plan for plan in plans if plan.placements or self._displayed], attempt)
        self._freed, self._leaving = {plan.node for plan in plans}, {each.node.name for each in choice}
        self._shared = self._base.with_leftovers(self._freed | self._leaving)
        self._found: dict[str, Plan] = {}
        self.rejected = frozenset[str]()  #: nodes that have to stay: they cannot be emptied, or attract pods
        #: By node that could not be emptied: one of these has to be emptied or to stay before. Itself: for any room.
        self._waits: dict[str, set[str]] = {}
        self._tries = Counter[str]()
        self._moved = _moved_to_pools(plans, self._base)

    def run(self) -> tuple[Plan, ...]:
        """Return the plans that can be carried out."""
        while (left := self._left()) and not self._ended:
            before = len(self._found)
            for emptied in left:
                if emptied.node.name not in self._waits and not self._ended:
                    self._try(emptied)
            if len(self._found) == before and not self._ended:
                stays = self._waits[left[0].node.name]
                self._leaving -= stays
                self.rejected |= stays
                self._try_again()
                self._shared = self._base.with_leftovers(self._freed | self._leaving)
        return tuple(self._found.values())

    def _left(self) -> LeftoverChoice:
        """Return the nodes that have not been emptied and do not have to stay."""
        return tuple(each for each in self._choice if each.node.name in self._leaving - self._found.keys())

    @property
    def _ended(self) -> bool:
        most = self._terms.most
        too_late = most is not None and self._terms.forecasts.exhausted
        if self._known is None:
            return too_late or (most is not None and len(self._found) >= most)
        possible = tuple(each for each in self._choice if each.node.name not in self._waits)
        return too_late or (bool(self._waits) and self._known[0] > NOTHING and rank_of(possible) <= self._known)

    def _try_again(self) -> None:
        """Let those be tried again that waited for a node that is emptied now, or stays, or, some times, for room."""
        waited = self._leaving - self._found.keys()
        self._waits = {
            name: waits
            for name, waits in self._waits.items()
            if (self._tries[name] > _TRIES if waits == {name} else waits <= waited)
        }

    def _try(self, emptied: EmptiedNode) -> None:
        """Carry out the plan of a node in the trial, or note what it waits for."""
        name, mark = emptied.node.name, self._attempt.trial.savepoint()
        plan = self._plan(emptied)
        if isinstance(plan, Plan):
            self._found[name] = plan
            self._attempt.trial.keep()
            self._try_again()
        else:
            self._attempt.trial.revert(mark)
            self._tries[name] += 1
            self._waits[name] = plan & (self._leaving - self._found.keys()) or {name}

    def _plan(self, emptied: EmptiedNode) -> Plan | set[str]:
        """Return the plan, with its moves in the trial, or the nodes that would have to stay instead."""
        node, first = emptied.node, list[Plan]()
        for giver in emptied.given:
            gives = self._checked(giver, replace(self._base, kind=DrainKind.MAKES_ROOM))
            if not isinstance(gives, Plan):
                return gives
            first.append(gives)
        plan = self._checked(node.candidate, self._shared if node.leftovers else self._base)
        if not isinstance(plan, Plan):
            return plan
        plan = replace(plan, first=tuple(first))
        return plan if not node.leftovers or self._pays(node, plan) else set()

    def _checked(self, candidate: Candidate, shared: PlanningRound) -> Plan | set[str]:
        """Return the plan with its forecast, and its moves in the trial; or the nodes on which leftovers could land."""
        attempt, policy, forecaster = replace(self._attempt, shared=shared), shared.policy, shared.forecaster
        mark = attempt.trial.savepoint()
        in_time = self._terms.forecasts.spend(PLAYS * len(candidate.movers))
        answer = ask(Question.of(candidate), attempt)
        if isinstance(answer, Stuck | Rejected):
            return set()
        (plan,) = answer
        attempt.trial.revert(mark)
        if in_time or not self._displayed:
            forecast = forecaster.forecast(plan)
            flags = {"allow_fragile": policy.allow_fragile_plans, "allow_returning": policy.allow_returning_plans}
            against = objection(plan, forecast, **flags)
            if against is not None and (not self._displayed or forecast.strayed or forecast.returned):
                return set(forecast.strayed.values())
            plan = with_forecast(plan, forecast)
        within = forecaster.within_shares(plan, self._moved)
        if isinstance(within, Rejected):
            return set()
        drained([within], attempt, keep=False)
        return within

    def _pays(self, node: LeftoverNode, plan: Plan) -> bool:
        """Return whether the node is worth more than what its pods, and those given for it, cost on spot nodes."""
        money, snapshot = node.value[0], self._base.snapshot

        def facts(name: str) -> NodeFacts:
            return node_facts(snapshot, name, spot=snapshot.nodes.row[name] in self._base.groups.spot.rows_set)

        share = spot_share(plan.moves, snapshot.pods.get, facts, self._terms.prices) if money else None
        return share is None or share < money
