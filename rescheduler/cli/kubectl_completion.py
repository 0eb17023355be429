"""Completion for ``kubectl spot-rescheduler``: kubectl passes the arguments to ``kubectl_complete-spot_rescheduler``.

This program prints a line per completion, with its description after a tab, then a colon and a directive for the shell.
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
    """Complete the last argument of the program (an entry point)."""
    *words, incomplete = sys.argv[1:] or [""]
    items = ShellComplete(cli, {}, "rescheduler", "").get_completions(words, incomplete)
    for item in items:
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(_FILES_TOO if any(item.type == "file" for item in items) else _NO_FILES)
