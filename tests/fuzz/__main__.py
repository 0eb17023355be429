"""``make fuzz SECONDS=600``: attack one target after another, with different seeds, until the time is over."""

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import click

from devcluster.signals import exit_on_sigterm
from tests.fuzz.attack import AttackTally
from tests.fuzz.registry import TARGETS

#: Number of examples per seed. Each example of `inputs` starts a process.
_EXAMPLES: Final = 60
_EXAMPLES_OF: Final = {"inputs": 5}


@click.command()
@click.option("--seconds", default=600.0, show_default=True, help="Total duration for all targets.")
@click.option("--seed", type=int, help="First seed of each target. Default: random.")
@click.option(
    "--target", "chosen", type=click.Choice(list(TARGETS)), multiple=True, help="Attack only this target; repeatable."
)
def main(seconds: float, seed: int | None, chosen: tuple[str, ...]) -> None:
    """Attack targets, files and flags with inputs from hypothesis. Exit code 1: an attack succeeded."""
    exit_on_sigterm()
    names = chosen or tuple(TARGETS)
    harmed = [name for name in names if not _attacked(name, seconds / len(names), seed)]
    sys.exit(f"failed: {', '.join(harmed)}" if harmed else 0)


def _attacked(name: str, seconds: float, seed: int | None) -> bool:
    """Attack the target *name* for *seconds*; return whether it passed."""
    tally = AttackTally()
    number = random.randrange(2**32) if seed is None else seed
    with tempfile.TemporaryDirectory() as folder, TARGETS[name](Path(folder)) as (target, attacked):
        end = time.monotonic() + seconds  # noqa: TID251 - duration of the attack
        while time.monotonic() < end:  # noqa: TID251
            try:
                attacked(tally, _EXAMPLES_OF.get(name, _EXAMPLES), number)
            except AssertionError as error:
                click.echo(f"{name}: seed {number}: {error}")
                click.echo("\n".join(target.lines[-40:]))
                return False
            number += 1
        code = target.stop()
    answers = ", ".join(f"{count} × {status}" for status, count in sorted(tally.answers.items()))
    click.echo(f"{name}: {tally.examples} examples, seeds up to {number - 1}: {answers}; ended with {code}")
    return code == 0


if __name__ == "__main__":
    main()
