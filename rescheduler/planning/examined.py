"""What the rules find out about a node and its pods, regardless of the plans for other nodes.

Plain pods move, and no rule about pods concerns them (:mod:`rescheduler.planning.plain_pods`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from predicates.objects import Node, ObjectMeta, Pod
from rescheduler.planning.budgets import Evictions, RemainingDisruptions
from rescheduler.planning.outcome import Blocker, PodRef, Reason, Surge
from rescheduler.planning.placement.search import Candidate
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.policy import Destination, Policy
from rescheduler.planning.rules.candidates import node_blockers
from rescheduler.planning.rules.declared import Fate
from rescheduler.planning.rules.minimum import keeps_pods, owner_key
from rescheduler.planning.rules.pod_rules import other_scheduler
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


@dataclass(frozen=True, slots=True)
class _NodeAndPods:
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
    pods = subject.with_volumes
    incoming = subject.of_special if pods is subject.special else tuple(map(shared.replacements.of, pods))
    found = shared.volumes.blockers(subject.node.name, pods, incoming)
    keys = {pod.key for pod in subject.special}
    return (blocker for blocker in found if blocker.pod in keys)


def _not_together(subject: _NodeAndPods, shared: PlanningRound) -> Iterator[Blocker]:
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
    return filter(None, [shared.minimum.blocker(subject.node.name, in_use=keeps_pods(subject.pods))])


def _budgets_now(subject: _NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    return shared.remaining().lacking(subject.movers)


def _vetoes_of_pods(subject: _NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    keys, vetoes = {pod.key for pod in subject.movers}, shared.circumstances.vetoes
    return (blocker for blocker in vetoes.get(subject.node.name, ()) if blocker.pod in keys)


def _not_worth_it(subject: _NodeAndPods, shared: PlanningRound) -> Iterable[Blocker]:
    if not (least := shared.policy.min_worth):
        return ()
    return filter(None, [shared.worth_of(subject.node.name).blocker(least, shared.circumstances.prices.currency)])


_Find: TypeAlias = Callable[[_NodeAndPods, PlanningRound], Iterable[Blocker]]


class NodeRule(NamedTuple):
    """A rule about a node and the pods that have to leave it."""

    find: _Find
    of_pods: bool = True  #: what it finds also stands in the way of one of its pods; otherwise it is about the node
    of_node: bool = True  #: it is applied to nodes; otherwise another rule or a later step finds the same for them


#: All rules about nodes and their pods, in order. They do not depend on the plans for other nodes. All blockers are
#: reported: `plan` applies those of nodes, `explain` those of pods to each pod as if it were evicted alone.
RULES: Final = (
    NodeRule(_of_the_node, of_pods=False),
    NodeRule(_of_its_pods),
    NodeRule(_controllers),
    NodeRule(_of_replacements),
    NodeRule(_bound_by_template),
    NodeRule(_volumes),
    NodeRule(_not_together),
    NodeRule(_surges),
    NodeRule(_quotas),
    NodeRule(_unreadable_objects),
    NodeRule(_pending, of_pods=False),
    NodeRule(_last_node, of_pods=False),
    NodeRule(_minimum, of_pods=False),
    NodeRule(_budgets_now, of_node=False),  # in what the plans before leave of them: answers/node.py
    NodeRule(_vetoes_of_pods, of_node=False),  # _of_the_node
    NodeRule(_not_worth_it, of_pods=False),
)


def examine(node: str, shared: PlanningRound) -> Examined:
    """Apply the :data:`RULES` to a node and its pods."""
    row = shared.snapshot.nodes.row[node]
    node_object = shared.snapshot.nodes.nodes[row]
    assert node_object is not None
    subject = _with_fates(node_object, shared)
    surges, movers, incoming = subject.surges, subject.movers, subject.incoming
    found = (blocker for rule in RULES if rule.of_node for blocker in rule.find(subject, shared))
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


def _with_fates(node: Node, shared: PlanningRound) -> _NodeAndPods:
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
    blockers = [blocker for rule in RULES if rule.of_pods for blocker in rule.find(subject, shared)]
    surge = next((each.surge for each in surges.surges if pod in each.pods), None)
    if surge is None:
        return [surges.explained(blocker) for blocker in blockers], None
    return [blocker for blocker in blockers if blocker.reason not in LIFTED], surge


def _alone(pod: Pod, surges: NodeSurges, shared: PlanningRound) -> _NodeAndPods:
    """Return *pod* with its node, from which it is evicted alone, or with the pods that share its volumes."""
    table, beside = shared.snapshot.nodes, shared.snapshot.pods_on[pod.node_name]
    row = table.row.get(pod.node_name)
    node = table.nodes[row] if row is not None else None
    own, new = (pod,), (shared.replacements.of(pod),)
    return _NodeAndPods(
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
