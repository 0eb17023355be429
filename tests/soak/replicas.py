"""Two replicas of the daemon behind fault proxies; they are killed, paused and continued."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from devcluster.faults.proxy import FaultProxy, before_api_server, redirected
from devcluster.faults.rules import RandomFaults
from tests.cluster.replicas import ReplicatedInstallation
from tests.forking import ROOT, environment

#: Warm-up time of a process. Afterwards it has read everything and drained nodes, and its memory should not grow.
WARM_SECONDS: Final = 600.0

TOKEN_SECONDS: Final = 24 * 3600

#: Excluded faults, which no API server shows for long and no client could detect: an object that exists but is not
#: found, a LIST as old as the soak, events in a different order than the writes, and a token that is rejected forever.
_UNFAIR: Final = frozenset({"404", "stale-list", "reordered-events", "expired-token"})
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """The resource usage of one replica."""

    at: float  #: seconds since the start of the soak
    resident: int  #: bytes
    cpu: float  #: seconds since the start of the process
    pid: int


def allocator() -> dict[str, str]:
    """Return the settings of the C library's allocator in the image: memory is measured as users see it."""
    found = dict(re.findall(r"\b(MALLOC_\w+)=(\S+)", (ROOT / "Dockerfile").read_text()))
    assert found
    return found


@dataclass(slots=True)
class Replica:
    """A process that can be killed, paused and restarted."""

    name: str
    command: Sequence[str]
    log: Path
    proxy: FaultProxy
    process: subprocess.Popen[bytes] | None = None
    stopped: bool = False
    usages: list[Usage] = field(default_factory=list)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=ROOT,
                env=environment() | allocator(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.stopped = False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.stopped = False

    def pause(self) -> None:
        self._send(signal.SIGSTOP)
        self.stopped = True

    def go_on(self) -> None:
        self._send(signal.SIGCONT)
        self.stopped = False

    def measure(self, at: float) -> None:
        if self.process is None or not self.running:
            return
        pid = self.process.pid
        with contextlib.suppress(OSError, ValueError):  # the process may exit in the meantime
            resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
            times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            self.usages.append(Usage(at, resident, (int(times[11]) + int(times[12])) / _TICKS, pid))

    def _send(self, number: signal.Signals) -> None:
        if self.process is not None and self.running:
            self.process.send_signal(number)


def disturb(replica: Replica, rate: float, seed: int) -> None:
    """Inject faults into this share of the replica's requests; 0 disables them."""
    faults = [fault for name, fault in replica.proxy.all_faults().items() if name not in _UNFAIR]
    replica.proxy.rules.randomly(RandomFaults(faults, rate, seed) if rate else None)


@contextlib.contextmanager
def replicas(
    installation: ReplicatedInstallation, names: Sequence[str], flags: Sequence[str], folder: Path
) -> Iterator[list[Replica]]:
    """Start a process for each pod name in *names*; kill all at the end."""
    plane = installation.plane
    started: list[Replica] = []
    with contextlib.ExitStack() as opened:
        for name in names:
            proxy = opened.enter_context(before_api_server(plane))
            account = plane.service_account_kubeconfig(
                installation.namespace, installation.account, pod=name, seconds=TOKEN_SECONDS
            )
            config = redirected(account, proxy, plane.layout.folder / f"kubeconfig-replica-{name}")
            own = (f"--namespace={installation.namespace}", f"--lease-name={installation.lease}", f"--pod-name={name}")
            command = [sys.executable, "-m", "rescheduler", "run", f"--kubeconfig={config}", *own, *flags]
            replica = Replica(name, command, folder / f"replica-{name}.log", proxy)
            opened.callback(replica.kill)
            opened.callback(replica.go_on)
            replica.start()
            started.append(replica)
        yield started
