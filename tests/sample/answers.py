"""``python -m tests.sample.answers``: run the simulations of docs/simulating.md again, and write what they print.

A block of the language ``bash`` that a block of the language ``text`` follows is a command and its output.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Final

import click
from click.testing import CliRunner

from rescheduler.cli import cli
from tests.sample.files import DUMP

PAGE: Final = DUMP.parent / "simulating.md"
_ANSWER: Final = re.compile(
    r"(```bash\nrescheduler (?P<command>[^\n]+)\n```\n\n```text\n)(?P<output>.*?)(?=```\n)", re.DOTALL
)


def commands(page: str) -> list[str]:
    """Return the commands of *page* whose output it shows."""
    return [found["command"] for found in _ANSWER.finditer(page)]


def shown(page: str, command: str) -> str:
    """Return the output of *command* in *page*."""
    return next(found["output"] for found in _ANSWER.finditer(page) if found["command"] == command)


def printed(command: str) -> str:
    """Run *command* and return what it prints, with the files of the documentation."""
    words = [word.replace("docs/", f"{DUMP.parent}/") for word in shlex.split(command)]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def rewritten(page: str, outputs: Mapping[str, str]) -> str:
    """Return *page* with *outputs* of its commands."""
    return _ANSWER.sub(lambda found: found[1] + outputs[found["command"]], page)


@click.command()
def main() -> None:
    """Write the answers in docs/simulating.md."""
    outputs = {command: printed(command) for command in commands(PAGE.read_text(encoding="utf-8"))}
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), outputs), encoding="utf-8")


if __name__ == "__main__":
    main()
