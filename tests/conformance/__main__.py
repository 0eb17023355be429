"""``python -m tests.conformance --verdicts N [--family F] [--seed S]``: as many verdicts as wanted."""

import json
import sys

import click

from tests.conformance.compare import Comparison, Found, Tally, keep
from tests.conformance.generate import FAMILIES, cluster
from tests.conformance.oracle import Oracle
from tests.conformance.plans import replay_cumulative, replay_independent

_ALL = ("all", *FAMILIES)


@click.command()
@click.option("--verdicts", default=100_000, show_default=True, help="Pods times nodes, spread over the families.")
@click.option("--family", "families", type=click.Choice(_ALL), multiple=True, help="May be repeated. [default: each]")
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option("--only", metavar="PLUGIN", help="Compare this plugin's word alone.")
@click.option("--plans", default=0, show_default=True, help="Also replay the plans of so many clusters, both ways.")
@click.option(
    "--keep/--no-keep", "keeping", default=True, show_default=True, help="Keep disagreements as cases of the tests."
)
def main(verdicts: int, families: tuple[str, ...], seed: int, only: str | None, plans: int, keeping: bool) -> None:
    """Compare our verdicts with those of the real scheduler's plugins on random clusters."""
    families = families or _ALL
    tallies: dict[str, Tally] = {}
    with Oracle() as oracle:
        comparison = Comparison(oracle, only=only)
        for family in families:
            tallies[family] = _run(comparison, family, seed, -(-verdicts // len(families)), keeping=keeping)
        refused = _replay(oracle, seed, plans)
    _print_table(tallies)
    sys.exit(bool(refused) or any(tally.disagreements for tally in tallies.values()))


def _run(comparison: Comparison, family: str, seed: int, wanted: int, *, keeping: bool) -> Tally:
    tally, shown = Tally(), set[str]()
    while tally.verdicts < wanted:
        found = comparison.run(family, seed, tally)
        if found is not None and found.kind not in shown:
            shown.add(found.kind)
            _report(comparison, found, keeping=keeping)
        seed += 1
        _progress(f"{family}: {tally.verdicts} verdicts, {tally.disagreements} disagreements")
    _progress("")
    return tally


def _report(comparison: Comparison, found: Found, *, keeping: bool) -> None:
    small = comparison.small(found)
    click.echo(f"{found}\n{json.dumps(small, separators=(',', ':'))}\n")
    if keeping:
        click.echo(f"kept as {keep(small, f'{found.family} seed {found.seed}')}\n")


def _replay(oracle: Oracle, seed: int, clusters: int) -> int:
    """Replay plans of plannable clusters; how many placements the scheduler refuses."""
    nodes = placements = refused = 0
    for at in range(seed, seed + clusters):
        given = cluster(at, "plannable")
        for replay in (replay_independent, replay_cumulative):
            found = replay(oracle, given)
            nodes, placements = nodes + found.nodes, placements + found.placements
            refused += len(found.refused)
            for one in found.refused:
                click.echo(f"plannable seed {at}: {one}")
        _progress(f"plans: {at - seed} clusters, {placements} placements, {refused} refused")
    _progress("")
    if clusters:
        click.echo(f"{2 * clusters} plans: {nodes} nodes emptied, {placements} placements, {refused} refused\n")
    return refused


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{line}", nl=False, err=True)


def _print_table(tallies: dict[str, Tally]) -> None:
    click.echo(f"{'family':22}{'clusters':>9}{'verdicts':>10}{'refused':>9}{'by it':>9}{'disagreements':>15}")
    for family, tally in tallies.items():
        click.echo(
            f"{family:22}{tally.clusters:>9}{tally.verdicts:>10}{tally.refused / tally.verdicts:>9.1%}"
            f"{tally.first[family]:>9}{tally.disagreements:>15}"
        )
    verdicts = sum(tally.verdicts for tally in tallies.values())
    disagreements = sum(tally.disagreements for tally in tallies.values())
    click.echo(f"{'total':22}{'':9}{verdicts:>10}{'':18}{disagreements:>15}")


if __name__ == "__main__":
    main()
