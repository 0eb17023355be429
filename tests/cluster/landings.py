"""``python -m tests.cluster.landings``: carry out the first plan of random clusters, with the real scheduler.

The pods have affinity, spread, claims, tolerations and budgets. No drain may fail: nothing happens in these clusters
that could not be known before.
"""

import math
import sys
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import click

from devcluster import build, cleaning
from devcluster.api import Json
from devcluster.manifests import ON_DEMAND, deployment, on_demand, pdb, spot, statefulset
from devcluster.plane import ControlPlane
from devcluster.signals import exit_on_sigterm
from rescheduler.clock import SystemClock, pause
from tests.cluster.attacher import disk, mounts
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import SOFT, Daemon, prefers
from tests.cluster.observer import Observer, ready

HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
_TAINT: Final = {"key": "example.com/spot", "value": "true", "effect": "NoSchedule"}
_TOLERATION: Final = {"key": "example.com/spot", "operator": "Exists"}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"

#: For the scheduler to place what it can, and for all pods of a step to run again, in seconds.
_SETTLING: Final = 20.0
_DRAIN: Final = 120.0
_ROUNDS: Final = 8.0  #: for the first rounds of a daemon

#: Numbers of on-demand nodes.
_NODES: Final = 2
_WITH_LEFTOVERS: Final = 4


@dataclass(slots=True)
class Outcomes:
    """The drains of some random clusters."""

    clusters: int = 0
    drained: int = 0
    failed: list[str] = field(default_factory=list)  #: the seed, and why
    with_leftovers: int = 0  #: clusters with a plan that moves leftovers
    made_room: int = 0  #: clusters in which a node that stays made room

    @property
    def text(self) -> str:
        stay = self.clusters - self.drained - len(self.failed)
        more = f"; {self.with_leftovers} with leftovers, {self.made_room} made room" if self.with_leftovers else ""
        return f"{self.clusters} clusters: {self.drained} drains, {len(self.failed)} failed; no plan in {stay}{more}"


def nodes(rng: Random, number_on_demand: int) -> list[Json]:
    """Return on-demand nodes, and cordoned spot nodes."""

    def fields(taints: list[Json]) -> dict[str, Any]:
        cpu, zone = str(rng.randrange(2, 5)), rng.choice("ab")
        return {"labels": {ZONE: zone}, "allocatable": {"cpu": cpu}, "taints": taints}

    soft = {"key": "example.com/on-demand", "value": "true", "effect": SOFT}
    spots = [spot(f"spot-{number}", **fields(rng.choice([[], [_TAINT]]))) for number in range(rng.randrange(2, 5))]
    for node in spots:
        node["spec"]["unschedulable"] = True
    return [*(on_demand(f"on-demand-{number}", **fields([soft])) for number in range(1, number_on_demand + 1)), *spots]


def kept(rng: Random, number: int) -> list[Json]:
    """Return pods that must not run on spot nodes, of which each on-demand node gets one, if it has room."""
    names = [f"on-demand-{each}" for each in range(1, number + 1)]
    cpu = [f"{rng.randrange(1, 9)}00m" for _ in names]
    pinned = {"nodeSelector": {ON_DEMAND: "true"}}
    pods = zip(names, cpu, strict=True)
    return [
        deployment(f"kept{at}", 1, cpu=size, affinity=prefers(name), **pinned) for at, (name, size) in enumerate(pods)
    ]


def workloads(rng: Random) -> list[Json]:
    """Return claims, budgets and controllers with random rules."""
    apps = [f"app{number}" for number in range(rng.randrange(2, 6))]
    objects: list[Json] = []
    for app in apps:
        replicas = rng.randrange(1, 4)
        spec = _rules(app, rng.choice(apps), rng)
        spec |= {"cpu": f"{rng.randrange(1, 10)}00m", "labels": {"team": rng.choice("xy")}}
        if replicas == 1 and rng.random() < 0.4:
            zones = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [rng.choice("ab")]}]}
            affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [zones]}}} if rng.random() < 0.5 else {}
            objects += disk(app, **affinity)
            spec |= mounts(app)
        make = rng.choice([deployment, deployment, statefulset])
        objects.append(make(app, replicas, **spec))
        if rng.random() < 0.4:
            most = rng.choice([1, None])
            least = None if most else replicas - 1
            objects.append(pdb(app, max_unavailable=most, min_available=least))
    return objects


