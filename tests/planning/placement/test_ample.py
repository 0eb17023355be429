"""The proof of a certificate: pods find a place in whatever order, and wherever, the others are placed."""

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from predicates.filters import Filters
from predicates.objects import Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.answers.losses import PoolLoss
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy, Survive
from tests.planning.builders import CIRCUMSTANCES, HOST, ZONE, Manifest, node, pod, repels, seeks, snapshot

#: Seconds of simulation: only proofs are affordable for the pools of more than a few pods.
NONE = 1e-9


def spread(app: str, key: str) -> Manifest:
    selector = {"matchLabels": {"app": app}}
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"topologySpreadConstraints": [constraint]}


def rules(app: str, rng: Random) -> Manifest:
    """Return the rules of an app about other pods: none for most."""
    kind = rng.choice(("", "", "", "apart", "together", "spread", "spread by node", "beside another"))
    return {
        "apart": {"affinity": repels(app)},
        "together": {"affinity": seeks(app, ZONE)},
        "spread": spread(app, ZONE),
        "spread by node": spread(app, HOST),
        "beside another": {"affinity": seeks("a0", ZONE)},
    }.get(kind, {})


def random_cluster(seed: int) -> Iterator[Manifest]:
    """Yield nodes in three zones, each zone a pool, and pods that take a part of them."""
    rng = Random(seed)
    number, cpu, most_pods = rng.randint(1, 6), rng.choice((4, 8, 16)), rng.choice((8, 20, 110))
    names = [f"n{zone}-{at}" for zone in "abc" for at in range(number)]
    free = {name: [cpu * 1000, most_pods] for name in names}
    for name in names:
        yield node(name, zone=name[1], cpu=str(cpu), pods=most_pods)
    load = rng.uniform(0.1, 0.7)
    for app in range(rng.randint(2, 12)):
        milli, fields = rng.choice((50, 250, 500, 1000, 2000)), rules(f"a{app}", rng)
        home = rng.choice("abc") if "affinity" in fields and "podAffinity" in fields["affinity"] else "abc"
        hosts = [name for name in names if name[1] in home and free[name][0] >= (1 - load) * cpu * 1000 + milli]
        for at, host in enumerate(rng.sample(hosts, min(len(hosts), rng.randint(1, 8)))):
            if free[host][1] > 1:
                free[host][0] -= milli
                free[host][1] -= 1
                yield pod(f"a{app}-{at}", host, cpu=f"{milli}m", **fields)


def homeless_at_worst(cluster: Snapshot, pool: str, rng: Random) -> list[str]:
    """Take the pool away, and place its pods in a random order, mostly where they leave the least room."""
    table, filters = cluster.nodes, Filters(cluster)
    lost = [row for name, row in table.row.items() if name[1] == pool[0]]
    with cluster.trial() as trial:
        waiting: list[Pod] = []
        for row in lost:
            pods = [*cluster.pods_on[table.names[row]].values()]
            trial.evict(*pods)
            trial.lose(row)
            waiting += pods
        rng.shuffle(waiting)
        while waiting:
            left = []
            for each in waiting:
                rows = np.flatnonzero(filters.feasible(each.cls)).tolist()
                if not rows:
                    left.append(each)
                    continue
                worst = min(rows, key=lambda row: (table.free[row].tolist(), row))
                trial.place(each.cls, worst if rng.random() < 0.8 else rng.choice(rows))
            if len(left) == len(waiting):
                break
            waiting = left
        return [each.key for each in waiting]


def proved(cluster: Snapshot) -> list[PoolLoss]:
    """Return the pools of more than a few pods whose loss is survived without a simulation."""
    certificate = Planner(cluster, Policy()).certificate(CIRCUMSTANCES, Survive.POOL, seconds=NONE)
    return [pool for pool in certificate.pools if pool.survived and pool.pods > 1]


THREE = [node(f"n{zone}-0", zone=zone) for zone in "abc"]

#: case: pods besides six of 250 milli-CPU on the lost node → whether it is proved that all find a place
PROVABLE: dict[str, tuple[Manifest, list[Manifest], bool]] = {
    "much more memory and pods are free than CPU": ({}, [pod("q-0", "nb-0", cpu="2500m")], True),
    "CPU may run out": ({}, [pod("q-0", "nb-0", cpu="3750m"), pod("r-0", "nc-0", cpu="3")], False),
    "each zone that remains has room for a spread": (spread("p", ZONE), [], True),
    "one of the zones may be full": (spread("p", ZONE), [pod("q-0", "nb-0", cpu="3")], False),
    "each zone has room for pods that must be together": ({"affinity": seeks("p", ZONE)}, [], True),
    "the zone of the first may be full": ({"affinity": seeks("p", ZONE)}, [pod("q-0", "nb-0", cpu="3")], False),
    "a pod of another app must be there first": ({"affinity": seeks("q", ZONE)}, [pod("q-0", "na-0")], False),
}


@pytest.mark.parametrize("case", PROVABLE)
def test_what_is_proved(case: str) -> None:
    fields, others, expected = PROVABLE[case]
    lost = [pod(f"p-{number}", "na-0", cpu="250m", **fields) for number in range(6)]
    pools = proved(snapshot([*THREE, *lost, *others]))
    assert ("a/no-instance-type" in [pool.pool for pool in pools]) is expected


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_pods_of_a_pool_that_is_proved_to_be_survived_find_a_place_at_worst(first: int) -> None:
    found = 0
    for seed in range(first, first + 20):
        cluster, rng = snapshot(random_cluster(seed)), Random(seed)
        for pool in proved(cluster):
            found += 1
            for _ in range(5):
                assert homeless_at_worst(cluster, pool.pool, rng) == [], (seed, pool.pool)
    assert found
