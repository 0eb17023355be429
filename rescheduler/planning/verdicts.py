"""The verdict on one node, in steps: rules first, then budgets, then pods that are pinned, then room on spot nodes.

The rules depend on the node and its pods only (:mod:`rescheduler.planning.examined`). :data:`SHARED` also depend on the
plans made before. The last step places the pods in a trial.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from predicates.objects import Pod, PodClass
from predicates.snapshot import Trial
from rescheduler.planning.budgets import RemainingDisruptions
from rescheduler.planning.examined import Examined
from rescheduler.planning.forms import and_more, count, shortened, utc
from rescheduler.planning.outcome import Blocker, Placement, Plan, PodRef, Reason, Rejected, Verdict
from rescheduler.planning.placement.forecast import may_return
from rescheduler.planning.placement.in_steps import StuckInSteps, move_in_steps, must_be_beside, order_matters
from rescheduler.planning.placement.packing import Effort, Placed, Room, Stuck, WantedReasons, pack, place_or_explain
from rescheduler.planning.placement.preemption import preempts, priority_of, restored
from rescheduler.planning.placement.search import Candidate, as_drained
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.policy import Destination
from rescheduler.planning.rules.minimum import keeps_pods
from rescheduler.planning.rules.pod_rules import is_left_to_responders, is_requestable


@dataclass(slots=True)
class Attempt:
    """The state after the plans for earlier nodes, from which the next verdict starts."""

    shared: PlanningRound
    remaining: RemainingDisruptions
    trial: Trial
    effort: Effort
    preempted: frozenset[str] = frozenset()  #: UIDs of the pods that yield their room to earlier plans
    emptied: int = 0  #: number of nodes drained by earlier plans that count towards the minimum
    #: The reasons why no target accepts a class, as in :func:`.packing.place_or_explain`.
    never_fitting: dict[PodClass, str] = field(default_factory=dict)


def _minimum_after_plans(examined: Examined, attempt: Attempt) -> Iterable[Blocker]:
    if not attempt.emptied or any(blocker.reason is Reason.MIN_ON_DEMAND_NODES for blocker in examined.blockers):
        return ()
    node, in_use = examined.candidate.node, keeps_pods(examined.must_move)
    return filter(None, [attempt.shared.minimum.blocker(node, in_use=in_use, emptied=attempt.emptied)])


def _budgets(examined: Examined, attempt: Attempt) -> Iterable[Blocker]:
    return map(examined.surges.explained, attempt.remaining.blockers(examined.evictions))


def _pinned(examined: Examined, attempt: Attempt) -> Iterable[Blocker]:
    return attempt.shared.pins.blockers(examined.of_special)


#: The steps after the rules, in order. The last step, room on the spot nodes, places the pods.
SHARED: Final[tuple[Callable[[Examined, Attempt], Iterable[Blocker]], ...]] = (
    _minimum_after_plans,
    _budgets,
    _pinned,
)

#: A message names at most this many pools.
_POOLS_NAMED: Final = 3

#: Pods with these blockers are not placed in a trial: the result is already known, or cannot be known.
_NOT_PLACED: Final = (
    *(Reason.PINNED, Reason.KUBELET, Reason.REFUSED_BEFORE),
    *(Reason.RESOURCE_CLAIM, Reason.NODE_NAME_IN_TEMPLATE),
)


def could_be_drained(examined: Examined, attempt: Attempt) -> bool:
    """Return whether the node could be drained if the plans for other nodes left enough evictions and room.

    A pod that no spot node accepts now does not fit later either: drains only take room from spot nodes.
    """
    if examined.blockers or any(blocker for step in SHARED for blocker in step(examined, attempt)):
        return False
    return not _can_never_fit(examined.incoming, attempt.shared.room)


def _can_never_fit(pods: Iterable[Pod], room: Room) -> bool:
    """Return whether no target accepts one of *pods*, even if nothing else is placed."""
    return room.filters.any_never_fits((pod.cls for pod in pods), room.targets)


def before_placement(examined: Examined, attempt: Attempt) -> Rejected | None:
    """Return the blockers of the first step before the placement that has any. Rules and budgets count as one step."""
    if examined.blockers:
        return rejection(examined, attempt.remaining)
    blockers = next(filter(None, (tuple(step(examined, attempt)) for step in SHARED)), None)
    return Rejected(examined.candidate.node, blockers) if blockers else None


def first_obstacles(examined: Examined, attempt: Attempt) -> Verdict:
    """Return a plan, or the blockers of the first step that has any."""
    candidate, shared, trial = examined.candidate, attempt.shared, attempt.trial
    if (rejected := before_placement(examined, attempt)) is not None:
        return rejected
    mark = trial.savepoint()
    empty(trial, candidate.row, candidate.evicted)
    placed = pack(shared.room, trial, candidate.incoming, attempt.effort)
    if isinstance(placed, Stuck):
        undo(trial, candidate.row, mark)
        if (moved := one_after_the_other(candidate, candidate.incoming, attempt)) is not None:
            return moved
        if (moved := in_yielded_room(candidate, candidate.incoming, attempt)) is not None:
            return moved
        return Rejected(candidate.node, tuple(_without_room(placed, shared)))
    return _carried_out(candidate, placed, attempt, mark)


def all_obstacles(examined: Examined, attempt: Attempt) -> Verdict:
    """Return a plan, or the blockers of all steps. A plan stays in the trial and uses the budgets.

    Pods that do not fit are also found if other pods may not be evicted.
    """
    candidate, shared, trial = examined.candidate, attempt.shared, attempt.trial
    blockers = [*examined.blockers, *(blocker for step in SHARED for blocker in step(examined, attempt))]
    without = {blocker.pod for blocker in blockers if blocker.reason in _NOT_PLACED}
    pods = [pod for pod in examined.incoming if pod.key not in without] if without else examined.incoming
    mark = trial.savepoint()
    empty(trial, candidate.row, examined.emptied)
    if blockers or attempt.effort.exhausted or _can_never_fit(pods, shared.room):
        placed = place_or_explain(shared.room, trial, pods, attempt.never_fitting)
    else:
        placed = pack(shared.room, trial, pods, attempt.effort, reasons=WantedReasons.ALL)
    verdict: Verdict | None = None
    if isinstance(placed, Stuck):
        undo(trial, candidate.row, mark)
        stuck = [placed, *placed.others]
        alone = {each.pod.key: each for each in stuck if not must_be_beside(each.pod)}
        verdict = one_after_the_other(candidate, [pod for pod in pods if pod.key not in alone], attempt)
        if verdict is None and (verdict := in_yielded_room(candidate, pods, attempt)) is not None:
            alone = {}
        stuck = stuck if verdict is None else list(alone.values())
        blockers += [blocker for each in stuck for blocker in _without_room(each, shared)]
    if blockers:
        undo(trial, candidate.row, mark)
        return Rejected(candidate.node, tuple(blockers))
    if not isinstance(placed, Stuck):
        verdict = _carried_out(candidate, placed, attempt, mark)
    assert verdict is not None
    if isinstance(verdict, Plan):
        attempt.remaining.spend(examined.evictions)
        attempt.emptied += candidate.counts
        attempt.preempted |= {pod.uid for pod in verdict.preempts}
    return verdict


def _carried_out(candidate: Candidate, placed: Placed, attempt: Attempt, mark: int) -> Verdict:
    """Return the plan with the pods *placed*, or why the drain could not carry it out although all of them fit.

    The trial contains the placements since *mark*. It contains those of the plan afterwards, or none.
    """
    shared = attempt.shared
    if (in_drain := as_drained(candidate, placed, shared.room, attempt.trial)) is not None:
        return new_plan(candidate, in_drain, shared)
    undo(attempt.trial, candidate.row, mark)
    return carry_out(candidate, placed, attempt)


def carry_out(candidate: Candidate, placed: Sequence[tuple[Pod, int]], attempt: Attempt) -> Verdict:
    """Return the plan as the drain carries it out, or why it cannot, although all pods fit these rows together.

    The pods must still be on their node in the trial, which contains the moves of the plan afterwards.
    """
    shared, trial = attempt.shared, attempt.trial
    if may_return(candidate.incoming, shared.room.filters):
        blocker = shared.forecaster.returning(new_plan(candidate, placed, shared))
        if blocker is not None:
            return Rejected(candidate.node, (blocker,))
    if order_matters(candidate.incoming, shared.room.filters):
        return moved_in_steps(candidate, placed, attempt)
    empty(trial, candidate.row, candidate.evicted)
    for pod, row in placed:
        trial.place(pod.cls, row)
    return new_plan(candidate, placed, shared)


def moved_in_steps(
    candidate: Candidate, placed: Sequence[tuple[Pod, int]], attempt: Attempt, first: Collection[str] = ()
) -> Verdict:
    """Return the plan whose pods move to these rows, or others, in the steps of a drain, or the pod that cannot move.

    *first* are the keys of the pods of the next step, if that is known. The pods must still be on their node in the
    trial, which contains the moves of the plan afterwards.
    """
    surges = [surge.keys for surge in candidate.surges]
    moved = move_in_steps(attempt.shared.room, attempt.trial, candidate.row, placed, surges, first)
    if isinstance(moved, StuckInSteps):
        return Rejected(candidate.node, (_cannot_move(moved),))
    return replace(new_plan(candidate, moved.placed, attempt.shared), one_by_one=moved.one_by_one)


def one_after_the_other(
    candidate: Candidate, pods: Sequence[Pod], attempt: Attempt, due: Sequence[Pod] = ()
) -> Plan | None:
    """Return the plan that moves *pods* in steps, although they do not fit if all of them leave at once, or None.

    Some must be beside others of them, such as two workloads that must share a zone: what has not moved yet counts
    where it is. *due* have left the node, and are placed first. The pods must be on their node in the trial, which
    contains the moves of the plan afterwards, and is unchanged without a plan.
    """
    shared, trial = attempt.shared, attempt.trial
    filters, incoming = shared.room.filters, (*due, *pods)
    if candidate.surges or not any(map(must_be_beside, incoming)) or may_return(incoming, filters):
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
    moved = move_in_steps(shared.room, trial, candidate.row, [(pod, None) for pod in by_size])
    if isinstance(moved, StuckInSteps):
        trial.revert(mark)
        return None
    return replace(new_plan(candidate, [*arrived, *moved.placed], shared), one_by_one=moved.one_by_one)


def in_yielded_room(
    candidate: Candidate, pods: Sequence[Pod], attempt: Attempt, due: Sequence[Pod] = ()
) -> Plan | None:
    """Return the plan in which some of *pods* take room that others yield, because they do not fit otherwise, or None.

    *due* and the trial are as in :func:`one_after_the_other`.
    """
    shared, trial, yielding = attempt.shared, attempt.trial, attempt.shared.room.yielding
    if candidate.surges or yielding is None or not (listed := yielding.by_row()):
        return None
    lowest = min(priority_of(pod) for on_node in listed.values() for pod in on_node)
    takers = [pod for pod in (*due, *pods) if preempts(pod.cls) and priority_of(pod) > lowest]
    if not takers:
        return None
    victims = yielding.below(min(map(priority_of, takers)), attempt.preempted)
    mark = trial.savepoint()
    placed = _packed_in(victims, takers, candidate, pods, attempt, due)
    undo(trial, candidate.row, mark)
    if placed is None:
        return None
    for on_node in victims.values():
        trial.evict(*on_node)
    own = {pod.key for pod in pods}
    arrived = [each for each in placed if each[0].key not in own]
    for pod, row in arrived:
        trial.place(pod.cls, row)
    verdict = carry_out(candidate, [each for each in placed if each[0].key in own], attempt)
    if isinstance(verdict, Rejected):
        undo(trial, candidate.row, mark)
        return None
    plan = replace(verdict, placements=(*new_plan(candidate, arrived, shared).placements, *verdict.placements))
    classes: defaultdict[int, list[PodClass]] = defaultdict(list)
    by_key = {pod.key: pod.cls for pod, _ in placed}
    for placement in plan.placements:
        classes[shared.snapshot.nodes.row[placement.node]].append(by_key[str(placement.pod)])
    gone = restored(victims, classes, shared.room.filters, trial)
    return replace(plan, preempts=tuple(map(PodRef.of, gone)))


def _packed_in(
    victims: Mapping[int, Sequence[Pod]],
    takers: Sequence[Pod],
    candidate: Candidate,
    pods: Sequence[Pod],
    attempt: Attempt,
    due: Sequence[Pod],
) -> Placed | None:
    """Place *pods* and those that are *due*: *takers* without the *victims*, others with them. The trial changes."""
    shared, trial = attempt.shared, attempt.trial
    empty(trial, candidate.row, [shared.snapshot.pods[pod.key] for pod in pods])
    taking = {pod.key for pod in takers}
    others = [pod for pod in (*due, *pods) if pod.key not in taking]
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


def rejection(examined: Examined, remaining: RemainingDisruptions) -> Rejected:
    """Return the blockers of the rules, and the blockers of the budgets for the pods that may be evicted."""
    candidate = examined.candidate
    lacking = map(examined.surges.explained, remaining.lacking(candidate.evicted))
    return Rejected(candidate.node, (*examined.blockers, *lacking))


def new_plan(candidate: Candidate, placed: Iterable[tuple[Pod, int]], shared: PlanningRound) -> Plan:
    """Return the plan in which the candidate's pods are *placed* on these rows."""
    names = shared.snapshot.nodes.names
    restarted = {pod.key for surge in candidate.surges for pod in surge.restarted}
    together = shared.volumes.together(candidate.movers)
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
    surges = tuple(surge.surge for surge in candidate.surges)
    return Plan(candidate.node, tuple(placements), candidate.leaving, surges=surges)


def empty(trial: Trial, row: int, pods: Sequence[Pod]) -> None:
    """Evict *pods* from the node in *row*, and mark the node as drained in *trial*."""
    trial.evict(*pods)
    trial.drain(row)


def _without_room(stuck: Stuck, shared: PlanningRound) -> Iterator[Blocker]:
    """Yield the blockers for a pod that does not fit, and for its group."""
    yield no_room(stuck, shared)
    if (blocker := shared.gangs.without_room(stuck.pod)) is not None:
        yield blocker


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


def undo(trial: Trial, row: int, mark: int) -> None:
    """Revert *trial* to *mark*, when the node in *row* was not drained."""
    trial.revert(mark)
    trial.undrain(row)
