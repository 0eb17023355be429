"""The product as a monitored process: output, memory and descriptors."""

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 240.0  #: on a busy machine; a process that hangs is killed, and its exit code is not 0

#: Must not match any line of output.
_BROKEN: Final = re.compile(
    r"Traceback|Exception in |never retrieved|never awaited|internal error|Fatal error", re.IGNORECASE
)

_LISTEN: Final = "0A"  #: the state of a listening socket in /proc/net/tcp


class Watched:
    """A `rescheduler` process; *secrets* must never occur in its output."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], secrets: Sequence[str]) -> None:
        self.secrets = tuple(secrets)
        self.lines: list[str] = []
        self._read = 0
        self._silent = False  #: the output has ended
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rescheduler", *arguments],
            cwd=ROOT,
            env={**os.environ, "no_proxy": "127.0.0.1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._reader = threading.Thread(target=self._follow, name="output")
        self._reader.start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self.lines.append(line.decode("utf-8", "replace").rstrip())
                self._news.notify_all()
        with self._news:
            self._silent = True
            self._news.notify_all()

    def wait_for(self, pattern: str) -> "re.Match[str]":
        """Wait for the first line that matches, and return the match."""

        def first() -> "re.Match[str] | None":
            return next((match for line in self.lines if (match := re.search(pattern, line))), None)

        with self._news:
            self._news.wait_for(lambda: first() or self._silent, START_SECONDS)
            match = first()
        assert match, f"no line matches {pattern!r}: {self.lines[-20:]}"
        return match

    def problems(self) -> list[str]:
        """Return the problems in the output since the last call."""
        with self._news:
            new, self._read = self.lines[self._read :], len(self.lines)
        problems = [f"it printed: {line}" for line in new if _BROKEN.search(line)]
        problems += [f"printed a secret: {line}" for line in new if self.leaks(line.encode())]
        if self._process.poll() is not None:
            problems.append(f"exited with {self._process.returncode}: {self.lines[-20:]}")
        return problems

    def leaks(self, text: bytes) -> bool:
        return any(secret.encode() in text for secret in self.secrets)

    @property
    def megabytes(self) -> float:
        """The resident memory in megabytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    @property
    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    @property
    def ports(self) -> set[int]:
        """The TCP ports on which the process listens."""
        sockets = set()
        for file in Path(f"/proc/{self._process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the process has closed it in the meantime
                sockets.add(str(file.readlink()).removeprefix("socket:[").removesuffix("]"))
        tables = (Path(f"/proc/net/{kind}").read_text() for kind in ("tcp", "tcp6"))
        lines = [line.split() for table in tables for line in table.splitlines()]
        return {int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == _LISTEN and line[9] in sockets}

    def stop(self) -> int:
        """Terminate the process as Kubernetes does; return its exit code."""
        self._process.terminate()
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


@contextlib.contextmanager
def watched(arguments: Sequence[str], environment: Mapping[str, str], secrets: Sequence[str]) -> Iterator[Watched]:
    process = Watched(arguments, environment, secrets)
    try:
        yield process
    finally:
        process.stop()
