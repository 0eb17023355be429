"""The loss of one pool of spot nodes: whether its pods would run again on what remains. Pure.

Each pool is taken away in a trial of the state after a plan. Its nodes are gone, with their topology domains, and its
pods are created again as their controllers would create them. First it is tried to prove that all of them find a place
in whatever order and wherever the scheduler places them (:mod:`rescheduler.planning.placement.ample`). Otherwise the
scheduler is simulated: with its scoring, by priority, in several orders. A pod that has no place in any of them is
homeless.

Pods that end with their node (DaemonSet, mirror and expendable pods) need no place. Pods without a controller are lost
with their node whatever is free; they are counted apart. Pods do not preempt others: somebody else would be homeless.
"""

import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np

from predicates.filters import Targets
from predicates.indexes.terms import affinity_terms
from predicates.nodes import CPU, MEMORY, Flags, Numbers
from predicates.nodes import PODS as PODS_COLUMN
from predicates.objects import Pod, PodClass
from predicates.plugins.pods import ties_of
from predicates.snapshot import Snapshot, Trial
from rescheduler.planning.controllers import ControllerName, controller_of
from rescheduler.planning.pending import queue
from rescheduler.planning.placement.added_nodes import AddedNodes, sources
from rescheduler.planning.placement.ample import Ample, Loss, Provable, Rows
from rescheduler.planning.placement.forecast import SimulatedScheduler
from rescheduler.planning.placement.packing import Effort, Packing, Room, Sizes, shortage
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.pools import spot_pools
from rescheduler.planning.replacements import ADMISSION, TEMPLATED
from rescheduler.planning.rules.candidates import node_blockers, why_not_target
from rescheduler.planning.rules.minimum import keeps_pods
from rescheduler.planning.rules.pod_traits import ends_with_node, is_expendable

#: The fewest and the most simulations of a loss that is not proved to be survived. An order of pods in which one
#: has no place may be rare. So a loss of few pods is simulated more often: all simulations place about so many pods.
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


@dataclass(frozen=True, eq=False)
class _Displaced:
    """The pods of one node, or of all lost nodes."""

    pods: tuple[Pod, ...]  #: those that must run again, as their controllers create them
    not_recreated: tuple[str, ...]  #: keys of those without a controller
    bound: tuple[tuple[Pod, str], ...]  #: those that the scheduler cannot place, and why
    requested: Numbers  #: by the pods together, as a row of the node table; columns that were added later are 0
    unlike: bool = False  #: whether any is created with other labels or rules about other pods
    expendable: tuple[PodClass, ...] = ()  #: those of pods that the scheduler preempts for any of the others
    sources: tuple[Pod, ...] = ()  #: the running pods that *pods* replace

    @cached_property
    def classes(self) -> frozenset[PodClass]:
        """The classes of the pods."""
        return frozenset([pod.cls for pod in self.pods])

    @cached_property
    def with_ports(self) -> int:
        """The number of pods with host ports."""
        return len([pod for pod in self.pods if pod.cls.ports])


_NOTHING: Final = _Displaced((), (), (), np.zeros(0, np.int64))


class NodePods:
    """The pods that must run again if their node is lost, by node. They are kept while the pods of a node are equal."""

    def __init__(self) -> None:
        self.provable = Provable()
        self._by_node: dict[str, tuple[int, _Displaced]] = {}
        self._valid_for: object = None
        self._empty: tuple[PlanningRound | None, frozenset[str]] = None, frozenset()

    def missing_on(self, shared: PlanningRound) -> frozenset[str]:
        """Return the on-demand nodes without pods that nothing keeps: an autoscaler may remove them at any time."""
        if self._empty[0] is not shared:
            self._empty = shared, frozenset(_empty_nodes(shared))
        return self._empty[1]

    def of(self, node: str, shared: PlanningRound) -> _Displaced:
        """Return the pods of *node* in the snapshot of *shared*."""
        snapshot = shared.snapshot
        versions = tuple(snapshot.versions[kind] for kind in (*TEMPLATED, *ADMISSION, "PodGroup", "LeaderWorkerSet"))
        valid_for = (*versions, snapshot.generation, shared.policy.expendable_pods_priority_cutoff)
        if valid_for != self._valid_for:
            self._valid_for = valid_for
            self._by_node.clear()
        changed = max(snapshot.placed_on.get(node, 0), snapshot.edited_on.get(node, 0))
        known = self._by_node.get(node)
        if known is None or known[0] < changed:
            before = _NOTHING if known is None else known[1]
            known = self._by_node[node] = snapshot.changes, _displaced(node, shared, before)
        return known[1]


