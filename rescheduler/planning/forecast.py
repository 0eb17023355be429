"""What would become of a plan: its pods placed by the scheduler's own scoring instead of by us.

A plan says that there is room. The scheduler does not know the plan: evicted pods come back in any order, each goes
to the best node by score, ties fall anyhow, and nodes that are not spot are as good to it as spot. So a plan is played
through several times, in several orders and with the dice thrown in several ways, always the same for the same node.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from predicates.filters import Filters
from predicates.nodes import Flags
from predicates.objects import Pod
from predicates.scores import totals
from predicates.scores.frame import ScoringRequest
from predicates.scores.pod_topology_spread import default_spread_selector
from predicates.snapshot import Snapshot, Trial
from rescheduler.planning.outcome import Blocker, Landing, Plan, Reason
from rescheduler.planning.packing import Effort

#: How many pods a second of planning is taken to play through on few nodes, and how many nodes make it half of them.
_PODS_PER_SECOND: Final = 4_000
_NODES_FOR_TWICE: Final = 3_000

#: Seconds that may be spent on forecasts of plans that are shown, not carried out, and on how many nodes at most.
_AHEAD: Final = 0.5
_NODES_TO_LOOK_AHEAD: Final = 1_500

#: How many pods a detail names.
_NAMED: Final = 3

#: How many times a plan is played through.
PLAYS: Final = 5

#: The scheduler looks at so many nodes at least before it takes the best (``schedule_one.go``) …
_FEWEST_NODES: Final = 100
#: … of more, at 50 % less one for each 125, and at 5 % at least.
_MOST_PERCENT, _NODES_A_PERCENT, _LEAST_PERCENT = 50, 125, 5


@dataclass(frozen=True, slots=True)
class Forecast:
    """How the plays went. In the first, pods arrive in the plan's order, those of higher priority first."""

    nodes: Mapping[str, str]  #: by pod key, where it went in the first play, in the order of arriving
    landing: Landing  #: of the first play
    returning: int  #: how many pods went back to nodes that are not spot in the play with the fewest
    stuck: Mapping[str, int]  #: by pod key, in how many plays it found no place
    plays: int

    @property
    def robust(self) -> bool:
        """Every pod found a place in every play."""
        return not self.stuck


class Forecaster:
    """Plays plans through on *snapshot*; *spot* has a flag a row. Leaves trials as it finds them."""

    def __init__(self, snapshot: Snapshot, filters: Filters, spot: Flags) -> None:
        self._snapshot = snapshot
        self._filters = filters
        self._spot = spot
        self._order = np.flatnonzero(snapshot.nodes.alive)

    def forecast(self, plan: Plan) -> Forecast:
        """What becomes of *plan*, which was made of the snapshot as it is, trial under way included."""
        pods = [self._snapshot.pods[str(one.pod)] for one in plan.placements]
        with self._snapshot.trial() as trial:
            trial.evict(*pods)
            trial.drain(self._snapshot.nodes.row[plan.node])
            seen = [self._play(plan.node, number, pods, trial) for number in range(PLAYS)]
        return self._summed_up(pods, seen)

    def effort(self, seconds: float) -> Effort:
        """How many pods may be played through in about so many *seconds*, one at least."""
        pods = seconds * _PODS_PER_SECOND / (1 + len(self._order) / _NODES_FOR_TWICE)
        return Effort(max(1, int(pods)))

    def ahead(self) -> Effort:
        """How many pods may be played through for people who look ahead; none where it would be noticed."""
        few = len(self._order) <= _NODES_TO_LOOK_AHEAD
        return self.effort(_AHEAD) if few else Effort(0)

    def _play(self, node: str, number: int, pods: Sequence[Pod], trial: Trial) -> dict[str, int]:
        """One play: pods that find no place wait for the others and try again, as long as that helps."""
        dice = np.random.default_rng([zlib.crc32(node.encode()), number])
        arrivals = Arrivals(self._snapshot, self._filters, self._order, dice)
        mark = trial.savepoint()
        waiting, rows = _in_order(pods, number, dice), dict[str, int]()
        while waiting:
            left = []
            for pod in waiting:
                if (row := arrivals.choose(pod)) is None:
                    left.append(pod)
                else:
                    trial.place(pod.cls, row)
                    rows[pod.key] = row
            if len(left) == len(waiting):
                break
            waiting = left
        trial.revert(mark)
        return rows

    def _summed_up(self, pods: Sequence[Pod], seen: Sequence[Mapping[str, int]]) -> Forecast:
        stuck = {pod.key: sum(pod.key not in rows for rows in seen) for pod in pods}
        landings = [self._landing(rows) for rows in seen]
        names = self._snapshot.nodes.names
        return Forecast(
            nodes={key: names[row] for key, row in seen[0].items()},
            landing=landings[0],
            returning=min(one.on_demand for one in landings),
            stuck={key: times for key, times in stuck.items() if times},
            plays=len(seen),
        )

    def _landing(self, rows: Mapping[str, int]) -> Landing:
        spot = sum(bool(self._spot[row]) for row in rows.values())
        return Landing(spot, len(rows) - spot)


