"""The question of planning: if these nodes are drained, who is placed where, and what stands in the way?

Each answer (:mod:`rescheduler.planning.answers`) is made of it: it says which nodes are drained and which pods need a
place, in the state after earlier plans, and gets the plans or what stands in the way. This module and
:mod:`rescheduler.planning.placement` are the only ones that start trials of the snapshot.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeAlias

from predicates.objects import Pod, PodClass
from predicates.snapshot import Trial
from rescheduler.planning.budgets import RemainingDisruptions
from rescheduler.planning.forms import and_more, count, shortened, utc
from rescheduler.planning.outcome import Blocker, DrainKind, Placement, Plan, PodRef, Reason, Rejected, Verdict
from rescheduler.planning.placement.forecast import may_return
from rescheduler.planning.placement.in_steps import StuckInSteps, move_in_steps, must_be_beside, order_matters
from rescheduler.planning.placement.packing import Effort, Placed, Room, Stuck, WantedReasons, pack, place_or_explain
from rescheduler.planning.placement.pending import PendingRoom
from rescheduler.planning.placement.preemption import preempts, priority_of, restored
from rescheduler.planning.placement.search import Candidate, as_drained
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.policy import Destination
from rescheduler.planning.pool_shares import Moved
from rescheduler.planning.rules.pod_rules import is_left_to_responders, is_requestable


@dataclass(slots=True)
class Attempt:
    """The state after the plans for earlier nodes, from which the next verdict starts."""

    shared: PlanningRound
    remaining: RemainingDisruptions
    trial: Trial
    effort: Effort
    #: Whether each drain so far placed its pods where they were placed together with those of the later nodes. If not,
    #: the later nodes need other places: :func:`carry_out` does not check whether pods fit the rows that it gets.
    as_placed: bool = True
    preempted: frozenset[str] = frozenset()  #: UIDs of the pods that yield their room to earlier plans
    emptied: int = 0  #: number of nodes drained by earlier plans that count towards the minimum
    moved: Moved = field(default_factory=dict)  #: replicas that earlier plans move to each pool
    #: The reasons why no target accepts a class, as in :func:`.packing.place_or_explain`.
    never_fitting: dict[PodClass, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Question:
    """If *nodes* are drained in this order, where are *pods* and those that are *due* placed?"""

    nodes: Sequence[Candidate]
    leaving: Sequence[Pod]  #: the pods that leave the nodes before their replacement pods are scheduled
    pods: Sequence[Pod]  #: what needs a place because pods of the nodes are moved
    due: Sequence[Pod] = ()  #: replacement pods of those that have left before: they are placed first
    reasons: WantedReasons = WantedReasons.FIRST  #: of which of the pods without a place
    begun: bool = False  #: the drain has begun: it was checked before that no pod returns to the node
    first: Collection[str] = ()  #: keys of the pods of the next step of a drain that has begun

    @classmethod
    def of(cls, *nodes: Candidate) -> "Question":
        """Return the question about all pods that leave *nodes*."""
        leaving = [pod for node in nodes for pod in node.evicted]
        return cls(nodes, leaving, [pod for node in nodes for pod in node.incoming])


#: The plans, one for each node; the pods that have no place; or a node whose drain does not reach the places.
Answer: TypeAlias = Sequence[Plan] | Stuck | Rejected


@contextmanager
def opened(shared: PlanningRound, effort: Effort, pending: PendingRoom | None = None) -> Iterator[Attempt]:
    """Start from the present state, in which the *pending* pods have taken their room. No other trial may be open.

    Without *pending*, it starts within the trial that is open, or in one in which pending pods are ignored.
    """
    trials = shared.snapshot.trial() if pending is None else pending.trial(shared.snapshot)
    with trials as trial:
        yield Attempt(shared, shared.remaining(), trial, effort)


def ask(question: Question, attempt: Attempt, *, only_room: bool = False) -> Answer:
    """Return the plans, whose moves stay in the trial of *attempt*, or what stands in the way.

    With *only_room*, it is known that the nodes are not drained: the answer is which pods have no place, if any. The
    trial is unchanged without plans.
    """
    mark = attempt.trial.savepoint()
    placed = at_once(question, attempt, explain=only_room)
    if isinstance(placed, Stuck):
        answer = _not_at_once(question, placed, attempt)
    else:
        answer = () if only_room else _carried_out(question, placed, attempt, mark)
    if only_room:
        attempt.trial.revert(mark)
    return answer if isinstance(answer, Stuck) or not only_room else ()


def at_once(question: Question, attempt: Attempt, *, explain: bool = False) -> Placed | Stuck:
    """Place all pods in the trial as if all of them left at once, or leave the trial unchanged if some have no place.

    First-fit is enough to *explain* what has no place anyway.
    """
    room, trial, effort = attempt.shared.room, attempt.trial, attempt.effort
    mark = trial.savepoint()
    trial.evict(*question.leaving)
    for node in question.nodes:
        trial.drain(node.row)
    pods = [*question.due, *question.pods]
    if question.reasons is WantedReasons.ALL and (explain or effort.exhausted or can_never_fit(pods, room)):
        placed = place_or_explain(room, trial, pods, attempt.never_fitting)
    else:
        placed = pack(room, trial, pods, effort, reasons=question.reasons)
    if isinstance(placed, Stuck):
        attempt.trial.revert(mark)
    return placed


@contextmanager
def after(plans: Sequence[Plan], shared: PlanningRound, effort: Effort) -> Iterator[Attempt]:
    """Start from the state after *plans*, in which pending pods have taken their room before."""
    with opened(shared, effort, shared.pending) as attempt:
        drained(plans, attempt)
        attempt.remaining, attempt.emptied = evictions_after(plans, shared), emptied_by(plans, shared)
        attempt.preempted = frozenset(pod.uid for plan in plans for pod in plan.preempts)
        for plan in plans:
            shared.forecaster.shares.take(plan, attempt.moved)
        yield attempt


def emptied_by(plans: Iterable[Plan], shared: PlanningRound) -> int:
    """Return how many nodes that count towards the minimum *plans* empty."""
    return sum(plan.empties and plan.node in shared.minimum.counted for plan in plans)


def evictions_after(plans: Iterable[Plan], shared: PlanningRound) -> RemainingDisruptions:
    """Return the evictions that budgets and controllers allow after *plans*."""
    remaining, pods_by_key = shared.remaining(), shared.snapshot.pods
    for plan in plans:
        pods = tuple(pods_by_key[str(placement.pod)] for placement in plan.placements)
        rolled_out = {str(pod) for surge in plan.surges for pod in surge.pods}
        remaining.spend(remaining.evictions(pods, without_budgets=rolled_out))
    return remaining


def drained(plans: Iterable[Plan], attempt: Attempt, *, lost: bool = False, keep: bool = True) -> dict[int, list[Pod]]:
    """Move the pods of *plans* in the trial, and *keep* that. Return the replacement pods by the row where they run.

    If the drained nodes are *lost*, they are in no topology domain any more, and all pods on them end. A node that only
    makes room stays.
    """
    shared, trial, snapshot = attempt.shared, attempt.trial, attempt.shared.snapshot
    moved: defaultdict[int, list[Pod]] = defaultdict(list)
    for plan in plans:
        leaving = [snapshot.pods[str(placement.pod)] for placement in plan.placements]
        for pod, placement in zip(leaving, plan.placements, strict=True):
            moved[snapshot.nodes.row[placement.node]].append(shared.replacements.of(pod))
        if lost and plan.empties:
            lose(plan.node, attempt)
        else:
            trial.evict(*leaving)
        if not lost and plan.empties:
            trial.drain(snapshot.nodes.row[plan.node])
        trial.evict(*(snapshot.pods[str(pod)] for pod in plan.preempts))
    for row, pods in moved.items():
        trial.place_all([pod.cls for pod in pods], row)
    if keep:
        trial.keep()
    return dict(moved)


def lose(node: str, attempt: Attempt) -> None:
    """Take *node* away in the trial, and all pods on it."""
    snapshot = attempt.shared.snapshot
    attempt.trial.evict(*snapshot.pods_on[node].values())
    attempt.trial.lose(snapshot.nodes.row[node])


def can_never_fit(pods: Iterable[Pod], room: Room) -> bool:
    """Return whether no target accepts one of *pods*, even if nothing else is placed."""
    return room.filters.any_never_fits((pod.cls for pod in pods), room.targets)


def _not_at_once(question: Question, stuck: Stuck, attempt: Attempt) -> Answer:
    """Return the plan in which pods leave one after the other, or take room that others yield; else who is *stuck*."""
    if len(question.nodes) > 1:
        return stuck
    every = (stuck, *stuck.others) if question.reasons is WantedReasons.ALL else ()
    alone = {each.pod.key: each for each in every if not must_be_beside(each.pod)}
    mark = attempt.trial.savepoint()
    plan = _one_after_the_other([pod for pod in question.pods if pod.key not in alone], question, attempt)
    if plan is not None and alone:
        attempt.trial.revert(mark)
        first, *others = alone.values()
        return replace(first, others=tuple(others))
    plan = plan or _in_yielded_room(question, attempt)
    return stuck if plan is None else (plan,)


def _carried_out(question: Question, placed: Placed, attempt: Attempt, mark: int) -> Answer:
    """Return the plans with the pods *placed*, or why the drains could not carry them out although all of them fit.

    The trial contains the placements since *mark*. It contains those of the plans afterwards, or none.
    """
    shared, (node, *others) = attempt.shared, question.nodes
    in_drain: Placed | None = None
    if question.begun:
        in_drain = None if order_matters([*question.due, *question.pods], shared.room.filters) else placed
    elif not others:
        in_drain = as_drained(node, placed, shared.room, attempt.trial)
    if in_drain is not None:
        return (new_plan(node, in_drain, shared),)
    attempt.trial.revert(mark)
    if question.begun:
        arrived, left = _arrived(question, placed, attempt)
        verdict = _moved_in_steps(node, left, attempt, question.first)
        return verdict if isinstance(verdict, Rejected) else (_after(arrived, verdict, node, shared),)
    plans: list[Plan] = []
    for each in question.nodes:
        own = {pod.key for pod in each.incoming}
        if attempt.as_placed or not others:
            verdict = carry_out(each, [(pod, row) for pod, row in placed if pod.key in own], attempt)
            answer: Answer = (verdict,) if isinstance(verdict, Plan) else verdict
        else:
            answer = ask(Question.of(each), attempt)
        if isinstance(answer, Stuck | Rejected):
            attempt.trial.revert(mark)
            return answer
        plans += answer
    return plans


def _arrived(question: Question, placed: Placed, attempt: Attempt) -> tuple[Placed, Placed]:
    """Place the pods that are due, where they were *placed*. Return them, and the other placements."""
    moving = {pod.key for pod in question.pods}
    arrived = [each for each in placed if each[0].key not in moving]
    for pod, row in arrived:
        attempt.trial.place(pod.cls, row)
    return arrived, [each for each in placed if each[0].key in moving]


def _after(arrived: Placed, plan: Plan, node: Candidate, shared: PlanningRound) -> Plan:
    """Return *plan*, in which pods have *arrived* before."""
    return replace(plan, placements=(*new_plan(node, arrived, shared).placements, *plan.placements))


def carry_out(node: Candidate, placed: Sequence[tuple[Pod, int]], attempt: Attempt) -> Verdict:
    """Return the plan as the drain carries it out, or why it cannot, although all pods fit these rows together.

    The pods must still be on their node in the trial, which contains the moves of the plan afterwards.
    """
    shared, trial = attempt.shared, attempt.trial
    if may_return(node.incoming, shared.room.filters):
        blocker = shared.forecaster.returning(new_plan(node, placed, shared))
        if blocker is not None:
            return Rejected(node.node, (blocker,))
    if order_matters(node.incoming, shared.room.filters):
        return _moved_in_steps(node, placed, attempt)
    trial.evict(*node.evicted)
    trial.drain(node.row)
    for pod, row in placed:
        trial.place(pod.cls, row)
    return new_plan(node, placed, shared)


def _moved_in_steps(
    node: Candidate, placed: Sequence[tuple[Pod, int]], attempt: Attempt, first: Collection[str] = ()
) -> Verdict:
    """Return the plan whose pods move to these rows, or others, in the steps of a drain, or the pod that cannot move.

    *first* are the keys of the pods of the next step, if that is known. The pods must still be on their node in the
    trial, which contains the moves of the plan afterwards.
    """
    surges = [surge.keys for surge in node.surges]
    moved = move_in_steps(attempt.shared.room, attempt.trial, node.row, placed, surges, first)
    if isinstance(moved, StuckInSteps):
        return Rejected(node.node, (_cannot_move(moved),))
    attempt.as_placed &= {(pod.key, row) for pod, row in moved.placed} == {(pod.key, row) for pod, row in placed}
    return replace(new_plan(node, moved.placed, attempt.shared), one_by_one=moved.one_by_one)


def _one_after_the_other(pods: Sequence[Pod], question: Question, attempt: Attempt) -> Plan | None:
    """Return the plan that moves *pods* in steps, although they do not fit if all of them leave at once, or None.

    Some must be beside others of them, such as two workloads that must share a zone: what has not moved yet counts
    where it is. The pods must be on their node in the trial, which contains the moves of the plan afterwards, and is
    unchanged without a plan.
    """
    (node,), due, shared, trial = question.nodes, question.due, attempt.shared, attempt.trial
    filters, incoming = shared.room.filters, (*due, *pods)
    if node.surges or not any(map(must_be_beside, incoming)) or may_return(incoming, filters):
        return None
    mark = trial.savepoint()
    arrived = []
    for pod in due:
        if (row := filters.first(pod.cls, shared.room.targets)) is None:
            trial.revert(mark)
            return None
        trial.place(pod.cls, row)
        arrived.append((pod, row))
    by_size = sorted(pods, key=lambda pod: (-shared.room.sizes.of(pod.cls), pod.key))
    moved = move_in_steps(shared.room, trial, node.row, [(pod, None) for pod in by_size])
    if isinstance(moved, StuckInSteps):
        trial.revert(mark)
        return None
    return replace(new_plan(node, [*arrived, *moved.placed], shared), one_by_one=moved.one_by_one)


def _in_yielded_room(question: Question, attempt: Attempt) -> Plan | None:
    """Return the plan in which some pods take room that others yield, because they do not fit otherwise, or None.

    The trial is as in :func:`_one_after_the_other`.
    """
    (node,), shared, trial, yielding = question.nodes, attempt.shared, attempt.trial, attempt.shared.room.yielding
    if node.surges or yielding is None or not (listed := yielding.by_row()):
        return None
    lowest = min(priority_of(pod) for on_node in listed.values() for pod in on_node)
    takers = [pod for pod in (*question.due, *question.pods) if preempts(pod.cls) and priority_of(pod) > lowest]
    if not takers:
        return None
    victims = yielding.below(min(map(priority_of, takers)), attempt.preempted)
    mark = trial.savepoint()
    placed = _packed_in(victims, takers, question, attempt)
    attempt.trial.revert(mark)
    if placed is None:
        return None
    for on_node in victims.values():
        trial.evict(*on_node)
    arrived, own = _arrived(question, placed, attempt)
    verdict = carry_out(node, own, attempt)
    if isinstance(verdict, Rejected):
        attempt.trial.revert(mark)
        return None
    plan = _after(arrived, verdict, node, shared)
    classes: defaultdict[int, list[PodClass]] = defaultdict(list)
    by_key = {pod.key: pod.cls for pod, _ in placed}
    for placement in plan.placements:
        classes[shared.snapshot.nodes.row[placement.node]].append(by_key[str(placement.pod)])
    gone = restored(victims, classes, shared.room.filters, trial)
    return replace(plan, preempts=tuple(map(PodRef.of, gone)))


def _packed_in(
    victims: Mapping[int, Sequence[Pod]], takers: Sequence[Pod], question: Question, attempt: Attempt
) -> Placed | None:
    """Place the pods: *takers* without the *victims*, others with them. The trial changes."""
    shared, trial, (node,) = attempt.shared, attempt.trial, question.nodes
    trial.evict(*(shared.snapshot.pods[pod.key] for pod in question.pods))
    trial.drain(node.row)
    taking = {pod.key for pod in takers}
    others = [pod for pod in (*question.due, *question.pods) if pod.key not in taking]
    placed = pack(shared.room, trial, others, Effort(0), reasons=WantedReasons.NONE)
    if isinstance(placed, Stuck):
        return None
    for on_node in victims.values():
        trial.evict(*on_node)
    for pod in sorted(takers, key=lambda pod: (-shared.room.sizes.of(pod.cls), pod.key)):
        feasible = shared.room.filters.feasible(pod.cls)  # packing would not look at targets that were full before
        rows = shared.room.targets.rows[feasible[shared.room.targets.rows]].tolist()
        if not rows:
            return None
        trial.place(pod.cls, rows[0])
        placed.append((pod, rows[0]))
    return placed


def _cannot_move(stuck: StuckInSteps) -> Blocker:
    others = count(stuck.unmoved, "pod")
    detail = f"its replacement pod would have no place while {others} of this node have not moved yet: {stuck.why}"
    return Blocker(Reason.CANNOT_MOVE_IN_STEPS, detail, stuck.pod.key)


def new_plan(node: Candidate, placed: Iterable[tuple[Pod, int]], shared: PlanningRound) -> Plan:
    """Return the plan in which the node's pods are *placed* on these rows."""
    names = shared.snapshot.nodes.names
    restarted = {pod.key for surge in node.surges for pod in surge.restarted}
    together = shared.volumes.together(node.movers)
    placements = [
        Placement(
            PodRef.of(pod),
            names[row],
            pod.cls.spec.termination_grace_period_seconds,
            pod.owner,
            responders=is_left_to_responders(pod),
            requestable=is_requestable(pod.cls),
            together=together.get(pod.key, ""),
        )
        for pod, row in placed
        if pod.key not in restarted
    ]
    surges = tuple(surge.surge for surge in node.surges)
    spot, leftovers = shared.groups.spot.rows_set, frozenset[str]()
    if shared.kind is DrainKind.LEFTOVERS:
        leftovers = frozenset(each.pod.uid for each in placements if shared.snapshot.nodes.row[each.node] not in spot)
    return Plan(node.node, tuple(placements), node.leaving, surges=surges, kind=shared.kind, leftovers=leftovers)


