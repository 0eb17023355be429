"""Simulations of a plan in which the scheduler's own scoring places the pods.

A plan proves that there is room. The scheduler is not aware of the plan: evicted pods are recreated in any order, each
is bound to the node with the best score, ties are broken at random, and spot nodes are not preferred to other nodes. So
a plan is simulated several times with different orders and random tie-breaking. The random seed depends on the node
only, so that the result is reproducible.
"""

import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from predicates.filters import Filters
from predicates.nodes import Flags
from predicates.objects import Pod, PodClass
from predicates.scores import totals
from predicates.scores.frame import ScoringRequest
from predicates.scores.pods import spreads_by_default
from predicates.snapshot import DRAIN_TAINT, Snapshot, Trial
from rescheduler.planning.forms import and_more
from rescheduler.planning.outcome import Blocker, Landing, Plan, Reason, Rejected, Verdict
from rescheduler.planning.placement.in_steps import Step, eviction_steps, order_matters
from rescheduler.planning.placement.packing import Effort
from rescheduler.planning.placement.preemption import YieldingPods, preempt_for
from rescheduler.planning.policy import Policy
from rescheduler.planning.pool_shares import Moved, PoolShares
from rescheduler.planning.replacements import Replacements

#: The assumed speed of simulations, in pods per second on few nodes, and the number of nodes that halves it.
_PODS_PER_SECOND: Final = 4_000
_NODES_FOR_TWICE: Final = 3_000

#: Limits of forecasts for plans that are only displayed: seconds, and nodes in the cluster.
_AHEAD: Final = 0.5
_NODES_TO_LOOK_AHEAD: Final = 1_500

#: A message names at most this many pods.
_NAMED: Final = 3

#: The number of simulations of each plan.
PLAYS: Final = 5

#: ``minFeasibleNodesToFind`` in ``schedule_one.go``: the scheduler scores at least this many feasible nodes.
_FEWEST_NODES: Final = 100
#: Of larger clusters it scores 50 - nodes / 125 percent, and never less than ``minFeasibleNodesPercentageToFind``.
_MOST_PERCENT, _NODES_A_PERCENT, _LEAST_PERCENT = 50, 125, 5


@dataclass(frozen=True, slots=True)
class Forecast:
    """The results of all plays. In the first play pods arrive in plan order, higher priorities first."""

    nodes: Mapping[str, str]  #: by pod key: its node in the first play, in the order of scheduling
    landing: Landing  #: of all plays on average, in whole pods; half a pod counts as one on a spot node
    returning: float  #: pods that returned to nodes that are not spot, on average of all plays
    stuck: Mapping[str, int]  #: by pod key: in how many plays no spot node accepted it
    returned: Mapping[str, int]  #: by pod key: in how many plays it returned to the drained node
    refused: Mapping[str, str]  #: by pod key, of those that are stuck: a node whose kubelet refused it in some play
    plays: int
    strayed: Mapping[str, str] = field(
        default_factory=dict
    )  #: by key: the node, of leftovers that land on none that stays

    @property
    def robust(self) -> bool:
        """Return whether spot nodes accepted every pod in every play: a drain fails if they do not accept the rest."""
        return not self.stuck


@dataclass(slots=True)
class _Play:
    """One simulation: the rows of the pods that the scheduler has bound, by key."""

    rows: dict[str, int] = field(default_factory=dict)
    without_spot: set[str] = field(default_factory=set)  #: of these, pods that no spot node accepted
    refused: dict[str, int] = field(default_factory=dict)  #: the rows of pods whose kubelet refused them, by key
    preempted: set[str] = field(default_factory=set)  #: UIDs of pods that were preempted

    def is_stuck(self, pod: Pod) -> bool:
        return pod.key not in self.rows or pod.key in self.without_spot


