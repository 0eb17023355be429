"""``python -m deploy.local.demo [--keep]``"""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
import httpx
from rich.table import Table

from deploy.local.demo import machines, scene
from deploy.local.demo.machines import Machines
from deploy.local.demo.program import Program, console, run, say
from deploy.local.demo.tables import Census, census, change, places
from deploy.local.manifests import Json
from deploy.local.plane import ControlPlane
from predicates.snapshot import DRAIN_TAINT

FLAGS: Final = (
    "--housekeeping-interval=500ms",
    "--node-drain-delay=1s",
    "--pod-eviction-timeout=60s",  # longer than the pods may take to terminate
    "--listen-address=127.0.0.1:0",
    "--cloud-provider=cloudpool",
    "-v=2",
)
#: Long enough for a busy machine.
REST_SECONDS: Final = 300


@click.command()
@click.option("--keep", is_flag=True, help="Leave the cluster up afterwards, with a KUBECONFIG to look around.")
def main(*, keep: bool) -> None:
    """Start a real control plane, fill on-demand nodes, open spot nodes, and let the daemon work."""
    say("1. A control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok for kubelets")
    with ControlPlane() as plane, machines.serving(plane, scene.ON_DEMAND_NODES, scene.POOL) as pool:
        say(
            f"2. {scene.ON_DEMAND_NODES} on-demand nodes, machines of a cloudpool, and {scene.SPOT_NODES} spot nodes; "
            "all pods start on on-demand nodes"
        )
        scene.begin(plane)
        before, then = scene.running(plane), census(plane, pool)
        console.print(places("Before", plane))
        say("3. The daemon, a process of its own: rescheduler run --cloud-provider cloudpool")
        with _daemon(plane, pool) as daemon:
            _rest(plane, daemon)
            # A Job makes the pod that was evicted anew only after some seconds.
            plane.wait_for(lambda: len(scene.running(plane)) == len(before), "every pod running again")
        say("4. What became of it")
        trouble = _outcome(plane, before, then, census(plane, pool))
        if daemon.status:
            trouble.append(f"the daemon ended with exit code {daemon.status}")
        if trouble:
            console.print("; ".join(trouble), style="bold red", markup=False)
        if keep:
            _stay(plane)
    sys.exit(1 if trouble else 0)


@contextmanager
def _daemon(plane: ControlPlane, pool: Machines) -> Iterator[Program]:
    """The daemon, which hands emptied nodes to *pool*."""
    section = {"id": "on-demand", "backend": {"url": pool.url}}
    quick = {"refreshInterval": "500ms", "pollInterval": "500ms", "settleTime": "5s"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cloud.json"
        file.write_text(json.dumps({"pools": [section | quick]}))
        arguments = ["rescheduler", "run", f"--kubeconfig={plane.kubeconfig}", f"--cloud-config={file}", *FLAGS]
        with Program(arguments) as daemon:
            yield daemon


def _rest(plane: ControlPlane, daemon: Program) -> None:
    """Wait until the daemon has judged every node and found none that it could empty."""

    def rests() -> bool:
        address = daemon.word_after("serving on ")
        if not address:
            return False
        page = httpx.get(f"{address}/statusz", headers={"Accept": "application/json"}, trust_env=False).json()
        done = page["complete"] and page["draining"] is None and page["waiting"] is None
        return bool(done) and not any(node["drainable"] for node in page["nodes"])

    plane.wait_for(rests, "the daemon at rest", seconds=REST_SECONDS)


def _outcome(plane: ControlPlane, before: Mapping[str, str], then: Census, now: Census) -> list[str]:
    """Show the tables; what is not as it was promised."""
    pods = {scene.name(one): one for one in scene.movable(plane)}
    verdicts = {one["node"]: one for one in _plan(plane)["nodes"]}
    emptied = sorted(set(before.values()) - {one["spec"].get("nodeName", "") for one in pods.values()})
    console.print(places("After", plane))
    console.print(_on_demand(emptied, verdicts))
    console.print(change("The cloudpool", then, now))
    pending = [name for name, one in pods.items() if not one["spec"].get("nodeName")]
    tainted = [
        node["metadata"]["name"]
        for node in plane.api.items("/api/v1/nodes")
        if any(taint["key"] == DRAIN_TAINT.key for taint in node["spec"].get("taints", ()))
    ]
    left = len(then.nodes) - len(emptied)
    agree = (len(now.nodes), now.running, now.desired) == (left, left, left)
    trouble = [
        *(f"{name} is Pending" for name in pending),
        *(f"{name} carries our taint" for name in tainted),
        *(["no node was emptied"] if not emptied else []),
        *([f"{len(before)} pods ran before, {len(pods)} run now"] if len(before) != len(pods) else []),
        *([f"{left} machines, Nodes and desired size expected; see the table of the cloudpool"] if not agree else []),
    ]
    moved = sum(one["spec"].get("nodeName", "").startswith("spot") for one in pods.values())
    if not trouble:
        say(
            f"{len(emptied)} nodes emptied, {moved} pods on spot nodes now, none Pending, no taint left; "
            f"their machines are gone, the pool's desired size is {now.desired}."
        )
    return trouble


def _plan(plane: ControlPlane) -> Json:
    command = [
        sys.executable,
        "-m",
        "rescheduler",
        "plan",
        f"--kubeconfig={plane.kubeconfig}",
        "--independent",
        "-o",
        "json",
    ]
    plan: Json = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return plan


def _on_demand(emptied: list[str], verdicts: Mapping[str, Json]) -> Table:
    table = Table(title="On-demand nodes", title_justify="left")
    table.add_column("node", no_wrap=True)
    table.add_column("")
    table.add_column("why")
    for node in sorted({*emptied, *verdicts}):
        if node in emptied:
            table.add_row(node, "emptied", "")
            continue
        for blocker in verdicts[node]["blockers"]:
            where = f"{blocker['pod']}: " if blocker["pod"] else ""
            table.add_row(node, "left alone", f"{where}{blocker['detail']} ({blocker['reason']})")
    return table


def _stay(plane: ControlPlane) -> None:
    console.print(f"The cluster stays up until Ctrl-C:\n  export KUBECONFIG={plane.kubeconfig}\n  rescheduler plan")
    try:
        plane.wait_until(threading.Event())
    except KeyboardInterrupt:
        console.print("taken down")


if __name__ == "__main__":
    run(main)
