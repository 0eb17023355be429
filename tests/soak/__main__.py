"""``make soak N=50``: run the daemon on random clusters of a real control plane and check that moved pods run again."""

import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import click
import httpx2
from rich.console import Console
from rich.table import Table

from devcluster import cleaning
from devcluster.manifests import Json
from devcluster.plane import ControlPlane
from devcluster.signals import exit_on_sigterm
from rescheduler.observe.events import Waiting
from tests.cluster.daemon import SOFT, Daemon
from tests.soak.scenes import SoakScene, scene

FLAGS: Final = (
    "--housekeeping-interval=200ms",
    "--node-drain-delay=500ms",
    "--pod-eviction-timeout=30s",
    "--max-graceful-termination=2s",
    "--shorten-grace-periods",
    "--pending-patience=1m",
    "-v=2",
)
REST_SECONDS: Final = 900
_SPOT: Final = "node-role.kubernetes.io/spot-worker"


@dataclass(slots=True)
class ClusterTally:
    """Outcome of one cluster."""

    seed: int
    nodes: int = 0
    on_demand: int = 0
    pods: int = 0
    drained: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)  #: placements of pods compared with the forecast
    trouble: list[str] = field(default_factory=list)


@click.command()
@click.option("--clusters", default=50, show_default=True)
@click.option(
    "--seed", default=1, show_default=True, help="Seed of the first cluster; later clusters use the following seeds."
)
def main(clusters: int, seed: int) -> None:
    """Check that all pods run again, none is Pending, and no drain failed because of missing room."""
    exit_on_sigterm()
    tallies: list[ClusterTally] = []
    with ControlPlane() as plane:
        for number in range(seed, seed + clusters):
            tallies.append(_played(plane, number))
            click.echo(f"cluster {number}: {tallies[-1]}", err=True)
            cleaning.empty(plane)
    Console(width=140).print(_table(tallies))
    sys.exit(any(tally.trouble for tally in tallies))


def _played(plane: ControlPlane, seed: int) -> ClusterTally:
    cluster = scene(seed)
    tally = ClusterTally(seed, len(cluster.nodes), cluster.on_demand)
    _fill(plane, cluster)
    before = _ready(plane)
    tally.pods = len(before)
    with Daemon(plane, *FLAGS) as daemon:
        plane.wait_for(lambda: _rests(daemon), "the daemon at rest", seconds=REST_SECONDS)
        plane.wait_for(lambda: len(_ready(plane)) >= len(before), "every pod running again", seconds=120)
        tally.drained = len(daemon.logged("drained after"))
        tally.failed = Counter(str(line.get("reason")) for line in daemon.logged("drain failed"))
        tally.outcomes = _outcomes(daemon)
        daemon.terminate()
        daemon.end()
    pods = plane.api.items("/api/v1/pods")
    pending = [pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName")]
    tally.trouble = [f"{name} is Pending" for name in pending]
    if len(_ready(plane)) != len(before):
        tally.trouble.append(f"{len(before)} pods ran before, {len(_ready(plane))} after")
    tally.trouble += [f"{count} drains failed: {why}" for why, count in tally.failed.items() if "room" in why]
    return tally


def _fill(plane: ControlPlane, cluster: SoakScene) -> None:
    """Place fillers on spot nodes and movers on on-demand nodes, using cordons; remove pods that do not fit."""
    plane.apply(cluster.nodes)
    plane.wait_for(lambda: _usable(plane) == len(cluster.nodes), "Ready nodes", seconds=120)
    _cordon(plane, f"!{_SPOT}", closed=True)
    plane.apply(cluster.fillers)
    plane.wait_for(lambda: _placed(plane), "fillers", seconds=240)
    _cordon(plane, f"!{_SPOT}", closed=None)
    _cordon(plane, _SPOT, closed=True)
    plane.apply([*cluster.movers, *cluster.budgets])
    plane.wait_for(lambda: _placed(plane), "movers", seconds=240)
    _drop_waiting(plane)
    _cordon(plane, _SPOT, closed=None)
    plane.wait_for(lambda: _usable(plane) == len(cluster.nodes), "open spot nodes", seconds=120)


def _drop_waiting(plane: ControlPlane) -> None:
    """Scale Deployments down to their Ready pods: the daemon only guarantees pods that were running."""
    for deployment in plane.api.items("/apis/apps/v1/deployments"):
        ready = deployment["status"].get("readyReplicas", 0)
        if ready < deployment["spec"]["replicas"]:
            meta = deployment["metadata"]
            path = f"/apis/apps/v1/namespaces/{meta['namespace']}/deployments/{meta['name']}"
            plane.api.patch(path, {"spec": {"replicas": ready}})
    plane.wait_for(lambda: all(_is_ready(pod) for pod in plane.api.items("/api/v1/pods")), "only running pods")


def _placed(plane: ControlPlane) -> bool:
    """Return whether every pod runs or is reported as unschedulable."""
    pods = plane.api.items("/api/v1/pods")
    replicas = sum(deployment["spec"]["replicas"] for deployment in plane.api.items("/apis/apps/v1/deployments"))
    return len(pods) == replicas and all(_is_ready(pod) or _is_unschedulable(pod) for pod in pods)


def _rests(daemon: Daemon) -> bool:
    """Return whether no node can be drained, or the daemon waits because moved pods returned."""
    if not daemon.running or not daemon.address:
        return False
    page = httpx2.get(f"{daemon.address}/statusz", headers={"Accept": "application/json"}).json()
    waiting = page["waiting"]["reason"] if page["waiting"] else ""
    if waiting == Waiting.RETURNED_PODS:
        return True
    done = page["complete"] and page["draining"] is None and not waiting
    return bool(done) and not any(node["drainable"] and node["placements"] for node in page["nodes"])


def _outcomes(daemon: Daemon) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for line in httpx2.get(f"{daemon.address}/metrics").text.splitlines():
        if line.startswith("spot_rescheduler_placement_predictions_total{"):
            label, _, value = line.partition("{")[2].partition("} ")
            outcomes[label] = round(float(value))
    return outcomes


def _ready(plane: ControlPlane) -> list[str]:
    return [pod["metadata"]["uid"] for pod in plane.api.items("/api/v1/pods") if _is_ready(pod)]


def _usable(plane: ControlPlane) -> int:
    nodes = plane.api.items("/api/v1/nodes")
    return sum(
        _is_ready(node) and all(taint["effect"] == SOFT for taint in node["spec"].get("taints", ())) for node in nodes
    )


def _is_ready(obj: Json) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in obj["status"].get("conditions", ()))


def _is_unschedulable(pod: Json) -> bool:
    return any(
        c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in pod["status"].get("conditions", ())
    )


def _cordon(plane: ControlPlane, selector: str, *, closed: bool | None) -> None:
    for node in plane.api.items("/api/v1/nodes", labelSelector=selector):
        plane.api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": closed}})


def _table(tallies: list[ClusterTally]) -> Table:
    table = Table(title="The daemon on random clusters", title_justify="left")
    for column in ("seed", "nodes", "on-demand", "pods", "drained", "failed drains", "landings", "trouble"):
        table.add_column(column)
    for tally in tallies:
        counts = (tally.seed, tally.nodes, tally.on_demand, tally.pods, tally.drained)
        results = (dict(tally.failed), dict(tally.outcomes), "; ".join(tally.trouble))
        table.add_row(*map(str, (*counts, *results)))
    return table


main()
