"""Break one safeguard after the other, and let random courses find a violation: ``python -m tests.simulation.mutants``.

The safeguards are those of ``tests/mutants.py``. ``--hours`` is the number of simulated hours for each; further words
choose safeguards whose names contain one of them.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from tests.mutants import MUTANTS, Mutant, copy_of_repository
from tests.simulation.drain_acts import ACTS_IN_DRAINS

#: What no course of a simulated cluster can show: other parts than drains, and the connection to the API server.
_OTHER_FILES: Final = (
    "net/", "cli/", "cloudpool/", "providers/", "kube/endpoint", "planning/answers/losses", "planning/answers/survival",
    "execution/machine_objects",
)  # fmt: skip
_OTHER_WORDS: Final = (
    "NodePool",
    "turn at a pool",
    "was taken over",
    "work of a namespace",
    "given up",
    "not judged repel",
)


def main() -> int:
    """Return 1 if a break is not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=100.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1, help="how many courses run at a time")
    parser.add_argument("--act", choices=ACTS_IN_DRAINS, action="append", default=[], help="as of the courses")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    found = 0
    chosen = list(_chosen(options.words))
    with copy_of_repository() as root:
        for mutant in chosen:
            line = _course(mutant, root, options)
            found += bool(line)
            click.echo(f"{'found    ' if line else 'not found'}  {mutant.safeguard}{': ' if line else ''}{line}")
            sys.stdout.flush()
    click.echo(f"{found} of {len(chosen)} breaks found within {options.hours:g} hours each")
    return int(found < len(chosen))


def _chosen(words: list[str]) -> Iterator[Mutant]:
    for mutant in MUTANTS:
        other = mutant.file.startswith(tuple(f"rescheduler/{each}" for each in _OTHER_FILES))
        other = other or any(word in mutant.safeguard for word in _OTHER_WORDS)
        if not other and (not words or any(word in mutant.safeguard for word in words)):
            yield mutant


def _course(mutant: Mutant, root: Path, options: argparse.Namespace) -> str:
    """Return the first violation with the break, or ""."""
    path = root / mutant.file
    intact = path.read_text()
    if mutant.uses(root) != 1:
        raise RuntimeError(f"{mutant.file}: the text of this break does not stand there once: {mutant.safeguard}")
    mutant.apply(root)
    try:
        flags = [f"--{name}={getattr(options, name)}" for name in ("hours", "seed", "processes")]
        flags += [f"--act={act}" for act in options.act]
        command = [sys.executable, "-m", "tests.simulation", *flags, "--shrink=0", "--until-violation"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    finally:
        path.write_text(intact)
    lines = done.stdout.splitlines()
    if done.returncode not in (0, 1) or not lines:
        raise RuntimeError(f"the courses did not run: {done.stderr[-500:]}")
    return " ".join(line.strip() for line in lines[:2])[:200] if done.returncode == 1 else ""


if __name__ == "__main__":
    sys.exit(main())
