"""``make scale``: measure the daemon and the informers of client-go on large clusters, in one run."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from tests.bench.result import keep
from tests.scale.figures import ScaleFigures, markdown
from tests.scale.growth import growth
from tests.scale.measuring import Phases, measure, with_eviction
from tests.scale.plane import kube_apiserver
from tests.scale.server import standin
from tests.scale.subjects import SUBJECTS

ROOT: Final = Path(__file__).parents[2]
PICTURE: Final = ROOT / "docs" / "scale.svg"
SIZES: Final = (500, 1000, 2000, 5000)
PODS_PER_NODE: Final = 30


@click.command()
@click.option("--nodes", default=1000, show_default=True)
@click.option("--pods", default=30_000, show_default=True)
@click.option(
    "--server",
    type=click.Choice(["stand-in", "kube-apiserver"]),
    default="stand-in",
    show_default=True,
    help="The stand-in serves from memory; kube-apiserver runs with etcd, and has no eviction row.",
)
@click.option("--growth", "grow", is_flag=True, help="Measure all sizes, and save the results.")
@click.option("--settle", default=30, show_default=True, help="Seconds from ready to the first measurement.")
@click.option("--idle", default=60, show_default=True, help="Seconds without changes.")
@click.option("--events", default=30, show_default=True, help="Seconds of events of each kind.")
def main(nodes: int, pods: int, server: str, grow: bool, settle: int, idle: int, events: int) -> None:
    """Start each program on an API server with a large cluster, and measure it from outside."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the processes that were started end, too
    growing = [*(("stand-in", size, size * PODS_PER_NODE) for size in SIZES), ("kube-apiserver", 1000, 30_000)]
    phases, commit = Phases(settle, idle, events), _commit()
    runs: list[ScaleFigures] = []
    for name, size, count in growing if grow else [(server, nodes, pods)]:
        with TemporaryDirectory() as folder:
            runs += RUNS[name](Path(folder), size, count, phases)
        print(markdown(runs[-len(SUBJECTS) :]), end="\n\n", flush=True)  # noqa: T201
        if grow:
            _save(runs, commit, phases)


def _save(runs: list[ScaleFigures], commit: str, phases: Phases) -> None:
    """Save the results so far: a run of all sizes takes an hour."""
    how = f"{phases.settle} s to settle, {phases.idle} s without changes, {phases.events} s of events of each kind"
    keep(scale=f"Commit {commit}, {how}.\n\n{markdown(runs)}\n")
    PICTURE.write_text(growth([run for run in runs if run.server == "stand-in"]), "utf-8")


def _on_standin(folder: Path, nodes: int, pods: int, phases: Phases) -> list[ScaleFigures]:
    with standin(folder, nodes, pods) as server:
        runs = [measure(name, server, folder, nodes, pods, phases) for name in SUBJECTS]
        return [with_eviction(runs[0], server, folder), *runs[1:]]


def _on_kube_apiserver(folder: Path, nodes: int, pods: int, phases: Phases) -> list[ScaleFigures]:
    with kube_apiserver(folder, nodes, pods) as server:
        return [measure(name, server, folder, nodes, pods, phases) for name in SUBJECTS]


RUNS: Final[dict[str, Callable[[Path, int, int, Phases], list[ScaleFigures]]]] = {
    "stand-in": _on_standin,
    "kube-apiserver": _on_kube_apiserver,
}


def _commit() -> str:
    commit = subprocess.check_output(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True)
    return commit.strip()


if __name__ == "__main__":
    main()
