"""Number of nodes that the cumulative plan drains, compared to first fit and, on small clusters, to the optimum."""

import datetime as dt
import itertools
import random
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

from predicates.filters import Filters
from predicates.indexes.terms import affinity_terms
from predicates.objects import Pod, PodDisruptionBudget
from predicates.plugins import DEFAULT
from predicates.snapshot import Snapshot
from rescheduler.planning.money.prices import INSTANCE_TYPE_LABELS
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy, Surging, Survive
from tests.bench.result import Result
from tests.planning import builders
from tests.sample import cluster as sample_cluster

#: Instance types of spot nodes: with three zones, about as many pools as the certificate is measured with.
TYPES: Final = 13

NOW: Final = Circumstances(dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC))


def run(small: int = 1000, large: int = 30, pools: int = 2) -> Iterator[Result]:
    """Yield the rows on drained nodes; they take some minutes. Clusters of many *pools* take half a minute each."""
    yield from _small(small)
    yield from _large(large)
    yield from _surviving(pools)


def _small(clusters: int) -> Iterator[Result]:
    ours, floor, best, optimal, below = 0, 0, 0, 0, 0
    for seed in range(clusters):
        objects = cluster(random.Random(seed), nodes=random.Random(-seed).randint(2, 10))
        mine, plain = _freed(objects, 2), _freed(objects, 0)
        most = exhaustive(builders.snapshot(objects))
        ours, floor, best = ours + mine, floor + plain, best + most
        optimal += mine >= most
        below += mine < plain
    label = f"{clusters:,} clusters of ≤ 10 on-demand nodes"
    share = 100 * optimal / clusters
    yield Result(f"{label}: drained as many nodes as the optimum", str(ours), str(best), share, "%", 99, 99)
    yield Result(f"{label}: drained fewer nodes than first fit", str(ours), str(floor), below, "clusters", 0, 0)


def _large(clusters: int) -> Iterator[Result]:
    ours, floor, below = 0, 0, 0
    for seed in range(clusters):
        objects = cluster(random.Random(seed), nodes=200, spot=400, pods=3000)
        mine, plain = _freed(objects, 2), _freed(objects, 0)
        ours, floor, below = ours + mine, floor + plain, below + (mine < plain)
    label = f"{clusters} clusters of 200 + 400 nodes"
    yield Result(f"{label}: drained fewer nodes than first fit", str(ours), str(floor), below, "clusters", 0, 0)
    yield Result(f"{label}: drained nodes in total", str(ours), str(floor), ours / floor, "×", 1, 1.05)


def _surviving(clusters: int) -> Iterator[Result]:
    """Compare plans that keep the certificate, that any pool may be lost, with all plans."""
    kept, most = 0, 0
    for seed in range(clusters):
        objects = in_pools(random.Random(seed), cluster(random.Random(seed), nodes=200, spot=400, pods=3000))
        kept, most = kept + _freed(objects, 2, survive=Survive.POOL), most + _freed(objects, 2)
    label = f"{clusters} clusters of 200 + 400 nodes, {3 * TYPES} pools: drained nodes if any pool may be lost"
    yield Result(label, str(kept), str(most), 100 * kept / most, "%", 90, 95)


def surging(clusters: int = 20) -> Iterator[Result]:
    """Yield the rows on rolling updates, compared with evictions alone."""
    freed, without = _with_and_without(list(sample_cluster.items()))
    label = "docs/sample.json.gz: drained with --surge=blocked, and without"
    yield Result(label, str(freed), str(without), freed / without, "×", 1, 1.05)
    freed, without = 0, 0
    for seed in range(clusters):
        rng = random.Random(seed)
        objects = of_deployments(rng, cluster(rng, nodes=100, spot=200, pods=500))
        more, fewer = _with_and_without(objects)
        freed, without = freed + more, without + fewer
    label = f"{clusters} clusters of 100 + 200 nodes with Deployments: drained with --surge=blocked, and without"
    yield Result(label, str(freed), str(without), freed / without, "×", 1, 1.05)


def _with_and_without(objects: list[builders.Manifest]) -> tuple[int, int]:
    """Return how many nodes are drained with rolling updates where evictions are never allowed, and without them."""
    options = {"budgets_in_steps": True}
    return _freed(objects, 2, **options, surge=Surging.BLOCKED), _freed(objects, 2, **options)


