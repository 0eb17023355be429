"""What is freed in addition if leftovers move to on-demand nodes that stay, and the distance from the optimum."""

import itertools
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

from predicates.filters import Filters
from predicates.indexes.terms import affinity_terms
from predicates.objects import Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.outcome import Planning
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Leftovers, Policy
from tests.bench import freed
from tests.bench.result import Result
from tests.planning import builders

#: What keeps a pod away from spot nodes.
PINNED: Final = {"nodeSelector": {builders.ON_DEMAND: ""}}

#: Seconds for the search in which every order is tried.
_UNLIMITED: Final = 600.0

#: On-demand nodes of a full cluster.
_NODES: Final = 30

PRICES: Final = PriceList(per_vcpu=Decimal("0.04"), per_gib=Decimal("0.005"), spot_per_vcpu=Decimal("0.01"))
NOW: Final = Circumstances(freed.NOW.now, prices=PRICES)


def run(small: int = 1000, large: int = 50) -> Iterator[Result]:
    """Yield the rows on leftovers; they take some minutes."""
    yield from _small(small)
    yield from _compared(f"{large} clusters of 200 + 400 nodes, a tenth of the pods pinned", large, _generated, 1.0)
    yield from _full(large)


def _small(clusters: int) -> Iterator[Result]:
    ours, without, best, below, far, farther = 0, 0, 0, 0, 0, 0
    for seed in range(clusters):
        cluster = builders.snapshot(small(random.Random(seed)))
        before, after = (len(planned(cluster, each).plans) for each in (Leftovers.OFF, Leftovers.MOVE))
        most = optimum(cluster)
        ours, without, best = ours + after, without + before, best + most
        below, far = below + (after < before), far + (after < most - 1)
        farther += after < most - 1 and after < len(planned(cluster, Leftovers.MOVE, timeout=_UNLIMITED).plans) - 1
    label = f"{clusters:,} clusters of ≤ 10 on-demand nodes, a third of the pods pinned"
    yield Result(f"{label}: fewer nodes with leftovers", str(ours), str(without), below, "clusters", 0, 0)
    optimum_text = "more than one node from the optimum that does not know where the scheduler puts pods"
    yield Result(f"{label}: {optimum_text}", str(ours), str(best), far, "clusters", clusters / 200, 0)
    optimum_text = "more than one node from the best of all orders with the scheduler's scoring"
    yield Result(f"{label}: {optimum_text}", str(ours), "", farther, "clusters", 0, 0)


def _compared(label: str, clusters: int, make: Any, least: float) -> Iterator[Result]:
    ours, without, money, money_without, below = 0, 0, Decimal(0), Decimal(0), 0
    for seed in range(clusters):
        cluster = builders.snapshot(make(random.Random(seed)))
        before, after = (planned(cluster, each) for each in (Leftovers.OFF, Leftovers.MOVE))
        ours, without = ours + len(after.plans), without + len(before.plans)
        saved, saved_without = saving(cluster, after), saving(cluster, before)
        money, money_without = money + saved, money_without + saved_without
        below += len(after.plans) < len(before.plans) or saved < saved_without
    yield Result(f"{label}: less with leftovers", str(ours), str(without), below, "clusters", 0, 0)
    yield Result(f"{label}: freed nodes", str(ours), str(without), ours / max(1, without), "×", least, least)
    share = float(money / max(money_without, Decimal(1)))
    yield Result(f"{label}: price of them per hour", f"{money:.0f}", f"{money_without:.0f}", share, "×", least, least)


def _full(clusters: int) -> Iterator[Result]:
    more, fewest = 0, 99
    for seed in range(clusters):
        cluster = builders.snapshot(full(random.Random(seed)))
        before, after = (len(planned(cluster, each).plans) for each in (Leftovers.OFF, Leftovers.MOVE))
        more, fewest = more + after - before, min(fewest, after - before)
    label = f"{clusters} full clusters of {_NODES} + 40 nodes, a third of the pods pinned"
    least, aim = 100 * 4 / _NODES, 100 * 6 / _NODES
    average = 100 * more / clusters / _NODES
    yield Result(f"{label}: freed in addition, on average", str(more), str(_NODES * clusters), average, "%", least, aim)
    lowest = 100 * fewest / _NODES
    yield Result(f"{label}: freed in addition, the fewest", str(fewest), str(_NODES), lowest, "%", least, aim)