def _empty_nodes(shared: PlanningRound) -> Iterator[str]:
    table, pods_on = shared.snapshot.nodes, shared.snapshot.pods_on
    for name in shared.groups.on_demand:
        node = table.nodes[table.row[name]]
        if node is not None and not keeps_pods(pods_on[name].values()):
            control_plane = name in shared.groups.control_plane
            if not node_blockers(node, shared.policy, shared.circumstances, empty=True, control_plane=control_plane):
                yield name


def _displaced(node: str, shared: PlanningRound, before: _Displaced) -> _Displaced:
    """Return the pods of *node*. Those that it has had *before* are not looked at again."""
    policy = shared.policy
    known = dict(zip(map(id, before.sources), before.pods, strict=True))
    sources, pods, fresh = list[Pod](), list[Pod](), list[Pod]()
    expendable: list[PodClass] = []
    not_recreated, unlike = list[str](), False
    for pod in shared.snapshot.pods_on[node].values():
        if (new := known.pop(id(pod), None)) is None:
            if pod.cls.terminating:
                continue
            if ends_with_node(pod, policy):
                if is_expendable(pod.cls, policy.expendable_pods_priority_cutoff):
                    expendable.append(pod.cls)
                continue
            if pod.owner is None:
                not_recreated.append(pod.key)
                continue
            new = shared.replacements.of(pod)
            fresh.append(new)
        unlike = unlike or (new is not pod and _is_unlike(pod, new))
        sources.append(pod)
        pods.append(new)
    gone = frozenset(map(id, known.values()))  # what is left of it
    bound = (*(each for each in before.bound if id(each[0]) not in gone), *_bound(fresh, shared))
    requested = _requested(fresh, shared.snapshot)
    requested += _sum([before.requested], len(requested)) - _sum(
        (shared.snapshot.vector(pod.cls.requests) for pod in known.values()), len(requested)
    )
    return _Displaced(tuple(pods), tuple(not_recreated), bound, requested, unlike, tuple(expendable), tuple(sources))


def _bound(pods: Sequence[Pod], shared: PlanningRound) -> Iterator[tuple[Pod, str]]:
    """Yield the pods that the scheduler does not place, or not by the rules that are known, and why."""
    by_key = {pod.key: pod for pod in pods}
    for blocker in (*shared.replacements.blockers(pods), *shared.gangs.unbindable(pods)):
        if blocker.pod is not None:
            yield by_key[blocker.pod], blocker.detail


class _Lost:
    """The pods of the nodes that are lost together."""

    def __init__(self, on_nodes: Sequence[_Displaced]) -> None:
        self.on_nodes = on_nodes
        self.number = sum(len(each.pods) for each in on_nodes)
        self.not_recreated = tuple(sorted(chain.from_iterable(each.not_recreated for each in on_nodes)))
        self.bound = tuple(chain.from_iterable(each.bound for each in on_nodes))
        self.unlike = any(each.unlike for each in on_nodes)
        self.with_ports = sum(each.with_ports for each in on_nodes)

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """All pods."""
        return tuple(chain.from_iterable(each.pods for each in self.on_nodes))

    @cached_property
    def classes(self) -> frozenset[PodClass]:
        """The classes of all pods."""
        return frozenset[PodClass]().union(*(each.classes for each in self.on_nodes))


def _requested(pods: Iterable[Pod], snapshot: Snapshot) -> Numbers:
    vectors = [snapshot.vector(pod.cls.requests) for pod in pods]  # may add columns to the node table
    return _sum(vectors, len(snapshot.nodes.resources))


def _sum(vectors: Iterable[Numbers], width: int) -> Numbers:
    """Sum up rows of the node table, the first columns of which were made before others were added."""
    rows = [vector if len(vector) == width else np.pad(vector, (0, width - len(vector))) for vector in vectors]
    total: Numbers = np.add.reduce(rows) if rows else np.zeros(width, np.int64)
    return total


