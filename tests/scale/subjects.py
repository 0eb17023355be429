"""The programs that are compared: the daemon, and the informers of client-go."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2

from devcluster import build, ports
from tests.scale.measured import MeasuredProcess

LABELS: Final = (
    "--on-demand-node-label=node-role.kubernetes.io/worker",
    "--spot-node-label=node-role.kubernetes.io/spot-worker",
)
_ROUND: Final = "spot_rescheduler_loop_duration_seconds"
_PLANNING: Final = "spot_rescheduler_plan_duration_seconds"
_TOTALS: Final = re.compile(rf"^((?:{_ROUND}|{_PLANNING})_(?:sum|count)) (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class MeasuredSubject:
    """A running program. *ready* returns whether it has read the cluster."""

    process: MeasuredProcess
    ready: Callable[[], bool]
    durations: Callable[[], "Durations"]
    pages: str = ""  #: address of its pages; "" if it has none


@dataclass(frozen=True, slots=True)
class Durations:
    """The durations of rounds and of planning since the start, from the daemon's metrics: no other source has them."""

    rounds: int = 0
    seconds: float = 0.0  #: total duration of all rounds
    plannings: int = 0
    planning_seconds: float = 0.0  #: total duration of all plannings


@contextlib.contextmanager
def daemon(kubeconfig: Path, folder: Path, *flags: str) -> Iterator[MeasuredSubject]:
    """Run the daemon with *flags*, or in a dry run if there are none."""
    with contextlib.ExitStack() as parts:
        pages = f"127.0.0.1:{ports.reserve(parts)}"
        client = parts.enter_context(httpx2.Client(base_url=f"http://{pages}", trust_env=False, timeout=60.0))
        command = _command(kubeconfig, pages, flags)
        log = folder / "daemon.log"
        process = parts.enter_context(MeasuredProcess(command, log))

        def ready() -> bool:
            try:
                return client.get("/readyz").is_success
            except httpx2.TransportError:
                return False

        yield MeasuredSubject(
            process,
            ready,
            lambda: durations_in(client.get("/metrics").raise_for_status().text),
            f"http://{pages}",
        )


def _command(kubeconfig: Path, pages: str, flags: Sequence[str]) -> list[str]:
    return [
        *(sys.executable, "-m", "rescheduler", "run"),
        f"--kubeconfig={kubeconfig}",
        f"--listen-address={pages}",
        *LABELS,
        *(flags or ("--dry-run",)),
    ]


@contextlib.contextmanager
def informers(kubeconfig: Path, folder: Path) -> Iterator[MeasuredSubject]:
    """Run the informers of client-go for the kinds that the daemon watches, in protobuf."""
    command = [str(build.scale()), "informers", f"--kubeconfig={kubeconfig}"]
    with MeasuredProcess(command, folder / "informers.log") as process:
        yield MeasuredSubject(process, lambda: "synced" in process.log.read_text(), Durations)


#: The plugin of the descheduler that is closest to the daemon: it evicts pods of nodes that are little used.
_POLICY: Final = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: default
  pluginConfig:
  - {name: DefaultEvictor, args: {}}
  - {name: HighNodeUtilization, args: {thresholds: {cpu: 30, memory: 30}}}
  plugins: {balance: {enabled: [HighNodeUtilization]}}
"""


@contextlib.contextmanager
def descheduler(kubeconfig: Path, folder: Path) -> Iterator[MeasuredSubject]:
    """Run the descheduler in a dry run, with the default interval of the daemon. It is ready after its first round."""
    policy = folder / "policy.yaml"
    policy.write_text(_POLICY)
    command = [
        *(str(build.descheduler()), f"--kubeconfig={kubeconfig}", f"--policy-config-file={policy}", "--secure-port=0"),
        *("--dry-run", "--descheduling-interval=10s", "--v=1"),
    ]
    with MeasuredProcess(command, folder / "descheduler.log") as process:
        yield MeasuredSubject(process, lambda: "Number of evictions" in process.log.read_text(), Durations)


#: By name in the table.
SUBJECTS: Final[Mapping[str, Callable[[Path, Path], contextlib.AbstractContextManager[MeasuredSubject]]]] = {
    "daemon": daemon,
    "informers of client-go": informers,
}

#: Measured on kube-apiserver only, because it reads kinds that the stand-in does not have.
DESCHEDULER: Final = "descheduler, dry run"


def durations_in(metrics: str) -> Durations:
    """Return the durations in the text of metrics. Only four lines are read, because this is called often."""
    totals = {name: float(value) for name, value in _TOTALS.findall(metrics)}
    counts = [int(totals.get(f"{name}_count", 0)) for name in (_ROUND, _PLANNING)]
    seconds = [totals.get(f"{name}_sum", 0.0) for name in (_ROUND, _PLANNING)]
    return Durations(counts[0], seconds[0], counts[1], seconds[1])
