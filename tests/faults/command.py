"""``make faults``: inject every fault into every call of a drain, or kill the daemon at every call."""

import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import click
from rich.console import Console
from rich.table import Table

from devcluster import cleaning
from devcluster.faults.catalog import FaultSeconds
from devcluster.plane import ControlPlane
from devcluster.signals import exit_on_sigterm
from tests.cluster import takeovers
from tests.faults.beside import BesideName
from tests.faults.choice import MEANWHILE, covering, every_fault, every_kill, kills_beside
from tests.faults.programs import ProgramName
from tests.faults.runner import play_all, recorded, sites
from tests.faults.trials import PATIENCE_SECONDS, FaultTrial, Meanwhile, TrialPace, TrialResult

_TAKEOVER_SECONDS = 4.0  #: the leader is stopped at most this long after the first eviction


@click.command()
@click.option("--kills", is_flag=True, help="Kill the daemon before and after every call instead of injecting faults.")
@click.option(
    "--program",
    type=click.Choice(get_args(ProgramName)),
    default="daemon",
    show_default=True,
    help="Program that drains the node.",
)
@click.option(
    "--meanwhile",
    type=click.Choice([change for change in get_args(Meanwhile) if change]),
    help="With --kills: what changes in every trial while the program is not running. Default: each of them in turn.",
)
@click.option(
    "--beside",
    multiple=True,
    type=click.Choice([name for name in get_args(BesideName) if name]),
    help="Kill the daemon while this disturbs a rolling update. May be repeated.",
)
@click.option("--together", is_flag=True, help="Inject many faults per run, so that few runs cover them all.")
@click.option("--every-occurrence", is_flag=True, help="Test every occurrence of reads, not only of writes.")
@click.option("--only", default="", help="Run only trials whose name contains this text: 'patch nodes', '× 503'.")
@click.option("--skip", default=0, help="Leave out this many trials at the beginning, to continue an earlier run.")
@click.option("--limit", type=int, help="Run a random sample of this size.")
@click.option("--seed", default=1, show_default=True, help="Seed of the random choices.")
@click.option("--slots", default=5, show_default=True, help="Number of concurrent trials.")
@click.option("--stall", default=4.0, show_default=True, help="Duration of a stall in seconds; clients wait up to 30.")
@click.option("--patience", default=PATIENCE_SECONDS, show_default=True, help="Time limit of a run in seconds.")
@click.option(
    "--takeovers", "stops", default=0, help="Instead, suspend the leader in the middle of a drain this many times."
)
@click.option(
    "--log", type=click.Path(path_type=Path), help="File for the log messages of unfinished and failed trials."
)
def main(
    *,
    kills: bool,
    program: ProgramName,
    meanwhile: Meanwhile | None,
    beside: tuple[BesideName, ...],
    together: bool,
    every_occurrence: bool,
    only: str,
    skip: int,
    limit: int | None,
    seed: int,
    slots: int,
    stall: float,
    patience: float,
    stops: int,
    log: Path | None,
) -> None:
    """Test drains under faults. Exit code 1: a drain neither finished nor rolled back, or violated an invariant."""
    exit_on_sigterm()
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, ControlPlane() as plane:
        if stops:
            wrong = _taken_over(plane, stops, chance)
            click.echo(f"{stops} takeovers, {wrong} failed")
            sys.exit(bool(wrong))
        with sites(plane, Path(folder), slots) as at:
            calls = [] if beside else recorded(at[0], program)
            if beside:
                trials = [trial for name in beside for trial in kills_beside(name)]
            elif kills:
                trials = every_kill(calls, (meanwhile,) if meanwhile else _changes(program))
            elif together:
                trials = covering([call for call in calls if call.writes or call.occurrence == 1], seed=seed)
            else:
                trials = every_fault(calls, every_occurrence=every_occurrence)
            trials = trials if beside else [replace(trial, program=program) for trial in trials]
            trials = [trial for trial in trials if only in str(trial)][skip:]
            trials = _chosen(trials, limit, chance)
            click.echo(f"{len(calls)} calls recorded, {len(trials)} trials")
            pace = TrialPace(patience, FaultSeconds(stall=stall))
            results = play_all(at, trials, _Progress(len(trials), log), pace)
    Console(width=140).print(_table(results))
    failed = [result for result in results if result.failed]
    for result in failed:
        click.echo(result)
    click.echo(f"{len(results)} runs, {len(failed)} failed")
    sys.exit(bool(failed))


def _taken_over(plane: ControlPlane, stops: int, chance: random.Random) -> int:
    """Return the number of takeovers with late writes of the old leader or with violations."""
    objects = takeovers.rendered(fenced=True)
    wrong = 0
    for number in range(1, stops + 1):
        seen = takeovers.take_over(plane, objects, chance.uniform(0.0, _TAKEOVER_SECONDS))
        failures = [f"late: {event.verb} {event.kind} {event.name}" for event in seen.late]
        failures += map(str, seen.violations)
        wrong += bool(failures)
        click.echo(f"{number}/{stops} {'; '.join(failures) or 'drained by the next leader'}", err=True)
        cleaning.empty(plane)
    return wrong


def _changes(program: ProgramName) -> list[Meanwhile]:
    """Return what may change while *program* is not running. The pool, and not a label, defines the proxy's nodes."""
    return [change for change in MEANWHILE if program == "daemon" or change != "relabel"]


def _chosen(trials: Sequence[FaultTrial], limit: int | None, chance: random.Random) -> list[FaultTrial]:
    if limit is None or limit >= len(trials):
        return list(trials)
    return chance.sample(list(trials), limit)


class _Progress:
    """Prints one line per run."""

    def __init__(self, total: int, log: Path | None) -> None:
        self._total, self._done, self._log = total, 0, log

    def __call__(self, result: TrialResult) -> None:
        self._done += 1
        click.echo(f"{self._done}/{self._total} {result}", err=True)
        if self._log and result.log:
            with self._log.open("a") as target:
                target.write("\n".join([str(result), *result.log, "", ""]))


def _table(results: Sequence[TrialResult]) -> Table:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        for trouble in result.trial.troubles:
            row = counts[" + ".join(filter(None, (trouble.kind, result.trial.beside)))]
            row["runs"] += 1
            row["failed" if result.failed else result.ended.end] += 1
            row["not reached"] += not result.reached
    columns = ("runs", "finished", "rolled back", "failed", "not reached")
    table = Table("fault", *columns)
    for kind, row in counts.items():
        table.add_row(kind, *(str(row[name]) for name in columns))
    return table
