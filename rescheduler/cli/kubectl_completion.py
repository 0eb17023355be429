"""Completion for ``kubectl spot-rescheduler``: kubectl calls ``kubectl_complete-spot_rescheduler`` with the words.

It prints a line for each completion, with its description after a tab, and then a colon and what the shell may add.
"""

import sys
from typing import Final

import click
from click.shell_completion import ShellComplete

from rescheduler.cli import cli

#: Directives of cobra, the library that kubectl uses.
_FILES_TOO: Final = ":0"
_NO_FILES: Final = ":4"


def main() -> None:
    """Complete the last argument of the program, after the arguments before it: an entry point."""
    *words, incomplete = sys.argv[1:] or [""]
    items = ShellComplete(cli, {}, "rescheduler", "").get_completions(words, incomplete)
    for item in items:
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(_FILES_TOO if any(item.type == "file" for item in items) else _NO_FILES)
