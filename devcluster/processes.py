"""The processes of a control plane, each with its own guard."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from devcluster import guard
from devcluster.errors import PlaneError

STOP_SECONDS = 20.0
TAIL_LINES = 15


class Processes:
    """Named processes with log files, which do not outlive this process."""

    def __init__(self) -> None:
        self._guards: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, Path] = {}

    def start(self, name: str, command: Sequence[str], log: Path) -> None:
        """Start *command* and append its output to *log*."""
        if name in self._guards:
            raise PlaneError(f"{name} is already running")
        guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *command]
        with log.open("ab") as output:
            self._guards[name] = subprocess.Popen(
                guarded,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                start_new_session=True,  # Ctrl-C signals only the owner, which stops the components
            )
        self._logs[name] = log

    def stop(self, name: str) -> None:
        """Stop *name* and wait until it has exited; do nothing if it is not running."""
        process = self._guards.pop(name, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # the kernel kills the command, too
            process.wait()

    def stop_all(self) -> None:
        """Stop all processes, in reverse start order."""
        for name in reversed(tuple(self._guards)):
            self.stop(name)

    def check(self) -> None:
        """Raise PlaneError with the end of its log if a process has exited on its own."""
        for name, process in self._guards.items():
            code = process.poll()
            if code is not None:
                raise PlaneError(f"{name} exited with code {code}; the end of its log:\n{self.tail(name)}")

    def tail(self, name: str) -> str:
        """Return the last lines of the log of *name*."""
        log = self._logs.get(name)
        lines = log.read_text(errors="replace").splitlines() if log else []
        return "\n".join(lines[-TAIL_LINES:])

    @property
    def running(self) -> dict[str, int]:
        """The process ids of the guards, by process name."""
        return {name: process.pid for name, process in self._guards.items()}
