"""The pods that must run again if their nodes are lost, by node and by class. Pure.

Pods that are alike, of one class and one controller, have the same fate: it is found out once for all of them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from predicates.objects import OwnerReference, Pod, PodClass
from rescheduler.planning.kept import ClusterPart, version
from rescheduler.planning.outcome import Plan
from rescheduler.planning.placement.ample import Provable
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.policy import Circumstances, Deadlines
from rescheduler.planning.rules.candidates import node_blockers
from rescheduler.planning.rules.minimum import keeps_pods
from rescheduler.planning.rules.pod_traits import ends_with_node, yields_room

#: The kinds that decide, besides what replacement pods are derived from, whether the scheduler binds them.
_GANGS: Final = ("PodGroup", "CompositePodGroup", "Workload", "LeaderWorkerSet")

#: The number of no class.
_NONE: Final = -1


class _Fate(NamedTuple):
    """What happens to pods that are alike if their node is lost."""

    number: int = _NONE  #: of the class of the pods that must run again, in ``NodePods.classes``
    unlike: bool = False  #: whether they are created with other labels or rules about other pods
    unbound: str = ""  #: why the scheduler cannot place them, or not by the rules that are known
    alone: bool = False  #: whether they have no controller, so that nothing creates them again
    expendable: bool = False  #: whether the scheduler preempts them for any of the others


#: Pods that are equal in this, and have no annotations, are alike.
_Alike: TypeAlias = tuple[PodClass, OwnerReference | None, bool, int]


@dataclass(frozen=True, slots=True)
class Displaced:
    """The pods of one node."""

    pods: Sequence[Pod]  #: those that must run again, as their controllers create them
    numbers: Sequence[int]  #: of the classes of *pods*, in ``NodePods.classes``
    not_recreated: Sequence[str]  #: keys of those without a controller
    bound: Sequence[tuple[Pod, str]]  #: those of *pods* that the scheduler cannot place, and why
    unlike: bool = False  #: whether any is created with other labels or rules about other pods
    expendable: Sequence[PodClass] = ()  #: those of pods that the scheduler preempts for any of the others

    @property
    def facts(self) -> tuple[object, ...]:
        """What results depend on: equal pods may have other names."""
        bound = sorted(why for _, why in self.bound)
        alone, expendable = sorted(self.not_recreated), Counter(self.expendable)
        return sorted(self.numbers), alone, bound, self.unlike, expendable


class Departing(NamedTuple):
    """Nodes that may be gone at any time."""

    nodes: frozenset[str]
    until: datetime | None  #: from when on they may be others because time has passed


_NOBODY: Final = Departing(frozenset(), None)


class NodePods:
    """The pods that must run again if their node is lost, by node. They are kept while the pods of a node are equal."""

    def __init__(self) -> None:
        self.provable = Provable()
        self.classes: list[PodClass] = []  #: of pods that are created again, by number
        self._numbers: dict[PodClass, int] = {}
        #: The number of the class of pods that are created again as they are, or _NONE of those that count for nothing:
        #: nearly all pods. Then the fates of all.
        self._plain: dict[_Alike, int] = {}
        self._fates: dict[_Alike, _Fate] = {}
        self._by_node: dict[str, tuple[int, Displaced]] = {}
        self._edits = 0  #: how often pods of a node were found to be created again as others than before
        self._compared_at = -1  #: at which change of the snapshot all nodes were compared
        self._valid_for: object = None
        #: For whom, and at which change of the snapshot, all of this was valid.
        self._checked: tuple[PlanningRound | None, int] = None, -1
        self._departing: tuple[PlanningRound | None, Departing] = None, _NOBODY

    def gone_with(self, plans: Sequence[Plan], shared: PlanningRound) -> Iterator[frozenset[str]]:
        """Yield the nodes that may be gone after *plans* besides theirs: none; then the on-demand nodes without pods.

        An autoscaler may remove these at any time. So plans that move pods must keep what is to be kept without them.
        """
        yield frozenset()
        if any(plan.placements for plan in plans):
            departing = self.departing(shared)
            if departing.until is not None:
                shared.circumstances.deadlines.record(departing.until)
            if empty := departing.nodes - {plan.node for plan in plans}:
                yield empty

    def departing(self, shared: PlanningRound) -> Departing:
        """Return the nodes that may be gone at any time. They follow from more than the ground, such as cooldowns."""
        if self._departing[0] is not shared:
            circumstances = replace(shared.circumstances, deadlines=Deadlines())
            nodes = frozenset(_empty_nodes(shared, circumstances))
            self._departing = shared, Departing(nodes, circumstances.deadlines.take())
        return self._departing[1]

    def edits(self, shared: PlanningRound) -> int:
        """Return a number that changes if pods are created again as others than before, although the ground stays."""
        self._forget_old(shared)
        snapshot = shared.snapshot
        if self._compared_at != snapshot.changes:
            self._compared_at = snapshot.changes
            for node in self._by_node.keys() - snapshot.nodes.row.keys():
                del self._by_node[node]
            for node in self._by_node:
                self.of(node, shared)
        return self._edits

    def of(self, node: str, shared: PlanningRound) -> Displaced:
        """Return the pods of *node* in the snapshot of *shared*."""
        self._forget_old(shared)
        snapshot = shared.snapshot
        changed = max(snapshot.placed_on.get(node, 0), snapshot.edited_on.get(node, 0))
        known = self._by_node.get(node)
        if known is None or known[0] < changed:
            displaced = self._displaced(snapshot.pods_on[node].values(), shared)
            self._edits += known is not None and known[1].facts != displaced.facts
            known = self._by_node[node] = snapshot.changes, displaced
        return known[1]

    def moved(self, pods: Sequence[Pod], shared: PlanningRound) -> Displaced:
        """Return the replacement *pods* that run on a node after plans."""
        self._forget_old(shared)
        plain = self._plain
        owned, numbers, not_recreated, bound = list[Pod](), list[int](), list[str](), list[tuple[Pod, str]]()
        for pod in pods:
            number = None if pod.annotations else plain.get((pod.cls, pod.owner, pod.assigned, pod.generation))
            if pod.owner is None:
                not_recreated.append(pod.key)
                continue
            if number is None or number == _NONE:
                fate = self._again(pod, shared)
                number = fate.number
                if fate.unbound:
                    bound.append((pod, fate.unbound))
            owned.append(pod)
            numbers.append(number)
        return Displaced(owned, numbers, not_recreated, bound)

    def _forget_old(self, shared: PlanningRound) -> None:
        snapshot = shared.snapshot
        if self._checked[0] is shared and self._checked[1] == snapshot.changes:
            return
        self._checked = shared, snapshot.changes
        policy, current = shared.policy, version(snapshot, ClusterPart.CLASSES, *_GANGS)
        valid_for = shared.replacements.basis, current, policy.expendable_pods_priority_cutoff, policy.destination
        if valid_for != self._valid_for:
            self._valid_for = valid_for
            for known in (self.classes, self._numbers, self._plain, self._fates, self._by_node):
                known.clear()

    def _displaced(self, on_node: Iterable[Pod], shared: PlanningRound) -> Displaced:
        plain = self._plain
        pods, numbers, unlike = list[Pod](), list[int](), False
        not_recreated, bound, expendable = list[str](), list[tuple[Pod, str]](), list[PodClass]()
        for pod in on_node:
            # Inline, because this is called for all pods on spot nodes.
            number = None if pod.annotations else plain.get((pod.cls, pod.owner, pod.assigned, pod.generation))
            if number is not None:
                if number != _NONE:
                    pods.append(pod)
                    numbers.append(number)
                continue
            fate = self._fate_of(pod, shared)
            if fate.alone:
                not_recreated.append(pod.key)
            elif fate.expendable:
                expendable.append(pod.cls)
            elif fate.number != _NONE:
                new = shared.replacements.of(pod)
                pods.append(new)
                numbers.append(fate.number)
                unlike = unlike or fate.unlike
                if fate.unbound:
                    bound.append((new, fate.unbound))
        return Displaced(pods, numbers, not_recreated, bound, unlike, expendable)

    def _fate_of(self, pod: Pod, shared: PlanningRound) -> _Fate:
        """Return the fate of *pod*: that of a pod that is alike, if one is known.

        Annotations, and the name of a pod of a StatefulSet, may matter for a single pod.
        """
        alike = pod.cls, pod.owner, pod.assigned, pod.generation
        if pod.annotations or (pod.owner is not None and pod.owner.kind == "StatefulSet"):
            return self._fate(pod, shared)
        if (fate := self._fates.get(alike)) is None:
            fate = self._fates[alike] = self._fate(pod, shared)
            as_it_is = fate.number == _NONE or self.classes[fate.number] is pod.cls
            if as_it_is and fate == _Fate(fate.number):
                self._plain[alike] = fate.number
        return fate

    def _fate(self, pod: Pod, shared: PlanningRound) -> _Fate:
        policy = shared.policy
        if pod.cls.terminating:
            return _Fate()
        if (expendable := yields_room(pod.cls, policy)) or ends_with_node(pod, policy):
            return _Fate(expendable=expendable)
        if pod.owner is None:
            return _Fate(alone=True)
        new = shared.replacements.of(pod)
        return self._again(new, shared)._replace(unlike=new is not pod and _is_unlike(pod, new))

    def _again(self, new: Pod, shared: PlanningRound) -> _Fate:
        """Return the fate of pods like *new*, which is the replacement of another one."""
        number = self._numbers.setdefault(new.cls, len(self.classes))
        if number == len(self.classes):
            self.classes.append(new.cls)
        blockers = (*shared.replacements.blockers((new,)), *shared.gangs.unbindable((new,)))
        return _Fate(number, unbound=blockers[-1].detail if blockers else "")


class Lost:
    """The pods of the nodes that are lost together. Their *classes* have the numbers of the pods on each node."""

    def __init__(self, on_nodes: Sequence[Displaced], classes: Sequence[PodClass]) -> None:
        self._on_nodes = on_nodes
        self.not_recreated = tuple(sorted(chain.from_iterable(each.not_recreated for each in on_nodes)))
        self.bound = tuple(chain.from_iterable(each.bound for each in on_nodes))
        self.unlike = any(each.unlike for each in on_nodes)
        numbers = np.fromiter(chain.from_iterable(each.numbers for each in on_nodes), np.intp)
        present, counts = np.unique(numbers, return_counts=True)
        #: By class: the number of its pods.
        self.by_class = dict(zip(map(classes.__getitem__, present.tolist()), counts.tolist(), strict=True))
        self.number = len(numbers)
        self.with_ports = sum(count for pod, count in self.by_class.items() if pod.ports)

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """All pods."""
        return tuple(chain.from_iterable(each.pods for each in self._on_nodes))


def _empty_nodes(shared: PlanningRound, circumstances: Circumstances) -> Iterator[str]:
    table, pods_on = shared.snapshot.nodes, shared.snapshot.pods_on
    for name in shared.groups.on_demand:
        node = table.nodes[table.row[name]]
        if node is not None and not keeps_pods(pods_on[name].values()):
            control_plane = name in shared.groups.control_plane
            if not node_blockers(node, shared.policy, circumstances, empty=True, control_plane=control_plane):
                yield name


def _is_unlike(pod: Pod, new: Pod) -> bool:
    """Return whether the replacement differs from *pod* in what concerns other pods."""
    spec, before = new.cls.spec, pod.cls.spec
    rules = spec.affinity, spec.topology_spread_constraints
    return new.cls.labels != pod.cls.labels or rules != (before.affinity, before.topology_spread_constraints)
