"""``python -m tests.conformance --verdicts N [--family F] [--seed S]``: as many verdicts as wanted."""

import argparse
import sys
from collections import Counter

from tests.conformance.compare import Comparison, Found, Tally, keep
from tests.conformance.generate import FAMILIES
from tests.conformance.oracle import Oracle

_KEPT_PER_RUN = 5


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    families = options.family or ["all", *FAMILIES]
    tallies: dict[str, Tally] = {}
    with Oracle() as oracle:
        comparison = Comparison(oracle, only=options.only)
        wanted = -(-options.verdicts // len(families))
        for family in families:
            tallies[family] = _run(comparison, family, wanted, options)
    _print_table(tallies)
    return 1 if any(tally.disagreements for tally in tallies.values()) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--verdicts", type=int, default=100_000, help="pod × node, over all families")
    parser.add_argument("--family", action="append", choices=["all", *FAMILIES], help="may be repeated; default: each")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--only", metavar="PLUGIN", help="compare this plugin's word alone")
    parser.add_argument("--keep", action="store_true", help="keep the shrunken disagreements as cases")
    return parser


def _run(comparison: Comparison, family: str, wanted: int, options: argparse.Namespace) -> Tally:
    tally, shown = Tally(), Counter[str]()
    seed = options.seed
    while tally.verdicts < wanted:
        found = comparison.run(family, seed, tally)
        if found is not None:
            kind = found.raised.partition(":")[0] or str(sorted({one.plugin for one in _differing(found)}))
            shown[kind] += 1
            if shown[kind] == 1 and len(shown) <= _KEPT_PER_RUN:
                _report(comparison, found, keep_it=options.keep)
        seed += 1
        _progress(f"{family}: {tally.verdicts} verdicts, {tally.disagreements} disagreements")
    _progress("")
    return tally


def _differing(found: Found) -> set[object]:
    first = found.disagreements[0]
    return set(first.scheduler) ^ set(first.ours)  # type: ignore[arg-type]


def _report(comparison: Comparison, found: Found, *, keep_it: bool) -> None:
    import json

    small = comparison.small(found)
    about = found.raised or str(found.disagreements[0])
    print(f"\n{found.family} seed {found.seed}: {about}\n{json.dumps(small, separators=(',', ':'))}")
    if keep_it:
        print(f"kept as {keep(small, f'{found.family} {found.seed}')}")


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def _print_table(tallies: dict[str, Tally]) -> None:
    print(f"{'family':22}{'clusters':>9}{'verdicts':>10}{'refused':>9}{'by it':>9}{'disagreements':>15}")
    for family, tally in tallies.items():
        share = tally.refused / tally.verdicts
        print(
            f"{family:22}{tally.clusters:>9}{tally.verdicts:>10}{share:>9.1%}{tally.first[family]:>9}"
            f"{tally.disagreements:>15}"
        )
    total = sum(tally.verdicts for tally in tallies.values())
    print(f"{'total':22}{'':9}{total:>10}{'':18}{sum(t.disagreements for t in tallies.values()):>15}")


if __name__ == "__main__":
    sys.exit(main())
