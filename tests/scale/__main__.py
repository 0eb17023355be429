"""``make scale``: measure the daemon on large clusters, beside the informers of client-go, in one run."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from tests.scale.figures import ScaleFigures, markdown
from tests.scale.growth import growth
from tests.scale.measuring import Phases, measure, with_eviction
from tests.scale.server import standin
from tests.scale.subjects import SUBJECTS

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "tests" / "bench" / "results.md"
PICTURE: Final = ROOT / "docs" / "scale.svg"
SIZES: Final = (500, 1000, 2000, 5000)
PODS_PER_NODE: Final = 30
HEADING: Final = "## Large clusters, live"


@click.command()
@click.option("--nodes", default=1000, show_default=True)
@click.option("--pods", default=30_000, show_default=True)
@click.option("--growth", "grow", is_flag=True, help="Measure all sizes up to 5,000 nodes, and save the results.")
@click.option("--idle", default=60, show_default=True, help="Seconds without changes.")
@click.option("--events", default=30, show_default=True, help="Seconds of events of each kind.")
def main(nodes: int, pods: int, grow: bool, idle: int, events: int) -> None:
    """Start each program on a stand-in API server, and measure it from outside."""
    sizes = [(size, size * PODS_PER_NODE) for size in SIZES] if grow else [(nodes, pods)]
    runs: list[ScaleFigures] = []
    for size in sizes:
        with TemporaryDirectory() as folder:
            runs += _runs(Path(folder), *size, Phases(idle=idle, events=events))
        print(markdown(runs[-len(SUBJECTS) :]), file=sys.stderr, flush=True)  # noqa: T201
    text = f"{HEADING}\n\nCommit {_commit()}, against the stand-in API server.\n\n{markdown(runs)}\n"
    print(text)  # noqa: T201
    if grow:
        KEPT.write_text(KEPT.read_text(encoding="utf-8").partition(HEADING)[0].rstrip() + "\n\n" + text, "utf-8")
        PICTURE.write_text(growth(runs), "utf-8")


def _runs(folder: Path, nodes: int, pods: int, phases: Phases) -> list[ScaleFigures]:
    with standin(folder, nodes, pods) as server:
        runs = [measure(name, server, folder, nodes, pods, phases) for name in SUBJECTS]
        return [with_eviction(run, server, folder) if run.round_idle is not None else run for run in runs[:2]] + runs[
            2:
        ]


def _commit() -> str:
    commit = subprocess.check_output(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True)
    return commit.strip()


if __name__ == "__main__":
    main()
