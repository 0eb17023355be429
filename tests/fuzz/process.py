"""The product as a process that is watched: what it prints, how much memory and how many descriptors it takes."""

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

#: What no line of a sound process has.
_BROKEN: Final = re.compile(
    r"Traceback|Exception in |never retrieved|never awaited|internal error|Fatal error", re.IGNORECASE
)


class Watched:
    """A `rescheduler` of its own; *secrets* must never be seen in what it prints."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], secrets: Sequence[str]) -> None:
        self.secrets = tuple(secrets)
        self.lines: list[str] = []
        self._read = 0
        self._silent = False  #: its output has ended
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

    def said(self, pattern: str) -> "re.Match[str]":
        """The first line that matches; it is waited for."""

        def found() -> "re.Match[str] | None":
            return next((match for line in self.lines if (match := re.search(pattern, line))), None)

        with self._news:
            self._news.wait_for(lambda: found() or self._silent, START_SECONDS)
            match = found()
        assert match, f"the process did not say {pattern!r}: {self.lines[-20:]}"
        return match

    def complaints(self) -> list[str]:
        """What speaks against the process in what it printed since the last call."""
        with self._news:
            new, self._read = self.lines[self._read :], len(self.lines)
        found = [f"it printed: {line}" for line in new if _BROKEN.search(line)]
        found += [f"it printed a secret: {line}" for line in new if self.leaks(line.encode())]
        if self._process.poll() is not None:
            found.append(f"it ended with {self._process.returncode}: {self.lines[-20:]}")
        return found

    def leaks(self, text: bytes) -> bool:
        return any(secret.encode() in text for secret in self.secrets)

    @property
    def megabytes(self) -> float:
        """Resident."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    @property
    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    def stop(self) -> int:
        """End it as Kubernetes does; its exit code."""
        self._process.terminate()
        try:
            code = self._process.wait(60)
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
