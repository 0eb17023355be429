"""``python -m deploy.local.demo [--keep]``"""

import json
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click
import httpx
from rich.console import Console
from rich.table import Table

from deploy.local.demo import scene
from deploy.local.errors import LocalError
from deploy.local.manifests import Json
from deploy.local.plane import ControlPlane
from predicates.snapshot import DRAIN_TAINT

FLAGS: Final = (
    "--housekeeping-interval=500ms",
    "--node-drain-delay=1s",
    "--pod-eviction-timeout=30s",
    "--listen-address=127.0.0.1:0",
    "-v=2",
)
#: Long enough for a busy machine.
REST_SECONDS: Final = 300

console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)


@click.command()
@click.option("--keep", is_flag=True, help="Leave the cluster up afterwards, with a KUBECONFIG to look around.")
def main(*, keep: bool) -> None:
    """Start a real control plane, fill on-demand nodes, open spot nodes, and let the daemon work."""
    _say("1. A control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok for kubelets")
    with ControlPlane() as plane:
        _say(
            f"2. {scene.ON_DEMAND_NODES} on-demand and {scene.SPOT_NODES} spot nodes; all pods start on on-demand nodes"
        )
        scene.begin(plane)
        before = scene.running(plane)
        console.print(_places("Before", plane))
        _say("3. The daemon, a process of its own: rescheduler run")
        with _daemon(plane) as (address, status):
            _rest(plane, address)
            # A Job makes the pod that was evicted anew only after some seconds.
            plane.wait_for(lambda: len(scene.running(plane)) == len(before), "every pod running again")
        _say("4. What became of it")
        trouble = _outcome(plane, before, status)
        if keep:
            _stay(plane)
    sys.exit(1 if trouble else 0)


@contextmanager
def _daemon(plane: ControlPlane) -> Iterator[tuple[list[str], dict[str, int]]]:
    """Run the daemon and show its lines; the address of its pages comes with them, its exit code at the end."""
    command = [sys.executable, "-m", "rescheduler", "run", f"--kubeconfig={plane.kubeconfig}", *FLAGS]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    address: list[str] = []
    status: dict[str, int] = {}

    def show() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            console.print(f"   [dim]{line.rstrip()}[/dim]", soft_wrap=True)
            if "serving on " in line:
                address.append(line.split("serving on ")[1].split()[0])

    reader = threading.Thread(target=show, daemon=True)
    reader.start()
    try:
        yield address, status
    finally:
        process.terminate()
        status["exit"] = process.wait(60)
        reader.join(10)


def _rest(plane: ControlPlane, address: list[str]) -> None:
    """Wait until the daemon has judged every node and found none that it could empty."""

    def rests() -> bool:
        if not address:
            return False
        page = httpx.get(f"{address[0]}/statusz", headers={"Accept": "application/json"}).json()
        done = page["complete"] and page["draining"] is None and page["waiting"] is None
        return bool(done) and not any(node["drainable"] and node["placements"] for node in page["nodes"])

    plane.wait_for(rests, "the daemon at rest", seconds=REST_SECONDS)


def _outcome(plane: ControlPlane, before: dict[str, str], status: dict[str, int]) -> list[str]:
    """Show the tables; what is not as it was promised."""
    pods = {scene.name(one): one for one in scene.movable(plane)}
    verdicts = {one["node"]: one for one in _plan(plane)["nodes"]}
    emptied = sorted(set(before.values()) - {one["spec"].get("nodeName", "") for one in pods.values()})
    console.print(_places("After", plane))
    console.print(_left_alone(emptied, verdicts))
    pending = [name for name, one in pods.items() if not one["spec"].get("nodeName")]
    tainted = [
        node["metadata"]["name"]
        for node in plane.api.items("/api/v1/nodes")
        if any(taint["key"] == DRAIN_TAINT.key for taint in node["spec"].get("taints", ()))
    ]
    trouble = [
        *(f"{name} is Pending" for name in pending),
        *(f"{name} carries our taint" for name in tainted),
        *(["no node was emptied"] if not emptied else []),
        *([f"{len(before)} pods ran before, {len(pods)} run now"] if len(before) != len(pods) else []),
        *([f"the daemon ended with exit code {status['exit']}"] if status["exit"] else []),
    ]
    moved = sum(one["spec"].get("nodeName", "").startswith("spot") for one in pods.values())
    console.print(
        f"[bold]{len(emptied)} nodes emptied, {moved} pods on spot nodes now, none Pending, no taint left.[/bold]"
        if not trouble
        else f"[bold red]{'; '.join(trouble)}[/bold red]"
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


def _places(title: str, plane: ControlPlane) -> Table:
    """What runs where: a workload's name and how many of its pods."""
    on: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in scene.movable(plane):
        on[one["spec"].get("nodeName") or "(Pending)"][scene.workload(one)] += 1
    table = Table(title=title, title_justify="left")
    table.add_column("node", no_wrap=True)
    table.add_column("pods")
    names = sorted(node["metadata"]["name"] for node in plane.api.items("/api/v1/nodes"))
    for node in [*names, *(["(Pending)"] if on["(Pending)"] else [])]:
        table.add_row(node, ", ".join(f"{count} {app}" for app, count in sorted(on[node].items())) or "—")
    return table


def _left_alone(emptied: list[str], verdicts: dict[str, Json]) -> Table:
    table = Table(title="On-demand nodes", title_justify="left")
    table.add_column("node", no_wrap=True)
    table.add_column("")
    table.add_column("why")
    for node in sorted(verdicts):
        if node in emptied:
            table.add_row(node, "emptied", "")
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


def _say(text: str) -> None:
    console.print(f"[bold]{text}[/bold]")


if __name__ == "__main__":
    try:
        main()
    except LocalError as error:
        click.echo(f"demo: {error}", err=True)
        sys.exit(1)
