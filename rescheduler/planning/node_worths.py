"""What the on-demand nodes of a round are worth for the moves of their pods, before it is known where these go.

The scheduler decides where a pod goes. So the mean over the spot nodes that could ever run it counts: of its share of
their prices, and of the hazards of their pools. A node has one worth in a round, whichever nodes are drained before.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.filters import Filters
from predicates.local_results import States, remaining
from predicates.objects import Pod, PodClass
from predicates.snapshot import Snapshot
from rescheduler.planning.controllers import controller_of
from rescheduler.planning.money.move_costs import MoveWorth, annotated_cost, own_factor, owner_factor
from rescheduler.planning.money.prices import HOURS_PER_MONTH, node_facts
from rescheduler.planning.money.worth import covered
from rescheduler.planning.policy import Circumstances
from rescheduler.planning.pools import pool_of
from rescheduler.planning.rules.minimum import OwnerCounts

#: The rows of the spot nodes that accept pods; their CPU, memory, prices per hour (NaN: not known) and hazards.
_Spot: TypeAlias = tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]

#: Of the spot nodes that could run a pod: the factor of their hazard, as a pod that is interrupted moves twice, and its
#: share of their prices per hour; NaN if it is not known.
_Place: TypeAlias = tuple[float, float]


@dataclass(slots=True)
class NodeWorths:
    """The worths of the nodes of *snapshot*. Valid until the ground of planning changes."""

    snapshot: Snapshot
    filters: Filters
    targets: npt.NDArray[np.intp]  #: rows of the spot nodes that accept pods
    counts: OwnerCounts
    circumstances: Circumstances
    pool_labels: Sequence[str]
    _parts: Mapping[str, Decimal] = field(default_factory=dict)  #: of the prices of nodes that commitments pay
    _spot: _Spot | None = None  #: None: not known yet
    _places: dict[tuple[States, int, int], _Place] = field(default_factory=dict)
    #: By node and the part that commitments pay: the last changes of its pods, and its worth.
    _known: dict[tuple[str, Decimal], tuple[object, MoveWorth]] = field(default_factory=dict)

    def cover(self, names: Iterable[str]) -> Mapping[str, Decimal]:
        """Return the part of each node that commitments pay from now on. Of *names*, the last ones are paid first."""
        nodes = [node_facts(self.snapshot, name, spot=False) for name in names]
        self._parts = covered(reversed(nodes), self.circumstances.prices, self.circumstances.now.date())
        return self._parts

    def paid(self, node: str) -> Decimal:
        """Return the part of the price of *node* that commitments pay."""
        return self._parts.get(node, _NOTHING)

    def of(
        self, node: str, pods: Callable[[str], Iterable[Pod]], *, unpaid: bool = False, given: Sequence[Pod] = ()
    ) -> MoveWorth:
        """Return the worth of *node*; if it is *unpaid*, as if there were no commitments.

        *pods* returns the pods that must move from it; those *given* move before.
        """
        key = node, _NOTHING if unpaid else self.paid(node)
        if given:
            return self._computed(node, [*pods(node), *given], key[1])
        change = self.snapshot.placed_on.get(node, 0), self.snapshot.edited_on.get(node, 0)
        known = self._known.get(key)
        if known is None or known[0] != change:
            known = self._known[key] = change, self._computed(node, list(pods(node)), key[1])
        return known[1]

    def cost(self, pods: Iterable[Pod]) -> float:
        """Return what it costs to move *pods*."""
        return sum(map(self._cost, pods))

    def share(self, pods: Iterable[Pod]) -> float:
        """Return the mean share of *pods* of the prices of spot nodes per hour; 0 if it is not known."""
        share = sum(self._place(pod.cls)[1] for pod in pods)
        return 0.0 if np.isnan(share) else share

    def _computed(self, node: str, pods: Sequence[Pod], part: Decimal) -> MoveWorth:
        cost = self.cost(pods)
        price = self.circumstances.prices.per_hour(node_facts(self.snapshot, node, spot=False))
        if price is None:
            return MoveWorth(len(pods), cost, None)
        net = float(price * (1 - part)) - self.share(pods)
        return MoveWorth(len(pods), cost, max(net, 0.0) * HOURS_PER_MONTH)

    def _cost(self, pod: Pod) -> float:
        stated = annotated_cost(pod.annotations) if pod.annotations else 0
        return own_factor(stated, pod.cls.spec.priority or 0) * self._place(pod.cls)[0] * self._of_owner(pod)

    def _place(self, cls: PodClass) -> _Place:
        amounts = dict(cls.requests)
        key = self.filters.of_nodes(cls), amounts.get("cpu", 0), amounts.get("memory", 0)
        if (known := self._places.get(key)) is None:
            known = self._places[key] = self._mean(*key)
        return known

    def _mean(self, states: States, cpu: int, memory: int) -> _Place:
        """Return the mean of the spot nodes. A pod that none could run goes to a node that stays at no further cost."""
        self._spot = self._spot or self._spot_nodes()
        rows, (cpus, memories, prices, hazards) = self._spot
        shares = np.maximum(cpu / cpus, memory / memories)
        accepting = np.isin(rows, remaining(states, self.snapshot, rows)) & (shares <= 1)
        if not accepting.any():
            return 1.0, 0.0
        costs = (prices * shares)[accepting & ~np.isnan(prices)]
        return 1 + float(hazards[accepting].mean()), float(costs.mean()) if len(costs) else np.nan

    def _of_owner(self, pod: Pod) -> float:
        name, history = controller_of(pod).text, self.circumstances.history
        replicas = self.counts.replicas(pod) if pod.owner is not None else 1
        return owner_factor(history.ready.get(name), history.moved.get(name, 0), replicas)

    def _spot_nodes(self) -> _Spot:
        table, rows = self.snapshot.nodes, np.sort(self.targets)
        nodes = [node_facts(self.snapshot, table.names[row], spot=True) for row in rows]
        prices = [self.circumstances.prices.per_hour(node) for node in nodes]
        labels = [node.metadata.labels for row in rows if (node := table.nodes[row]) is not None]
        hazards = [self.circumstances.history.hazards.get(pool_of(each, self.pool_labels), 0.0) for each in labels]
        sizes = [[max(node.cpu, 1) for node in nodes], [max(node.memory, 1) for node in nodes]]
        costs = [np.nan if price is None else float(price) for price in prices]
        return rows, np.array([*sizes, costs, hazards], np.float64)


_NOTHING: Final = Decimal(0)
