"""The nodes that plans free on clusters with full spot nodes: without and with new spot nodes.

The new nodes are like an emptied spot node of each group. Only those that get a pod count as added.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from predicates.nodes import CPU
from predicates.snapshot import Snapshot
from rescheduler.planning.money.prices import PriceList, node_facts, zone_of
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.candidates import groups
from rescheduler.planning.what_if.added_spot import AddSpot, add_spot
from tests.bench.freed import NOW, cluster
from tests.bench.result import Result
from tests.planning import builders as made

#: Per vCPU and hour, those of m5.2xlarge in docs/sample-prices.csv.
PRICES: Final = PriceList(per_vcpu=Decimal("0.048"), spot_per_vcpu=Decimal("0.01925"))
POLICY: Final = Policy(planning_timeout=0.5)

ON_DEMAND: Final = 200
SPOT: Final = 400
#: More than the pods of all on-demand nodes need.
ADDED: Final = 360


@dataclass(frozen=True, slots=True)
class Freed:
    """The result of a plan: nodes, and money per hour."""

    nodes: int
    added: int
    money: Decimal  #: the price of the freed nodes less that of the added nodes


def run(clusters: int = 50) -> Iterator[Result]:
    """Yield the rows on full spot nodes; takes some minutes."""
    today, room, total = [], [], Decimal(0)
    for seed in range(clusters):
        snapshot = made.snapshot(full_cluster(random.Random(seed)))
        total += price(snapshot, groups(snapshot, POLICY).on_demand, spot=False)
        today.append(planned(snapshot, frozenset()))
        room.append(planned(snapshot, add_nodes(snapshot)))
    label = f"{clusters} clusters of 200 + 400 nodes with full spot"
    nodes = [sum(each.nodes for each in freed) for freed in (room, today)]
    share = 100 * nodes[0] / (ON_DEMAND * clusters)
    yield Result(f"{label}: drained with room made, and today", str(nodes[0]), str(nodes[1]), share, "%", 50, 65)
    money = [sum((each.money for each in freed), Decimal(0)) for freed in (room, today)]
    ours = f"{money[0]:.0f} per hour with {sum(each.added for each in room)} spot nodes added"
    saved = float(100 * money[0] / total)
    yield Result(
        f"{label}: money freed, less that of added nodes", ours, f"{money[1]:.0f} per hour", saved, "%", 30, 50
    )


def full_cluster(rng: random.Random) -> list[made.Manifest]:
    """Return on-demand nodes that are half full, and spot nodes with at most a tenth of a vCPU free."""
    objects = cluster(rng, nodes=ON_DEMAND, spot=SPOT, pods=5 * ON_DEMAND)
    table = made.snapshot(objects).nodes
    for name, row in table.row.items():
        free = int(table.free[row, CPU]) - rng.randint(0, 100)
        if name.startswith("s") and free > 0:
            objects.append(made.pod(f"full-{name}", name, cpu=f"{free}m"))
    return objects


def add_nodes(snapshot: Snapshot) -> frozenset[str]:
    """Add enough nodes for all pods on on-demand nodes, like the first spot node of each zone. Return their names."""
    before, table = frozenset(snapshot.nodes.row), snapshot.nodes
    firsts: dict[str, str] = {}
    for row in groups(snapshot, POLICY).spot_rows:
        node = table.nodes[row]
        assert node is not None
        firsts.setdefault(zone_of(node), node.name)
    for like in firsts.values():
        add_spot(snapshot, POLICY, AddSpot(ADDED // len(firsts), like=like))
    return frozenset(snapshot.nodes.row) - before


def planned(snapshot: Snapshot, added: frozenset[str]) -> Freed:
    """Return the nodes that the plan frees. Of the nodes *added*, only those with a placement count."""
    plans = Planner(snapshot, POLICY).plan_all(NOW).plans
    used = added & {placement.node for plan in plans for placement in plan.placements}
    freed = price(snapshot, [plan.node for plan in plans], spot=False)
    return Freed(len(plans), len(used), freed - price(snapshot, used, spot=True))


def price(snapshot: Snapshot, names: Iterable[str], *, spot: bool) -> Decimal:
    """Return the price per hour of the nodes *names*."""
    prices = (PRICES.per_hour(node_facts(snapshot, name, spot=spot)) for name in names)
    return sum((each for each in prices if each is not None), Decimal(0))
