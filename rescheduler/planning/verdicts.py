"""The verdict on one node, in steps: rules first, then budgets, then pods that are pinned, then room on spot nodes.

:data:`RULES` depend on the node and its pods only. :data:`SHARED` also depend on the plans made before. The last step
places the pods in a trial.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from predicates.objects import Node, Pod, PodClass
from predicates.snapshot import Trial
from rescheduler.planning.budgets import Evictions, RemainingDisruptions
from rescheduler.planning.forms import count, utc
from rescheduler.planning.outcome import Blocker, Placement, Plan, PodRef, Reason, Rejected, Surge, Verdict
from rescheduler.planning.placement.forecast import may_return
from rescheduler.planning.placement.in_steps import StuckInSteps, move_in_steps, order_matters
from rescheduler.planning.placement.packing import Effort, Placed, Reasons, Room, Stuck, pack, place_or_explain
from rescheduler.planning.placement.search import Candidate, as_drained
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.policy import Destination, Policy
from rescheduler.planning.rules.candidates import node_blockers
from rescheduler.planning.rules.declared import Fate
from rescheduler.planning.rules.minimum import owner_key
from rescheduler.planning.rules.pod_rules import is_left_to_responders, is_requestable, other_scheduler
from rescheduler.planning.surges import LIFTED, NO_SURGES, NodeSurges


@dataclass(frozen=True, slots=True)
class Examined:
    """A node to which all :data:`RULES` were applied."""

    candidate: Candidate
    must_move: tuple[Pod, ...]  #: the candidate's pods, then the pods that must move but may not be evicted
    special: tuple[Pod, ...]  #: those of ``must_move`` that are not plain
    of_special: tuple[Pod, ...]  #: those of ``incoming`` that do not replace plain pods
    incoming: tuple[Pod, ...]  #: the replacement pods of ``must_move``, in the same order, then those of roll-outs
    evictions: Evictions  #: of the pods of ``must_move``
    blockers: tuple[Blocker, ...]  #: the blockers found by the rules
    surges: NodeSurges = NO_SURGES

    @property
    def emptied(self) -> tuple[Pod, ...]:
        """The pods of ``must_move`` that leave before their replacement pods are scheduled."""
        staying = self.surges.keys
        return tuple(pod for pod in self.must_move if pod.key not in staying) if staying else self.must_move


@dataclass(slots=True)
class Attempt:
    """The state after the plans for earlier nodes, from which the next verdict starts."""

    shared: PlanningRound
    remaining: RemainingDisruptions
    trial: Trial
    effort: Effort
    emptied: int = 0  #: number of nodes drained by earlier plans that count towards the minimum
    #: The reasons why no target accepts a class, as in :func:`.first_fit.place_or_explain`.
    never_fitting: dict[PodClass, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _NodeAndPods:
    """A node and its pods, after the rules for pods were applied."""

    node: Node
    pods: Collection[Pod]
    movers: tuple[Pod, ...]  #: may be evicted and must move, by name
    blocked: tuple[Pod, ...]  #: must move or terminate, but block the node, by name
    leaving: tuple[Pod, ...]  #: are being deleted, by name
    must_move: tuple[Pod, ...]  #: ``movers``, then those of ``blocked`` that are not being deleted
    incoming: tuple[Pod, ...]  #: the replacement pods of ``must_move``, in the same order
    special: tuple[Pod, ...]  #: those of ``movers`` that are not plain
    of_special: tuple[Pod, ...]  #: their replacement pods, in the same order
    surges: NodeSurges


def _of_the_node(subject: _NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    if shared.policy.destination is Destination.SPOT:
        return node_blockers(subject.node, shared.policy, shared.circumstances)
    empty, control_plane = not (subject.movers or subject.blocked), subject.node.name in shared.groups.control_plane
    return node_blockers(subject.node, shared.policy, shared.circumstances, empty=empty, control_plane=control_plane)


def _of_its_pods(subject: _NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    most = 1 if shared.policy.one_reason_per_pod else None
    return (blocker for pod in subject.blocked for blocker in shared.pod_rules.blockers(pod)[:most])


def _of_replacements(subject: _NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    return of_replacements(subject.special, subject.of_special, shared.policy)


def _controllers(subject: _NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    return shared.owners.blockers(subject.special) if shared.owners is not None else ()


def _bound_by_template(subject: _NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    return shared.replacements.blockers(subject.special)


def _volumes(subject: _NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    yield from shared.volumes.blockers(subject.node.name, subject.special, subject.of_special)
    yield from _not_together(subject.special, shared)


def _not_together(movers: Sequence[Pod], shared: PlanningRound) -> Iterator[Blocker]:
    """Yield the blockers of budgets that allow one eviction, but not of all pods that share a volume in one step."""
    if not shared.policy.budgets_in_steps:  # then all movers count in one step
        return
    remaining = RemainingDisruptions(shared.budgets)
    groups: dict[str, list[Pod]] = {}
    together = shared.volumes.together(movers)
    for pod in movers:
        if pod.key in together:
            groups.setdefault(together[pod.key], []).append(pod)
    for group in groups.values():
        if not any(remaining.lacking([pod]) for pod in group):
            yield from remaining.lacking(group)


def _surges(subject: _NodeAndPods, _: PlanningRound) -> Iterable[Blocker]:
    return subject.surges.refused


def _quotas(subject: _NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    movers = subject.movers
    return shared.quotas.blockers(movers, subject.incoming[: len(movers)], surges=subject.surges.surges)


def _unreadable_objects(subject: _NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    return shared.unreadable.blockers(subject.node.name, subject.movers)


def _pending(subject: _NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    name, to_spot = subject.node.name, shared.policy.destination is Destination.SPOT
    if not to_spot and name not in shared.groups.on_demand:
        return ()  # whether pending pods need the node is known only when it is none of the targets
    targets = "spot node" if to_spot else "other node"
    return shared.pending.blockers(shared.snapshot.nodes.row[name], targets)


def _last_node(subject: _NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    """Keep the last node, even without pods, if pods may go to any node: pods that come later need one."""
    if shared.policy.destination is Destination.OTHERS:
        own = shared.snapshot.nodes.row[subject.node.name]
        if shared.groups.spot.rows_set <= {own}:
            yield Blocker(Reason.NO_ROOM, "no other node that is Ready and schedulable remains")


def _minimum(subject: _NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    return filter(None, [shared.minimum.blocker(subject.node.name, subject.pods)])


def _minimum_after_plans(examined: Examined, attempt: Attempt) -> Iterable[Blocker]:
    if not attempt.emptied or any(blocker.reason is Reason.MIN_ON_DEMAND_NODES for blocker in examined.blockers):
        return ()
    node, pods = examined.candidate.node, examined.must_move
    return filter(None, [attempt.shared.minimum.blocker(node, pods, attempt.emptied)])


def _budgets(examined: Examined, attempt: Attempt) -> Iterable[Blocker]:
    return map(examined.surges.explained, attempt.remaining.blockers(examined.evictions))


def _pinned(examined: Examined, attempt: Attempt) -> Iterable[Blocker]:
    return attempt.shared.pins.blockers(examined.of_special)


#: The steps that depend on the node and its pods only, in order. All blockers are reported.
RULES: Final[tuple[Callable[[_NodeAndPods, PlanningRound], Iterable[Blocker]], ...]] = (
    _of_the_node,
    _of_its_pods,
    _controllers,
    _of_replacements,
    _bound_by_template,
    _volumes,
    _surges,
    _quotas,
    _unreadable_objects,
    _pending,
    _last_node,
    _minimum,
)

#: The steps after the rules, in order. The last step, room on the spot nodes, places the pods.
SHARED: Final[tuple[Callable[[Examined, Attempt], Iterable[Blocker]], ...]] = (
    _minimum_after_plans,
    _budgets,
    _pinned,
)

#: A message names at most this many pools.
_POOLS_NAMED: Final = 3

#: Pods with these blockers are not placed in a trial: the result is already known, or cannot be known.
_NOT_PLACED: Final = (Reason.PINNED, Reason.RESOURCE_CLAIM, Reason.NODE_NAME_IN_TEMPLATE)


def examine(node: str, shared: PlanningRound) -> Examined:
    """Apply the :data:`RULES` to a node and its pods."""
    row = shared.snapshot.nodes.row[node]
    node_object = shared.snapshot.nodes.nodes[row]
    assert node_object is not None
    subject = _with_fates(node_object, shared)
    surges, movers, incoming = subject.surges, subject.movers, subject.incoming
    blockers = tuple([surges.explained(blocker) for rule in RULES for blocker in rule(subject, shared)])
    counts, leaving = node in shared.minimum.counted, tuple(map(_ref, subject.leaving))
    restarted = tuple([pod for surge in surges.surges for pod in surge.restarted])
    of_candidate = (*incoming[: len(movers)], *restarted)
    candidate = Candidate(node, row, movers, of_candidate, leaving, counts, surges.surges)
    return Examined(
        candidate=candidate,
        must_move=subject.must_move,
        incoming=(*incoming, *restarted),
        special=(*subject.special, *subject.must_move[len(movers) :]),
        of_special=(*subject.of_special, *incoming[len(movers) :], *restarted),
        evictions=shared.remaining().evictions(subject.must_move, without_budgets=surges.keys),
        blockers=blockers,
        surges=surges,
    )


def _with_fates(node: Node, shared: PlanningRound) -> _NodeAndPods:
    """Apply the rules for pods to those of *node*. Plain pods move."""
    pods, replacement = shared.snapshot.pods_on[node.name], shared.replacements.of
    ordered = [pods[key] for key in sorted(pods)]
    special, fates, surges = _judged(ordered, shared)
    lifted = surges.keys
    kept = {key for key, result in fates.items() if result is not Fate.MOVES and key not in lifted}
    movers = tuple([pod for pod in ordered if pod.key not in kept] if kept else ordered)
    blocked = tuple([pod for pod in special if pod.key in kept and isinstance(fates[pod.key], Blocker)])
    staying = tuple([pod for pod in blocked if not pod.cls.terminating])
    moving = tuple([pod for pod in special if pod.key not in kept])
    new = {pod.key: replacement(pod) for pod in moving}
    return _NodeAndPods(
        node=node,
        pods=pods.values(),
        movers=movers,
        blocked=blocked,
        leaving=tuple([pod for pod in special if fates[pod.key] is Fate.LEAVES]),
        must_move=(*movers, *staying),
        incoming=(*([new.get(pod.key, pod) for pod in movers] if new else movers), *map(replacement, staying)),
        special=moving,
        of_special=tuple(new.values()),
        surges=surges,
    )


def _judged(pods: list[Pod], shared: PlanningRound) -> tuple[list[Pod], Mapping[str, Fate | Blocker], NodeSurges]:
    """Return those of the *pods* of a node that are not plain, their fates, and which of them rolling updates move."""
    special = shared.plain.others(pods)
    if shared.surges is not None and shared.surges.may_be_wanted(special):
        special = pods  # all pods of a Deployment are replaced
    fates = {pod.key: shared.pod_rules.fate(pod) for pod in special}
    staying = Fate.STAYS, Fate.LEAVES
    wanted = [pod for pod in special if fates[pod.key] not in staying] if shared.surges is not None else []
    return special, fates, _surges_on(wanted, shared)


def _surges_on(pods: Sequence[Pod], shared: PlanningRound) -> NodeSurges:
    """Return which of *pods*, which have to leave one node, are moved by rolling updates."""
    surges, rules = shared.surges, shared.pod_rules
    if surges is None or not surges.may_be_wanted(pods):
        return NO_SURGES
    movable = [pod for pod in pods if not pod.cls.terminating and surges.lifts(pod, rules.blockers(pod))]
    return surges.on(movable, rules, shared.budgets)


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
        placed = pack(shared.room, trial, pods, attempt.effort, reasons=Reasons.ALL)
    if isinstance(placed, Stuck):
        blockers += [blocker for stuck in (placed, *placed.others) for blocker in _without_room(stuck, shared)]
    if blockers or isinstance(placed, Stuck):
        undo(trial, candidate.row, mark)
        return Rejected(candidate.node, tuple(blockers))
    verdict = _carried_out(candidate, placed, attempt, mark)
    if isinstance(verdict, Plan):
        attempt.remaining.spend(examined.evictions)
        attempt.emptied += candidate.counts
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
            _ref(pod),
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
    return Blocker(Reason.NO_ROOM, stuck.why + suffix, stuck.pod.key)


def _settling_text(nodes: Mapping[str, int], until: Mapping[str, datetime]) -> str:
    """Name the pools that are not trusted, with their numbers of *nodes*."""
    named = [f"{count(nodes[pool], 'node')} of {pool} until {utc(until[pool])}" for pool in list(nodes)[:_POOLS_NAMED]]
    more = [f"and {len(nodes) - _POOLS_NAMED} more pools"] if len(nodes) > _POOLS_NAMED else []
    return f"pools that lost nodes are not trusted: {', '.join([*named, *more])}"


def eviction_blockers(pod: Pod, shared: PlanningRound) -> tuple[list[Blocker], Surge | None]:
    """Return the blockers of evicting *pod* alone, regardless of its placement, and the rolling update that moves it.

    Those that a rolling update does not need are left out.
    """
    if not pod.node_name:
        return [], None
    surges, incoming = _surges_of(pod, shared), shared.replacements.of(pod)
    blockers = [
        *shared.pod_rules.blockers(pod),
        *(shared.owners.blockers([pod]) if shared.owners is not None else ()),
        *of_replacements([pod], [incoming], shared.policy),
        *shared.replacements.blockers([pod]),
        *shared.quotas.blockers([pod], [incoming]),
        *shared.volumes.blockers(pod.node_name, [pod], [incoming]),
        *(blocker for blocker in surges.refused if blocker.pod == pod.key),
        *shared.remaining().lacking([pod]),
    ]
    surge = next((each.surge for each in surges.surges if pod in each.pods), None)
    if surge is None:
        return [surges.explained(blocker) for blocker in blockers], None
    return [blocker for blocker in blockers if blocker.reason not in LIFTED], surge


def _surges_of(pod: Pod, shared: PlanningRound) -> NodeSurges:
    """Return which pods of the controller of *pod* are moved by a rolling update, if their node is drained."""
    beside = shared.snapshot.pods_on[pod.node_name].values()
    same = sorted((each for each in beside if owner_key(each) == owner_key(pod)), key=lambda each: each.key)
    fate = shared.pod_rules.fate
    return _surges_on([each for each in same if fate(each) not in (Fate.STAYS, Fate.LEAVES)], shared)


def of_replacements(pods: Iterable[Pod], incoming: Iterable[Pod], policy: Policy) -> Iterator[Blocker]:
    """Yield a blocker for each of *pods* that, or whose replacement among *incoming*, no plan can be made for."""
    for pod, new in zip(pods, incoming, strict=True):
        if pod is new and not pod.cls.spec.resource_claims:
            continue
        if pod.cls.spec.resource_claims or new.cls.spec.resource_claims:
            detail = "it uses resource claims (DRA): it is not known whether its devices are free elsewhere"
            yield Blocker(Reason.RESOURCE_CLAIM, detail, pod.key)
        if new.cls.spec.scheduler_name != pod.cls.spec.scheduler_name:
            blocker = other_scheduler(new.cls, policy)
            if blocker is not None:
                yield Blocker(blocker.reason, f"its replacement pod: {blocker.detail}", pod.key)


def undo(trial: Trial, row: int, mark: int) -> None:
    """Revert *trial* to *mark*, when the node in *row* was not drained."""
    trial.revert(mark)
    trial.undrain(row)


def _ref(pod: Pod) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid)
