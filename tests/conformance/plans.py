"""Checks plans with the real scheduler's plugins, placement by placement."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from predicates.scheduler import Scheduler
from predicates.snapshot import DRAIN_TAINT
from rescheduler.cli.output import as_json
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.what_if.overview import overview
from tests.conformance import ours
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle

TAINT: Final[Json] = {"key": DRAIN_TAINT.key, "value": DRAIN_TAINT.value, "effect": DRAIN_TAINT.effect}
#: Without the guards that are unrelated to placement.
POLICY: Final = Policy(
    delete_non_replicated_pods=True, skip_nodes_with_local_storage=False, skip_nodes_with_system_pods=False
)
NOW: Final = datetime(2024, 3, 1, 11, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The number of emptied nodes and of placements, and the placements that the scheduler rejects."""

    nodes: int
    placements: int
    rejected: tuple[Json, ...]


def plan(snapshot: Json, scheduler: Scheduler | None = None, *, independent: bool) -> Json:
    """Return the output of ``rescheduler plan -o json`` for *snapshot*."""
    cluster = ours.load(snapshot, scheduler)
    planner = Planner(cluster, POLICY)
    circumstances = Circumstances(NOW)
    planning = planner.plan_each(circumstances) if independent else planner.plan_all(circumstances)
    printed: Json = msgspec.json.decode(msgspec.json.encode(as_json(overview(planning, cluster, PriceList()), 0.0)))
    return printed


def drains(planned: Json) -> Iterator[Json]:
    """Yield the drains of a plan for the oracle to replay, in order. The drained nodes remain, with our taint."""
    for node in planned["nodes"]:
        if node["drainable"]:
            yield {"node": node["node"], "taint": TAINT, "placements": node["placements"]}


def with_new_claims(snapshot: Json, pods: Collection[str]) -> Json:
    """Return *snapshot* with the claims that the replacements of *pods* get for their generic ephemeral volumes.

    The oracle creates the running pod again, which does not own the present claim. So its volume becomes that of a
    named claim, which is like the present one, but without a PersistentVolume.
    """
    present = {_key(item) for item in snapshot["items"] if item["kind"] == "PersistentVolumeClaim"}
    renewed: set[str] = set()
    items = list(snapshot["items"])
    for index, item in enumerate(items):
        if item["kind"] == "Pod" and _key(item) in pods and (names := _ephemeral_claims(item) & present):
            renewed |= names
            items[index] = _with_named_claims(item)
    for index, item in enumerate(items):
        if item["kind"] == "PersistentVolumeClaim" and _key(item) in renewed:
            items[index] = _renewed(item)
    return snapshot | {"items": items}


def _key(item: Json) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _ephemeral_claims(pod: Json) -> set[str]:
    return {f"{_key(pod)}-{volume['name']}" for volume in pod["spec"].get("volumes", ()) if "ephemeral" in volume}


def _with_named_claims(pod: Json) -> Json:
    volumes = [
        {"name": volume["name"], "persistentVolumeClaim": {"claimName": f"{pod['metadata']['name']}-{volume['name']}"}}
        if "ephemeral" in volume
        else volume
        for volume in pod["spec"]["volumes"]
    ]
    return pod | {"spec": pod["spec"] | {"volumes": volumes}}


def _renewed(claim: Json) -> Json:
    meta = {
        name: value for name, value in claim["metadata"].items() if name not in {"annotations", "deletionTimestamp"}
    }
    spec = {name: value for name, value in claim["spec"].items() if name != "volumeName"}
    return claim | {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def replay_independent(oracle: Oracle, snapshot: Json) -> Replayed:
    """Replay the plan of each node on the original snapshot."""
    plans = [[drain] for drain in drains(plan(snapshot, oracle.scheduler, independent=True))]
    return _replay(oracle, snapshot, plans)


def replay_cumulative(oracle: Oracle, snapshot: Json) -> Replayed:
    """Replay the plans of all nodes one after another."""
    return _replay(oracle, snapshot, [list(drains(plan(snapshot, oracle.scheduler, independent=False)))])


def replay(oracle: Oracle, snapshot: Json, drains: list[Json]) -> list[Json]:
    """Return the verdicts of the plugins about the placements of *drains*, in order."""
    moved = {placement["pod"] for drain in drains for placement in drain["placements"]}
    return oracle.replay(with_new_claims(snapshot, moved), drains)


def _replay(oracle: Oracle, snapshot: Json, plans: Iterable[list[Json]]) -> Replayed:
    non_empty = [drains for drains in plans if drains]
    verdicts = [verdict for drains in non_empty for verdict in replay(oracle, snapshot, drains)]
    rejected = tuple(verdict for verdict in verdicts if verdict["refused"])
    return Replayed(sum(map(len, non_empty)), len(verdicts), rejected)
