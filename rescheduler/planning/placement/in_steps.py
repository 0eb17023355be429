"""Play a plan through in the steps of a drain: a pod is scheduled while later pods are still on the drained node.

A plan shows that all pods of a node fit spot nodes together. The drain does not move them together. A pod that must run
beside another one, or in another zone than another one, may have no place until that other pod has moved. Pods that are
terminating are treated as gone: the drain waits for them before it expects the replacement pod.

Required pod affinity is an exception. The scheduler tries the replacement pod while its predecessor is terminating, and
does not try again when that is gone (``isSchedulableAfterAssignedPodChange`` of InterPodAffinity): the predecessor is
still a pod beside which the replacement pod must run, so that it is not the first of its kind.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Final

import numpy as np
import numpy.typing as npt

from predicates.filters import Filters
from predicates.indexes.domains import PodCounter
from predicates.indexes.topology import TopologyIndex
from predicates.objects import Pod, PodClass
from predicates.plugins import pods
from predicates.plugins.pods import reaches_other_nodes
from predicates.snapshot import Snapshot, Trial
from rescheduler.planning.controllers import is_evicted_late
from rescheduler.planning.placement.packing import Placed, Room, shortage

#: A group of pods that are evicted together.
Step = tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class Reachable:
    """Placements that the drain can reach. With *one_by_one*, only if it moves one pod at a time in this order."""

    placed: Placed
    one_by_one: bool = False


@dataclass(frozen=True, slots=True)
class StuckInSteps:
    """A pod that has no place on spot nodes when its turn comes, and how many pods are still on the node then."""

    pod: Pod
    why: str
    unmoved: int


def order_matters(pods: Iterable[Pod], filters: Filters) -> bool:
    """Return whether the place of any of *pods* may depend on which of the others have moved before it."""
    reaches = filters.facts(_reaches)
    return any(map(reaches.__getitem__, {pod.cls for pod in pods}))


def _reaches(filters: Filters, cls: PodClass) -> bool:
    return reaches_other_nodes(cls, filters.snapshot)


def must_be_beside(pod: Pod) -> bool:
    """Return whether *pod* must run beside others, or in a topology domain with others."""
    affinity = pod.cls.spec.affinity
    return affinity is not None and affinity.pod_affinity is not None and bool(affinity.pod_affinity.required)


def move_in_steps(
    room: Room,
    trial: Trial,
    row: int,
    placed: Sequence[tuple[Pod, int | None]],
    surges: Sequence[Sequence[str]] = (),
    first: Collection[str] = (),
) -> Reachable | StuckInSteps:
    """Move the pods of the node in *row* to the rows of *placed*, or to other targets, as the drain would.

    Without a row, a pod goes to the first target that accepts it when its turn comes. *surges* are the keys of pods
    that are moved together before the others, and stay until all of them have a place. *first* are the keys of the pods
    of the next step, if that is known. All pods must still be on the node in *trial*. Afterwards the node is drained in
    *trial*, or, if a pod is stuck, *trial* is unchanged.
    """
    start = trial.savepoint()
    trial.drain(row)
    drained = trial.savepoint()
    surging = {key for keys in surges for key in keys}
    moves = _Moves(room, trial, placed)
    evicted = [pod for pod, _ in placed if pod.key not in surging]
    step = tuple(pod for pod in evicted if pod.key in first)
    steps = [step, *eviction_steps([pod for pod in evicted if pod.key not in first])]
    stuck = moves.surge(surges) or moves.in_waves(filter(None, steps))
    if stuck is None:
        return Reachable(moves.placed)
    trial.revert(drained)
    moves = _Moves(room, trial, placed)
    if moves.surge(surges) is None and moves.one_by_one():
        return Reachable(moves.placed, one_by_one=True)
    trial.revert(start)
    return stuck


def keep_in_steps(room: Room, trial: Trial, placed: Placed) -> Placed | None:
    """Return *placed* in the order in which the drain moves the pods, if each has its place when its turn comes.

    The node must be drained in *trial*, with all pods placed, and is so afterwards. If the result is None, this was not
    shown, and *trial* has to be reverted: the pods may have other places, which :func:`move_in_steps` finds.

    Pods that fit a node together fit it with fewer others. So only pods that depend on others of these are evaluated:
    they and those are moved back to the drained node, and from there step by step.
    """
    snapshot, filters = room.snapshot, room.filters
    if (back := _dependent_on_each_other(placed, room)) is None:
        return None
    row_of = {pod.key: row for pod, row in placed}
    for key, pod in back.items():
        trial.unplace(pod.cls, row_of[key])
        trial.restore(snapshot.pods[key])
    reaches = filters.facts(_reaches)
    in_order: Placed = []
    for step in eviction_steps([pod for pod, _ in placed]):
        moving = [pod for pod in step if pod.key in back] if back else ()
        if moving:
            trial.evict(*(snapshot.pods[pod.key] for pod in moving))
        for pod in moving:
            row = row_of[pod.key]
            if reaches[pod.cls] and not filters.still_fits(pod.cls, row):
                return None
            if _must_stay_near(pod) and pods.may_be_first(pod.cls, snapshot):
                return None
            trial.place(pod.cls, row)
        in_order += [(pod, row_of[pod.key]) for pod in step]
    return in_order


def _dependent_on_each_other(placed: Placed, room: Room) -> dict[str, Pod] | None:
    """Return, by key, the pods of *placed* that depend on others of them, and those others; None if that is not known.

    Of the others, the running pod counts and the new one. A pod on which nothing else depends, and that depends on
    none of the others, has the same places whenever its turn comes.
    """
    reaches, counters = room.filters.facts(_reaches), room.filters.facts(_counters_for)
    dependent = [pod for pod, _ in placed if reaches[pod.cls]]
    relevant: set[PodCounter] = set()
    for pod in dependent:
        if (own := counters[pod.cls]) is None:
            return None
        relevant |= own
    counted = _counted(placed, relevant, room.snapshot)
    back: dict[str, Pod] = {}
    for pod in dependent:
        for counter in counters[pod.cls] or ():
            group = counted[counter]
            if len(group) > 1 or (group and pod.key not in group):
                back |= {**group, pod.key: pod}
        if _must_stay_near(pod):  # it depends at least on its own predecessor, even if its terms do not match that
            back[pod.key] = pod
    return back


def _counted(
    placed: Placed, relevant: Collection[PodCounter], snapshot: Snapshot
) -> Mapping[PodCounter, dict[str, Pod]]:
    """Return, by key, the pods of *placed* that each of the *relevant* counters counts, as they run or as new pods."""
    counted: defaultdict[PodCounter, dict[str, Pod]] = defaultdict(dict)
    counters_of = snapshot.index(TopologyIndex).counters_of
    for pod, row in placed:
        before, added = snapshot.pods[pod.key], snapshot.labels_added_on(row)
        new = snapshot.labeled(pod.cls, added) if added else pod.cls
        old = snapshot.labeled(before.cls, before.added_labels) if before.added_labels else before.cls
        for cls in (new,) if old is new else (old, new):
            found = counters_of(cls)
            if found is None:
                found = relevant
            for counter in found:
                if counter in relevant:
                    counted[counter][pod.key] = pod
    return counted


#: The plugins whose verdict on a node, for a pod that fits it with all others, does not depend on fewer others, or
#: depends on the counted pods alone.
_IN_STEPS: Final = frozenset({"NodeResourcesFit", "NodePorts"})
_BY_COUNTS: Final = (pods.INTER_POD_AFFINITY, pods.POD_TOPOLOGY_SPREAD)


def _counters_for(filters: Filters, cls: PodClass) -> frozenset[PodCounter] | None:
    """Return the counters of the pods on which the class depends; None if it depends on anything else."""
    ties = pods.ties_of(cls, filters.snapshot)
    plugins = filters.plugins_of(cls)
    if ties is None or not all(each.name in _IN_STEPS or each in _BY_COUNTS for each in plugins):
        return None
    return frozenset(counts.counter for counts in ties.all_counts)


def eviction_steps(pods: Sequence[Pod]) -> list[Step]:
    """Return what a drain evicts at once: of :func:`steps_of`, the pods of a namespace with controllers by turns."""
    return [*chain.from_iterable(_by_turns(step) if step[0].owner is not None else [step] for step in steps_of(pods))]


def steps_of(pods: Sequence[Pod]) -> list[Step]:
    """Return the steps in which a drain evicts *pods* if every replacement pod becomes Ready.

    One pod; one pod of each other namespace; one pod of each other owner, in steps of 1, 2, 4, … owners; then the rest
    of each owner in steps of 1, 2, 4, … pods, or one at a time for a StatefulSet; last the pods without a controller.
    Among these, StatefulSets and Jobs come last. Until a step ends, its evicted pods may still terminate.
    """
    late: list[Pod] = []
    owned: list[Pod] = []
    orphans: list[Pod] = []
    for pod in pods:
        (orphans if pod.owner is None else late if is_evicted_late(pod.owner) else owned).append(pod)
    owned += late
    steps: list[Step] = []
    firsts: dict[Hashable, Pod] = {}  #: by owner
    by_owner: dict[Hashable, list[Pod]] = {}  #: the other pods of each owner
    for pod in owned:
        if firsts.setdefault(owner := _owner(pod), pod) is not pod:
            by_owner.setdefault(owner, []).append(pod)
    if owned:
        in_namespaces = _first_of_each_namespace(owned)
        begun = {id(pod) for pod in in_namespaces}
        steps += [(owned[0],), tuple(in_namespaces[1:])]
        steps += _doubling([pod for pod in firsts.values() if id(pod) not in begun])
    rests = [[(pod,) for pod in rest] if _is_ordered(rest[0]) else _doubling(rest) for rest in by_owner.values()]
    for number in range(max(map(len, rests), default=0)):
        steps.append(tuple(chain.from_iterable(rest[number] for rest in rests if number < len(rest))))
    return [*filter(None, steps), *((tuple(orphans),) if orphans else ())]


def _by_turns(step: Step) -> Iterable[Step]:
    """Split *step* so that each part has one pod of each namespace."""
    turns: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in step:
        turns[pod.namespace].append(pod)
    return (tuple(filter(None, pods)) for pods in zip_longest(*turns.values()))


class _Moves:
    """The moves of one drain in *trial*. *planned* are the placements that are tried first."""

    def __init__(self, room: Room, trial: Trial, planned: Sequence[tuple[Pod, int | None]]) -> None:
        self._room = room
        self._trial = trial
        self._planned = planned
        self._row_of = {pod.key: row for pod, row in planned}
        #: By pod: the targets beside its predecessor, if it must run there.
        self._near: dict[str, npt.NDArray[np.intp]] = {}
        self._moved_elsewhere = False  #: whether a pod was placed on another row than planned
        self.placed: Placed = []

    def surge(self, surges: Iterable[Sequence[str]]) -> StuckInSteps | None:
        """Move the pods of one Deployment after the other. Its pods on this node leave when all new ones have a place.

        Its pods on other nodes are left where they are: which of them goes first is not known.
        """
        pods = {pod.key: pod for pod, _ in self._planned}
        for keys in surges:
            group = [pods[key] for key in keys if key in pods]
            if (stuck := self._place_all(group)) is not None:
                return stuck
            self._evict(*(pod for pod in group if pod.key in self._room.snapshot.pods))
        return None

    def in_waves(self, steps: Iterable[Step]) -> StuckInSteps | None:
        """Move the pods step by step. Return the first pod that has no place when its step is evicted."""
        for step in steps:
            self._evict(*step)
            if (stuck := self._place_all(step)) is not None:
                return stuck
        return None

    def _place_all(self, waiting: Sequence[Pod]) -> StuckInSteps | None:
        while waiting:
            left = [pod for pod in waiting if not self._place(pod)]
            if len(left) == len(waiting):
                unmoved = len(self._planned) - len(self.placed) - len(left)
                return StuckInSteps(left[0], shortage(self._room, left[0].cls), unmoved)
            waiting = left
        return None

    def one_by_one(self) -> bool:
        """Move one pod at a time, in an order in which each has a place. Return whether there is such an order."""
        placed = {pod.key for pod, _ in self.placed}
        waiting = [pod for pod, _ in self._planned if pod.key not in placed]
        waiting.sort(key=lambda pod: (pod.owner is None, is_evicted_late(pod.owner)))
        unplanned = None in self._row_of.values()
        tries = 2 * len(waiting) if unplanned else math.inf  # what has no place by any method is not worth more
        while waiting:
            movable = None
            for pod in waiting:
                tries -= 1
                if tries < 0:
                    return False
                if self._moves(pod):
                    movable = pod
                    break
            if movable is None:
                return False
            waiting.remove(movable)
        return True

    def _moves(self, pod: Pod) -> bool:
        mark = self._trial.savepoint()
        self._evict(pod)
        if self._place(pod):
            return True
        self._trial.revert(mark)
        return False

    def _depends(self, cls: PodClass) -> bool:
        """Return whether the class depends on other pods, or a pod was placed elsewhere than planned before it."""
        return self._moved_elsewhere or self._room.filters.facts(_reaches)[cls]

    def _evict(self, *replaced: Pod) -> None:
        """Evict the running pods that *replaced* replace."""
        snapshot = self._room.snapshot
        for pod in replaced:
            if _must_stay_near(pod):
                self._near[pod.key] = pods.beside_others(pod.cls, snapshot, self._room.targets.rows)
        self._trial.evict(*(snapshot.pods[pod.key] for pod in replaced))

    def _place(self, pod: Pod) -> bool:
        row: int | None = self._row_of[pod.key]
        filters, near = self._room.filters, self._near.get(pod.key)
        if near is not None and pods.may_be_first(pod.cls, self._room.snapshot):
            fitting = [each for each in near.tolist() if filters.still_fits(pod.cls, each)]
            row = row if row in fitting else next(iter(fitting), None)
            self._moved_elsewhere = True
        elif row is None or (self._depends(pod.cls) and not filters.still_fits(pod.cls, row)):
            row = filters.first(pod.cls, self._room.targets)
            self._moved_elsewhere = True
        if row is None:
            return False
        self._trial.place(pod.cls, row)
        self.placed.append((pod, row))
        return True


def _must_stay_near(pod: Pod) -> bool:
    """Return whether *pod* must run beside others, and is created while its predecessor is still terminating."""
    return pod.owner is not None and pod.owner.kind in _EARLY and must_be_beside(pod)


def _owner(pod: Pod) -> Hashable:
    assert pod.owner is not None
    return pod.namespace, pod.owner.uid


#: Kinds that replace a pod as soon as its deletion begins.
_EARLY: Final = ("ReplicaSet", "ReplicationController")

#: Kinds whose pods are replaced one at a time, each after the previous one is Ready.
_ORDERED: Final = ("StatefulSet",)


def _is_ordered(pod: Pod) -> bool:
    return pod.owner is not None and pod.owner.kind in _ORDERED


def _first_of_each_namespace(pods: Iterable[Pod]) -> list[Pod]:
    firsts: dict[str, Pod] = {}
    for pod in pods:
        firsts.setdefault(pod.namespace, pod)
    return list(firsts.values())


def _doubling(pods: Sequence[Pod]) -> list[Step]:
    """Split *pods* into steps of 1, 2, 4, … pods."""
    steps, start, size = [], 0, 1
    while start < len(pods):
        steps.append(tuple(pods[start : start + size]))
        start, size = start + size, 2 * size
    return steps