@dataclass(slots=True, eq=False)
class Forecaster:
    """Simulates plans on a snapshot. Open trials are not changed."""

    _snapshot: Snapshot
    _filters: Filters
    spot: Flags  #: one flag per row
    _replacements: Replacements
    shares: PoolShares
    _yielding: YieldingPods | None = None
    home: Callable[[PodClass], Flags] | None = None  #: where pods of a class are meant to land; None: on spot nodes
    _order: npt.NDArray[np.intp] = field(init=False)

    def __post_init__(self) -> None:
        self._order = np.flatnonzero(self._snapshot.nodes.alive)

    def _home(self, cls: PodClass) -> Flags:
        return self.spot if self.home is None else self.home(cls)

    def forecast(self, plan: Plan, *, until_stuck: bool = False, most_plays: int = PLAYS) -> Forecast:
        """Return the forecast of *plan*, which must match the current snapshot, including an open trial.

        With *until_stuck*, the simulation ends after the first play in which no spot node accepted a pod.
        """
        pods, plays = self._simulated(plan, most_plays, until_stuck=until_stuck)
        return self._summed_up(pods, plays, self._snapshot.nodes.row[plan.node])

    def outcomes(self, plan: Plan) -> list[dict[str, int]]:
        """Return where the pods of *plan* may land: for each different simulation, their rows by key."""
        _, plays = self._simulated(plan, PLAYS, until_stuck=False)
        return list({frozenset(play.rows.items()): play.rows for play in plays}.values())

    def _simulated(self, plan: Plan, most_plays: int, *, until_stuck: bool) -> tuple[list[Pod], list[_Play]]:
        """Return the new pods of *plan*, and its simulations."""
        running = self._running(plan)
        pods = [self._replacements.of(pod) for pod in running]
        groups = self._rolled_out(plan, pods)
        surging = {pod.uid for surge in plan.surges for pod in surge.pods}
        pods += [pod for group in groups for pod in group if pod.uid not in surging]
        in_steps = may_return(pods, self._filters) or order_matters(pods, self._filters)
        with self._snapshot.trial() as trial:
            trial.drain(self._snapshot.nodes.row[plan.node])
            if not in_steps:
                trial.evict(*(pod for pod in running if pod.uid not in surging))
            plays: list[_Play] = []
            for number in range(most_plays):
                plays.append(self._play(plan, number, pods, trial, groups, in_steps=in_steps))
                if until_stuck and any(map(plays[-1].is_stuck, pods)):
                    break
        return pods, plays

    def within_shares(self, plan: Plan, moved: Moved) -> Verdict:
        """Return *plan*, or a rejection if it would put too many replicas of a controller on one pool of spot nodes.

        The first play decides. It is simulated if the plan has no forecast. *moved* has the replicas that earlier plans
        move, as they are placed in the trial; those of this plan are added.
        """
        if not self.shares.concern(plan.node):
            return plan
        if self.shares.may_exceed(plan, moved):
            nodes = {str(placement.pod): placement.node for placement in plan.forecast}
            nodes = nodes or dict(self.forecast(plan, most_plays=1).nodes)
            if blockers := self.shares.blockers(plan, nodes, moved):
                return Rejected(plan.node, tuple(blockers))
        self.shares.take(plan, moved)
        return plan

    def returning(self, plan: Plan) -> Blocker | None:
        """Return a blocker if the scheduler may bind a pod of *plan* to the drained node again.

        That requires that the pod tolerates the taint. It is assumed to be the last one to move: the drained node is
        empty then, and often has the best score.
        """
        names = self._snapshot.nodes.row
        drained = names[plan.node]
        running = self._running(plan)
        pods = [self._replacements.of(pod) for pod in running]
        returning = []
        with self._snapshot.trial() as trial:
            trial.evict(*running)
            trial.drain(drained)
            for pod, placement in zip(pods, plan.placements, strict=True):
                trial.place(pod.cls, names[placement.node])
            scheduler = SimulatedScheduler(self._snapshot, self._filters, self._order, np.random.default_rng(0))
            for pod, placement in zip(pods, plan.placements, strict=True):
                if may_return([pod], self._filters):
                    trial.unplace(pod.cls, names[placement.node])
                    if drained in scheduler.best(pod):
                        returning.append(pod.key)
                    trial.place(pod.cls, names[placement.node])
        return _returning(plan, returning) if returning else None

    def best_rows(self, pod: Pod) -> list[int]:
        """Return the rows to which the scheduler may bind *pod* now: those with the best score."""
        return SimulatedScheduler(self._snapshot, self._filters, self._order, np.random.default_rng(0)).best(pod)

    def _running(self, plan: Plan) -> list[Pod]:
        return [self._snapshot.pods[str(placement.pod)] for placement in plan.placements]

    def effort(self, seconds: float) -> Effort:
        """Return how many pods can be simulated in about this many *seconds*, at least one."""
        pods = seconds * _PODS_PER_SECOND / (1 + len(self._order) / _NODES_FOR_TWICE)
        return Effort(max(1, int(pods)))

    def ahead(self) -> Effort:
        """Return how many pods may be simulated for plans that are only displayed; none in large clusters."""
        few = len(self._order) <= _NODES_TO_LOOK_AHEAD
        return self.effort(_AHEAD) if few else Effort(0)

    def _rolled_out(self, plan: Plan, pods: Sequence[Pod]) -> list[Step]:
        """Return the new pods of each roll-out of *plan*: those of *pods*, and one in place of each on another node."""
        by_uid = {pod.uid: pod for pod in pods}
        groups = []
        for surge in plan.surges:
            here = [by_uid[pod.uid] for pod in surge.pods]
            others = range(len(here), surge.restarts)
            added = (msgspec.structs.replace(here[0], name=f"{here[0].name} ({number})", uid="") for number in others)
            groups.append((*here, *added))
        return groups

    def _play(
        self, plan: Plan, number: int, pods: Sequence[Pod], trial: Trial, groups: Sequence[Step], *, in_steps: bool
    ) -> _Play:
        """Simulate the plan once, with the drain's own steps if *in_steps*. Otherwise the pods are already evicted.

        The pods that *groups* replace stay until all new ones of their group are scheduled.
        """
        rng = np.random.default_rng([zlib.crc32(plan.node.encode()), number])
        scheduler = SimulatedScheduler(self._snapshot, self._filters, self._order, rng)
        mark = trial.savepoint()
        play = _Play()
        if not in_steps:
            self._schedule(_in_order(pods, number, rng), scheduler, trial, play)
        rolled_out = {pod.key for group in groups for pod in group}
        for group in groups if in_steps else ():
            self._schedule(_in_order(group, number, rng), scheduler, trial, play)
            known = (self._snapshot.pods.get(pod.key) for pod in group)
            trial.evict(*(pod for pod in known if pod is not None))
        others = [pod for pod in pods if pod.key not in rolled_out]
        for step in _steps(plan, others) if in_steps else ():
            trial.evict(*(self._snapshot.pods[pod.key] for pod in step))
            self._schedule(_in_order(step, number, rng), scheduler, trial, play)
        trial.revert(mark)
        return play

    def _schedule(self, waiting: list[Pod], scheduler: "SimulatedScheduler", trial: Trial, play: _Play) -> None:
        """Bind the *waiting* pods. Pods that do not fit are tried again after the others, until no more of them fit."""
        refusable = self._filters.facts(Filters.refusable)
        while waiting:
            left = []
            for pod in waiting:
                if (row := scheduler.choose(pod)) is None and (row := self._preempt(pod, trial, play)) is None:
                    left.append(pod)
                    continue
                if refusable[pod.cls] and not self._filters.fits(pod.cls, row):
                    play.refused[pod.key] = row  # its controller creates the pod again, for the same node
                    continue
                home = self._home(pod.cls)
                if not home[row] and not (self._filters.feasible(pod.cls) & home).any():
                    play.without_spot.add(pod.key)
                trial.place(pod.cls, row)
                play.rows[pod.key] = row
            if len(left) == len(waiting):
                break
            waiting = left

    def _preempt(self, pod: Pod, trial: Trial, play: _Play) -> int | None:
        """Return the row for which the scheduler preempts pods that yield their room, or None. They leave it."""
        if self._yielding is None:
            return None
        found = preempt_for(pod, self._yielding, play.preempted, self._filters, trial)
        if found is None:
            return None
        row, victims = found
        play.preempted |= {victim.uid for victim in victims}
        return row

    def _summed_up(self, pods: Sequence[Pod], plays: Sequence[_Play], drained: int) -> Forecast:
        returned = {pod.key: sum(play.rows.get(pod.key) == drained for play in plays) for pod in pods}
        stuck = {pod.key: sum(play.is_stuck(pod) for play in plays) for pod in pods}
        homes = {pod.key: self._home(pod.cls) for pod in pods}
        leftovers = {key for key, home in homes.items() if home is not self.spot}
        away = [(key, row) for play in plays for key, row in play.rows.items() if not homes[key][row]]
        returning = len(away) / len(plays)
        at_home = sum(key in leftovers and bool(homes[key][row]) for key, row in plays[0].rows.items())
        scheduled, others = len(plays[0].rows) - at_home, math.ceil(returning - 0.5)
        names = self._snapshot.nodes.names
        return Forecast(
            nodes={key: names[row] for key, row in plays[0].rows.items()},
            landing=Landing(max(scheduled - others, 0), min(others, scheduled), at_home),
            returning=returning,
            stuck={key: times for key, times in stuck.items() if times},
            returned={key: times for key, times in returned.items() if times},
            refused={key: names[row] for play in plays for key, row in play.refused.items()},
            plays=len(plays),
            strayed={key: names[row] for key, row in away if key in leftovers},
        )


