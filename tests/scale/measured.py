"""Processes that are measured from outside: by ``/proc`` and by the sockets of the kernel."""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from tests.forking import ROOT, environment

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_STOP_SECONDS: Final = 60.0
_SAMPLE_SECONDS: Final = 0.1

#: In ``/proc/net/tcp``.
_ESTABLISHED: Final = "01"

#: Less than an event: messages of TLS stay unread in connections that are not in use.
_EVENT_BYTES: Final = 512


class MeasuredProcess:
    """A process that ends with the ``with`` block. Its output is in *log*."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = command
        self.log = log

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=environment(), stdout=log, stderr=log, start_new_session=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(_STOP_SECONDS)

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raise RuntimeError with the end of the log if the process has exited."""
        if (code := self._process.poll()) is not None:
            end = self.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{self._command[:3]} exited with {code}:\n{end}")

    @property
    def cpu(self) -> float:
        """CPU seconds of all threads since the start, in user and kernel mode."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def resident(self) -> float:
        """Resident memory in MB."""
        return self._memory()["VmRSS"]

    @property
    def peak(self) -> float:
        """Maximum of the resident memory since the start, in MB."""
        return self._memory()["VmHWM"]

    def _memory(self) -> Mapping[str, float]:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        fields = (line.split() for line in lines if line.startswith(("VmRSS", "VmHWM")))
        return {name.rstrip(":"): int(kilobytes) / 1e3 for name, kilobytes, _ in fields}


class UnreadData:
    """Measures how long data from a server waits in the sockets of a process before the process reads it.

    *seconds* contains the age of the unread data for each sample, 0.0 if there is none.
    """

    def __init__(self, process: MeasuredProcess, port: int) -> None:
        """Prepare the measurement of *process*. *port* is the server's port."""
        self._process = process
        self._port = port
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.seconds: list[float] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        since = None
        while not self._ended.wait(_SAMPLE_SECONDS):
            now = time.monotonic()  # noqa: TID251 - measured time
            since = (since or now) if self._unread() else None
            self.seconds.append(now - since if since else 0.0)

    def _unread(self) -> bool:
        """Return whether an open connection of the process to the server has unread data of at least one event."""
        own = self._sockets()
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, _, remote, state, queues, _, _, _, _, inode, *_ = line.split()
            ours = int(remote.partition(":")[2], 16) == self._port and state == _ESTABLISHED and inode in own
            if ours and int(queues.partition(":")[2], 16) >= _EVENT_BYTES:
                return True
        return False

    def _sockets(self) -> set[str]:
        """Return the inodes of the sockets of the process."""
        inodes = set()
        for descriptor in Path(f"/proc/{self._process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed in the meantime
                if (name := str(descriptor.readlink())).startswith("socket:["):
                    inodes.add(name[len("socket:[") : -1])
        return inodes


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of *values* that is at least as large as *share* of them; 0.0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
