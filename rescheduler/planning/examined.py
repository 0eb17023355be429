"""What the rules find out about a node and its pods, regardless of the plans for other nodes.

Plain pods move, and no rule about pods concerns them (:mod:`rescheduler.planning.plain_pods`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from predicates.objects import Node, ObjectMeta, Pod
from rescheduler.planning.budgets import OF_BUDGETS, Evictions, RemainingDisruptions
from rescheduler.planning.outcome import Blocker, DrainKind, PodRef, Reason, Surge
from rescheduler.planning.placement.search import Candidate
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.policy import Destination, Policy
from rescheduler.planning.rules.candidates import VETOES, node_blockers
from rescheduler.planning.rules.declared import Fate, declared_in, drain_rule
from rescheduler.planning.rules.minimum import keeps_pods, owner_key
from rescheduler.planning.rules.pod_rules import other_scheduler
from rescheduler.planning.surges import LIFTED, NO_SURGES, NodeSurges


@dataclass(frozen=True, slots=True)
class Examined:
    """A node to which all rules were applied that do not depend on the plans for other nodes."""

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


@dataclass(frozen=True, slots=True)
class NodeAndPods:
    """A node and its pods, after the rules for pods were applied; or a node and one pod that is evicted alone."""

    node: Node
    pods: Collection[Pod]
    movers: tuple[Pod, ...]  #: may be evicted and must move, by name
    blocked: tuple[Pod, ...]  #: must move or terminate, but block the node, by name
    leaving: tuple[Pod, ...]  #: are being deleted, by name
    must_move: tuple[Pod, ...]  #: ``movers``, then those of ``blocked`` that are not being deleted
    incoming: tuple[Pod, ...]  #: the replacement pods of ``must_move``, in the same order
    special: tuple[Pod, ...]  #: those of ``movers`` that are not plain
    of_special: tuple[Pod, ...]  #: their replacement pods, in the same order
    with_volumes: tuple[Pod, ...]  #: ``special``, and the pods that leave with them because they share a volume
    surges: NodeSurges


def _of_the_node(subject: NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    if shared.policy.destination is Destination.SPOT:
        return node_blockers(subject.node, shared.policy, shared.circumstances)
    empty, control_plane = not (subject.movers or subject.blocked), subject.node.name in shared.groups.control_plane
    return node_blockers(subject.node, shared.policy, shared.circumstances, empty=empty, control_plane=control_plane)


def _of_its_pods(subject: NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    most = 1 if shared.policy.one_reason_per_pod else None
    return (blocker for pod in subject.blocked for blocker in shared.pod_rules.blockers(pod)[:most])


@drain_rule(Reason.NO_CONTROLLER, Reason.REPLICAS_NOT_READY, Reason.JOB_WOULD_FAIL)
def _controllers(subject: NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    return shared.owners.blockers(subject.special) if shared.owners is not None else ()


@drain_rule(Reason.RESOURCE_CLAIM, Reason.OTHER_SCHEDULER)
def _of_replacements(subject: NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    return of_replacements(subject.special, subject.of_special, shared.policy)


@drain_rule(Reason.NODE_NAME_IN_TEMPLATE, Reason.ADMISSION_REJECTS)
def _bound_by_template(subject: NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    return shared.replacements.blockers(subject.special)


@drain_rule(Reason.SHARED_VOLUME, Reason.VOLUME_ATTACHMENT)
def _volumes(subject: NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    pods = subject.with_volumes
    incoming = subject.of_special if pods is subject.special else tuple(map(shared.replacements.of, pods))
    found = shared.volumes.blockers(subject.node.name, pods, incoming)
    keys = {pod.key for pod in subject.special}
    return (blocker for blocker in found if blocker.pod in keys)


@drain_rule(*OF_BUDGETS)
def _not_together(subject: NodeAndPods, shared: PlanningRound) -> Iterator[Blocker]:
    """Yield the blockers of budgets that allow one eviction, but not of all pods that share a volume in one step."""
    if not shared.policy.budgets_in_steps:  # then all movers count in one step
        return
    remaining = RemainingDisruptions(shared.budgets)
    groups: dict[str, list[Pod]] = {}
    together = shared.volumes.together(subject.with_volumes)
    for pod in subject.with_volumes:
        if pod.key in together:
            groups.setdefault(together[pod.key], []).append(pod)
    for group in groups.values():
        if not any(remaining.lacking([pod]) for pod in group):
            yield from remaining.lacking(group)


@drain_rule(Reason.NO_SURGE)
def _surges(subject: NodeAndPods, _: PlanningRound) -> Iterable[Blocker]:
    return subject.surges.refused


@drain_rule(Reason.QUOTA_EXCEEDED)
def _quotas(subject: NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    movers = subject.movers
    return shared.quotas.blockers(movers, subject.incoming[: len(movers)], surges=subject.surges.surges)


@drain_rule(Reason.UNREADABLE_OBJECT)
def _unreadable_objects(subject: NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    return shared.unreadable.blockers(subject.node.name, subject.movers)


@drain_rule(Reason.PENDING_POD, Reason.CAPACITY_BUFFER, of_pods=False)
def _pending(subject: NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    name, to_spot = subject.node.name, shared.policy.destination is Destination.SPOT
    if not to_spot and name not in shared.groups.on_demand:
        return ()  # whether pending pods need the node is known only when it is none of the targets
    targets = "spot node" if to_spot else "other node"
    return shared.pending.blockers(shared.snapshot.nodes.row[name], targets)


@drain_rule(Reason.NO_ROOM, of_pods=False)
def _last_node(subject: NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    """Keep the last node, even without pods, if pods may go to any node: pods that come later need one."""
    if shared.policy.destination is Destination.OTHERS:
        own = shared.snapshot.nodes.row[subject.node.name]
        if shared.groups.spot.rows_set <= {own}:
            yield Blocker(Reason.NO_ROOM, "no other node that is Ready and schedulable remains")


@drain_rule(Reason.MIN_ON_DEMAND_NODES, of_pods=False)
def _minimum(subject: NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    return filter(None, [shared.minimum.blocker(subject.node.name, in_use=keeps_pods(subject.pods))])


@drain_rule(*OF_BUDGETS, of_node=False)
def _budgets_now(subject: NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    """Apply budgets to a pod alone; for nodes, in what the plans before leave of them (``answers/node.py``)."""
    return shared.remaining().lacking(subject.movers)


@drain_rule(*VETOES, of_node=False)
def _vetoes_of_pods(subject: NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    """Yield the vetoes that name one of the pods; those of nodes are with the rules about nodes."""
    keys, vetoes = {pod.key for pod in subject.movers}, shared.circumstances.vetoes
    return (blocker for blocker in vetoes.get(subject.node.name, ()) if blocker.pod in keys)


@drain_rule(Reason.NOT_WORTH_IT, of_pods=False)
def _not_worth_it(subject: NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    least, empties = shared.policy.min_worth, shared.kind is not DrainKind.MAKES_ROOM
    if not least or not empties:
        return ()
    return filter(None, [shared.worth_of(subject.node.name).blocker(least, shared.circumstances.prices.currency)])


#: All rules about nodes and their pods, in order, after those about nodes and about pods alone. They do not depend on
#: the plans for other nodes. All blockers are reported: `plan` applies those of nodes, `explain` those of pods to each
#: pod as if it were evicted alone.
RULES: Final = declared_in(globals())


def examine(node: str, shared: PlanningRound) -> Examined:
    """Apply the rules about nodes, about pods, and the :data:`RULES` about both to a node and its pods."""
    row = shared.snapshot.nodes.row[node]
    node_object = shared.snapshot.nodes.nodes[row]
    assert node_object is not None
    subject = _with_fates(node_object, shared)
    surges, movers, incoming = subject.surges, subject.movers, subject.incoming
    of_both = (blocker for rule in RULES if rule.of_node for blocker in rule.function(subject, shared))
    found = (*_of_the_node(subject, shared), *_of_its_pods(subject, shared), *of_both)
    blockers = tuple([surges.explained(blocker) for blocker in found])
    counts, leaving = node in shared.minimum.counted, tuple(map(PodRef.of, subject.leaving))
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


def _with_fates(node: Node, shared: PlanningRound) -> NodeAndPods:
    """Apply the rules for pods to those of *node*. Plain pods move."""
    pods, replacement = shared.snapshot.pods_on[node.name], shared.replacements.of
    if shared.only is not None:
        pods = {key: pod for key, pod in pods.items() if pod.uid in shared.only}
    ordered = [pods[key] for key in sorted(pods)]
    special, fates, surges = _judged(ordered, shared)
    lifted = surges.keys
    kept = {key for key, result in fates.items() if result is not Fate.MOVES and key not in lifted}
    movers = tuple([pod for pod in ordered if pod.key not in kept] if kept else ordered)
    blocked = tuple([pod for pod in special if pod.key in kept and isinstance(fates[pod.key], Blocker)])
    staying = tuple([pod for pod in blocked if not pod.cls.terminating])
    moving = tuple([pod for pod in special if pod.key not in kept])
    new = {pod.key: replacement(pod) for pod in moving}
    return NodeAndPods(
        node=node,
        pods=pods.values(),
        movers=movers,
        blocked=blocked,
        leaving=tuple([pod for pod in special if fates[pod.key] is Fate.LEAVES]),
        must_move=(*movers, *staying),
        incoming=(*([new.get(pod.key, pod) for pod in movers] if new else movers), *map(replacement, staying)),
        special=moving,
        of_special=tuple(new.values()),
        with_volumes=moving,
        surges=surges,
    )


def _judged(pods: list[Pod], shared: PlanningRound) -> tuple[list[Pod], Mapping[str, Fate | Blocker], NodeSurges]:
    """Return those of the *pods* of a node that are not plain, their fates, and which of them rolling updates move."""
    special = shared.plain.others(pods)
    if shared.surges is not None and shared.surges.may_be_wanted(special):
        special = pods  # all pods of a Deployment are replaced
    fates = {pod.key: shared.pod_rules.fate(pod) for pod in special}
    staying = Fate.STAYS, Fate.LEAVES
    return special, fates, _surges_on([pod for pod in special if fates[pod.key] not in staying], shared)


def _surges_on(pods: Sequence[Pod], shared: PlanningRound) -> NodeSurges:
    """Return which of *pods*, which have to leave one node, are moved by rolling updates."""
    surges, rules = shared.surges, shared.pod_rules
    if surges is None or not surges.may_be_wanted(pods):
        return NO_SURGES
    movable = [pod for pod in pods if not pod.cls.terminating and surges.lifts(pod, rules.blockers(pod))]
    return surges.on(movable, rules, shared.budgets)


def eviction_blockers(pod: Pod, shared: PlanningRound) -> tuple[list[Blocker], Surge | None]:
    """Return the blockers of evicting *pod* alone, regardless of its placement, and the rolling update that moves it.

    Those that a rolling update does not need are left out.
    """
    if not pod.node_name:
        return [], None
    surges = _surges_of(pod, shared)
    subject = _alone(pod, surges, shared)
    of_both = (blocker for rule in RULES if rule.of_pods for blocker in rule.function(subject, shared))
    blockers = [*_of_its_pods(subject, shared), *of_both]
    surge = next((each.surge for each in surges.surges if pod in each.pods), None)
    if surge is None:
        return [surges.explained(blocker) for blocker in blockers], None
    return [blocker for blocker in blockers if blocker.reason not in LIFTED], surge


def _alone(pod: Pod, surges: NodeSurges, shared: PlanningRound) -> NodeAndPods:
    """Return *pod* with its node, from which it is evicted alone, or with the pods that share its volumes."""
    table, beside = shared.snapshot.nodes, shared.snapshot.pods_on[pod.node_name]
    row = table.row.get(pod.node_name)
    node = table.nodes[row] if row is not None else None
    own, new = (pod,), (shared.replacements.of(pod),)
    return NodeAndPods(
        node=node or Node(metadata=ObjectMeta(name=pod.node_name)),
        pods=beside.values(),
        movers=own,
        blocked=own,
        leaving=(),
        must_move=own,
        incoming=new,
        special=own,
        of_special=new,
        with_volumes=_sharing(pod, shared) if pod.cls.claims else own,
        surges=NodeSurges(refused=tuple([blocker for blocker in surges.refused if blocker.pod == pod.key])),
    )


def _sharing(pod: Pod, shared: PlanningRound) -> tuple[Pod, ...]:
    """Return *pod* and the pods that leave its node with it, because a volume stays until all its users left."""
    beside, fate = shared.snapshot.pods_on[pod.node_name], shared.pod_rules.fate
    movers = [each for key, each in sorted(beside.items()) if key == pod.key or fate(each) is Fate.MOVES]
    group = shared.volumes.together(movers)
    return tuple([each for each in movers if each.key == pod.key or group.get(each.key, "") == group.get(pod.key)])


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