class SimulatedScheduler:
    """Simulates the scheduler for the pods of one play. It chooses among the rows *order*."""

    def __init__(
        self, snapshot: Snapshot, filters: Filters, order: npt.NDArray[np.intp], rng: np.random.Generator
    ) -> None:
        self._snapshot = snapshot
        self._filters = filters
        self._order = order
        self._rng = rng
        self._wanted = nodes_to_find(len(order))
        # The scheduler's position in its round-robin over the nodes (nextStartNodeIndex) is not known.
        self._start = int(rng.integers(len(order))) if self._wanted < len(order) else 0

    def choose(self, pod: Pod) -> int | None:
        """Return the row to which the scheduler would bind *pod* now, or None if no node is feasible."""
        best = self._best(pod, self._sample(self._feasible(pod)))
        if not len(best):
            return None
        return int(best[0] if len(best) == 1 else best[self._rng.integers(len(best))])

    def best(self, pod: Pod) -> list[int]:
        """Return the rows with the best score for *pod* among all feasible nodes."""
        rows: list[int] = self._best(pod, np.flatnonzero(self._feasible(pod))).tolist()
        return rows

    def _feasible(self, pod: Pod) -> Flags:
        return self._filters.of_scheduler(pod.cls).feasible(pod.cls)

    def _best(self, pod: Pod, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        if len(rows) <= 1:
            return rows
        scores = totals(ScoringRequest(self._snapshot, pod.cls, rows, spreads_by_default(pod)))
        best: npt.NDArray[np.intp] = rows[scores == scores.max()]
        return best

    def _sample(self, feasible: Flags) -> npt.NDArray[np.intp]:
        """Return the feasible nodes that the scheduler would find before it stops searching.

        The next search starts at the node after the last one that was checked.
        """
        positions = np.flatnonzero(feasible[self._order])
        if self._wanted >= len(self._order):
            return self._order[positions]
        behind = int(np.searchsorted(positions, self._start))
        positions = np.concatenate([positions[behind:], positions[:behind]])[: self._wanted]
        nodes = len(self._order)
        processed = (int(positions[-1]) - self._start) % nodes + 1 if len(positions) == self._wanted else nodes
        self._start = (self._start + processed) % nodes
        return self._order[positions]


def nodes_to_find(nodes: int) -> int:
    """Return the number of feasible nodes after which the scheduler stops searching (``numFeasibleNodesToFind``)."""
    if nodes < _FEWEST_NODES:
        return nodes
    percent = max(_LEAST_PERCENT, _MOST_PERCENT - nodes // _NODES_A_PERCENT)
    return max(_FEWEST_NODES, nodes * percent // 100)


def _steps(plan: Plan, pods: Sequence[Pod]) -> list[Step]:
    """Return the steps in which the drain evicts *pods*, in plan order."""
    return [(pod,) for pod in pods] if plan.one_by_one else eviction_steps(pods)


def _in_order(pods: Sequence[Pod], number: int, rng: np.random.Generator) -> list[Pod]:
    """Return the pods in the order of play *number*: higher priorities first, as in the scheduler's queue.

    Among equal priorities, play 0 uses plan order, play 1 the reverse, and later plays a random order.
    """
    arriving = list(pods) if number == 0 else list(reversed(pods))
    if number > 1:
        arriving = [pods[at] for at in rng.permutation(len(pods))]
    return sorted(arriving, key=lambda pod: -(pod.cls.spec.priority or 0))


def with_forecast(plan: Plan, forecast: Forecast) -> Plan:
    """Return *plan* with the results of *forecast*."""
    by_pod = {str(placement.pod): placement for placement in plan.placements}
    forecast_placements = (
        msgspec.structs.replace(by_pod[key], node=node) for key, node in forecast.nodes.items() if key in by_pod
    )
    return replace(plan, robust=forecast.robust, landing=forecast.landing, forecast=tuple(forecast_placements))


def objection(plan: Plan, forecast: Forecast, policy: Policy) -> Blocker | None:
    """Return a blocker if the *forecast* argues against executing *plan* although there is room, or None."""
    pods = len(plan.placements)
    if forecast.returned:
        return _returning(plan, list(forecast.returned))
    if forecast.strayed:
        key, node = min(forecast.strayed.items())
        detail = (
            f"it must not run on spot nodes, and the scheduler could place it on {node}, which is about to be emptied "
            "or does not accept it for good"
        )
        return Blocker(Reason.FRAGILE, detail, key)
    if forecast.refused and not policy.allow_fragile_plans:
        key, node = min(forecast.refused.items())
        detail = (
            f"the scheduler could place {len(forecast.refused)} of {pods} pods ({_named(forecast.stuck)}) on nodes "
            f"whose kubelet refuses them, such as {node}; a nodeSelector for nodes that can run them keeps them away"
        )
        return Blocker(Reason.FRAGILE, detail, key)
    if forecast.stuck and not policy.allow_fragile_plans:
        worst = max(forecast.stuck.values())
        detail = (
            f"the scheduler would probably choose other nodes than the plan: {len(forecast.stuck)} of {pods} pods "
            f"({_named(forecast.stuck)}) fit no spot node in up to {worst} of {forecast.plays} simulations"
        )
        return Blocker(Reason.FRAGILE, detail)
    if 2 * forecast.returning > pods and not policy.allow_returning_plans:
        detail = (
            f"{round(forecast.returning, 1):g} of {pods} pods would return to nodes that are not spot, on average of "
            f"{forecast.plays} simulations; "
            "a PreferNoSchedule taint on on-demand nodes (--manage-soft-taint) keeps them away"
        )
        return Blocker(Reason.RETURNS_TO_ON_DEMAND, detail)
    return None


def may_return(pods: Iterable[Pod], filters: Filters) -> bool:
    """Return whether any of *pods* may be bound to a drained node again.

    It tolerates the taint of drained nodes, or its profile does not check taints.
    """
    accepts = filters.facts(Filters.accepts_drained)
    return any(map(accepts.__getitem__, {pod.cls for pod in pods}))


def _returning(plan: Plan, pods: Sequence[str]) -> Blocker:
    others = and_more(len(pods) - 1, f" of {len(plan.placements)} pods", ", ")
    detail = (
        f"it tolerates the taint {DRAIN_TAINT.key} of drained nodes{others}: the scheduler could place it on this node "
        "again, which has the best score once it is empty"
    )
    return Blocker(Reason.RETURNS_TO_DRAINED, detail, pods[0])


def _named(pods: Mapping[str, int]) -> str:
    """Name the first few of *pods*, the most often unschedulable first."""
    names = sorted(pods, key=lambda key: (-pods[key], key))
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
