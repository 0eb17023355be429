"""``make scale``: measure the daemon and the informers of client-go on large clusters, in one run."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
import httpx2

from devcluster import build
from devcluster.errors import LocalError
from devcluster.signals import exit_on_sigterm
from tests.bench import result
from tests.bench.result import Result, keep
from tests.scale.bars import limits_of
from tests.scale.extras import extras
from tests.scale.figures import ScaleFigures, markdown
from tests.scale.growth import growth
from tests.scale.measuring import Phases, measure, with_eviction
from tests.scale.plane import kube_apiserver
from tests.scale.server import standin
from tests.scale.subjects import DESCHEDULER, SUBJECTS

ROOT: Final = Path(__file__).parents[2]
PICTURE: Final = ROOT / "docs" / "scale.svg"
PODS_PER_NODE: Final = 30

#: What can fail in one measurement; the others are made nevertheless.
_ERRORS: Final = (OSError, RuntimeError, LocalError, httpx2.HTTPError, subprocess.SubprocessError)


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
@click.option("--sizes", default="500,1000,2000,5000", show_default=True, help="With --growth: numbers of nodes.")
@click.option("--settle", default=20, show_default=True, help="Seconds from ready to the first measurement.")
@click.option("--idle", default=30, show_default=True, help="Seconds without changes.")
@click.option("--events", default=25, show_default=True, help="Seconds of events of each kind.")
def main(nodes: int, pods: int, server: str, grow: bool, sizes: str, **seconds: int) -> None:
    """Start each program on an API server with a large cluster, and measure it from outside.

    Measurements that are made only once use the second size, and are repeated on kube-apiserver.
    """
    exit_on_sigterm()
    phases = Phases(**seconds)
    if not grow:
        results = ScaleResults(phases, (nodes, nodes), _commit())
        results.run(server, nodes, pods)
        print(results.limits)  # noqa: T201
        return
    numbers = [int(size) for size in sizes.split(",")]
    once = numbers[min(1, len(numbers) - 1)]
    results = ScaleResults(phases, (once, numbers[-1]), _commit())
    failed = False
    for name, size in [*(("stand-in", size) for size in numbers), ("kube-apiserver", once)]:
        try:
            results.run(name, size, size * PODS_PER_NODE)
        except _ERRORS as error:
            failed = True
            click.echo(f"{name}, {size} nodes: {type(error).__name__}: {error}", err=True)
        results.save()
    print(results.limits)  # noqa: T201
    sys.exit(failed)


class ScaleResults:
    """The figures so far. *limited* are the sizes with limits: the one for single measurements, and the largest."""

    def __init__(self, phases: Phases, limited: tuple[int, int], commit: str) -> None:
        self._phases, self._limited, self._commit = phases, limited, commit
        self._runs: list[ScaleFigures] = []
        self._once: list[Result] = []

    def run(self, server: str, nodes: int, pods: int) -> None:
        """Measure all programs at one size, and print the figures."""
        with TemporaryDirectory() as folder:
            runs = RUNS[server](
                Path(folder), nodes, pods, self._phases, self._add if nodes == self._limited[0] else None
            )
        self._runs += runs
        print(markdown(runs), end="\n\n", flush=True)  # noqa: T201

    def _add(self, limit: Result) -> None:
        self._once.append(limit)
        print(limit, file=sys.stderr, flush=True)  # noqa: T201

    @property
    def limits(self) -> str:
        """The table of limits."""
        return result.markdown([*limits_of(self._runs, *self._limited), *self._once])

    def save(self) -> None:
        """Save the results so far: a run of all sizes takes most of an hour."""
        times = f"{self._phases.settle} s to settle, {self._phases.idle} s without changes"
        head = f"Commit {self._commit}, {times}, {self._phases.events} s of events of each kind."
        keep(scale="\n\n".join((head, self.limits, markdown(self._runs))) + "\n")
        PICTURE.write_text(growth([run for run in self._runs if run.server == "stand-in"]), "utf-8")


def _on_standin(
    folder: Path, nodes: int, pods: int, phases: Phases, once: Callable[[Result], None] | None
) -> list[ScaleFigures]:
    with standin(folder, nodes, pods) as server:
        runs = [measure(name, server, folder, nodes, pods, phases) for name in SUBJECTS]
        runs[0] = with_eviction(runs[0], server, folder)
        if once is not None:
            try:
                for limit in extras(server, folder, f"{nodes:,} nodes", phases):
                    once(limit)
            except _ERRORS as error:  # the figures so far are kept
                click.echo(f"{nodes} nodes: {type(error).__name__}: {error}", err=True)
        return runs


def _on_kube_apiserver(folder: Path, nodes: int, pods: int, phases: Phases, _: object) -> list[ScaleFigures]:
    others = []
    try:
        build.descheduler()
        others.append(DESCHEDULER)
    except LocalError as error:
        click.echo(f"without the descheduler: {error}", err=True)
    with kube_apiserver(folder, nodes, pods) as server:
        return [measure(name, server, folder, nodes, pods, phases) for name in (*SUBJECTS, *others)]


RUNS: Final = {"stand-in": _on_standin, "kube-apiserver": _on_kube_apiserver}


def _commit() -> str:
    commit = subprocess.check_output(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True)
    return commit.strip()


if __name__ == "__main__":
    main()