def planned(cluster: Snapshot, leftovers: Leftovers, timeout: float = Policy().planning_timeout) -> Planning:
    """Return the plan of all nodes in sequence. *timeout* are seconds."""
    policy = Policy(leftovers=leftovers, budgets_in_steps=True, planning_timeout=timeout)
    return Planner(cluster, policy).plan_all(NOW)


def saving(cluster: Snapshot, planning: Planning) -> Decimal:
    """Return the price per hour of the nodes that are freed."""
    cpu = {node.name: Decimal(node.status.allocatable["cpu"]) for node in cluster.nodes}
    return sum((cpu[plan.node] * Decimal("0.04") for plan in planning.plans), Decimal(0))


def small(rng: random.Random) -> list[builders.Manifest]:
    """Return a small cluster in which a third of the pods of on-demand nodes is pinned, some to zones."""
    return pinned(rng, freed.cluster(rng, nodes=rng.randint(2, 10)), 1 / 3)


def _generated(rng: random.Random) -> list[builders.Manifest]:
    return pinned(rng, freed.cluster(rng, nodes=200, spot=400, pods=3000), 0.1)


def pinned(rng: random.Random, objects: list[builders.Manifest], share: float) -> list[builders.Manifest]:
    """Return *objects*, of whose pods on on-demand nodes this *share* must not run on spot nodes."""
    for each in objects:
        if each["kind"] == "Pod" and each["spec"]["nodeName"].startswith("od") and rng.random() < share:
            each["spec"]["nodeSelector"] = {**each["spec"].get("nodeSelector", {}), builders.ON_DEMAND: ""}
    return objects


def full(rng: random.Random) -> list[builders.Manifest]:
    """Return 30 full on-demand nodes of 4 to 8 vCPU with pods of which a third is pinned, and spot nodes with room."""
    objects = []
    for number in range(_NODES):
        name, size = f"od{number:02}", rng.choice((4, 8))
        objects.append(builders.node(name, builders.ON_DEMAND, cpu=str(size), zone=rng.choice("abc")))
        left, count = size * 1000, 0
        while left >= 250:
            cpu = min(left, rng.choice((250, 500, 500, 1000, 1000, 2000)))
            more: dict[str, Any] = PINNED if rng.random() < 1 / 3 else {}
            objects.append(builders.pod(f"p{number}x{count}-1", name, cpu=f"{cpu}m", **more))
            left, count = left - cpu, count + 1
    objects += [builders.node(f"s{number:02}", cpu="8", zone=rng.choice("abc")) for number in range(40)]
    objects += [builders.pod(f"x{number}-1", f"s{number:02}", cpu="3") for number in range(40)]
    return objects


def optimum(snapshot: Snapshot) -> int:
    """Return the most nodes that can be emptied, over all choices of nodes, moves and places.

    It does not know that the scheduler may put pods elsewhere, also on nodes that are emptied later.
    Pods that must not run on spot nodes go to on-demand nodes that stay; these may give any others to spot nodes.
    """
    return _Program(snapshot).most()


