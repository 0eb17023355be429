"""Pods are moved one after another, as our filters allow; the real scheduler accepts every move."""

from random import Random

import numpy as np
import pytest

from predicates.filters import Filters
from predicates.objects import Pod
from predicates.scheduler import Scheduler
from predicates.snapshot import Trial
from tests.conformance import ours
from tests.conformance.generate import cluster
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle

CLUSTERS = 40
FAMILIES = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "migrated volumes", "competing claims", "all")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_scheduler_accepts_each_move(oracle: Oracle, family: str) -> None:
    moved = 0
    for seed in range(CLUSTERS):
        snapshot = oracle.comparable(cluster(seed, family))
        moves = _moves(snapshot, oracle.scheduler, Random(seed))
        if moves:
            rejected = [verdict for verdict in oracle.replay(snapshot, moves) if verdict["refused"]]
            assert rejected == [], f"{family} seed {seed}"
        moved += len(moves)
    assert moved > 2 * CLUSTERS


def _moves(snapshot: Json, scheduler: Scheduler, rng: Random) -> list[Json]:
    """Return moves as drains of one pod without a taint, for the oracle; each depends on the placements before it."""
    table = ours.load(snapshot, scheduler)
    filters = Filters(table)
    pods = [pod for pod in table.pods.values() if pod.node_name in table.nodes.row]
    moves = []
    with table.trial() as trial:
        for pod in rng.sample(pods, len(pods)):
            row = _move(filters, trial, pod, rng)
            if row is not None:
                placement = {"pod": pod.key, "node": table.nodes.names[row]}
                moves.append({"node": pod.node_name, "taint": None, "placements": [placement]})
    return moves


def _move(filters: Filters, trial: Trial, pod: Pod, rng: Random) -> int | None:
    before = trial.savepoint()
    trial.evict(pod)
    rows = np.flatnonzero(filters.feasible(pod.cls))
    if not len(rows):
        trial.revert(before)
        return None
    row = int(rng.choice(rows))
    trial.place(pod.cls, row)
    return row