class Arrivals:
    """The scheduler, for the pods of one play."""

    def __init__(
        self, snapshot: Snapshot, filters: Filters, order: npt.NDArray[np.intp], dice: np.random.Generator
    ) -> None:
        self._snapshot = snapshot
        self._filters = filters
        self._order = order
        self._dice = dice
        self._wanted = nodes_to_find(len(order))
        # Where the scheduler's search for nodes stands when the first pod arrives, nobody knows.
        self._start = int(dice.integers(len(order))) if self._wanted < len(order) else 0

    def choose(self, pod: Pod) -> int | None:
        """Where the scheduler would put *pod* as things are; None where no node takes it."""
        rows = self._sample(self._filters.feasible(pod.cls))
        if not len(rows):
            return None
        if len(rows) == 1:
            return int(rows[0])
        scores = totals(ScoringRequest(self._snapshot, pod.cls, rows, default_spread_selector(pod)))
        best = rows[scores == scores.max()]
        return int(best[self._dice.integers(len(best))])

    def _sample(self, feasible: Flags) -> npt.NDArray[np.intp]:
        """The nodes that the scheduler would find before it stops looking; the next search goes on from there."""
        if self._wanted >= len(self._order):
            return np.flatnonzero(feasible)
        turned = np.roll(self._order, -self._start)
        found = np.flatnonzero(feasible[turned])[: self._wanted]
        looked_at = int(found[-1]) + 1 if len(found) == self._wanted else len(turned)
        self._start = (self._start + looked_at) % len(turned)
        return turned[found]


def nodes_to_find(nodes: int) -> int:
    """How many nodes that take a pod the scheduler looks for among so many (``numFeasibleNodesToFind``)."""
    if nodes < _FEWEST_NODES:
        return nodes
    percent = max(_LEAST_PERCENT, _MOST_PERCENT - nodes // _NODES_A_PERCENT)
    return max(_FEWEST_NODES, nodes * percent // 100)


def _in_order(pods: Sequence[Pod], number: int, dice: np.random.Generator) -> list[Pod]:
    """Higher priorities first, as in the scheduler's queue; alike, as planned, the other way round, then anyhow."""
    arriving = list(pods) if number == 0 else list(reversed(pods))
    if number > 1:
        arriving = [pods[at] for at in dice.permutation(len(pods))]
    return sorted(arriving, key=lambda pod: -(pod.cls.spec.priority or 0))


def foretold(plan: Plan, forecast: Forecast) -> Plan:
    """*plan* with what the forecast says of it."""
    of = {str(one.pod): one for one in plan.placements}
    went = (msgspec.structs.replace(of[key], node=node) for key, node in forecast.nodes.items())
    return replace(plan, robust=forecast.robust, landing=forecast.landing, forecast=tuple(went))


def objection(plan: Plan, forecast: Forecast, *, allow_fragile: bool, allow_returning: bool = False) -> Blocker | None:
    """Why *plan* is better not carried out although there is room, None where nothing speaks against it."""
    pods = len(plan.placements)
    if forecast.stuck and not allow_fragile:
        worst = max(forecast.stuck.values())
        detail = (
            f"the scheduler would not choose the nodes that the plan counts on: {len(forecast.stuck)} of {pods} pods "
            f"({_named(forecast.stuck)}) found no place in up to {worst} of {forecast.plays} play-throughs"
        )
        return Blocker(Reason.FRAGILE, detail)
    if 2 * forecast.returning > pods and not allow_returning:
        detail = (
            f"at least {forecast.returning} of {pods} pods would go back to nodes that are not spot; "
            "a PreferNoSchedule taint on on-demand nodes (--manage-soft-taint) keeps them away"
        )
        return Blocker(Reason.RETURNS_TO_ON_DEMAND, detail)
    return None


def _named(pods: Mapping[str, int]) -> str:
    """The first few of *pods*, those most often stuck first."""
    names = sorted(pods, key=lambda key: (-pods[key], key))
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
