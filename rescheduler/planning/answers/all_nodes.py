"""The drains of all on-demand nodes in sequence, each in the room that the earlier ones leave.

The search selects as many nodes as it finds to be drainable together. Their drains are carried out in a trial, and each
of the other nodes is judged in the state after them.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from rescheduler.planning.answers.node import all_obstacles, could_be_drained
from rescheduler.planning.answers.survival import PlansObjection, Survival, longest_beginning, longest_surviving
from rescheduler.planning.examined import Examined, examine
from rescheduler.planning.outcome import Blocker, Plan, Planning, Rejected, Verdict
from rescheduler.planning.placement.forecast_checks import with_optional_forecast
from rescheduler.planning.placement.packing import Effort
from rescheduler.planning.placement.search import Search, SelectedNode, Selection
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.question import Attempt, carry_out, new_plan, opened


def plan_all(shared: PlanningRound, survival: Survival, *, forecasts: bool = True) -> Planning:
    """Return the verdicts on all on-demand nodes; see :meth:`.planner.Planner.plan_all`."""
    examined = {node: examine(node, shared) for node in shared.groups.on_demand}
    shared.room.filters.refresh(pod.cls for node in examined.values() for pod in node.must_move)
    effort, forecaster, policy = shared.effort(), shared.forecaster, shared.policy
    with opened(shared, Effort(0), shared.pending) as attempt:
        start = attempt.trial.savepoint()
        drainable = [node for node in examined.values() if could_be_drained(node, attempt)]
        candidates = [node.candidate for node in drainable]
        evictions = {node.candidate.node: node.evictions for node in drainable}
        search = Search(
            shared.room, attempt.trial, candidates, evictions, shared.remaining, shared.minimum.spare, effort
        )
        ahead = forecaster.ahead() if forecasts else Effort(0)
        enforced = survival.may_object(policy)
        limited = enforced or forecaster.shares.limits(pod for node in candidates for pod in node.movers)
        found, drained = search.run(keep_drained=ahead.exhausted and not limited)
        victims, left = _limited(found, search, shared, survival) if enforced else (found, {})
        possible = _plans(found, shared) if left else ()
        verdicts = _place_victims(victims, examined, attempt, ahead, left, drained)
        if enforced:
            attempt.trial.revert(start)
            verdicts = _enforced(verdicts, len(victims) if attempt.as_placed else 0, shared, survival)
        planning = shared.planning(verdicts)
    return replace(
        planning,
        timed_out=effort.exhausted and len(planning.plans) < search.upper_bound,
        upper_bound=search.upper_bound,
        possible=possible,
    )


def _limited(
    victims: Selection, search: Search, shared: PlanningRound, survival: Survival
) -> tuple[Selection, Mapping[str, Blocker]]:
    """Return most of *victims* whose drains leave the room to keep and keep the certificate, and why others do not.

    Both are tested with as many victims as possible in their order, then without the one that is objected to.
    """
    left: dict[str, Blocker] = {}

    def objection(test: PlansObjection, some: Selection) -> Blocker | None:
        return test(shared, _plans(some, shared))

    for test in (survival.headroom.objection, survival.objection):
        kept, blocker = longest_surviving(victims, partial(objection, test), search.replayed)
        chosen = {victim.candidate.node for victim in kept}
        if blocker is not None:
            left |= {name: blocker for victim in victims if (name := victim.candidate.node) not in chosen}
        victims = kept
    return victims, left


def _enforced(verdicts: list[Verdict], tested: int, shared: PlanningRound, survival: Survival) -> list[Verdict]:
    """Reject the plans after which the certificate or the headroom would be broken. The first *tested* ones are not.

    The search knows neither rows that a drain takes instead of others, nor room that other pods yield.
    """
    plans = [verdict for verdict in verdicts if isinstance(verdict, Plan)]
    if len(plans) == tested:
        return verdicts
    more, blocker = longest_beginning(
        len(plans) - tested, lambda some: survival.against(shared, plans[: tested + some])
    )
    if blocker is None:
        return verdicts
    left = {plan.node for plan in plans[tested + more :]}
    return [Rejected(each.node, (blocker,)) if each.node in left else each for each in verdicts]


def _plans(victims: Selection, shared: PlanningRound) -> tuple[Plan, ...]:
    return tuple(new_plan(victim.candidate, victim.placed, shared) for victim in victims)


def _place_victims(
    victims: Selection,
    examined: Mapping[str, Examined],
    attempt: Attempt,
    effort: Effort,
    left: Mapping[str, Blocker],
    drained: int,
) -> list[Verdict]:
    """Move the pods of *victims*, of which the first are *drained* already. Then compute why others are rejected.

    *effort* limits the forecasts, which need the state before each drain: there are none of nodes that are drained.
    Nodes whose pods fit are *left*, by name, if their drains would break the certificate or leave too little room.
    Nothing is left for other nodes either. As soon as a drain places its pods elsewhere than the search did, the other
    victims are judged in turn, too.
    """
    verdicts: dict[str, Verdict] = {node: Rejected(node, (blocker,)) for node, blocker in left.items()}
    for number, victim in enumerate(victims):
        node = examined[victim.candidate.node]
        if number < drained:
            plan = new_plan(victim.candidate, victim.in_drain or (), attempt.shared)
            verdict = with_optional_forecast(plan, attempt.shared.forecaster, effort)
        elif attempt.as_placed:
            verdict = _carry_out(victim, attempt, effort)
            attempt.as_placed &= isinstance(verdict, Plan)
        else:
            verdicts[victim.candidate.node] = in_turn(node, attempt)
            continue
        verdicts[verdict.node] = verdict
        if isinstance(verdict, Plan):
            attempt.remaining.spend(node.evictions)
            attempt.emptied += victim.candidate.counts
    plans = [verdict for verdict in verdicts.values() if isinstance(verdict, Plan)]
    stay = [verdict for verdict in verdicts.values() if isinstance(verdict, Rejected)]
    others = [in_turn(node, attempt) for name, node in examined.items() if name not in verdicts]
    if left:
        last = (*left.values(),)[-1]
        others = [Rejected(each.node, (last,)) if isinstance(each, Plan) else each for each in others]
    return [*plans, *stay, *others]


def _carry_out(victim: SelectedNode, attempt: Attempt, effort: Effort) -> Verdict:
    """Return the verdict on a selected node. Its moves are in the trial afterwards if it is a plan."""
    candidate, forecaster = victim.candidate, attempt.shared.forecaster
    plan = with_optional_forecast(new_plan(candidate, victim.placed, attempt.shared), forecaster, effort)
    if isinstance(plan, Plan) and isinstance(over := forecaster.within_shares(plan, attempt.moved), Rejected):
        return over
    verdict = carry_out(candidate, victim.placed, attempt)
    attempt.trial.keep()
    if isinstance(verdict, Rejected) or not isinstance(plan, Plan):
        return verdict
    return replace(verdict, robust=plan.robust, landing=plan.landing, forecast=plan.forecast)


def in_turn(examined: Examined, attempt: Attempt) -> Verdict:
    """Return the verdict on a node after earlier plans. The moves of a plan are in the trial afterwards."""
    forecaster, trial, mark = attempt.shared.forecaster, attempt.trial, attempt.trial.savepoint()
    before = attempt.remaining.copy(), attempt.emptied, attempt.preempted
    verdict = all_obstacles(examined, attempt)
    if isinstance(verdict, Plan) and forecaster.shares.may_exceed(verdict, attempt.moved):
        trial.revert(mark)
        attempt.remaining, attempt.emptied, attempt.preempted = before
        if isinstance(over := forecaster.within_shares(verdict, attempt.moved), Rejected):
            return over
        verdict = all_obstacles(examined, attempt)
    elif isinstance(verdict, Plan):
        forecaster.shares.take(verdict, attempt.moved)
    if isinstance(verdict, Plan) and verdict.preempts:
        trial.keep()  # otherwise, nodes that were full before count as full
    return verdict