#: Strategies of Deployments; most have the API's default.
STRATEGIES: Final[tuple[builders.Manifest, ...]] = (
    *({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},) * 7,
    {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
    {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
    {"type": "Recreate"},
)
#: Numbers of replicas: most workloads of real clusters have one to three.
REPLICAS: Final = (1, 1, 1, 1, 2, 2, 2, 3, 3, 6)


def of_deployments(rng: random.Random, objects: list[builders.Manifest]) -> list[builders.Manifest]:
    """Return *objects* with their pods as those of Deployments, whose pods are on any nodes.

    Four of ten Deployments have a budget. Half of these budgets can never allow an eviction.
    """
    pods = [each for each in objects if each["kind"] == "Pod"]
    rng.shuffle(pods)
    made = [each for each in objects if each["kind"] == "Node"]
    for number in itertools.count():
        if not pods:
            return made
        size = min(rng.choice(REPLICAS), len(pods))
        name, members = f"web{number}", [pods.pop() for _ in range(size)]
        made += [_deployed(name, each) for each in members]
        made.append(_deployment(name, size, rng.choice(STRATEGIES)))
        if rng.random() < 0.4:
            never = rng.random() < 0.5
            least, now = size - (not never), {"healthy": size, "expected": size}
            made.append(builders.budget(name, name, allowed=size - least, desired=least, minAvailable=least, **now))
    raise AssertionError


def _deployed(name: str, pod: builders.Manifest) -> builders.Manifest:
    """Return *pod* as one of the Deployment *name*, with its anti-affinity to the pods of this Deployment."""
    meta, spec = pod["metadata"], pod["spec"]
    meta["labels"] = {"app": name, "pod-template-hash": "5d6f"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-5d6f", "uid": f"uid-{name}-5d6f"}
    meta["ownerReferences"] = [owner | {"controller": True}]
    if "affinity" in spec:
        spec["affinity"] = builders.repels(name)
    return pod


def _deployment(name: str, replicas: int, strategy: builders.Manifest) -> builders.Manifest:
    counts = {"replicas": replicas, "updatedReplicas": replicas, "availableReplicas": replicas}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1},
        "spec": {"replicas": replicas, "strategy": strategy},
        "status": counts | {"observedGeneration": 1},
    }


def in_pools(rng: random.Random, objects: list[builders.Manifest]) -> list[builders.Manifest]:
    """Give each spot node among *objects* one of TYPES instance types."""
    for each in objects:
        if builders.SPOT in each["metadata"].get("labels", {}):
            each["metadata"]["labels"][INSTANCE_TYPE_LABELS[0]] = f"type-{rng.randrange(TYPES)}"
    return objects


def _freed(objects: list[builders.Manifest], seconds: float, **options: Any) -> int:
    """Return the number of drained nodes; *options* are further settings of the policy."""
    planner = Planner(builders.snapshot(objects), Policy(planning_timeout=seconds, **options))
    return len(planner.plan_all(NOW).plans)


def cluster(
    rng: random.Random, nodes: int, spot: int | None = None, pods: int | None = None
) -> list[builders.Manifest]:
    """Return on-demand nodes with a few pods each, and spot nodes that are 75 % full; some pods have constraints."""
    spot = rng.randint(1, nodes + 2) if spot is None else spot
    pods = rng.randint(nodes, 5 * nodes) if pods is None else pods
    on_demand = [f"od{n}" for n in range(nodes)]
    targets = [f"s{n}" for n in range(spot)]
    objects = [builders.node(name, builders.ON_DEMAND, cpu="16", zone=rng.choice("abc")) for name in on_demand]
    objects += [builders.node(name, cpu="8", zone=rng.choice("abc")) for name in targets]
    objects += [_pod(rng, f"x{n}", rng.choice(targets)) for n in range(3 * spot)]
    objects += [_pod(rng, f"p{n}", rng.choice(on_demand)) for n in range(pods)]
    apps = sorted({obj["metadata"]["labels"]["app"] for obj in objects if obj["kind"] == "Pod"})
    objects += [builders.budget(f"b-{app}", app, allowed=rng.randint(0, 4)) for app in apps if rng.random() < 0.1]
    return objects


def _pod(rng: random.Random, name: str, on: str) -> builders.Manifest:
    app = f"app{rng.randrange(12)}"
    memory, cpu = f"{rng.randint(1, 40) * 100}Mi", f"{rng.randint(1, 30) * 100}m"
    more: dict[str, Any] = {"labels": {"app": app}, "cpu": cpu}
    kind = rng.random()
    if kind < 0.05:
        more["affinity"] = builders.repels(app)
    elif kind < 0.1:
        more["nodeSelector"] = {builders.ZONE: rng.choice("abc")}
    obj = builders.pod(name, on, **more)
    obj["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory
    return obj


def exhaustive(snapshot: Snapshot) -> int:
    """Return the maximum number of nodes that can be drained together, over all choices of nodes and placements.

    A mixed-integer program with a variable for each node, and one for each pod and feasible row. It supports the
    constraints that :func:`cluster` creates: requests, budgets, selectors, and anti-affinity within an app.
    """
    plans = Planner(snapshot, Policy()).plan_each(NOW).plans
    if not plans:
        return 0
    program = _IntegerProgram(
        [[snapshot.pods[str(placement.pod)] for placement in plan.placements] for plan in plans], snapshot
    )
    program.move_all_or_none()
    program.bound_rooms()
    program.keep_apart()
    program.bound_budgets()
    return program.most()


class _IntegerProgram:
    def __init__(self, movers: list[list[Pod]], snapshot: Snapshot) -> None:
        self._movers = movers
        self._snapshot = snapshot
        self._pods = [pod for pods in movers for pod in pods]
        numbers = itertools.count(len(movers))
        self._places = [{row: next(numbers) for row in _taking(snapshot, pod)} for pod in self._pods]
        self._variables = next(numbers)
        self._rows: list[tuple[dict[int, int], float, float]] = []

    def move_all_or_none(self) -> None:
        places = iter(self._places)
        for node, pods in enumerate(self._movers):
            for _ in pods:
                self._add({**dict.fromkeys(next(places).values(), 1), node: -1}, 0, 0)

    def bound_rooms(self) -> None:
        table = self._snapshot.nodes
        free = table.allocatable - table.requested
        for row in range(len(table)):
            coming = [(pod, at[row]) for pod, at in zip(self._pods, self._places, strict=True) if row in at]
            for column in range(free.shape[1]):
                requested = {place: int(self._snapshot.vector(pod.cls.requests)[column]) for pod, place in coming}
                self._add(requested, -np.inf, int(free[row, column]))

    def keep_apart(self) -> None:
        """Keep apart the moved pods of an app with anti-affinity; nodes of its other pods are not feasible anyway."""
        for (pod, here), (other, there) in itertools.combinations(zip(self._pods, self._places, strict=True), 2):
            repel = affinity_terms(pod.cls).anti_affinity or affinity_terms(other.cls).anti_affinity
            if repel and pod.cls.labels["app"] == other.cls.labels["app"]:
                for row in here.keys() & there.keys():
                    self._add({here[row]: 1, there[row]: 1}, 0, 1)

    def bound_budgets(self) -> None:
        for budget in self._snapshot.of("PodDisruptionBudget").values():
            assert isinstance(budget, PodDisruptionBudget)
            assert budget.spec.selector is not None
            app = budget.spec.selector.match_labels["app"]
            guarded = {
                node: sum(pod.cls.labels["app"] == app for pod in pods) for node, pods in enumerate(self._movers)
            }
            self._add(guarded, 0, budget.status.disruptions_allowed)

    def most(self) -> int:
        matrix = lil_matrix((len(self._rows), self._variables))
        for line, (factors, _, _) in enumerate(self._rows):
            for variable, factor in factors.items():
                matrix[line, variable] = factor
        gain = np.zeros(self._variables)
        gain[: len(self._movers)] = -1
        bounds = LinearConstraint(matrix.tocsr(), [low for _, low, _ in self._rows], [high for *_, high in self._rows])
        solution = milp(gain, constraints=bounds, integrality=np.ones(self._variables), bounds=Bounds(0, 1))
        if not solution.success:
            raise RuntimeError(f"no proven optimum: {solution.message}")
        return int(round(-solution.fun))  # noqa: RUF046 - scipy gives a NumPy float

    def _add(self, factors: dict[int, int], low: float, high: float) -> None:
        if factors:
            self._rows.append((factors, low, high))


def _taking(snapshot: Snapshot, pod: Pod) -> list[int]:
    """Return the spot rows that accept the pod alone."""
    with snapshot.trial() as trial:
        trial.evict(pod)
        feasible = Filters(snapshot, DEFAULT).feasible(pod.cls)
    spot = snapshot.nodes.label(builders.SPOT).ids >= 0
    return [int(row) for row in np.flatnonzero(feasible & spot)]
