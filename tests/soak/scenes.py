"""Random clusters for the local control plane: partly filled spot nodes, and more pods on on-demand nodes."""

from dataclasses import dataclass
from random import Random
from typing import Any, Final

from devcluster.manifests import ON_DEMAND, Json, deployment, mixed_nodes, pdb

ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
CPU: Final = 4000  #: millicores of every node


@dataclass(frozen=True, slots=True)
class SoakScene:
    """Objects of a cluster: fillers start on spot, movers start on on-demand nodes while spot is closed."""

    nodes: list[Json]
    on_demand: int
    fillers: list[Json]
    movers: list[Json]
    budgets: list[Json]

    @property
    def pods(self) -> int:
        return sum(workload["spec"]["replicas"] for workload in (*self.fillers, *self.movers))


def scene(seed: int) -> SoakScene:
    """Return a cluster of 20 to 60 nodes, spot filled by 60 to 95 %, with budgets, spread and affinity."""
    rng = Random(seed)
    total = rng.randint(20, 60)
    on_demand = rng.randint(total // 4, total // 2)
    spot = total - on_demand
    nodes = mixed_nodes(on_demand, spot)
    if rng.random() < 0.7:  # as the README recommends
        for node in nodes[:on_demand]:
            node["spec"]["taints"] = [{"key": ON_DEMAND, "value": "true", "effect": "PreferNoSchedule"}]
    fillers = _workloads(rng, "filler", int(spot * CPU * rng.uniform(0.6, 0.95)))
    movers = _workloads(rng, "mover", int(on_demand * CPU * rng.uniform(0.1, 0.5)))
    return SoakScene(
        nodes, on_demand, fillers, movers, [_budget(rng, workload) for workload in movers if rng.random() < 0.3]
    )


def _workloads(rng: Random, prefix: str, cpu: int) -> list[Json]:
    """Return Deployments that request about *cpu* millicores in total."""
    workloads: list[Json] = []
    while cpu > 0:
        name = f"{prefix}-{len(workloads)}"
        each, replicas = rng.choice((100, 200, 300, 500, 800)), rng.randint(1, 8)
        workloads.append(deployment(name, replicas, cpu=f"{each}m", memory="64Mi", **_constraints(rng, name, replicas)))
        cpu -= each * replicas
    return workloads


def _constraints(rng: Random, app: str, replicas: int) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    kind = rng.random()
    if kind < 0.15 and replicas <= 4:
        term = {"topologyKey": HOST, "labelSelector": selector}
        return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    if kind < 0.35:
        hard = {"maxSkew": 2, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        return {"topologySpreadConstraints": [hard]}
    if kind < 0.45:
        term = {"topologyKey": ZONE, "labelSelector": selector}
        return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    return {}


def _budget(rng: Random, workload: Json) -> Json:
    return pdb(workload["metadata"]["name"], max_unavailable=rng.choice((0, 1, 1, 2)))
