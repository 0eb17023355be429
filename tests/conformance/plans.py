"""Whole plans before the real scheduler's plugins: each placement, one after the other."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from predicates.snapshot import DRAIN_TAINT
from rescheduler.cli.plan import as_json
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from tests.conformance import ours
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle

TAINT: Final[Json] = {"key": DRAIN_TAINT.key, "value": DRAIN_TAINT.value, "effect": DRAIN_TAINT.effect}
#: With the guards off that have nothing to do with placing pods.
POLICY: Final = Policy(
    delete_non_replicated_pods=True, skip_nodes_with_local_storage=False, skip_nodes_with_system_pods=False
)
NOW: Final = datetime(2024, 3, 1, 11, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many nodes and pods of a snapshot the plans move, and what the scheduler refuses of it."""

    nodes: int
    placements: int
    refused: tuple[Json, ...]


def plan(snapshot: Json, *, independent: bool) -> Json:
    """What ``rescheduler plan -o json`` prints for *snapshot*."""
    planner = Planner(ours.load(snapshot), POLICY)
    circumstances = Circumstances(NOW)
    planning = planner.plan_each(circumstances) if independent else planner.plan_all(circumstances)
    printed: Json = msgspec.json.decode(msgspec.json.encode(as_json(planning, 0.0)))
    return printed


def drains(planned: Json) -> Iterator[Json]:
    """The nodes that a plan empties, as the oracle replays them: in order, each left standing with our taint."""
    for node in planned["nodes"]:
        if node["drainable"]:
            yield {"node": node["node"], "taint": TAINT, "placements": node["placements"]}


def replay_independent(oracle: Oracle, snapshot: Json) -> Replayed:
    """Each node's plan on the snapshot as it is."""
    plans = [[drain] for drain in drains(plan(snapshot, independent=True))]
    return _replay(oracle, snapshot, plans)


def replay_cumulative(oracle: Oracle, snapshot: Json) -> Replayed:
    """All nodes' plans, one on top of the other."""
    return _replay(oracle, snapshot, [list(drains(plan(snapshot, independent=False)))])


def _replay(oracle: Oracle, snapshot: Json, plans: Iterable[list[Json]]) -> Replayed:
    asked = [drains for drains in plans if drains]
    verdicts = [verdict for drains in asked for verdict in oracle.replay(snapshot, drains)]
    refused = tuple(verdict for verdict in verdicts if verdict["refused"])
    return Replayed(sum(map(len, asked)), len(verdicts), refused)
