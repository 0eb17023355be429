"""Large clusters for benchmarks, in the format of ``kubectl get -o json``.

A tenth of the pods have anti-affinity by host, a tenth spread over zones, a twentieth stay in one zone, and half
tolerate a taint of a tenth of the spot nodes. Each node runs two DaemonSet pods. All constraints are satisfied,
and every on-demand node can be drained because spot nodes are half full.
"""

import gzip
import json
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import TextIOBase
from pathlib import Path
from random import Random
from typing import Final

import click

from tests.bench import shapes
from tests.bench.shapes import ZONES, Json

KINDS: Final = ("",) * 11 + ("apart",) * 4 + ("spread",) * 2 + ("together",)
_TOLERANT: Final = 0.4  #: share of the first apps; the last apps all tolerate the taint, which adds up to half
_SEEKS_TAINTED: Final = 0.12
_REPLICAS: Final = (3, 5, 10, 20, 30, 60)


@dataclass(frozen=True, slots=True)
class Big:
    """The written cluster: its nodes, and the pods to evict from each on-demand node."""

    on_demand: list[str]
    spot: list[str]
    movable: dict[str, list[str]] = field(default_factory=dict)


def big(path: Path, on_demand: int = 1000, spot: int = 2000, pods_per_node: int = 30, seed: int = 1) -> Big:
    """Write the cluster to *path*, one object per line, compressed if it ends in ``.gz``; deterministic."""
    cluster = Big([f"od-{i}" for i in range(on_demand)], [f"spot-{i}" for i in range(spot)])
    with _opened(path) as out:
        out.write('{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[\n')
        separator = ""
        for text in _objects(cluster, pods_per_node, Random(seed)):
            out.write(separator)
            out.write(text)
            separator = ",\n"
        out.write("\n]}\n")
    return cluster


def _opened(path: Path) -> TextIOBase:
    if path.suffix == ".gz":
        return gzip.open(path, "wt", compresslevel=1)
    return path.open("w", buffering=1 << 22)


def _objects(cluster: Big, pods_per_node: int, rng: Random) -> Iterator[str]:
    zone_of = {name: ZONES[i % len(ZONES)] for i, name in enumerate([*cluster.spot, *cluster.on_demand])}
    tainted = set(cluster.spot[9::10])
    for i, (name, zone) in enumerate(zone_of.items()):
        yield json.dumps(shapes.node(name, zone, spot=i < len(cluster.spot), tainted=name in tainted, number=i))
    for name in shapes.NAMESPACES:
        yield json.dumps(shapes.namespace(name))
    slots = _Slots(zone_of, tainted, pods_per_node - len(shapes.DAEMONS), rng)
    for app in _apps(len(zone_of) * (pods_per_node - len(shapes.DAEMONS)), rng):
        yield json.dumps(shapes.replica_set(app))
        if app.replicas > 3:
            yield json.dumps(shapes.budget(app))
        yield from _placed(app, slots, cluster, rng)
    for daemon in shapes.DAEMONS:
        text = shapes.PodText(shapes.daemon_pod(daemon))
        for i, name in enumerate(zone_of):
            yield text.fill(f"{daemon}-{shapes.suffix(i)}", name, i, "kube-system")


def _apps(pods: int, rng: Random) -> Iterator[shapes.App]:
    """Yield apps with *pods* pods in total. The last ones have no zone constraint: a zone may be full by then."""
    number, last = 0, pods // 6
    while pods > 0:
        replicas = min(rng.choice(_REPLICAS), pods)
        kind = rng.choice(KINDS) if pods > last else ""
        yield shapes.App(
            name=f"app-{number}",
            namespace=rng.choice(shapes.NAMESPACES[1:]),
            kind=kind,
            replicas=min(replicas, 20) if kind == "apart" else replicas,
            tolerant=rng.random() < _TOLERANT or pods <= last,
            cpu=rng.choice((50, 100, 150, 200, 250)),
            memory=rng.choice((64, 128, 256, 512)),
        )
        pods -= min(replicas, 20) if kind == "apart" else replicas
        number += 1


class _Slots:
    """Free slots by zone and taint. Used nodes move to the end of their queue, to mix the apps on each node."""

    def __init__(self, zone_of: dict[str, str], tainted: set[str], each: int, rng: Random) -> None:
        names = list(zone_of)
        rng.shuffle(names)
        self._rng = rng
        self._free = dict.fromkeys(names, each)
        self._queues = {
            (zone, taint): deque(name for name in names if (zone_of[name], name in tainted) == (zone, taint))
            for zone in ZONES
            for taint in (True, False)
        }

    def take(self, zone: str, *, tolerant: bool) -> str | None:
        """Return a node of *zone*, or of another zone if it is full; None if all are full."""
        taints: tuple[bool, ...] = (False,)
        if tolerant:
            taints = (True, False) if self._rng.random() < _SEEKS_TAINTED else (False, True)
        zones = (zone, *(other for other in ZONES if other != zone))
        queues = (self._queues[each, taint] for each in zones for taint in taints)
        if not (queue := next(filter(None, queues), None)):
            return None
        name = queue.popleft()
        self._free[name] -= 1
        if self._free[name]:
            queue.append(name)
        return name


def _placed(app: shapes.App, slots: _Slots, cluster: Big, rng: Random) -> Iterator[str]:
    text = shapes.PodText(shapes.pod(app))
    home = rng.randrange(len(ZONES))
    for i in range(app.replicas):
        zone = ZONES[home if app.kind == "together" else (home + i) % len(ZONES)]
        if (node := slots.take(zone, tolerant=app.tolerant)) is None:
            return
        name = f"{app.name}-{app.hash}-{shapes.suffix(rng.getrandbits(25))}"
        if node.startswith("od-"):
            cluster.movable.setdefault(node, []).append(f"{app.namespace}/{name}")
        yield text.fill(name, node, rng.getrandbits(32), app.namespace)


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--on-demand", default=1000, show_default=True)
@click.option("--spot", default=2000, show_default=True)
@click.option("--pods-per-node", default=30, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--request",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the oracle's first-fit request to this file.",
)
def main(path: Path, on_demand: int, spot: int, pods_per_node: int, seed: int, request: Path | None) -> None:
    """Write a big cluster to PATH."""
    cluster = big(path, on_demand, spot, pods_per_node, seed)
    if request is not None:
        request.write_text(json.dumps(firstfit_request(path, cluster)) + "\n")
    click.echo(f"{path}: {path.stat().st_size / 1e6:.0f} MB", err=True)


def firstfit_request(path: Path, cluster: Big) -> Json:
    """Return the request for the scheduler's first fit over all on-demand nodes."""
    taint = {"key": "draining", "effect": "NoSchedule"}
    asked = {"ondemand": cluster.on_demand, "spot": cluster.spot, "movable": cluster.movable, "taint": taint}
    return {"mode": "firstfit", "snapshot_file": str(path.resolve()), **asked}


if __name__ == "__main__":
    sys.exit(main())
