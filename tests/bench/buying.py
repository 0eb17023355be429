"""What to buy (``plan --buy``): its distance from exhaustive search on small clusters, and its time on large ones."""

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Final

from predicates.nodes import CPU
from predicates.snapshot import Snapshot
from rescheduler.planning.money.prices import INSTANCE_TYPE_LABELS, PriceKey, PriceList
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy, Survive
from rescheduler.planning.room.additions import Additions
from rescheduler.planning.room.purchases import Purchases, PurchaseSearch, offered
from tests.bench.freed import NOW
from tests.bench.result import Result, cost
from tests.bench.room import ON_DEMAND, full_cluster
from tests.planning import builders as made
from tests.planning.room.test_purchases import bought, net_of, random_cluster

TYPES: Final = 100
ANSWERS: Final = 5
#: Exhaustive search tries up to so many nodes of each type in each zone.
MOST: Final = 6


def run(small: int = 50, large: int = 5) -> Iterator[Result]:
    """Yield the rows on purchases; takes some minutes."""
    yield from _small(small)
    seconds, answers = [], []
    for seed in range(large):
        spent, found = _timed(random.Random(seed))
        seconds.append(spent)
        answers.append(len(found.best))
    label = f"{large} clusters of 200 + 400 nodes, {TYPES} types in 3 zones: what to buy, of a plan with certificate"
    yield cost(f"{label}: CPU time of the slowest", max(seconds), "s", 10, 5)
    share = 100 * sum(answers) / (ANSWERS * large)
    yield Result(f"{label}: answers", str(sum(answers)), str(ANSWERS * large), share, "%", 100, 100)


def _small(clusters: int) -> Iterator[Result]:
    ours, best, near = Decimal(0), Decimal(0), 0
    for seed in range(clusters):
        objects, prices = random_cluster(random.Random(seed))
        cluster = made.snapshot(objects)
        changes = [offer.change for offer in offered(Additions(cluster, Policy(), NOW), prices)]
        numbers = range(1, MOST + 1)
        most = max(
            [
                Decimal(0),
                *(net_of(cluster, prices, replace(each, count=number)) for each in changes for number in numbers),
            ]
        )
        found = bought(objects, prices).best
        mine = found[0].net_per_month if found else Decimal(0)
        ours, best, near = ours + mine, best + most, near + (mine >= Decimal("0.97") * most)
    label = f"{clusters:,} clusters of ≤ 5 on-demand nodes: the best purchase, and that of exhaustive search"
    money = f"{ours:.0f} a month", f"{best:.0f} a month"
    yield Result(f"{label}: money", *money, float(100 * ours / best), "%", 97, 99)
    yield Result(f"{label}: within 3 %", str(near), str(clusters), 100 * near / clusters, "%", 97, 100)


def _timed(rng: random.Random) -> tuple[float, Purchases]:
    """Return the CPU time of the search on a cluster with full spot nodes, and what it finds."""
    objects = full_cluster(rng)
    nodes = [each for each in objects if each["kind"] == "Node"]
    for number, each in enumerate(nodes):
        each["metadata"]["labels"][INSTANCE_TYPE_LABELS[0]] = f"t{number % TYPES}"
    cluster = made.snapshot(objects)
    assert len(nodes) > ON_DEMAND
    prices = PriceList(dict(_prices(rng, {f"t{number % TYPES}": each for number, each in enumerate(_cpus(cluster))})))
    base = Planner(cluster, Policy()).plan_all(NOW)
    began = time.process_time()
    search = PurchaseSearch(Additions(cluster, Policy(), NOW), base, prices, lambda: False)
    found = search.run(ANSWERS, Survive.POOL)
    return time.process_time() - began, found


def _cpus(cluster: Snapshot) -> Iterator[float]:
    return (int(cluster.nodes.allocatable[row, CPU]) / 1000 for row in cluster.nodes.row.values())


def _prices(rng: random.Random, types: dict[str, float]) -> Iterator[tuple[PriceKey, Decimal]]:
    for name, cpu in types.items():
        yield (name, "", False), Decimal(round(48 * cpu * rng.uniform(0.9, 1.2))) / 1000
        yield (name, "", True), Decimal(round(19 * cpu * rng.uniform(0.8, 1.5))) / 1000
