"""``make fuzz SECONDS=600``: every face in turn, each with seeds of its own, until the time is over."""

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import click

from tests.fuzz.attack import Tally
from tests.fuzz.registry import FACES

#: Of a seed; then the seed changes. Each of `inputs` starts a process.
_EXAMPLES: Final = 60
_EXAMPLES_OF: Final = {"inputs": 5}


@click.command()
@click.option("--seconds", default=600.0, show_default=True, help="For all faces together.")
@click.option("--seed", type=int, help="Of the first examples of each face; without it a random one.")
@click.option("--face", "chosen", type=click.Choice(list(FACES)), multiple=True, help="Only this one; repeatable.")
def main(seconds: float, seed: int | None, chosen: tuple[str, ...]) -> None:
    """Throw whatever hypothesis makes up at faces, files and flags. Exit code 1 where one of them took harm."""
    names = chosen or tuple(FACES)
    harmed = [name for name in names if not _attacked(name, seconds / len(names), seed)]
    sys.exit(f"harm was done to: {', '.join(harmed)}" if harmed else 0)


def _attacked(name: str, seconds: float, seed: int | None) -> bool:
    """Whether the face *name* stood *seconds* of it."""
    tally = Tally()
    number = random.randrange(2**32) if seed is None else seed
    with tempfile.TemporaryDirectory() as folder, FACES[name](Path(folder)) as (face, attacked):
        end = time.monotonic() + seconds  # noqa: TID251 - how long to go on
        while time.monotonic() < end:  # noqa: TID251
            try:
                attacked(tally, _EXAMPLES_OF.get(name, _EXAMPLES), number)
            except AssertionError as error:
                click.echo(f"{name}: seed {number}: {error}")
                click.echo("\n".join(face.lines[-40:]))
                return False
            number += 1
        code = face.stop()
    answers = ", ".join(f"{count} × {status}" for status, count in sorted(tally.answers.items()))
    click.echo(f"{name}: {tally.examples} examples, seeds up to {number - 1}: {answers}; ended with {code}")
    return code == 0


if __name__ == "__main__":
    main()
