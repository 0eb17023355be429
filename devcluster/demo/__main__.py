"""``python -m devcluster.demo [--keep]``: the daemon's demo."""

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
import httpx2
from rich.table import Table

from devcluster.demo import machines, scene
from devcluster.demo.machines import Machines
from devcluster.demo.program import Program, console, print_bold, run
from devcluster.demo.tables import Census, census, change, places
from devcluster.manifests import Json
from devcluster.plane import ControlPlane
from devcluster.signals import exit_on_sigterm
from predicates.snapshot import DRAIN_TAINT

FLAGS: Final = (
    "--housekeeping-interval=500ms",
    "--node-drain-delay=1s",
    "--pod-eviction-timeout=60s",  # longer than the pods may take to terminate
    "--listen-address=127.0.0.1:0",
    "--cloud-provider=cloudpool",
    "-v=2",
)
#: Sufficient on a busy machine.
IDLE_SECONDS: Final = 300


@click.command()
@click.option("--keep", is_flag=True, help="Keep the cluster running afterwards and print its KUBECONFIG.")
def main(*, keep: bool) -> None:
    """Start a control plane, place pods on on-demand nodes, uncordon spot nodes, and run the daemon."""
    exit_on_sigterm()
    print_bold("1. Start a control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and kwok")
    with ControlPlane() as plane, machines.serving(plane, scene.ON_DEMAND_NODES, scene.POOL) as pool:
        print_bold(
            f"2. Create {scene.ON_DEMAND_NODES} on-demand nodes, machines of a cloudpool, and {scene.SPOT_NODES} spot "
            "nodes; all pods start on on-demand nodes"
        )
        scene.begin(plane)
        before, then = scene.running(plane), census(plane, pool)
        console.print(places("Before", plane))
        print_bold("3. Run the daemon: rescheduler run --cloud-provider cloudpool")
        with _daemon(plane, pool) as daemon:
            _wait_until_idle(plane, daemon)
            # A Job recreates an evicted pod only after some seconds.
            plane.wait_for(lambda: len(scene.running(plane)) == len(before), "all pods running again")
        print_bold("4. Result")
        problems = _result(plane, before, then, census(plane, pool))
        if daemon.status:
            problems.append(f"the daemon exited with code {daemon.status}")
        if problems:
            console.print("; ".join(problems), style="bold red", markup=False)
        if keep:
            _keep(plane)
    sys.exit(1 if problems else 0)


@contextmanager
def _daemon(plane: ControlPlane, pool: Machines) -> Iterator[Program]:
    """Run the daemon with *pool* as the cloud provider."""
    section = {"id": "on-demand", "backend": {"url": pool.url}}
    intervals = {"refreshInterval": "500ms", "pollInterval": "500ms", "settleTime": "5s"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cloud.json"
        file.write_text(json.dumps({"pools": [section | intervals]}))
        arguments = ["rescheduler", "run", f"--kubeconfig={plane.kubeconfig}", f"--cloud-config={file}", *FLAGS]
        with Program(arguments) as daemon:
            yield daemon


def _wait_until_idle(plane: ControlPlane, daemon: Program) -> None:
    """Wait until the daemon has evaluated all nodes and can drain none of them."""

    def idle() -> bool:
        address = daemon.word_after("serving on ")
        if not address:
            return False
        page = httpx2.get(f"{address}/statusz", headers={"Accept": "application/json"}, trust_env=False).json()
        done = page["complete"] and page["draining"] is None and page["waiting"] is None
        return bool(done) and not any(node["drainable"] for node in page["nodes"])

    plane.wait_for(idle, "an idle daemon", seconds=IDLE_SECONDS)


def _result(plane: ControlPlane, before: Mapping[str, str], then: Census, now: Census) -> list[str]:
    """Print the tables and return the problems."""
    pods = {scene.name(pod): pod for pod in scene.movable(plane)}
    verdicts = {node["node"]: node for node in _plan(plane)["nodes"]}
    emptied = sorted(set(before.values()) - {pod["spec"].get("nodeName", "") for pod in pods.values()})
    console.print(places("After", plane))
    console.print(_on_demand(emptied, verdicts))
    console.print(change("The cloudpool", then, now))
    pending = [name for name, pod in pods.items() if not pod["spec"].get("nodeName")]
    tainted = [
        node["metadata"]["name"]
        for node in plane.api.items("/api/v1/nodes")
        if any(taint["key"] == DRAIN_TAINT.key for taint in node["spec"].get("taints", ()))
    ]
    remaining = len(then.nodes) - len(emptied)
    agree = (len(now.nodes), now.running, now.desired) == (remaining, remaining, remaining)
    problems = [
        *(f"{name} is Pending" for name in pending),
        *(f"{name} still has the drain taint" for name in tainted),
        *(["no node was drained"] if not emptied else []),
        *([f"{len(before)} pods ran before, {len(pods)} run now"] if len(before) != len(pods) else []),
        *(
            [f"{remaining} machines, Nodes and desired size expected; see the table of the cloudpool"]
            if not agree
            else []
        ),
    ]
    moved = sum(pod["spec"].get("nodeName", "").startswith("spot") for pod in pods.values())
    if not problems:
        print_bold(
            f"{len(emptied)} nodes drained and their machines terminated. {moved} pods run on spot nodes, none is "
            f"Pending. No drain taint is left. The pool's desired size is {now.desired}."
        )
    return problems


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
    table.add_column("reason")
    for node in sorted({*emptied, *verdicts}):
        if node in emptied:
            table.add_row(node, "drained", "")
            continue
        for blocker in verdicts[node]["blockers"]:
            where = f"{blocker['pod']}: " if blocker["pod"] else ""
            table.add_row(node, "kept", f"{where}{blocker['detail']} ({blocker['reason']})")
    return table


def _keep(plane: ControlPlane) -> None:
    console.print(f"The cluster runs until Ctrl-C:\n  export KUBECONFIG={plane.kubeconfig}\n  rescheduler plan")
    try:
        plane.wait_until(threading.Event())
    except KeyboardInterrupt:
        console.print("stopped")


if __name__ == "__main__":
    run(main)
