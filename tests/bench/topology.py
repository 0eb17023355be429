"""Cost of queries about other pods, with 1,000, 10,000 and 100,000 pods on the same 2,000 nodes.

The same 96 apps of ten pods are queried each time. Only the number of surrounding pods grows: apps of the same kinds
in the same namespaces, with their own terms. Each ratio therefore shows how a cost grows with the number of pods.
"""

import gc
import statistics
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from predicates.framework import Plugin
from predicates.indexes.topology import TopologyIndex
from predicates.objects import Pod, PodClass
from predicates.plugins import pods as plugins_pods
from predicates.snapshot import Snapshot
from predicates.wire import Decoder, Interner

PODS: Final = (1_000, 10_000, 100_000)
NODES: Final = 2_000
_REPLICAS: Final = 10
_QUERIED_APPS: Final = 96  #: apps
_ROUNDS: Final = 7
_ZONE: Final = "topology.kubernetes.io/zone"
_HOST: Final = "kubernetes.io/hostname"


class Row(NamedTuple):
    """The microseconds for each number in :data:`PODS`, and the growth of the cost from the fewest pods to the most."""

    label: str
    microseconds: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Cost with the most pods divided by the cost with the fewest."""
        return self.microseconds[-1] / self.microseconds[0]


def run() -> list[Row]:
    """Run all measurements; takes some seconds."""
    costs = []
    for pods in PODS:
        cluster = _AppCluster(pods)
        gc.collect()
        gc.disable()  # The cost of a collection depends on all objects in memory.
        try:
            costs.append(dict(_measured(cluster)))
        finally:
            gc.enable()
    return [Row(label, tuple(row[label] for row in costs)) for label in costs[0]]


def table(rows: list[Row]) -> str:
    """Return *rows* as text."""
    head = f"{'µs':48}" + "".join(f"{pods:>10,}" for pods in PODS) + f"{'ratio':>8}"
    lines = [
        f"{row.label:48}" + "".join(f"{cost:>10.2f}" for cost in row.microseconds) + f"{row.ratio:>8.2f}"
        for row in rows
    ]
    return "\n".join([head, *lines])


_KINDS: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "plain": lambda _: {},
    "spread over zones": lambda app: _spread(_ZONE, app),
    "spread over hosts": lambda app: _spread(_HOST, app),
    "apart on hosts": lambda app: {"affinity": {"podAntiAffinity": _terms(_HOST, app)}},
    "together on a host": lambda app: {"affinity": {"podAffinity": _terms(_HOST, app)}},
    "together in a zone": lambda app: {"affinity": {"podAffinity": _terms(_ZONE, app)}},
}


def _spread(key: str, app: str) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [constraint | {"labelSelector": {"matchLabels": {"app": app}}}]}


def _terms(key: str, app: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


class _AppCluster:
    """A cluster with *pods* pods on all nodes, in apps of ten pods of each kind. ``asked`` are the first apps."""

    def __init__(self, pods: int) -> None:
        self.snapshot = Snapshot()
        decoder = Decoder(Interner())
        for number in range(NODES):
            self.snapshot.upsert("Node", decoder.decode("Node", msgspec.json.encode(_node(number))))
        self.asked: dict[str, list[PodClass]] = {kind: [] for kind in _KINDS}
        for number in range(pods // _REPLICAS):
            kind = tuple(_KINDS)[number % len(_KINDS)]
            cls = _class(decoder, kind, number)
            if number < _QUERIED_APPS:
                self.asked[kind].append(cls)
            for replica in range(_REPLICAS):
                name, row = f"{number}-{replica}", (number * 7 + replica * 191) % NODES
                pod = Pod(namespace=cls.namespace, name=name, uid="", node_name=f"n{row}", cls=cls)
                self.snapshot.upsert("Pod", pod)


def _node(number: int) -> dict[str, Any]:
    labels = {_HOST: f"n{number}", _ZONE: f"z{number % 3}"}
    return {"metadata": {"name": f"n{number}", "labels": labels}, "status": {"allocatable": {"pods": "110"}}}


def _class(decoder: Decoder, kind: str, number: int) -> PodClass:
    app = f"{kind.replace(' ', '-')}-{number}"
    meta = {"name": app, "namespace": f"team-{number % 20}", "labels": {"app": app, "managed-by": "Helm"}}
    spec = {"containers": [{"name": "c"}], **_KINDS[kind](app)}
    pod = decoder.decode("Pod", msgspec.json.encode({"metadata": meta, "spec": spec}))
    assert isinstance(pod, Pod)
    return pod.cls


def _measured(cluster: _AppCluster) -> Iterator[tuple[str, float]]:
    snapshot = cluster.snapshot
    start = perf_counter()
    index = snapshot.index(TopologyIndex)
    yield "index made, for each pod", (perf_counter() - start) * 1e6 / len(snapshot.pods)
    rows = np.arange(NODES, dtype=np.intp)
    for kind, classes in cluster.asked.items():
        plugin = plugins_pods.POD_TOPOLOGY_SPREAD if kind.startswith("spread") else plugins_pods.INTER_POD_AFFINITY
        yield f"first question, {kind}", _question(plugin, classes, snapshot, rows, rounds=1)
        yield f"question, {kind}", _question(plugin, classes, snapshot, rows, rounds=_ROUNDS)
    for kind, classes in cluster.asked.items():
        yield f"placement, {kind}", _placement(index, classes)


def _question(
    plugin: Plugin, classes: list[PodClass], snapshot: Snapshot, rows: npt.NDArray[np.intp], rounds: int
) -> float:
    """Return the best of *rounds* for the median class."""
    costs: list[float] = []
    for cls in classes:
        best = float("inf")
        for _ in range(rounds):
            start = perf_counter()
            plugin.filter(plugin.pre_filter(cls), snapshot, rows)
            best = min(best, perf_counter() - start)
        costs.append(best)
    return statistics.median(costs) * 1e6


def _placement(index: TopologyIndex, classes: list[PodClass]) -> float:
    """Return the best of several rounds for the median class, each with a hundred pods that are placed and removed."""
    costs: list[float] = []
    for cls in classes:
        best, route = float("inf"), index.watch(cls)
        for _ in range(_ROUNDS):
            start = perf_counter()
            for row in range(100):
                for by in (+1, -1):
                    for callback in route.callbacks:
                        callback(row, by)
            best = min(best, (perf_counter() - start) / 200)
        costs.append(best)
    return statistics.median(costs) * 1e6


if __name__ == "__main__":
    print(table(run()))  # noqa: T201 - the command line of a benchmark
