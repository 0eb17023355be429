"""The processes of one control plane, each under a guard of its own."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.local import guard
from deploy.local.errors import PlaneError

STOP_SECONDS = 20.0
TAIL_LINES = 15


class Processes:
    """Starts commands by name, each with its log file, and stops them; none outlives this process."""

    def __init__(self) -> None:
        self._guards: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, Path] = {}

    def start(self, name: str, command: Sequence[str], log: Path) -> None:
        """Run *command*; its output is added to *log*."""
        if name in self._guards:
            raise PlaneError(f"{name} runs already")
        guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *command]
        with log.open("ab") as output:
            self._guards[name] = subprocess.Popen(
                guarded,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                start_new_session=True,  # Ctrl-C at a terminal is for the owner, who stops the rest
            )
        self._logs[name] = log

    def stop(self, name: str) -> None:
        """End *name* and wait until it is gone; nothing to do where it does not run."""
        process = self._guards.pop(name, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # takes its command along
            process.wait()

    def stop_all(self) -> None:
        """End everything, the last one started first."""
        for name in reversed(tuple(self._guards)):
            self.stop(name)

    def check(self) -> None:
        """Raise PlaneError with the end of its log for a process that ended by itself."""
        for name, process in self._guards.items():
            code = process.poll()
            if code is not None:
                raise PlaneError(f"{name} ended with exit code {code}; the end of its log:\n{self.tail(name)}")

    def tail(self, name: str) -> str:
        """The last lines that *name* wrote."""
        log = self._logs.get(name)
        lines = log.read_text(errors="replace").splitlines() if log else []
        return "\n".join(lines[-TAIL_LINES:])

    @property
    def running(self) -> dict[str, int]:
        """The process ids of the guards by name."""
        return {name: process.pid for name, process in self._guards.items()}
