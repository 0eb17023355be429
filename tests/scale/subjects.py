"""The programs that are compared: the daemon in both encodings, and the informers of client-go."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from devcluster import build, ports
from rescheduler.settings import JSON, PROTOBUF
from tests.scale.measured import MeasuredProcess

LABELS: Final = (
    "--on-demand-node-label=node-role.kubernetes.io/worker",
    "--spot-node-label=node-role.kubernetes.io/spot-worker",
)
_ROUND: Final = "spot_rescheduler_loop_duration_seconds"
_PLANNING: Final = "spot_rescheduler_plan_duration_seconds"


@dataclass(frozen=True)
class Subject:
    """A running program. *ready* returns whether it has read the cluster."""

    process: MeasuredProcess
    ready: Callable[[], bool]
    durations: Callable[[], "Durations"]


@dataclass(frozen=True, slots=True)
class Durations:
    """The durations of rounds and of planning since the start, from the daemon's own metrics: only it knows them."""

    rounds: int = 0
    seconds: float = 0.0  #: of all rounds together
    planning: Mapping[float, float] | None = None  #: number of plannings of at most these seconds

    def mean_since(self, earlier: "Durations") -> float:
        """Return the mean duration of the rounds since *earlier*; 0.0 if there was none."""
        rounds = self.rounds - earlier.rounds
        return (self.seconds - earlier.seconds) / rounds if rounds else 0.0

    def planning_p99_since(self, earlier: "Durations") -> float:
        """Return an upper bound of 99 % of the plannings since *earlier*; 0.0 if there was none."""
        before = earlier.planning or {}
        counts = {bound: count - before.get(bound, 0) for bound, count in (self.planning or {}).items()}
        total = max(counts.values(), default=0)
        return next((bound for bound, count in sorted(counts.items()) if total and count >= 0.99 * total), 0.0)


@contextlib.contextmanager
def daemon(kubeconfig: Path, folder: Path, content_type: str, *flags: str) -> Iterator[Subject]:
    """Run the daemon. Without *flags*, in a dry run."""
    with contextlib.ExitStack() as parts:
        pages = f"127.0.0.1:{ports.reserve(parts)}"
        client = parts.enter_context(httpx2.Client(base_url=f"http://{pages}", trust_env=False, timeout=60.0))
        command = _command(kubeconfig, pages, content_type, flags)
        log = folder / f"daemon-{content_type.rpartition('.')[2].rpartition('/')[2]}.log"
        process = parts.enter_context(MeasuredProcess(command, log))

        def ready() -> bool:
            try:
                return client.get("/readyz").is_success
            except httpx2.TransportError:
                return False

        yield Subject(process, ready, lambda: _durations(client.get("/metrics").raise_for_status().text))


def _command(kubeconfig: Path, pages: str, content_type: str, flags: Sequence[str]) -> list[str]:
    return [
        *(sys.executable, "-m", "rescheduler", "run"),
        f"--kubeconfig={kubeconfig}",
        f"--listen-address={pages}",
        f"--kube-api-content-type={content_type}",
        *LABELS,
        *(flags or ("--dry-run",)),
    ]


@contextlib.contextmanager
def informers(kubeconfig: Path, folder: Path) -> Iterator[Subject]:
    """Run the informers of client-go for the kinds that the daemon watches, in protobuf."""
    command = [str(build.scale()), "informers", f"--kubeconfig={kubeconfig}"]
    with MeasuredProcess(command, folder / "informers.log") as process:
        yield Subject(process, lambda: "synced" in process.log.read_text(), Durations)


#: By name in the table.
SUBJECTS: Final[Mapping[str, Callable[[Path, Path], contextlib.AbstractContextManager[Subject]]]] = {
    "daemon, JSON": lambda kubeconfig, folder: daemon(kubeconfig, folder, JSON),
    "daemon, protobuf": lambda kubeconfig, folder: daemon(kubeconfig, folder, PROTOBUF),
    "informers of client-go, protobuf": informers,
}


def _durations(metrics: str) -> Durations:
    samples = [sample for family in text_string_to_metric_families(metrics) for sample in family.samples]
    totals = {sample.name: sample.value for sample in samples if not sample.labels}
    planning = {float(sample.labels["le"]): sample.value for sample in samples if sample.name == f"{_PLANNING}_bucket"}
    return Durations(int(totals.get(f"{_ROUND}_count", 0)), totals.get(f"{_ROUND}_sum", 0.0), planning)