class _Program:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        table = snapshot.nodes
        shared = Planner(snapshot, Policy(budgets_in_steps=True)).round(freed.NOW)
        self._nodes = [table.row[name] for name in shared.groups.on_demand]
        numbers = itertools.count(len(self._nodes))
        self._moves: list[tuple[Any, int, bool, dict[int, int]]] = []
        for number, row in enumerate(self._nodes):
            for pod in snapshot.pods_on[table.names[row]].values():
                is_pinned = shared.pins.of(pod.cls) is not None
                targets = self._nodes if is_pinned else shared.groups.spot.rows.tolist()
                held = shared.remaining().lacking([pod])  # by a budget that allows no eviction
                alone = () if held else accepting(snapshot, pod, [each for each in targets if each != row])
                self._moves.append((pod, number, is_pinned, {each: next(numbers) for each in alone}))
        self._variables = next(numbers)
        self._rows: list[tuple[dict[int, float], float, float]] = []

    def most(self) -> int:
        position = {row: number for number, row in enumerate(self._nodes)}
        for _, number, is_pinned, at in self._moves:
            everywhere = dict.fromkeys(at.values(), 1.0)
            # A pod leaves an emptied node; of those that stay, only pods that may run on spot nodes may leave.
            self._add({**everywhere, number: -1.0}, 0, 0 if is_pinned else 1)
            self._add(everywhere, 0, 1)
            for row, variable in at.items():
                if row in position:
                    self._add({variable: 1.0, position[row]: 1.0}, 0, 1)
        self._bound_rooms()
        self._keep_apart()
        matrix = lil_matrix((len(self._rows), self._variables))
        for line, (factors, _, _) in enumerate(self._rows):
            for variable, factor in factors.items():
                matrix[line, variable] = factor
        gain = np.zeros(self._variables)
        gain[: len(self._nodes)] = -1
        low, high = [each for _, each, _ in self._rows], [each for *_, each in self._rows]
        whole = np.ones(self._variables)
        constraints = LinearConstraint(matrix.tocsr(), low, high)
        solution = milp(gain, constraints=constraints, integrality=whole, bounds=Bounds(0, 1))
        if not solution.success:
            raise RuntimeError(f"no proven optimum: {solution.message}")
        return int(round(-solution.fun))  # noqa: RUF046 - scipy gives a NumPy float

    def _bound_rooms(self) -> None:
        table = self._snapshot.nodes
        free = table.allocatable - table.requested
        for row in range(len(table)):
            for column in range(free.shape[1]):
                factors: dict[int, float] = {}
                for pod, number, _, at in self._moves:
                    amount = float(self._snapshot.vector(pod.cls.requests)[column])
                    if row in at:
                        factors[at[row]] = amount
                    if self._nodes[number] == row:  # what it leaves
                        factors |= dict.fromkeys(at.values(), -amount)
                self._add(factors, -np.inf, max(0.0, float(free[row, column])))

    def _keep_apart(self) -> None:
        """Keep apart the pods of an app with anti-affinity: moved ones, and those that are there and do not leave."""
        table = self._snapshot.nodes
        for pod, _, _, at in self._moves:
            for row, variable in at.items():
                for other in self._snapshot.pods_on[table.names[row]].values():
                    if other.key != pod.key and repel(pod, other):
                        leaving = next((to for each, _, _, to in self._moves if each.key == other.key), {})
                        self._add({variable: 1.0, **dict.fromkeys(leaving.values(), -1.0)}, -np.inf, 0)
        for (pod, _, _, here), (other, _, _, there) in itertools.combinations(self._moves, 2):
            if repel(pod, other):
                for row in here.keys() & there.keys():
                    self._add({here[row]: 1.0, there[row]: 1.0}, 0, 1)

    def _add(self, factors: dict[int, float], low: float, high: float) -> None:
        if factors:
            self._rows.append((factors, low, high))


def accepting(snapshot: Snapshot, pod: Pod, rows: list[int]) -> list[int]:
    """Return those of *rows* that would accept *pod* if no other pod were there."""
    return Filters(snapshot).possible(pod.cls, np.array(rows, np.intp))


def repel(pod: Pod, other: Pod) -> bool:
    """Return whether two pods of an app must not share a node."""
    apart = affinity_terms(pod.cls).anti_affinity or affinity_terms(other.cls).anti_affinity
    return bool(apart) and pod.cls.labels["app"] == other.cls.labels["app"]
