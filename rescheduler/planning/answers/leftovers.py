"""The plans of nodes whose leftovers go to on-demand nodes that stay, in addition to the plans of other nodes.

A choice of nodes (:mod:`rescheduler.planning.answers.leftover_choices`) is played through, drain by drain, with the
scheduler's scoring. A node on which a leftover could land stays, and the search is repeated without it.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from rescheduler.planning.answers.leftover_choices import (
    EFFORT,
    FEW,
    NOTHING,
    EmptiedNode,
    LeftoverChoice,
    LeftoverNode,
    LeftoverSearch,
    Rank,
    Value,
    rank_of,
    value_of,
)
from rescheduler.planning.answers.node import all_obstacles
from rescheduler.planning.answers.survival import Survival, longest_beginning
from rescheduler.planning.examined import examine
from rescheduler.planning.money.prices import NodeFacts, PriceList, node_facts
from rescheduler.planning.money.worth import covered, spot_share
from rescheduler.planning.outcome import Blocker, DrainKind, Plan, Reason, Rejected, in_steps
from rescheduler.planning.placement.forecast import PLAYS, objection, with_forecast
from rescheduler.planning.placement.packing import Effort, Stuck
from rescheduler.planning.placement.search import Candidate
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.policy import Survive
from rescheduler.planning.pool_shares import Moved
from rescheduler.planning.question import Attempt, Question, ask, drained, evictions_after, opened, undo

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
    if alone is None or not are_few(shared):
        if most is not None and any(plan.placements for plan in plans):
            return tuple(plans)
        return (*plans, *_found(shared, plans, prices, survival, kept, most).plans[:most])
    before = [plan for plan in plans if plan.surges or not plan.placements]
    others = [plan for plan in alone if plan.node not in {each.node for each in before}]
    values = _values(shared, before, prices)
    least = value_of(values[plan.node] for plan in others), -sum(len(plan.moves) for plan in others)
    found = _found(shared, before, prices, survival, kept, most, least)
    if found.rank <= least or not any(plan.leftovers for plan in found.plans):
        return tuple(plans)
    return (*before, *found.plans[:most])


def are_few(shared: PlanningRound) -> bool:
    """Return whether all orders of the on-demand nodes are searched."""
    return len(shared.groups.on_demand) <= FEW


def _found(
    shared: PlanningRound,
    plans: Sequence[Plan],
    prices: PriceList,
    survival: Survival,
    kept: Collection[str],
    most: int | None,
    least: Rank | None = None,
) -> "_Found":
    """Return the best plans that were found after *plans*; with *least*, also of nodes without leftovers.

    Choices that do not rank higher than *least* are left out.
    """
    found, staying, values = _Found(), frozenset(kept), _values(shared, plans, prices)
    effort, forecasts = shared.effort(), shared.forecaster.effort(shared.policy.planning_timeout)
    for _ in range(_PLAYED):
        own = Effort(effort.left * 3 // 4)
        effort.spend(own.left)
        with opened(shared, own, shared.pending) as attempt:
            search = LeftoverSearch(attempt, plans, values, staying, every=least is not None)
            choices, few = search.choices(), search.few
        effort.spend(-own.left)
        rejected = frozenset[str]()
        for choice in choices:
            if rank_of(choice) <= max(found.rank, least or found.rank):
                return found
            with opened(shared, Effort(EFFORT), shared.pending) as attempt:
                played = _Play(attempt, plans, choice, prices, forecasts, most, found.rank if few else None).run()
            surviving = _surviving(played, plans, shared, survival)
            found = max(found, surviving, key=lambda each: each.rank)
            # Of few nodes, other choices are there in place of those that the forecasts reject.
            rejected = surviving.rejected - (played.rejected if few else frozenset())
            if (few or most is not None) and forecasts.exhausted:
                return found
            if rejected:
                break
        if not rejected or (most is not None and found.plans):
            return found
        staying |= rejected
    return found


def _values(shared: PlanningRound, plans: Sequence[Plan], prices: PriceList) -> dict[str, Value]:
    """Return what each of the nodes is worth that stay after *plans*; nothing if commitments pay for it."""
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
        verdicts = [all_obstacles(examine(node, shared), attempt) for node in nodes if node not in used]
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


def _surviving(found: "_Found", plans: Sequence[Plan], shared: PlanningRound, survival: Survival) -> "_Found":
    """Return the first of the plans *found*, as many as keep what must survive a loss, and its room.

    The node of the next one has to stay.
    """
    with opened(shared, Effort(0), shared.pending):
        number, _ = longest_beginning(
            len(found.plans), lambda some: _objection(shared, [*plans, *found.plans[:some]], survival)
        )
    stays = {plan.node for plan in found.plans[number : number + 1]}
    return replace(found, emptied=found.emptied[:number], plans=found.plans[:number], rejected=found.rejected | stays)


@dataclass(frozen=True, slots=True)
class _Found:
    """The nodes whose plans passed their forecasts, these plans, and the nodes that have to stay."""

    emptied: LeftoverChoice = ()
    plans: tuple[Plan, ...] = ()
    rejected: frozenset[str] = frozenset()

    @property
    def rank(self) -> Rank:
        return rank_of(self.emptied)


class _Play:
    """Plays a choice through, in the trial of *attempt*, after *plans*: in the steps of its drains, with forecasts.

    Without *most*, plans are only displayed: that other pods return to on-demand nodes is no objection. A plan for
    whose forecast there is no time has none; with *most*, there is no such plan. Of few nodes, other choices are there:
    a part of this one that is no better than what is *known* is not looked for.
    """

    def __init__(
        self,
        attempt: Attempt,
        plans: Sequence[Plan],
        choice: LeftoverChoice,
        prices: PriceList,
        forecasts: Effort,
        most: int | None,
        known: Rank | None,
    ) -> None:
        # What is carried out now finds the nodes without pods as they are: open, as long as nobody removes them.
        drained([plan for plan in plans if plan.placements or most is None], attempt)
        self._base, self._attempt, self._choice = attempt.shared, attempt, choice
        self._prices, self._forecasts = prices, forecasts
        self._most, self._known = most, known
        self._freed, self._leaving = {plan.node for plan in plans}, {each.node.name for each in choice}
        self._found: dict[str, tuple[EmptiedNode, Plan]] = {}
        #: By node that could not be emptied: one of these has to be emptied or to stay before. Itself: for any room.
        self._waits: dict[str, set[str]] = {}
        self._tries = Counter[str]()
        self._moved: Moved = {}  #: replicas that plans move to pools of spot nodes
        for plan in plans:
            self._base.forecaster.shares.take(plan, self._moved)

    def run(self) -> _Found:
        """Return the plans that can be carried out, and the nodes that have to stay: theirs do not, or attract pods."""
        left, rejected = list(self._choice), set[str]()
        shared = self._base.with_leftovers(self._freed | self._leaving)
        while left and not self._ended:
            before = len(self._found)
            for emptied in left:
                if emptied.node.name not in self._waits and not self._ended:
                    self._try(emptied, replace(self._attempt, shared=shared))
            left = [each for each in left if each.node.name not in self._found]
            if left and len(self._found) == before and not self._ended:
                name = left[0].node.name
                stays = self._waits[name]
                self._leaving -= stays
                rejected |= stays
                left = [each for each in left if each.node.name not in stays]
                self._try_again(stays)
                shared = self._base.with_leftovers(self._freed | self._leaving)
        done, plans = zip(*self._found.values(), strict=True) if self._found else ((), ())
        return _Found(done, plans, frozenset(rejected))

    @property
    def _ended(self) -> bool:
        too_late = self._most is not None and self._forecasts.exhausted
        if self._known is None:
            return too_late or (self._most is not None and len(self._found) >= self._most)
        left = tuple(each for each in self._choice if each.node.name not in self._waits)
        return too_late or (bool(self._waits) and self._known[0] > NOTHING and rank_of(left) <= self._known)

    def _try(self, emptied: EmptiedNode, attempt: Attempt) -> None:
        """Carry out the plan of a node in the trial, or note what it waits for."""
        name, plan = emptied.node.name, self._plan(emptied, attempt)
        if isinstance(plan, Plan):
            self._found[name] = emptied, plan
            drained(in_steps([plan]), self._attempt)
            self._try_again({name})
        else:
            self._tries[name] += 1
            self._waits[name] = (plan & self._leaving) - self._found.keys() or {name}

    def _try_again(self, changed: Collection[str]) -> None:
        """Let those be tried again that waited for one of the nodes *changed*, or, some times, for room."""
        self._waits = {
            name: waits
            for name, waits in self._waits.items()
            if (self._tries[name] > _TRIES if waits == {name} else waits.isdisjoint(changed))
        }

    def _plan(self, emptied: EmptiedNode, attempt: Attempt) -> Plan | set[str]:
        """Return the plan, or the nodes that would have to stay instead. The trial is unchanged."""
        mark, trial = attempt.trial.savepoint(), attempt.trial
        making = replace(attempt, shared=replace(self._base, kind=DrainKind.MAKES_ROOM))
        first: list[Plan] = []
        failed: set[str] | None = None
        for giver in emptied.given:
            gives = self._checked(giver, making)
            trial.undrain(giver.row)
            if not isinstance(gives, Plan):
                failed = gives
                break
            first.append(gives)
        own = attempt if emptied.node.leftovers else replace(attempt, shared=self._base)
        result = self._checked(emptied.node.candidate, own) if failed is None else failed
        trial.revert(mark)
        for each in (*emptied.given, emptied.node.candidate):
            trial.undrain(each.row)
        if not isinstance(result, Plan):
            return result
        plan = replace(result, first=tuple(first))
        return plan if not emptied.node.leftovers or self._pays(emptied.node, plan) else set()

    def _checked(self, candidate: Candidate, attempt: Attempt) -> Plan | set[str]:
        """Return the plan with its forecast, and its moves in the trial; or the nodes on which leftovers could land."""
        question, mark, policy = Question.of(candidate), attempt.trial.savepoint(), self._base.policy
        in_time = self._forecasts.spend(PLAYS * len(candidate.movers))
        answer = ask(question, attempt)
        if isinstance(answer, Stuck | Rejected):
            return set()
        (plan,) = answer
        if not in_time and self._most is None:
            return plan
        forecaster = attempt.shared.forecaster
        undo(question, attempt, mark)
        forecast = forecaster.forecast(plan)
        flags = {"allow_fragile": policy.allow_fragile_plans, "allow_returning": policy.allow_returning_plans}
        against = objection(plan, forecast, **flags)
        if against is not None and (self._most is not None or forecast.strayed or forecast.returned):
            return set(forecast.strayed.values())
        within = forecaster.within_shares(with_forecast(plan, forecast), self._moved)
        if isinstance(within, Rejected):
            return set()
        attempt.trial.evict(*candidate.evicted)
        attempt.trial.drain(candidate.row)
        rows = self._base.snapshot.nodes.row
        incoming = {pod.key: pod.cls for pod in candidate.incoming}
        for placement in plan.placements:
            attempt.trial.place(incoming[str(placement.pod)], rows[placement.node])
        return within

    def _pays(self, node: LeftoverNode, plan: Plan) -> bool:
        """Return whether the node is worth more than what its pods, and those given for it, cost on spot nodes."""
        money, snapshot = node.value[0], self._base.snapshot

        def facts(name: str) -> NodeFacts:
            return node_facts(snapshot, name, spot=snapshot.nodes.row[name] in self._base.groups.spot.rows_set)

        share = spot_share(plan.moves, snapshot.pods.get, facts, self._prices) if money else None
        return share is None or share < money
