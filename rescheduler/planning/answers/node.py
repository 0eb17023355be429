"""The verdict on one node, in steps: rules first, then budgets, then pods that are pinned, then room on spot nodes.

The rules depend on the node and its pods only (:mod:`rescheduler.planning.examined`). :data:`SHARED` also depend on the
plans made before. The last step asks the question of :mod:`rescheduler.planning.question`.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from rescheduler.planning.budgets import OF_BUDGETS, RemainingDisruptions
from rescheduler.planning.examined import RULES as DRAIN_RULES
from rescheduler.planning.examined import Examined
from rescheduler.planning.outcome import Blocker, Plan, Reason, Rejected, Verdict
from rescheduler.planning.placement.packing import Stuck, WantedReasons
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.question import Answer, Attempt, Question, ask, can_never_fit, no_room
from rescheduler.planning.rules.candidates import NODE_RULES
from rescheduler.planning.rules.declared import declared_in, plan_rule
from rescheduler.planning.rules.minimum import keeps_pods
from rescheduler.planning.rules.pod_rules import RULES as POD_RULES


@plan_rule(Reason.MIN_ON_DEMAND_NODES)
def _minimum_after_plans(examined: Examined, attempt: Attempt) -> Iterable[Blocker]:
    if not attempt.emptied or any(blocker.reason is Reason.MIN_ON_DEMAND_NODES for blocker in examined.blockers):
        return ()
    node, in_use = examined.candidate.node, keeps_pods(examined.must_move)
    return filter(None, [attempt.shared.minimum.blocker(node, in_use=in_use, emptied=attempt.emptied)])


@plan_rule(*OF_BUDGETS)
def _budgets(examined: Examined, attempt: Attempt) -> Iterable[Blocker]:
    return map(examined.surges.explained, attempt.remaining.blockers(examined.evictions))


@plan_rule(Reason.PINNED, Reason.KUBELET, Reason.REFUSED_BEFORE)
def _pinned(examined: Examined, attempt: Attempt) -> Iterable[Blocker]:
    return attempt.shared.pins.blockers(examined.of_special)


#: The steps after the rules, in order. The last step, room on the spot nodes, places the pods.
SHARED: Final = declared_in(globals())

#: The table of all rules, in the order in which they are applied.
RULES: Final = (*NODE_RULES, *POD_RULES, *DRAIN_RULES, *SHARED)

#: Pods with these blockers are not placed in a trial: the result is already known, or cannot be known.
_NOT_PLACED: Final = (
    *(Reason.PINNED, Reason.KUBELET, Reason.REFUSED_BEFORE),
    *(Reason.RESOURCE_CLAIM, Reason.NODE_NAME_IN_TEMPLATE),
)


def could_be_drained(examined: Examined, attempt: Attempt) -> bool:
    """Return whether the node could be drained if the plans for other nodes left enough evictions and room.

    A pod that no spot node accepts now does not fit later either: drains only take room from spot nodes.
    """
    if examined.blockers or any(blocker for step in SHARED for blocker in step.function(examined, attempt)):
        return False
    return not can_never_fit(examined.incoming, attempt.shared.room)


def before_placement(examined: Examined, attempt: Attempt) -> Rejected | None:
    """Return the blockers of the first step before the placement that has any. Rules and budgets count as one step."""
    if examined.blockers:
        return rejection(examined, attempt.remaining)
    blockers = next(filter(None, (tuple(step.function(examined, attempt)) for step in SHARED)), None)
    return Rejected(examined.candidate.node, blockers) if blockers else None


def first_obstacles(examined: Examined, attempt: Attempt) -> Verdict:
    """Return a plan, or the blockers of the first step that has any."""
    if (rejected := before_placement(examined, attempt)) is not None:
        return rejected
    answer = ask(Question.of(examined.candidate), attempt)
    if isinstance(answer, Stuck):
        return Rejected(examined.candidate.node, tuple(_without_room(answer, attempt.shared)))
    return single(answer)


def all_obstacles(examined: Examined, attempt: Attempt) -> Verdict:
    """Return a plan, or the blockers of all steps. A plan stays in the trial and uses the budgets.

    Pods that do not fit are also found if other pods may not be evicted.
    """
    candidate, shared = examined.candidate, attempt.shared
    blockers = [*examined.blockers, *(blocker for step in SHARED for blocker in step.function(examined, attempt))]
    without = {blocker.pod for blocker in blockers if blocker.reason in _NOT_PLACED}
    pods = [pod for pod in examined.incoming if pod.key not in without] if without else examined.incoming
    question = Question([candidate], examined.emptied, pods, reasons=WantedReasons.ALL)
    answer = ask(question, attempt, only_room=bool(blockers))
    if isinstance(answer, Stuck):
        blockers += _without_room(answer, shared)
    if blockers:
        return Rejected(candidate.node, tuple(blockers))
    verdict = single(answer)
    if isinstance(verdict, Plan):
        attempt.remaining.spend(examined.evictions)
        attempt.emptied += candidate.counts
        attempt.preempted |= {pod.uid for pod in verdict.preempts}
    return verdict


def single(answer: Answer) -> Verdict:
    """Return the verdict of an *answer* about one node, all of whose pods have a place."""
    if isinstance(answer, Rejected):
        return answer
    assert not isinstance(answer, Stuck)
    [plan] = answer
    return plan


def rejection(examined: Examined, remaining: RemainingDisruptions) -> Rejected:
    """Return the blockers of the rules, and the blockers of the budgets for the pods that may be evicted."""
    candidate = examined.candidate
    lacking = map(examined.surges.explained, remaining.lacking(candidate.evicted))
    return Rejected(candidate.node, (*examined.blockers, *lacking))


def _without_room(stuck: Stuck, shared: PlanningRound) -> Iterator[Blocker]:
    """Yield the blockers for the pods that do not fit, and for their groups."""
    for each in (stuck, *stuck.others):
        yield no_room(each, shared)
        if (blocker := shared.gangs.without_room(each.pod)) is not None:
            yield blocker