def _rules(app: str, other: str, rng: Random) -> dict[str, Any]:
    """Return random scheduling rules of the pods of *app*; some concern the pods of *other*."""
    spec: dict[str, Any] = {}
    if rng.random() < 0.6:
        spec["tolerations"] = [_TOLERATION]
    rule = rng.choice(["", "", "apart", "together", "seeks", "team", "spread", "spread", "avoids"])
    key = rng.choice([HOST, ZONE])
    own = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    if rule == "apart":
        spec["affinity"] = {"podAntiAffinity": {_REQUIRED: [{**own, "topologyKey": HOST}]}}
    elif rule == "together":
        spec["affinity"] = {"podAffinity": {_REQUIRED: [own]}}
    elif rule == "seeks":
        spec["affinity"] = {"podAffinity": {_REQUIRED: [{**own, "labelSelector": {"matchLabels": {"app": other}}}]}}
    elif rule == "team":
        selector = {"matchLabels": {"team": rng.choice("xy")}}
        spec["affinity"] = {"podAffinity": {_REQUIRED: [{**own, "labelSelector": selector}]}}
    elif rule == "avoids" and other != app:
        selector = {"matchLabels": {"app": other}}
        spec["affinity"] = {"podAntiAffinity": {_REQUIRED: [{**own, "topologyKey": HOST, "labelSelector": selector}]}}
    elif rule == "spread":
        spread = {"maxSkew": rng.randrange(1, 3), "whenUnsatisfiable": rng.choice(["DoNotSchedule", "ScheduleAnyway"])}
        policies = {"nodeTaintsPolicy": rng.choice(["Honor", "Ignore"])}
        spec["topologySpreadConstraints"] = [{**own, **spread, **policies}]
    return spec


def carry_out(cluster: ControlPlane, seed: int, outcomes: Outcomes, *, leftovers: bool = False) -> None:
    """Carry out the first plan of a random cluster on the empty *cluster*."""
    rng, observer = Random(f"landings/{seed}"), Observer(cluster)
    made = nodes(rng, _WITH_LEFTOVERS if leftovers else _NODES)
    cluster.apply(made)
    observer.eventually(lambda: all(map(_is_ready, cluster.api.items("/api/v1/nodes"))), "Ready nodes")
    cluster.apply([*(kept(rng, _WITH_LEFTOVERS) if leftovers else ()), *workloads(rng)])
    _settle(observer)
    for node in observer.node_names():
        observer.cordon(node, off=True)
    _settle(observer)
    outcomes.clusters += 1
    more = ("--leftovers=move",) if leftovers else ()
    with Daemon(cluster, *FLAGS, "--node-cooldown=1h", "--node-cooldown-max=1h", *more) as daemon:
        ended = _end(observer, daemon, [name for name in observer.node_names() if name.startswith("on-demand")])
        outcomes.with_leftovers += bool(daemon.logged("to on-demand nodes that stay"))
        outcomes.made_room += any("RoomMade" in observer.events(name) for name in observer.node_names())
    if ended.startswith("drained"):
        outcomes.drained += 1
    elif ended:
        outcomes.failed.append(f"seed {seed}: {ended}")


def _end(observer: Observer, daemon: Daemon, names: list[str]) -> str:
    """Return how the first drain ended; "" if no drain starts within _ROUNDS seconds."""
    clock = SystemClock()
    until, planned_at = clock.monotonic() + _DRAIN, math.inf
    while clock.monotonic() < until:
        for node in names:
            if messages := observer.messages(node, "DrainFailed"):
                return f"{node}: {messages[0]}"
            if "NodeDrained" in observer.events(node):
                return f"drained {node}"
        if daemon.logged("planned "):
            planned_at = min(planned_at, clock.monotonic())
        if not observer.markings() and clock.monotonic() > planned_at + _ROUNDS:
            return ""
        pause(0.3)
    return f"no end within {_DRAIN:g} s; marks {observer.marks()}"


def _settle(observer: Observer) -> None:
    """Wait until the scheduler has processed all pods: they are Ready, or it cannot place them."""

    def settled() -> bool:
        pods = observer.pods()
        waiting = [pod for pod in pods if not _unschedulable(pod)]
        return bool(pods) and len(ready(waiting)) == len(waiting)

    observer.eventually(settled, "a settled cluster", _SETTLING * 3)


def _is_ready(node: Json) -> bool:
    """Return whether the node is Ready, and has lost the taint of new nodes."""
    conditions = node["status"].get("conditions", ())
    new = any(taint["key"].startswith("node.kubernetes.io/not-ready") for taint in node["spec"].get("taints", ()))
    return not new and any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def _unschedulable(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any((each["type"], each.get("reason")) == ("PodScheduled", "Unschedulable") for each in conditions)


@click.command()
@click.option("--clusters", default=10, show_default=True)
@click.option("--seed", default=1, show_default=True, help="The first seed; each cluster has its own.")
@click.option(
    "--leftovers",
    is_flag=True,
    help="Each on-demand node has a pod that must not run on spot nodes; such pods move all the same.",
)
def main(clusters: int, seed: int, *, leftovers: bool) -> None:
    """Carry out the first plans of random clusters."""
    exit_on_sigterm()
    build.binaries()
    outcomes = Outcomes()
    with ControlPlane() as cluster:
        for number in range(seed, seed + clusters):
            carry_out(cluster, number, outcomes, leftovers=leftovers)
            click.echo(f"seed {number}: {outcomes.text}")
            cleaning.empty(cluster)
    for failed in outcomes.failed:
        click.echo(failed)
    sys.exit(bool(outcomes.failed))


if __name__ == "__main__":
    main()