class Losses:
    """Trials in which the nodes of one pool are lost, and their pods are scheduled again on what remains."""

    def __init__(
        self,
        shared: PlanningRound,
        trial: Trial,
        moved: Mapping[int, list[Pod]],
        node_pods: NodePods,
        pools: Mapping[str, Rows],
        effort: Effort,
    ) -> None:
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
        self._pending = queue(shared.snapshot, shared.policy, shared.circumstances)
        self._autoscaler = _autoscaler(shared)
        self._added = 0  #: nodes that it has to add for the loss that is judged
        self._pending_ports = sum(bool(pod.cls.ports) for pod in self._pending)

    def run(self, decisive: Sequence[str]) -> tuple[PoolLoss, ...]:
        """Judge each pool: by proof, or else by simulation.

        If there are *decisive* pools, judge only these, in order, up to the first one that is not survived.
        """
        pools = self._pools
        displaced = {name: self._displaced(rows) for name, rows in pools.items()}
        most = self._most(displaced.values())
        leaving = np.flatnonzero(self._snapshot.nodes.alive & self._trusted & ~self._usable)
        rows, provable = tuple(pools.values()), self._node_pods.provable
        ample = Ample(self._snapshot, self._filters, self._usable, leaving, most, rows, provable)
        doubtful = self._doubtful(ample, displaced.values())
        results = []
        for name in [name for name in decisive if name in displaced] or displaced:
            lost = displaced[name]
            result = PoolLoss(name, len(pools[name]), lost.number, not_recreated=lost.not_recreated)
            unproved = self._unproved(ample, pools[name], lost, doubtful)
            if unproved or lost.bound:
                result = self._simulated(result, pools[name], lost, unproved, ample)
            results.append(result)
            if decisive and not result.survived:
                break
        return tuple(results)

    def _displaced(self, rows: Rows) -> _Lost:
        names = self._snapshot.nodes.names
        on_nodes = [self._node_pods.of(names[row], self._shared) for row in rows.tolist()]
        moved = [pod for row in rows.tolist() for pod in self._moved.get(row, ())] if self._moved else []
        owned = tuple(pod for pod in moved if pod.owner is not None)
        if moved:
            alone = tuple(pod.key for pod in moved if pod.owner is None)
            bound, requested = tuple(_bound(owned, self._shared)), _requested(owned, self._snapshot)
            on_nodes.append(_Displaced(owned, alone, bound, requested))
        return _Lost(on_nodes)

    def _most(self, displaced: Iterable[_Lost]) -> Numbers:
        """Return at least what the pods of any pool request together, with the pending pods."""
        vector = self._snapshot.vector
        pending = [vector(pod.cls.requests) for pod in self._pending]
        width = len(self._snapshot.nodes.resources)
        by_pool = [_sum((each.requested for each in lost.on_nodes), width) for lost in displaced]
        return np.max(by_pool, axis=0, initial=0) + _sum(pending, width) if by_pool else _sum(pending, width)

    def _doubtful(self, ample: Ample, displaced: Iterable[_Lost]) -> frozenset[PodClass]:
        """Return the classes of which it is not proved that they find a place whichever pool is lost."""
        displaced = list(displaced)
        classes = frozenset[PodClass]().union(*(each.classes for lost in displaced for each in lost.on_nodes))
        ports = max((lost.with_ports for lost in displaced), default=0) + self._pending_ports
        return frozenset(cls for cls in classes if not ample.fits_always(cls, len(self._pending), ports))

    def _unproved(self, ample: Ample, rows: Rows, lost: _Lost, doubtful: frozenset[PodClass]) -> frozenset[PodClass]:
        """Return the classes of lost pods of which it is not proved that they find a place."""
        if lost.unlike or any(affinity_terms(pod.cls).anti_affinity for pod in self._pending):
            return lost.classes
        if not (classes := lost.classes & doubtful if doubtful else doubtful):
            return classes
        loss = Loss(rows, frozenset(rows.tolist()), len(self._pending), lost.with_ports + self._pending_ports)
        return frozenset(cls for cls in classes if not ample.fits(cls, loss))

    def _simulated(
        self, result: PoolLoss, rows: Rows, lost: _Lost, unproved: frozenset[PodClass], ample: Ample
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
            apart = self._take_away(rows, few)
            if not (apart and self._fit_among_others(result.pool, few, ample)):
                judged, stuck = self._stuck(result.pool, lost)
            self._trial.revert(mark)
        stuck = list({pod.key: (pod, why) for pod, why in (*stuck, *lost.bound)}.values())
        stuck += self._shared.gangs.stuck_with([pod for pod, _ in stuck], lost.pods)
        homeless = _by_controller(stuck)
        needed = self._needed(rows, [pod for pod, _ in stuck]) if stuck else None
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
        self._trial.evict(*(pod for key, pod in on_node.items() if (key in keys) is members))
        for pod in self._moved.get(row, ()):
            if (pod.key in keys) is members:
                self._trial.unplace(pod.cls, row)

    def _fit_among_others(self, pool: str, pods: Sequence[Pod], ample: Ample) -> bool:
        """Return whether *pods* have so many places, in each play, that the other lost pods cannot take all of them.

        The other pods are not placed. Pending pods are treated like *pods*, or fit nowhere: one that fits, and that the
        others may keep out, may itself close nodes to *pods*.
        """
        doubtful = list[PodClass]()

        def has_place(pod: PodClass) -> bool:
            feasible = self._filters.feasible(pod)
            if ample.leaves_one(pod, feasible):
                return True
            if (feasible & self._usable).any():
                doubtful.append(pod)
            return False

        waiting = self._waiting(pods)
        for number in range(_plays(waiting)):
            if not self._effort.affords(len(waiting)):
                return False  # what is left may be enough for first-fit, or for a smaller pool
            self._effort.spend(len(waiting))
            mark, must_run = self._trial.savepoint(), {pod.key for pod in pods}
            rng = np.random.default_rng([zlib.crc32(pool.encode()), number])
            scheduler = self._scheduler(rng)
            arriving = self._arriving(waiting, number, rng, self._shared.room.sizes)
            left = self._play(arriving, scheduler, has_place)
            self._trial.revert(mark)
            if doubtful or any(pod.key in must_run for pod in left):
                return False
        return True

    def _stuck(self, pool: str, lost: _Lost) -> tuple[bool, list[tuple[Pod, str]]]:
        """Return whether the loss was judged, and the pods without a place, each with the reason.

        First-fit is tried first: it is fast, and if it finds no place for some pods, spreading them does not either.
        """
        room = self._room()
        waiting = self._waiting(lost.pods)
        must_run = {pod.key for pod in lost.pods}
        if not self._effort.spend(len(waiting) // _FIRST_FITS):
            return False, []
        mark = self._trial.savepoint()
        left: Sequence[Pod] = Packing(room, self._trial).first_fit(waiting)
        stuck = [(pod, shortage(room, pod.cls)) for pod in left if pod.key in must_run]
        self._trial.revert(mark)
        if self._are_homeless(stuck):
            return True, stuck
        for number in range(_plays(waiting)):
            if not self._effort.spend(len(waiting)):
                return False, []
            rng = np.random.default_rng([zlib.crc32(pool.encode()), number])
            left = self._play(self._arriving(waiting, number, rng, room.sizes), self._scheduler(rng))
            stuck = [(pod, shortage(room, pod.cls)) for pod in left if pod.key in must_run]
            self._trial.revert(mark)
            if self._are_homeless(stuck):
                return True, stuck
        return True, []

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

    def _play(
        self,
        waiting: Sequence[Pod],
        scheduler: SimulatedScheduler,
        has_place: Callable[[PodClass], bool] = lambda _: True,
    ) -> Sequence[Pod]:
        """Bind the *waiting* pods, those that do not fit again after the others. Return the pods without a place."""
        while waiting:
            left = []
            for pod in waiting:
                row = scheduler.choose(pod) if has_place(pod.cls) else None
                if row is None or not self._usable[row]:  # on a node that is about to go, it would not run for long
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


def _is_unlike(pod: Pod, new: Pod) -> bool:
    """Return whether the replacement differs from *pod* in what concerns other pods."""
    spec, before = new.cls.spec, pod.cls.spec
    rules = spec.affinity, spec.topology_spread_constraints
    return new.cls.labels != pod.cls.labels or rules != (before.affinity, before.topology_spread_constraints)


def _plays(waiting: Sequence[Pod]) -> int:
    """Return the number of simulations of a loss after which these pods wait for places."""
    return max(_PLAYS, min(_MOST_PLAYS, _PODS_IN_PLAYS // max(1, len(waiting))))


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
