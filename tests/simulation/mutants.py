"""Break one safeguard after the other, and let random courses find a violation: ``python -m tests.simulation.mutants``.

The safeguards are those of ``tests/mutants.py``. ``--hours`` is the number of simulated hours for each; further words
choose safeguards whose names contain one of them.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from tests.mutants import MUTANTS, Mutant, copy_of_repository

#: Safeguards of other parts than drains, which no course of a cluster can show.
_OTHERS = ("certificate", "secrets", "turn at a pool", "a PATCH is repeated")


def main() -> int:
    """Return 1 if a break is not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=100.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    found = 0
    chosen = list(_chosen(options.words))
    with copy_of_repository() as root:
        for mutant in chosen:
            line = _course(mutant, root, options.hours, options.seed)
            found += bool(line)
            click.echo(f"{'found    ' if line else 'not found'}  {mutant.safeguard}{': ' if line else ''}{line}")
            sys.stdout.flush()
    click.echo(f"{found} of {len(chosen)} breaks found within {options.hours:g} hours each")
    return int(found < len(chosen))


def _chosen(words: list[str]) -> Iterator[Mutant]:
    for mutant in MUTANTS:
        other = any(each in mutant.safeguard for each in _OTHERS)
        if not other and (not words or any(word in mutant.safeguard for word in words)):
            yield mutant


def _course(mutant: Mutant, root: Path, hours: float, seed: int) -> str:
    """Return the first violation with the break, or ""."""
    path = root / mutant.file
    intact = path.read_text()
    mutant.apply(root)
    try:
        command = [sys.executable, "-m", "tests.simulation", f"--hours={hours}", f"--seed={seed}", "--shrink=0"]
        done = subprocess.run([*command, "--until-violation"], cwd=root, capture_output=True, text=True, check=False)
    finally:
        path.write_text(intact)
    lines = done.stdout.splitlines()
    return " ".join(line.strip() for line in lines[:2])[:200] if done.returncode == 1 else done.stderr[-200:]


if __name__ == "__main__":
    sys.exit(main())
