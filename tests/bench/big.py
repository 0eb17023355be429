"""Big clusters for benchmarks, written as ``kubectl get -o json`` would print them.

A tenth of the pods keep off each other's hosts, a tenth spread over zones, a twentieth stay in one zone, half
tolerate a taint that a tenth of the spot nodes carry. Two pods a node belong to DaemonSets. All constraints
hold where the pods stand, and every on-demand node can be emptied: a spot node is filled by half.
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
_TOLERANT: Final = 0.4  #: and the last ones all, which makes it half
_SEEKS_TAINTED: Final = 0.12
_REPLICAS: Final = (3, 5, 10, 20, 30, 60)


@dataclass(frozen=True, slots=True)
class Big:
    """What was written: the nodes, and the pods that would have to leave each on-demand node."""

    on_demand: list[str]
    spot: list[str]
    movable: dict[str, list[str]] = field(default_factory=dict)


def big(path: Path, on_demand: int = 1000, spot: int = 2000, pods_per_node: int = 30, seed: int = 1) -> Big:
    """Write the cluster to *path* (``.gz`` packs it), one object a line; the same for the same arguments."""
    made = Big([f"od-{i}" for i in range(on_demand)], [f"spot-{i}" for i in range(spot)])
    with _opened(path) as out:
        out.write('{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[\n')
        separator = ""
        for text in _objects(made, pods_per_node, Random(seed)):
            out.write(separator)
            out.write(text)
            separator = ",\n"
        out.write("\n]}\n")
    return made


def _opened(path: Path) -> TextIOBase:
    if path.suffix == ".gz":
        return gzip.open(path, "wt", compresslevel=1)
    return path.open("w", buffering=1 << 22)


def _objects(made: Big, pods_per_node: int, rng: Random) -> Iterator[str]:
    zone_of = {name: ZONES[i % len(ZONES)] for i, name in enumerate([*made.spot, *made.on_demand])}
    tainted = set(made.spot[9::10])
    for i, (name, zone) in enumerate(zone_of.items()):
        yield json.dumps(shapes.node(name, zone, spot=i < len(made.spot), tainted=name in tainted, number=i))
    for name in shapes.NAMESPACES:
        yield json.dumps(shapes.namespace(name))
    slots = _Slots(zone_of, tainted, pods_per_node - len(shapes.DAEMONS), rng)
    for app in _apps(len(zone_of) * (pods_per_node - len(shapes.DAEMONS)), rng):
        yield json.dumps(shapes.replica_set(app))
        if app.replicas > 3:
            yield json.dumps(shapes.budget(app))
        yield from _placed(app, slots, made, rng)
    for daemon in shapes.DAEMONS:
        text = shapes.PodText(shapes.daemon_pod(daemon))
        for i, name in enumerate(zone_of):
            yield text.fill(f"{daemon}-{shapes.suffix(i)}", name, i, "kube-system")


def _apps(pods: int, rng: Random) -> Iterator[shapes.App]:
    """Until there are *pods*. The last ones go anywhere: by then a zone may be full."""
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
    """Free places by zone and taint. A node that gave one goes to its queue's end, so that neighbours differ."""

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
        """A node of *zone*, or of another where that one is full; None where all are."""
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


def _placed(app: shapes.App, slots: _Slots, made: Big, rng: Random) -> Iterator[str]:
    text = shapes.PodText(shapes.pod(app))
    home = rng.randrange(len(ZONES))
    for i in range(app.replicas):
        zone = ZONES[home if app.kind == "together" else (home + i) % len(ZONES)]
        if (node := slots.take(zone, tolerant=app.tolerant)) is None:
            return
        name = f"{app.name}-{app.hash}-{shapes.suffix(rng.getrandbits(25))}"
        if node.startswith("od-"):
            made.movable.setdefault(node, []).append(f"{app.namespace}/{name}")
        yield text.fill(name, node, rng.getrandbits(32), app.namespace)


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--on-demand", default=1000, show_default=True)
@click.option("--spot", default=2000, show_default=True)
@click.option("--pods-per-node", default=30, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--request", type=click.Path(dir_okay=False, path_type=Path), help="Also write the oracle's firstfit request."
)
def main(path: Path, on_demand: int, spot: int, pods_per_node: int, seed: int, request: Path | None) -> None:
    """Write a big cluster to PATH."""
    made = big(path, on_demand, spot, pods_per_node, seed)
    if request is not None:
        request.write_text(json.dumps(firstfit_request(path, made)) + "\n")
    click.echo(f"{path}: {path.stat().st_size / 1e6:.0f} MB", err=True)


def firstfit_request(path: Path, made: Big) -> Json:
    """What the oracle is asked for the scheduler's own first fit over all on-demand nodes."""
    taint = {"key": "draining", "effect": "NoSchedule"}
    asked = {"ondemand": made.on_demand, "spot": made.spot, "movable": made.movable, "taint": taint}
    return {"mode": "firstfit", "snapshot_file": str(path.resolve()), **asked}


if __name__ == "__main__":
    sys.exit(main())
