"""The program as a process whose log is a file."""

import contextlib
import json
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import httpx2

from rescheduler import cli
from tests import forking

EXIT_SECONDS: Final = 120.0
ANSWER_SECONDS: Final = 120.0  #: timeout of a response


class LoggedProgram:
    """``rescheduler`` with *arguments* and ``--log-format=json``, whose log is written to the file *log*.

    *main* is the function that runs in the new process; its parameter is the arguments.
    """

    def __init__(self, log: Path, *arguments: str, main: Callable[[Sequence[str]], None] = cli.main) -> None:
        self._log = log
        log.touch()
        self._main = partial(main, (*arguments, "--log-format=json"))
        self._process: forking.Forked | None = None

    def __enter__(self) -> Self:
        env = {key: text for key, text in forking.environment().items() if not key.lower().endswith("_proxy")}
        with self._log.open("ab", buffering=0) as log:
            self._process = forking.Forked(self._main, stderr=log.fileno(), env=env)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL, so that the program rolls back nothing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> None:
        """Send SIGTERM without waiting."""
        assert self._process is not None
        self._process.terminate()

    def end(self) -> int | None:
        """Wait until the process exits on its own and return its exit code; None on timeout."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(EXIT_SECONDS)
        return None

    @property
    def lines(self) -> list[dict[str, Any]]:
        entries = []
        for line in self._log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                entries.append(json.loads(line))
        return entries

    def proxy_url(self) -> str:
        """Return the URL of a proxy that has read the cluster, or "". Before that, it rejects removals with 503.

        Raises httpx2.TransportError.
        """
        serving, forwarding = self.logged("serving on "), self.logged("forwarding port ")
        if not (serving and forwarding):
            return ""
        pages = serving[0]["message"].rpartition("serving on ")[2]
        port = forwarding[0]["message"].partition("forwarding port ")[2].split()[0]
        ready = httpx2.get(f"{pages}/readyz", timeout=ANSWER_SECONDS, trust_env=False).is_success
        return f"http://127.0.0.1:{port}" if ready else ""

    def logged(self, text: str, **fields: str) -> list[dict[str, Any]]:
        """Return the log lines so far whose message contains *text* and that have the given fields."""
        return [
            line
            for line in self.lines
            if text in line["message"] and all(line.get(name) == value for name, value in fields.items())
        ]
