"""``python -m tests.conformance --verdicts N [--family F] [--seed S]``: compare N verdicts with the scheduler."""

import json
import sys
import tempfile
from pathlib import Path

import click

from devcluster.signals import exit_on_sigterm
from tests.conformance.compare import Comparison, Difference, FamilyCounts, keep
from tests.conformance.generate import FAMILIES, cluster
from tests.conformance.oracle import Oracle
from tests.conformance.plans import replay_cumulative, replay_independent
from tests.conformance.profiles import compare

_ALL = ("all", *FAMILIES)


@click.command()
@click.option("--verdicts", default=100_000, show_default=True, help="Number of pod-node pairs, over all families.")
@click.option("--family", "families", type=click.Choice(_ALL), multiple=True, help="May be repeated. [default: each]")
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option(
    "--scale", default=1, show_default=True, help="Multiplies the nodes of each cluster: more verdicts in less time."
)
@click.option("--only", metavar="PLUGIN", help="Compare only this plugin.")
@click.option(
    "--plans", default=0, show_default=True, help="Also replay the plans of this number of clusters, in both modes."
)
@click.option("--profiles", default=0, show_default=True, help="Also compare N verdicts under random configurations.")
@click.option("--kubernetes", metavar="VERSION", help="The version of the scheduler, such as 1.35.  [default: 1.37]")
@click.option("--keep/--no-keep", "keeping", default=True, show_default=True, help="Save disagreements as test cases.")
def main(
    verdicts: int,
    families: tuple[str, ...],
    seed: int,
    scale: int,
    only: str | None,
    plans: int,
    profiles: int,
    kubernetes: str | None,
    keeping: bool,
) -> None:
    """Compare our verdicts with those of the real scheduler's plugins on random clusters."""
    exit_on_sigterm()
    families = families or _ALL
    tallies: dict[str, FamilyCounts] = {}
    with Oracle(minor=kubernetes) as oracle:
        comparison = Comparison(oracle, only=only, scale=scale)
        for family in families:
            tallies[family] = _run(comparison, family, seed, -(-verdicts // len(families)), keeping=keeping)
        if profiles:
            tallies["random configurations"] = _run_profiles(oracle, seed, profiles)
        rejected = _replay(oracle, seed, plans)
    _print_table(tallies)
    sys.exit(bool(rejected) or any(tally.disagreements for tally in tallies.values()))


def _run(comparison: Comparison, family: str, seed: int, verdicts: int, *, keeping: bool) -> FamilyCounts:
    tally, shown = FamilyCounts(), set[str]()
    while tally.verdicts < verdicts:
        difference = comparison.run(family, seed, tally)
        if difference is not None and difference.kind not in shown:
            shown.add(difference.kind)
            _report(comparison, difference, keeping=keeping)
        seed += 1
        _progress(f"{family}: {tally.verdicts} verdicts, {tally.disagreements} disagreements")
    _progress("")
    return tally


def _run_profiles(oracle: Oracle, seed: int, verdicts: int) -> FamilyCounts:
    tally = FamilyCounts()
    with tempfile.TemporaryDirectory() as folder:
        while tally.verdicts < verdicts:
            family = ("all", "plannable")[seed % 2]
            if found := compare(oracle, family, seed, Path(folder), tally):
                click.echo(f"{family} seed {seed}: {found[0]}\n")
            seed += 1
            _progress(f"random configurations: {tally.verdicts} verdicts, {tally.disagreements} disagreements")
    _progress("")
    return tally


def _report(comparison: Comparison, difference: Difference, *, keeping: bool) -> None:
    minimal = comparison.shrink(difference)
    click.echo(f"{difference}\n{json.dumps(minimal, separators=(',', ':'))}\n")
    if keeping:
        click.echo(f"saved as {keep(minimal, f'{difference.family} seed {difference.seed}')}\n")


def _replay(oracle: Oracle, seed: int, clusters: int) -> int:
    """Replay plans of plannable clusters, and return the number of placements that the scheduler rejects."""
    nodes = placements = rejected = 0
    for at in range(seed, seed + clusters):
        snapshot = cluster(at, "plannable")
        for replay in (replay_independent, replay_cumulative):
            replayed = replay(oracle, snapshot)
            nodes, placements = nodes + replayed.nodes, placements + replayed.placements
            rejected += len(replayed.rejected)
            for placement in replayed.rejected:
                click.echo(f"plannable seed {at}: {placement}")
        _progress(f"plans: {at - seed} clusters, {placements} placements, {rejected} rejected")
    _progress("")
    if clusters:
        click.echo(f"{2 * clusters} plans: {nodes} nodes emptied, {placements} placements, {rejected} rejected\n")
    return rejected


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{line}", nl=False, err=True)


def _print_table(tallies: dict[str, FamilyCounts]) -> None:
    click.echo(f"{'family':22}{'clusters':>9}{'verdicts':>10}{'rejected':>9}{'first':>9}{'disagreements':>15}")
    for family, tally in tallies.items():
        click.echo(
            f"{family:22}{tally.clusters:>9}{tally.verdicts:>10}{tally.rejected / tally.verdicts:>9.1%}"
            f"{tally.first[family]:>9}{tally.disagreements:>15}"
        )
    verdicts = sum(tally.verdicts for tally in tallies.values())
    disagreements = sum(tally.disagreements for tally in tallies.values())
    click.echo(f"{'total':22}{'':9}{verdicts:>10}{'':18}{disagreements:>15}")


if __name__ == "__main__":
    main()
