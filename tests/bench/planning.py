"""Planning compared to the scheduler's plugins, and the cost of a large cluster and of a small change."""

import datetime as dt
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import msgspec
from msgspec.structs import replace as replaced

from predicates.objects import Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy, Survive
from rescheduler.snapshot_file import reader
from tests.bench.big import big, firstfit_request
from tests.bench.result import Result, cost, faster
from tests.bench.shapes import Json
from tests.conformance.oracle import Oracle

#: Time limit of the peer's response.
PEER_SECONDS = 1800

#: The number of pools of spot nodes, and the label that names them.
POOLS = 40
POOL = "example.com/pool"

NOW = Circumstances(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))


def run() -> Iterator[Result]:
    """Yield the rows on planning; takes some minutes, most of them for the peer."""
    with TemporaryDirectory() as folder:
        yield from _compared_to_the_peer(Path(folder) / "cluster.json")
        yield from certificate(Path(folder) / "cluster.json")
        large = Path(folder) / "large.json"
        big(large, on_demand=1700, spot=3300)
        yield from _large(large)
        cumulative = Path(folder) / "cumulative.json"
        big(cumulative, on_demand=2000, spot=3000)
        yield from _cumulative(cumulative)
        yield _one_percent(reader.read(str(large)))


def _compared_to_the_peer(path: Path) -> Iterator[Result]:
    cluster = big(path)
    whole, printed, _ = process(path, "--independent")
    alone = printed["summary"]["seconds"]
    with Oracle() as oracle:
        response = oracle.ask(firstfit_request(path, cluster), PEER_SECONDS)
    peer = response["seconds"]
    fits = sum(node["unplaced"] is None for node in response["nodes"])
    freed = printed["summary"]["drainable_nodes"]
    size = "1,000 + 2,000 nodes, 90,000 pods"
    yield faster(f"plan --independent, {size}: planning alone", alone, peer, 300, 500)
    yield faster(f"plan --independent, {size}: whole process", whole, peer, 75, 120)
    yield Result("the same: drainable nodes", str(freed), str(fits), freed / fits, "×", 1, 1)


def _large(path: Path) -> Iterator[Result]:
    whole, _, peak = process(path, "--independent")
    size = "5,000 nodes, 150,000 pods: whole process"
    yield cost(size, whole, "s", 5, 3)
    yield cost(f"{size}, peak memory", peak, "GB", 0.5, 0.35)


def _cumulative(path: Path) -> Iterator[Result]:
    whole, printed, peak = process(path)
    freed, moved = (printed["summary"][name] for name in ("drainable_nodes", "pods_to_move"))
    size = f"plan, 2,000 + 3,000 nodes, 150,000 pods, {moved:,} of them placed"
    seconds = printed["summary"]["seconds"]
    yield cost(f"{size}: planning alone", seconds, "s", 4, 2)
    yield cost("the same: whole process", whole, "s", 6, 4)
    yield cost("the same: peak memory", peak, "GB", 0.5, 0.265)
    yield Result("the same: drainable nodes", str(freed), "2000", freed / 2000, "×", 1, 1)


def process(path: Path, *flags: str) -> tuple[float, dict[str, dict[str, float]], float]:
    """Return the seconds from start to printed JSON, the JSON, and the peak memory in GB."""
    command = [sys.executable, "-m", "rescheduler", "plan", *flags, "--snapshot", str(path), "-o", "json"]
    with TemporaryFile() as out:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        out.seek(0)
        return seconds, json.load(out), usage.ru_maxrss / 2**20


def _one_percent(snapshot: Snapshot) -> Result:
    """Measure a round of the daemon after one percent of the pods moved to another node."""
    planner = Planner(snapshot, Policy(budgets_in_steps=True))
    planner.first_plan(NOW)
    start = time.perf_counter()
    _replace(snapshot, list(snapshot.pods.values())[::100])
    planner.first_plan(NOW)
    seconds = time.perf_counter() - start
    return cost("a round when 1 % of the pods changed, same size", seconds, "s", 0.2, 0.1)


def certificate(path: Path) -> Iterator[Result]:
    """Measure the certificate of the present state, then again after one percent of the pods moved.

    The peer looks for the first place of each pod of one pool, in one order, and the time counts for each pool.
    """
    snapshot = reader.read(str(path))
    _in_pools(snapshot, POOLS)
    with Oracle() as oracle:
        peer = POOLS * oracle.ask(_pool_request(path, snapshot), PEER_SECONDS)["seconds"]
    planner = Planner(snapshot, Policy(spot_pool_labels=(POOL,)))
    size = f"1,000 + 2,000 nodes in {POOLS} pools, 90,000 pods"
    planner.on_demand(NOW)  # the inputs of all plans
    start = time.perf_counter()
    first = planner.certificate(NOW, Survive.POOL)
    seconds = time.perf_counter() - start
    assert first.holds
    assert len(first.pools) == POOLS
    yield Result(f"certificate, {size}", f"{seconds:.2f} s", f"{peer:.0f} s", seconds, "s", 2, 1)
    _replace(snapshot, list(snapshot.pods.values())[::100])
    planner.on_demand(NOW)
    start = time.perf_counter()
    planner.certificate(NOW, Survive.POOL)
    seconds = time.perf_counter() - start
    label = "the same when 1 % of the pods changed"
    yield Result(label, f"{seconds:.2f} s", f"{peer:.0f} s", seconds, "s", 0.2, 0.1)


def _pool_request(path: Path, snapshot: Snapshot) -> Json:
    """Return the request to place the pods of the nodes of one pool on all other nodes, the nodes one by one."""
    lost = [node.name for node in snapshot.nodes if node.metadata.labels.get(POOL) == "pool-0"]
    remaining = [node.name for node in snapshot.nodes if node.metadata.labels.get(POOL) != "pool-0"]
    pods = {
        name: [pod.key for pod in snapshot.pods_on[name].values() if pod.owner and pod.owner.kind != "DaemonSet"]
        for name in lost
    }
    taint = {"key": "lost", "effect": "NoSchedule"}
    asked = {"ondemand": lost, "spot": remaining, "movable": pods, "taint": taint}
    return {"mode": "firstfit", "snapshot_file": str(path.resolve()), **asked}


def _in_pools(snapshot: Snapshot, pools: int) -> None:
    """Give the spot nodes instance types, so that they are in so many pools."""
    spot = sorted((node for node in snapshot.nodes if node.name.startswith("spot-")), key=lambda node: node.name)
    for number, node in enumerate(spot):
        labels = {**node.metadata.labels, POOL: f"pool-{number % pools}"}
        snapshot.upsert("Node", replaced(node, metadata=replaced(node.metadata, labels=labels)))


def _replace(snapshot: Snapshot, pods: list[Pod]) -> None:
    nodes = [pod.node_name for pod in pods]
    for pod, node in zip(pods, nodes[1:] + nodes[:1], strict=True):
        snapshot.delete("Pod", pod.key)
        moved = msgspec.structs.replace(pod, name=f"{pod.name}x", uid=f"{pod.uid}x", node_name=node)
        snapshot.upsert("Pod", moved)
