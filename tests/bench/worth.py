"""How many moves ``--min-worth`` spares, for nine tenths of the money."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Final

from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import DrainOrder, Policy
from rescheduler.planning.what_if.overview import overview
from rescheduler.planning.what_if.worth_curve import worth_curve
from tests.bench.freed import NOW, cluster
from tests.bench.result import Result
from tests.planning import builders

#: On-demand machines of clouds cost about five cents per hour for a vCPU, spot machines a third of that.
PRICES: Final = PriceList(
    per_vcpu=Decimal("0.05"), per_gib=Decimal(0), spot_per_vcpu=Decimal("0.017"), spot_per_gib=Decimal(0)
)
KNOWN: Final = replace(NOW, prices=PRICES)

#: vCPU of on-demand nodes in a cluster of several groups, and the most pods on any of them.
SIZES: Final = (4, 8, 16, 32, 64)
PODS: Final = 40


#: A quarter of the usual effort, because many plans are made for each cluster.
POLICY: Final = Policy(drain_order=DrainOrder.WORTH, planning_timeout=0.5)


def run(clusters: int = 15) -> Iterator[Result]:
    """Yield the rows on moves and money; takes some minutes."""
    kinds: dict[str, Callable[[random.Random], list[builders.Manifest]]] = {
        "equal nodes": lambda rng: cluster(rng, nodes=200, spot=400, pods=3000),
        "nodes of 4 to 64 vCPU": mixed,
    }
    for name, made in kinds.items():
        money, moves = Decimal(0), 0
        all_money, all_moves = Decimal(0), 0
        for seed in range(clusters):
            first, best = points(made(random.Random(seed)))
            all_money, all_moves = all_money + first[0], all_moves + first[1]
            money, moves = money + best[0], moves + best[1]
        label = f"{clusters} clusters of 200 + 400 nodes, {name}"
        kept = float(100 * money / all_money)
        yield Result(f"{label}: money that --min-worth keeps", f"{money:.0f}", f"{all_money:.0f}", kept, "%", 90, 90)
        spared = 100 - 100 * moves / all_moves
        yield Result(f"{label}: moves that it spares", str(all_moves - moves), str(all_moves), spared, "%", 10, 50)


def mixed(rng: random.Random) -> list[builders.Manifest]:
    """Return a cluster whose on-demand nodes have different sizes, and any number of pods, large or small."""
    objects = cluster(rng, nodes=200, spot=400, pods=0)
    for each in list(objects):
        if builders.ON_DEMAND not in each["metadata"].get("labels", {}):
            continue
        cpu, number, name = rng.choice(SIZES), rng.randint(1, PODS), each["metadata"]["name"]
        each["status"]["allocatable"]["cpu"] = str(cpu)
        amount = f"{int(rng.uniform(0.2, 0.8) * cpu * 1000 / number)}m"
        apps = [f"app{rng.randrange(12)}" for _ in range(number)]
        objects += [builders.pod(f"{app}-{name}-{place}", name, cpu=amount) for place, app in enumerate(apps)]
    return objects


def points(objects: list[builders.Manifest]) -> tuple[tuple[Decimal, int], tuple[Decimal, int]]:
    """Return money per month and moved pods of the plan, and of the one with the fewest moves for 90 % of the money."""
    snapshot = builders.snapshot(objects)
    planner = Planner(snapshot, POLICY)
    known = overview(planner.plan_all(KNOWN), snapshot, PRICES, now=KNOWN.now)
    curve = worth_curve(planner, known, snapshot, KNOWN, lambda: False, whole=False)
    assert curve is not None
    first = curve.points[0]
    enough = [each for each in curve.points if each.per_month >= first.per_month * Decimal("0.9")]
    best = min(enough, key=lambda each: each.pods)
    return (first.per_month, first.pods), (best.per_month, best.pods)
