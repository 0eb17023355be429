"""The program as a process, forked from a server with preloaded modules, so that it starts in less than a second."""

import contextlib
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from rescheduler import cli

EXIT_SECONDS: Final = 120
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "rescheduler.cli.run",
        "rescheduler.cli.proxy",
        "rescheduler.housekeeping.composition",
        "rescheduler.proxy.run",
        __name__,
    ]
)


def run_program(arguments: tuple[str, ...], log: str) -> None:
    for name in list(os.environ):
        if name.startswith(("RESCHEDULER_", "KUBE")) or name.lower().endswith("_proxy"):
            del os.environ[name]
    with open(log, "ab", buffering=0) as target:  # noqa: PTH123 -- a file descriptor is needed
        os.dup2(target.fileno(), sys.stderr.fileno())
    cli.main(arguments)


class Program:
    """``rescheduler`` with *arguments* and ``--log-format=json``, whose log is written to the file *log*.

    *main* is the function that runs in the new process; its parameters are the arguments and the log.
    """

    def __init__(self, log: Path, *arguments: str, main: Callable[[tuple[str, ...], str], None] | None = None) -> None:
        self._log = log
        log.touch()
        self._process = _FORKS.Process(target=main or run_program, args=((*arguments, "--log-format=json"), str(log)))

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        """Send SIGKILL, so that the program rolls back nothing."""
        self._process.kill()
        self._process.join()

    def terminate(self) -> None:
        """Send SIGTERM without waiting."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGTERM)

    def end(self) -> int | None:
        """Wait until the process exits on its own and return its exit code; None on timeout."""
        self._process.join(EXIT_SECONDS)
        return self._process.exitcode

    @property
    def lines(self) -> list[dict[str, Any]]:
        entries = []
        for line in self._log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                entries.append(json.loads(line))
        return entries

    def logged(self, words: str, **fields: str) -> list[dict[str, Any]]:
        """Return the log lines so far whose message contains *words* and that have the given fields."""
        return [
            line
            for line in self.lines
            if words in line["message"] and all(line.get(name) == value for name, value in fields.items())
        ]
