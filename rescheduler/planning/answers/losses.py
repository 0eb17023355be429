"""The loss of one pool of spot nodes: whether its pods would run again on what remains. Pure.

Each pool is taken away in a trial of the state after a plan. Its nodes are gone, with their topology domains, and its
pods are created again as their controllers would create them. First it is tried to prove that all of them find a place
in whatever order and wherever the scheduler places them (:mod:`rescheduler.planning.placement.ample`). Otherwise the
scheduler is simulated: with its scoring, by priority, in several orders. A pod that has no place in any of them is
homeless.

Pods that end with their node (DaemonSet and mirror pods), and those that yield their room, need no place. Pods without
a controller are lost with their node whatever is free; they are counted apart. Pods preempt only those that yield their
room, where no node accepts them otherwise: after any others, somebody else would be homeless.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from predicates.filters import Filters
from predicates.indexes.terms import affinity_terms
from predicates.local_results import Targets
from predicates.nodes import CPU, MEMORY, Flags
from predicates.nodes import PODS as PODS_COLUMN
from predicates.objects import Pod, PodClass
from predicates.plugins.pods import ties_of
from predicates.snapshot import Trial
from rescheduler.planning.answers.lost_pods import Lost, NodePods
from rescheduler.planning.controllers import ControllerName, controller_of
from rescheduler.planning.placement.added_nodes import AddedNodes, sources
from rescheduler.planning.placement.ample import Ample, Loss, Rows, requested_by
from rescheduler.planning.placement.forecast import SimulatedScheduler
from rescheduler.planning.placement.packing import Effort, Packing, Room, Sizes, shortage
from rescheduler.planning.placement.pending import queue
from rescheduler.planning.placement.preemption import YieldingPods, preempt_for
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.pools import spot_pools
from rescheduler.planning.rules.candidates import why_not_target

#: The fewest and the most simulations of a loss that is not proved to be survived. An order of pods in which one
#: has no place may be rare. So a loss of few pods is simulated more often: all simulations place about so many pods,
#: or fewer if the other losses would lack effort then.
_PLAYS: Final = 8
_MOST_PLAYS: Final = 32
_PODS_IN_PLAYS: Final = 4000

#: First-fit places about so many pods in the time in which a simulation binds one.
_FIRST_FITS: Final = 4


@dataclass(frozen=True, slots=True)
class Homeless:
    """The pods of a controller that would find no place."""

    controller: ControllerName
    pods: tuple[str, ...]  #: ``namespace/name``, sorted
    priority: int
    why: str


@dataclass(frozen=True, slots=True)
class Needed:
    """What would have to be added for the homeless pods: their requests, and nodes like those that are lost."""

    cpu: int  #: in millicores
    memory: int  #: in bytes
    nodes: int  #: at least so many of them
    like: str  #: the largest of the lost nodes


@dataclass(frozen=True, slots=True)
class PoolLoss:
    """The result of losing one pool."""

    pool: str
    nodes: int
    pods: int  #: number of pods that must run again
    homeless: tuple[Homeless, ...] = ()  #: the highest priority first
    judged: bool = True  #: False if the effort did not suffice to judge the pool
    not_recreated: tuple[str, ...] = ()  #: the pods without a controller, which nothing creates again
    needed: Needed | None = None
    added: int = 0  #: number of nodes that an autoscaler has to add for it

    @property
    def survived(self) -> bool:
        """Return whether all pods that must run find a place."""
        return self.judged and not self.homeless

    @property
    def homeless_pods(self) -> int:
        """Return the number of homeless pods."""
        return sum(len(each.pods) for each in self.homeless)


class Losses:
    """Trials in which the nodes of one pool are lost, and their pods are scheduled again on what remains."""

    def __init__(
        self,
        shared: PlanningRound,
        trial: Trial,
        moved: Mapping[int, list[Pod]],
        preempted: AbstractSet[str],
        node_pods: NodePods,
        pools: Mapping[str, Rows],
        effort: Effort,
    ) -> None:
        """Set what plans have *moved*, by row, and the UIDs of pods that are *preempted* for it, in *trial*."""
        self._shared = shared
        self._snapshot = shared.snapshot
        self._filters = shared.room.filters
        self._trial = trial
        self._moved = moved
        self._node_pods = node_pods
        self._pools = pools
        self._effort = effort
        self._trusted = _trusted(shared)
        self._usable = places(shared)
        staying = np.flatnonzero(self._usable & shared.snapshot.nodes.alive).tolist()
        self._yielding = YieldingPods(shared.snapshot, staying, shared.policy)
        self._preempted = preempted
        self._pending = queue(shared.snapshot, shared.policy, shared.circumstances.left_pending)
        self._autoscaler = _autoscaler(shared)
        self._added = 0  #: nodes that it has to add for the loss that is judged
        self._pending_ports = sum(bool(pod.cls.ports) for pod in self._pending)
        self._unproved_pools = 0  #: how many have to be simulated: the one that is judged, and those after it

    def run(self, decisive: Sequence[str]) -> tuple[PoolLoss, ...]:
        """Judge each pool: by proof, or else by simulation.

        If there are *decisive* pools, judge only these, in order, up to the first one that is not survived.
        """
        pools = self._pools
        displaced = {name: self._displaced(rows) for name, rows in pools.items()}
        leaving = np.flatnonzero(self._snapshot.nodes.alive & self._trusted & ~self._usable)
        by_loss = [lost.by_class for lost in displaced.values()]
        requested = requested_by(by_loss, Counter(pod.cls for pod in self._pending), self._snapshot)
        rows, provable = tuple(pools.values()), self._node_pods.provable
        ample = Ample(self._snapshot, self._filters, self._usable, leaving, requested, rows, provable)
        losses = {
            name: Loss(number, rows, len(self._pending), displaced[name].with_ports + self._pending_ports)
            for number, (name, rows) in enumerate(pools.items())
        }
        judged = [name for name in decisive if name in displaced] or list(displaced)
        doubtful = self._doubtful(ample, [displaced[name] for name in judged])
        unproved = {name: self._unproved(ample, losses[name], displaced[name], doubtful) for name in judged}
        self._unproved_pools = sum(map(bool, unproved.values()))
        results = []
        for name in judged:
            lost = displaced[name]
            result = PoolLoss(name, len(pools[name]), lost.number, not_recreated=lost.not_recreated)
            if unproved[name] or lost.bound:
                result = self._simulated(result, losses[name], lost, unproved[name], ample)
                self._unproved_pools -= bool(unproved[name])
            results.append(result)
            if decisive and not result.survived:
                break
        return tuple(results)

    def _displaced(self, rows: Rows) -> Lost:
        names, shared, node_pods = self._snapshot.nodes.names, self._shared, self._node_pods
        on_nodes = [node_pods.of(names[row], shared) for row in rows.tolist()]
        on_nodes += [node_pods.moved(self._moved[row], shared) for row in rows.tolist() if row in self._moved]
        return Lost(on_nodes, node_pods.classes)

    def _doubtful(self, ample: Ample, displaced: Collection[Lost]) -> frozenset[PodClass]:
        """Return the classes of *displaced* pods of which it is not proved that they always find a place."""
        classes = frozenset[PodClass]().union(*(lost.by_class for lost in displaced))
        ports = max((lost.with_ports for lost in displaced), default=0) + self._pending_ports
        return frozenset(cls for cls in classes if not ample.fits_always(cls, len(self._pending), ports))

    def _unproved(self, ample: Ample, loss: Loss, lost: Lost, doubtful: frozenset[PodClass]) -> Collection[PodClass]:
        """Return the classes of lost pods of which it is not proved that they find a place."""
        if lost.unlike or any(affinity_terms(pod.cls).anti_affinity for pod in self._pending):
            return lost.by_class.keys()
        return frozenset(cls for cls in lost.by_class if cls in doubtful and not ample.fits(cls, loss))

    def _simulated(
        self, result: PoolLoss, loss: Loss, lost: Lost, unproved: Collection[PodClass], ample: Ample
    ) -> PoolLoss:
        """Simulate the scheduler after the loss, if it is not proved that all pods find a place.

        Pods that the scheduler does not place need no simulation. The trial is unchanged afterwards.
        """
        judged, stuck, self._added = True, list[tuple[Pod, str]](), 0
        few = [pod for pod in lost.pods if pod.cls in unproved]
        if few and not self._can_simulate(len(few), lost.number):
            judged = False
        elif few:
            mark = self._trial.savepoint()
            apart = self._take_away(loss.rows, few)
            if not (apart and self._fit_among_others(result.pool, few, ample, loss)):
                judged, stuck = self._stuck(result.pool, loss.rows, lost)
            self._trial.revert(mark)
        stuck = list({pod.key: (pod, why) for pod, why in (*stuck, *lost.bound)}.values())
        stuck += self._shared.gangs.stuck_with([pod for pod, _ in stuck], lost.pods)
        homeless = _by_controller(stuck)
        needed = self._needed(loss.rows, [pod for pod, _ in stuck]) if stuck else None
        added = 0 if stuck else self._added
        return replace(result, homeless=homeless, judged=judged or bool(stuck), needed=needed, added=added)

    def _can_simulate(self, few: int, lost: int) -> bool:
        """Return whether enough effort is left to place the *few* pods once, or all *lost* ones by first-fit."""
        pending = len(self._pending)
        return self._effort.affords(min(few + pending, (lost + pending) // _FIRST_FITS))

    def _take_away(self, rows: Rows, first: Sequence[Pod]) -> bool:
        """Take the nodes away. Return whether none of their other pods counts for the terms of the pods *first*."""
        keys = {pod.key for pod in first}
        lost = rows.tolist()
        for row in lost:
            self._remove(row, keys, members=True)
        lost_rows = frozenset(lost)
        classes = {pod.cls for pod in first}
        ties = [ties_of(cls, self._snapshot) for cls in classes]
        apart = all(
            each is not None and not any(lost_rows & counts.counter.rows.keys() for counts in each.all_counts)
            for each in ties
        )
        for row in lost:
            self._remove(row, keys, members=False)
            self._trial.lose(row)
        return apart

    def _remove(self, row: int, keys: Collection[str], *, members: bool) -> None:
        """Remove the pods of the node in *row* whose keys are in *keys*, or the others."""
        on_node = self._snapshot.pods_on[self._snapshot.nodes.names[row]]
        here = ((pod, key in keys) for key, pod in on_node.items() if pod.uid not in self._preempted)
        self._trial.evict(*(pod for pod, member in here if member is members))
        for pod in self._moved.get(row, ()):
            if (pod.key in keys) is members:
                self._trial.unplace(pod.cls, row)

    def _fit_among_others(self, pool: str, pods: Sequence[Pod], ample: Ample, loss: Loss) -> bool:
        """Return whether *pods* have so many places, in each play, that the other lost pods cannot take all of them.

        The other pods are not placed. Pending pods are treated like *pods*, or fit nowhere: one that fits, and that the
        others may keep out, may itself close nodes to *pods*.
        """
        doubtful = list[PodClass]()

        def has_place(pod: PodClass) -> bool:
            feasible = self._filters.feasible(pod)
            if ample.leaves_one(pod, feasible, loss):
                return True
            if (feasible & self._usable).any():
                doubtful.append(pod)
            return False

        waiting = self._waiting(pods)
        plays = self._plays(waiting)
        if not self._effort.affords(plays * len(waiting)):
            return False  # what is left may be enough for first-fit, or for a smaller pool
        for number in range(plays):
            self._effort.spend(len(waiting))
            mark, must_run = self._trial.savepoint(), {pod.key for pod in pods}
            rng = np.random.default_rng([zlib.crc32(pool.encode()), number])
            scheduler = self._scheduler(rng)
            arriving = self._arriving(waiting, number, rng, self._shared.room.sizes)
            left = self._play(arriving, scheduler, None, has_place)
            self._trial.revert(mark)
            if doubtful or any(pod.key in must_run for pod in left):
                return False
        return True

    def _stuck(self, pool: str, rows: Rows, lost: Lost) -> tuple[bool, list[tuple[Pod, str]]]:
        """Return whether the loss of *rows* was judged, and the pods without a place, each with the reason.

        First-fit is tried first: it is fast, and if it finds no place for some pods, spreading them does not either.
        """
        room = self._room()
        waiting = self._waiting(lost.pods)
        must_run = {pod.key for pod in lost.pods}
        if not self._effort.affords(len(waiting) // _FIRST_FITS):
            return False, []  # what is left may be enough for a smaller pool
        self._effort.spend(len(waiting) // _FIRST_FITS)
        mark = self._trial.savepoint()
        preempting = self._preempting(rows)
        left: Sequence[Pod] = [
            pod for pod in Packing(room, self._trial).first_fit(waiting) if not preempting.place(pod)
        ]
        stuck = [(pod, shortage(room, pod.cls)) for pod in left if pod.key in must_run]
        self._trial.revert(mark)
        if self._are_homeless(stuck):
            return True, stuck
        for number in range(self._plays(waiting)):
            if not self._effort.affords(len(waiting)):
                return False, []
            self._effort.spend(len(waiting))
            rng = np.random.default_rng([zlib.crc32(pool.encode()), number])
            arriving = self._arriving(waiting, number, rng, room.sizes)
            left = self._play(arriving, self._scheduler(rng), self._preempting(rows))
            stuck = [(pod, shortage(room, pod.cls)) for pod in left if pod.key in must_run]
            self._trial.revert(mark)
            if self._are_homeless(stuck):
                return True, stuck
        return True, []

    def _plays(self, waiting: Sequence[Pod]) -> int:
        """Return the number of simulations of a loss after which these pods wait for places."""
        pods = min(_PODS_IN_PLAYS, self._effort.left // max(1, self._unproved_pools))
        return max(_PLAYS, min(_MOST_PLAYS, pods // max(1, len(waiting))))

    def _waiting(self, lost: Iterable[Pod]) -> list[Pod]:
        """Return the pending pods and the *lost* ones in the order of the scheduler's queue.

        ``PrioritySort`` compares priorities, and then since when the pods are in the queue: pending ones are there
        before the lost ones are created again.
        """
        created = sorted(lost, key=lambda pod: (-_priority(pod), pod.key))
        return sorted((*self._pending, *created), key=lambda pod: -_priority(pod))

    def _arriving(self, waiting: Sequence[Pod], number: int, rng: np.random.Generator, sizes: Sizes) -> list[Pod]:
        """Return the *waiting* pods by priority. Equal ones are in order in the first play.

        In the second one the smallest come first: they take the nodes with the most room, which is the worst for the
        large ones. All other plays have random orders. In the second play and each third one after it, pending pods
        are among the lost ones: the scheduler has just tried them, and they are in its backoff queue. In all other
        plays they come before lost ones of equal priority.
        """
        arriving = list(waiting)
        if number == 1:
            arriving.sort(key=lambda pod: sizes.of(pod.cls))
        elif number > 1:
            arriving = [waiting[at] for at in rng.permutation(len(waiting))]
        first = frozenset[str]() if number % 3 == 1 else frozenset(pod.key for pod in self._pending)
        return sorted(arriving, key=lambda pod: (-_priority(pod), pod.key not in first))

    def _are_homeless(self, stuck: Sequence[tuple[Pod, str]]) -> bool:
        """Return whether the pods that find no place find none on nodes that an autoscaler adds, either."""
        if not stuck:
            return False
        needed = None if self._autoscaler is None else self._autoscaler.needed(pod.cls for pod, _ in stuck)
        self._added = max(self._added, needed or 0)
        return needed is None

    def _scheduler(self, rng: np.random.Generator) -> SimulatedScheduler:
        nodes = np.flatnonzero(self._snapshot.nodes.alive & self._trusted)
        return SimulatedScheduler(self._snapshot, self._filters, nodes, rng)

    def _preempting(self, lost: Rows) -> "_Preempting":
        """Return the preemption of one play, in which the nodes of the rows *lost* are gone."""
        return _Preempting(self._yielding, lost.tolist(), self._preempted, self._filters, self._trial)

    def _play(
        self,
        waiting: Sequence[Pod],
        scheduler: SimulatedScheduler,
        preempting: "_Preempting | None",
        has_place: Callable[[PodClass], bool] = lambda _: True,
    ) -> Sequence[Pod]:
        """Bind the *waiting* pods, those that do not fit again after the others. Return the pods without a place."""
        while waiting:
            left = []
            for pod in waiting:
                row = scheduler.choose(pod) if has_place(pod.cls) else None
                if row is None:
                    if preempting is None or not preempting.place(pod):
                        left.append(pod)
                elif not self._usable[row]:  # on a node that is about to go, it would not run for long
                    left.append(pod)
                else:
                    self._trial.place(pod.cls, row)
            if len(left) == len(waiting):
                break
            waiting = left
        return waiting

    def _room(self) -> Room:
        """Return the nodes that remain: spot nodes first, in the order of plans."""
        spot = self._shared.groups.spot.rows
        usable = self._usable & self._snapshot.nodes.alive
        others = usable.copy()
        others[spot] = False
        targets = Targets([*spot[usable[spot]].tolist(), *np.flatnonzero(others).tolist()])
        return Room(self._snapshot, self._filters, targets, Sizes(self._snapshot, targets), "remaining nodes")

    def _needed(self, rows: Rows, pods: Sequence[Pod]) -> Needed:
        table = self._snapshot.nodes
        request = np.sum([self._snapshot.vector(pod.cls.requests) for pod in pods], axis=0)
        largest = max(rows.tolist(), key=lambda row: (int(table.allocatable[row, CPU]), table.names[row]))
        amounts = table.allocatable[largest]
        columns = [CPU, MEMORY, PODS_COLUMN]
        nodes = max((-(-int(request[each]) // int(amounts[each])) for each in columns if amounts[each] > 0), default=1)
        return Needed(int(request[CPU]), int(request[MEMORY]), max(1, nodes), table.names[largest])


class _Preempting:
    """Places pods that no node accepts, in one play, where the scheduler preempts pods that yield their room.

    A class for which nothing was found is not tried again: what is placed afterwards leaves less room.
    """

    def __init__(
        self, yielding: YieldingPods, lost: Collection[int], gone: AbstractSet[str], filters: Filters, trial: Trial
    ) -> None:
        """Set the rows that are *lost*, and the UIDs of pods that are *gone* already in *trial*."""
        listed = yielding.by_row()
        self._yielding = yielding
        self._gone = {*gone, *(pod.uid for row in lost for pod in listed.get(row, ()))}
        self._filters = filters
        self._trial = trial
        self._hopeless: set[PodClass] = set()

    def place(self, pod: Pod) -> bool:
        """Place *pod* in the trial if the scheduler would preempt others for it. Return whether it did."""
        if pod.cls in self._hopeless or not self._yielding.by_row():
            return False
        found = preempt_for(pod, self._yielding, self._gone, self._filters, self._trial)
        if found is None:
            self._hopeless.add(pod.cls)
            return False
        row, victims = found
        self._gone |= {victim.uid for victim in victims}
        self._trial.place(pod.cls, row)
        return True


def places(shared: PlanningRound) -> Flags:
    """Return which nodes take pods after a loss: all that stay and are not about to be removed, of any label.

    Pools that lost nodes a short while ago do not count.
    """
    table, ending = shared.snapshot.nodes, shared.circumstances.ending | shared.circumstances.ordered
    usable = table.alive.copy()
    for row in np.flatnonzero(usable).tolist():
        node = table.nodes[row]
        usable[row] = node is not None and node.name not in ending and why_not_target(node) is None
    return usable & _trusted(shared)


def _trusted(shared: PlanningRound) -> Flags:
    """Return which nodes are of no pool that lost nodes a short while ago: its other nodes may follow."""
    table, settling = shared.snapshot.nodes, shared.circumstances.settling
    trusted = np.ones(len(table), np.bool_)
    if settling:
        pools = spot_pools(table, shared.groups.spot_rows, shared.policy.spot_pool_labels)
        for pool in settling:
            trusted[pools.rows_of(pool)] = False
    return trusted


def _autoscaler(shared: PlanningRound) -> AddedNodes | None:
    """Return the nodes that ``--fallback-nodes-per-minute`` promises; None if there are none like which they are."""
    snapshot, number = shared.snapshot, shared.policy.fallback_nodes_per_minute
    rows = [snapshot.nodes.row[name] for name in shared.groups.on_demand] if number else []
    nodes = ((row, snapshot.nodes.nodes[row]) for row in rows)
    staying = [row for row, node in nodes if node is not None and why_not_target(node) is None]
    found = sources(snapshot, staying, shared.circumstances.growth)
    return AddedNodes(snapshot, shared.room.filters, found, number) if found else None


def _priority(pod: Pod) -> int:
    return pod.cls.spec.priority or 0


def _by_controller(stuck: Iterable[tuple[Pod, str]]) -> tuple[Homeless, ...]:
    """Group the pods without a place by controller, the highest priority and then the most pods first."""
    groups: defaultdict[tuple[ControllerName, int], list[tuple[Pod, str]]] = defaultdict(list)
    for pod, why in stuck:
        groups[controller_of(pod), _priority(pod)].append((pod, why))
    homeless = (
        Homeless(controller, tuple(sorted(pod.key for pod, _ in pods)), priority, pods[0][1])
        for (controller, priority), pods in groups.items()
    )
    return tuple(sorted(homeless, key=lambda each: (-each.priority, -len(each.pods), each.controller)))
