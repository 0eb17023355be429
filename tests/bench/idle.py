"""The CPU time of a round of the daemon while nothing changes, and while only pods change on which plans do not depend.

The loop, its memory and all listeners are real. The cluster is in memory, and time passes only while the loop waits.
"""

import datetime as dt
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import msgspec
from prometheus_client import CollectorRegistry

from predicates.objects import Pod, Taint
from predicates.snapshot import Snapshot
from rescheduler.clock import SystemClock
from rescheduler.observe.events import Event, tee
from rescheduler.observe.kube_events import KubeEvents
from rescheduler.observe.logs import Logs
from rescheduler.observe.metrics import Metrics
from rescheduler.observe.status import Status
from rescheduler.settings import Timing
from rescheduler.snapshot_file import reader
from tests.bench.big import big
from tests.bench.result import Result
from tests.housekeeping.world import LoopWorld

SIZES: Final = {100: 3_000, 1_000: 30_000, 5_000: 150_000}
START: Final = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)

#: Rounds that are measured, and the most rounds before them in which the last forecasts are computed.
ROUNDS: Final = 20
SETTLE: Final = 200
#: Consecutive rounds without forecasts after which none are left. A single one can precede the last forecasts.
QUIET_ROUNDS: Final = 5
#: Pods that change between two rounds: 100 a second, with a housekeeping interval of 10 s.
CHANGED: Final = 1_000


class _Ticks:
    """A clock that advances only when the benchmark advances it."""

    def __init__(self) -> None:
        self.passed = 0.0

    def tick(self, delta: timedelta) -> None:
        self.passed += delta.total_seconds()


class _TickClock(SystemClock):
    def __init__(self, ticks: _Ticks) -> None:
        self._ticks = ticks

    def now(self) -> dt.datetime:
        return START + timedelta(seconds=self._ticks.passed)

    def monotonic(self) -> float:
        return self._ticks.passed + super().monotonic()


class IdleDaemon(LoopWorld):
    """The loop on *cluster*, with all listeners of the daemon."""

    def __init__(self, cluster: Snapshot, *, dry_run: bool) -> None:
        ticks = _Ticks()
        super().__init__(cast("Any", ticks), ())
        self.cluster = cluster
        self.clock = _TickClock(ticks)  # type: ignore[assignment]
        self.begun = self.clock.monotonic()
        self.registry, self.status = CollectorRegistry(), Status()
        kube_events = KubeEvents(lambda *_, **__: None)
        self._listeners = tee(Logs(), Metrics(self.registry), self.status, kube_events)
        self._interval = Timing().housekeeping_interval.total_seconds()
        self._loop = self.loop(dry_run=dry_run)

    def report(self, event: Event) -> None:
        self._listeners(event)

    def round(self) -> float:
        """Run one round after a pause. Return its CPU seconds."""
        self.pass_time(self._interval)
        start = time.process_time()
        self._loop.round()
        return time.process_time() - start


def run() -> Iterator[Result]:
    """Yield the rows on idle rounds."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        big(path, on_demand=340, spot=660)
        yield from _rounds(path, dry_run=True)
        yield from _rounds(path, dry_run=False)


def _rounds(path: Path, *, dry_run: bool) -> Iterator[Result]:
    """Measure a daemon. Unless it is a dry run, forecasts reject all its plans, because pods would return."""
    cluster = reader.read(str(path))
    if not dry_run:
        _avoid_spot(cluster)
    daemon = IdleDaemon(cluster, dry_run=dry_run)
    kind = f"{'dry run' if dry_run else 'daemon'}, 1,000 nodes, 30,000 pods"
    daemon.round()
    first = _all_again(daemon)
    quiet = 0
    for _ in range(SETTLE):
        quiet = quiet + 1 if daemon.round() < first / 10 else 0
        if quiet == QUIET_ROUNDS:
            break
    idle = sum(daemon.round() for _ in range(ROUNDS)) / ROUNDS
    yield _row(f"{kind}: an idle round", idle, first, 20, 5)
    churned = 0.0
    for number in range(ROUNDS):
        _edit(daemon.cluster, number)
        churned += daemon.round()
    yield _row(f"{kind}: a round after {CHANGED} edits of pods", churned / ROUNDS, first, 200, 100)


def _avoid_spot(cluster: Snapshot) -> None:
    """Add a taint to the spot nodes that makes the scheduler prefer the other nodes."""
    taint = Taint(key="spot", effect="PreferNoSchedule")
    for node in [node for node in cluster.nodes if node.name.startswith("spot")]:
        taints = (*node.spec.taints, taint)
        spec = msgspec.structs.replace(node.spec, taints=taints)
        cluster.upsert("Node", msgspec.structs.replace(node, spec=spec))


def _all_again(daemon: IdleDaemon) -> float:
    """Return the CPU seconds of a round in which all verdicts are computed again."""
    daemon.cluster.invalidate()
    return daemon.round()


def _row(label: str, ours: float, first: float, at_most: float, aim: float) -> Result:
    """Return a row in milliseconds of CPU time. The peer is the first round, which plans from scratch."""
    return Result(label, f"{1000 * ours:.1f} ms", f"{1000 * first:.0f} ms", 1000 * ours, "ms", at_most, aim)


def _edit(cluster: Snapshot, number: int) -> None:
    """Change the status of some pods, as the restart of a container does: half of them are no longer Ready."""
    since = f"{START + timedelta(seconds=number):%Y-%m-%dT%H:%M:%SZ}"
    pods = list(cluster.pods.values())
    for at in range(CHANGED):
        pod: Pod = pods[(number * CHANGED + at * 29) % len(pods)]
        ready = {"ready": at % 2 == 0, "ready_since": since if at % 2 == 0 else None}
        cluster.upsert("Pod", msgspec.structs.replace(pod, **ready))