# Why a pod has no place.

#: A message names at most this many pools.
_POOLS_NAMED: Final = 3


def no_room(stuck: Stuck, shared: PlanningRound) -> Blocker:
    """Return the blocker for a pod that does not fit, or that would fit on a node of a pool that is not trusted."""
    groups = shared.groups
    settling = {pool: len(rows) for pool, rows in groups.settling.items()}
    unusable = groups.spot_nodes - len(groups.spot.rows) - sum(settling.values())
    why = "being removed, cordoned, not Ready, or not ready yet (start-up taint)"
    to_spot = shared.policy.destination is Destination.SPOT
    suffix = f"; {count(unusable, 'more node')} cannot be used: {why}" if unusable and to_spot else ""
    if settling:
        suffix += f"; {_settling_text(settling, groups.settling_until)}"
        feasible = shared.room.filters.feasible(stuck.pod.cls)
        if any(feasible[rows].any() for rows in groups.settling.values()):
            return Blocker(Reason.SPOT_POOL_SETTLING, stuck.why + suffix, stuck.pod.key)
    return Blocker(Reason.NO_ROOM, f"{stuck.why}{suffix}{_not_yielded(stuck.pod, shared)}", stuck.pod.key)


def _not_yielded(pod: Pod, shared: PlanningRound) -> str:
    """Name the pods that yield their room to others, but not to *pod*, as the end of a sentence; "" if none does."""
    listed = {} if shared.room.yielding is None else shared.room.yielding.by_row()
    kept = [each for on_node in listed.values() for each in on_node]
    if preempts(pod.cls):
        kept = [each for each in kept if priority_of(each) >= priority_of(pod)]
    if not kept:
        return ""
    first = max(kept, key=priority_of)
    rest = and_more(len(kept) - 1)
    return f"; {first.key} (priority {priority_of(first)}){rest} would yield only to a higher priority that preempts"


def _settling_text(nodes: Mapping[str, int], until: Mapping[str, datetime]) -> str:
    """Name the pools that are not trusted, with their numbers of *nodes*."""
    named = [f"{count(nodes[pool], 'node')} of {pool} until {utc(until[pool])}" for pool in nodes]
    return f"pools that lost nodes are not trusted: {shortened(named, _POOLS_NAMED, of=' pools', before=', ')}"
