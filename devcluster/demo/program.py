"""The processes of a demo, and their output."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final, Self

import click
from rich.console import Console

from devcluster.errors import LocalError

EXIT_SECONDS: Final = 60

console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)


class Program:
    """A context manager that runs ``python -m`` with *arguments*, and prints its output if *shown*."""

    def __init__(self, arguments: Sequence[str], *, shown: bool = True) -> None:
        self._command = [sys.executable, "-m", *arguments]
        self._shown = shown
        self.lines: list[str] = []
        self.status: int | None = None  #: the exit code, after the process has exited

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

    def word_after(self, prefix: str) -> str:
        """Return the word after *prefix* in the output so far, or ""."""
        matches = [line.partition(prefix)[2].split() for line in list(self.lines) if prefix in line]
        return matches[0][0] if matches and matches[0] else ""

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if self._shown:
                console.print(f"   {line.rstrip()}", style="dim", markup=False, soft_wrap=True)
            self.lines.append(line.rstrip())


def run(main: Callable[[], None]) -> None:
    """Run the demo; print a LocalError as one line and exit with code 1."""
    try:
        main()
    except LocalError as error:
        click.echo(f"demo: {error}", err=True)
        sys.exit(1)


def print_bold(text: str) -> None:
    console.print(text, style="bold", markup=False, soft_wrap=True)


def _environment() -> dict[str, str]:
    """Return the environment with NO_PROXY set, because all servers are on this machine."""
    return {**os.environ, "no_proxy": "127.0.0.1,localhost", "NO_PROXY": "127.0.0.1,localhost"}
