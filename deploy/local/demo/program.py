"""The processes of a demo, whose lines are shown as they come."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final, Self

import click
from rich.console import Console

from deploy.local.errors import LocalError

EXIT_SECONDS: Final = 60

console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)


class Program:
    """``python -m`` with *arguments*, for as long as the `with` lasts."""

    def __init__(self, arguments: Sequence[str], *, shown: bool = True) -> None:
        self._command = [sys.executable, "-m", *arguments]
        self._shown = shown
        self.lines: list[str] = []
        self.status: int | None = None  #: the exit code, once it has ended

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_environment()
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self.status = self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.status = self._process.wait()
        self._reader.join(10)

    def word_after(self, words: str) -> str:
        """What follows *words* in its lines so far; "" if nothing does."""
        found = [line.partition(words)[2].split() for line in list(self.lines) if words in line]
        return found[0][0] if found and found[0] else ""

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if self._shown:
                console.print(f"   {line.rstrip()}", style="dim", markup=False, soft_wrap=True)
            self.lines.append(line.rstrip())


def run(main: Callable[[], None]) -> None:
    """The demo as the process: what the local parts lack is one line."""
    try:
        main()
    except LocalError as error:
        click.echo(f"demo: {error}", err=True)
        sys.exit(1)


def say(text: str) -> None:
    console.print(text, style="bold", markup=False, soft_wrap=True)


def _environment() -> dict[str, str]:
    """All servers are on this machine: no proxy of the environment leads to them."""
    return {**os.environ, "no_proxy": "127.0.0.1,localhost", "NO_PROXY": "127.0.0.1,localhost"}
