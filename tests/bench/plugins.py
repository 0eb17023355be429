"""Cost of one query to each filter plugin by number of pods, on the same nodes; it must not grow."""

import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from predicates.objects import PodClass
from predicates.plugins import DEFAULT
from predicates.snapshot import Snapshot
from predicates.wire import Decoder, Interner
from tests.bench.topology import PODS, Row
from tests.planning import builders

NODES: Final = 2_000
CLASSES: Final = 200
_REPEATS: Final = 50


def run() -> list[Row]:
    """Run all measurements; takes about ten seconds."""
    costs = [dict(_measured(pods)) for pods in PODS]
    return [Row(label, tuple(row[label] for row in costs)) for label in costs[0]]


def _measured(pods: int) -> Iterator[tuple[str, float]]:
    snapshot, asked = _cluster(pods)
    rows = np.arange(NODES)
    for plugin in DEFAULT:
        if (part := plugin.pre_filter(asked)) is None:
            continue
        plugin.filter(part, snapshot, rows)  # fill the caches of each class
        start = time.perf_counter()
        for _ in range(_REPEATS):
            plugin.filter(part, snapshot, rows)
        yield plugin.name, (time.perf_counter() - start) / _REPEATS * 1e6


def _cluster(pods: int) -> tuple[Snapshot, PodClass]:
    """Return a cluster of *pods* pods, and the class of a pod that no plugin skips."""
    snapshot, decoder = Snapshot(), Decoder(Interner())

    def put(obj: dict[str, Any]) -> None:
        snapshot.upsert(obj["kind"], decoder.decode(obj["kind"], msgspec.json.encode(obj)))

    for n in range(NODES):
        put(builders.node(f"n{n}", cpu="64", zone="abc"[n % 3], pods=200, unschedulable=n % 50 == 0))
    put(
        {
            "kind": "StorageClass",
            "metadata": {"name": "late"},
            "provisioner": "csi.x",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    )
    put(
        {
            "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": "default", "name": "data"},
            "spec": {"storageClassName": "late"},
        }
    )
    for n in range(pods):
        put(_pod(f"app{n % CLASSES}-{n}", f"n{n % NODES}"))
    put(_pod("asked-0", ""))
    return snapshot, snapshot.pods["default/asked-0"].cls


def _pod(name: str, on: str) -> builders.Manifest:
    asked = name == "asked-0"
    app = "app0" if asked else name.split("-", maxsplit=1)[0]
    spread = {"maxSkew": 1000, "topologyKey": builders.ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    more: dict[str, Any] = {
        "labels": {"app": app},
        "affinity": builders.repels(app),
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "nodeSelector": {builders.SPOT: ""},
        "topologySpreadConstraints": [spread | {"labelSelector": {"matchLabels": {"app": app}}}],
        "volumes": [{"name": "disk", "gcePersistentDisk": {"pdName": app, "readOnly": True}}],
    }
    if asked:
        more["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "data"}})
    pod = builders.pod(name, on, cpu="10m", **more)
    if asked:
        pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return pod
