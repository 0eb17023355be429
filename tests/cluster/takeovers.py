"""Takeovers: a leader is stopped during a drain and resumed after another replica has acquired its Lease.

``python -m tests.cluster.takeovers --runs 50 [--no-fencing]`` counts the late writes of the old leader in the API
server's audit log.
"""

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from devcluster import cleaning
from devcluster.api import Json
from devcluster.audit import AuditEvent
from devcluster.manifests import deployment, pdb
from devcluster.plane import ControlPlane
from devcluster.stages import START_AFTER, TERMINATE_AFTER
from rescheduler.clock import SystemClock
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer
from tests.cluster.rendering import composed
from tests.cluster.replicas import BARE, FENCED, NAMESPACE, ReplicatedInstallation, installed, written_by
from tests.invariants.rules import Rules, Violation
from tests.invariants.watchdog import Watchdog

OLD: Final = "a"
NEW: Final = "b"
APP: Final = "web"
PODS: Final = 6
SPOT: Final = ("spot-1", "spot-2")

#: Requests that the old leader sent before the takeover may complete this long after it.
TOLERANCE: Final = timedelta(seconds=1)

#: The old leader is resumed this long after the takeover; longer than TOLERANCE.
STOPPED_SECONDS: Final = 1.5

#: Minimum time for which its writes are observed.
WATCHED_SECONDS: Final = 8.0

#: Slow pods, so that the drain takes long.
SLOW: Final = {START_AFTER: "1s", TERMINATE_AFTER: "1s"}


#: A stopped replica acts on old state; the next leader starts after the Lease has expired.
RULES: Final = Rules(namespace=NAMESPACE, lag=30.0, look=25.0, slack=60.0, leftover=60.0, abandoned=120.0)


@dataclass(frozen=True)
class Takeover:
    """The writes of the old leader after the new leader acquired the Lease."""

    before: int  #: evictions before the takeover
    soon: tuple[AuditEvent, ...]  #: successful, within TOLERANCE
    late: tuple[AuditEvent, ...]  #: successful, later
    denied: tuple[AuditEvent, ...]  #: denied by the API server
    violations: tuple[Violation, ...]  #: violations of the invariants by any replica


def rendered(*, fenced: bool) -> list[Json]:
    """Return the shipped manifests, with or without fencing."""
    with tempfile.TemporaryDirectory() as folder:
        return composed(Path(folder), ours=FENCED if fenced else BARE)


def take_over(plane: ControlPlane, objects: Sequence[Json], pause: float) -> Takeover:
    """Run a takeover on an empty cluster; stop the leader *pause* seconds after the first pod terminates."""
    observer = Observer(plane)
    observer.nodes(1, len(SPOT))
    plane.apply([deployment(APP, PODS, annotations=SLOW), pdb(APP, max_unavailable=1)])
    observer.running(PODS, APP)
    watchdog = Watchdog(plane, RULES)
    with watchdog, installed(ReplicatedInstallation(plane), objects) as installation, installation.daemon(OLD) as old:
        observer.eventually(lambda: installation.leader == OLD, "the first leader")
        with installation.daemon(NEW) as new:
            observer.eventually(lambda: new.address, "the second replica")
            for name in SPOT:
                observer.cordon(name, off=True)
            observer.eventually(lambda: _draining(observer), "the middle of a drain")
            time.sleep(pause)  # noqa: TID251 - the runs differ in the moment of the stop
            old.stop()
            observer.eventually(lambda: installation.leader == NEW, "the new leader")
            time.sleep(STOPPED_SECONDS)  # noqa: TID251
            old.resume()
            watched = time.monotonic() + WATCHED_SECONDS  # noqa: TID251
            observer.eventually(lambda: observer.kinds(APP) == {"spot": PODS}, "the end of the drain by the new leader")
            observer.wait_unmarked()
            time.sleep(max(0.0, watched - time.monotonic()))  # noqa: TID251
            _end(old, new)
    return _seen(observer, watchdog.violations)


def _draining(observer: Observer) -> bool:
    return bool(observer.marks()) and any("deletionTimestamp" in pod["metadata"] for pod in observer.pods(APP))


def _end(*daemons: Daemon) -> None:
    for daemon in daemons:
        daemon.kill(keep_lease=True)


def _seen(observer: Observer, violations: Sequence[Violation]) -> Takeover:
    events = observer.audit.events()
    acquired = next(event.at for event in events if event.accepted and holder(event).startswith(f"{NEW}_"))
    after = [event for event in events if event.user.pod == OLD and event.at > acquired]
    accepted = written_by(after, OLD)
    return Takeover(
        before=sum(event.kind == "pods/eviction" for event in written_by(events, OLD) if event.at <= acquired),
        soon=tuple(event for event in accepted if event.at <= acquired + TOLERANCE),
        late=tuple(event for event in accepted if event.at > acquired + TOLERANCE),
        denied=tuple(event for event in after if not event.accepted),
        violations=tuple(violations),
    )


def holder(event: AuditEvent) -> str:
    """Return the holder that a write of a Lease sets, or ""."""
    written: str = ((event.request_object or {}).get("spec") or {}).get("holderIdentity", "")
    return written if event.kind == "leases" else ""


@click.command()
@click.option("--runs", default=50, show_default=True)
@click.option("--fencing/--no-fencing", default=True, help="With the fencing policy, or only with the daemon's checks.")
@click.option("--seed", default=1, show_default=True, help="Random seed of the moments at which the leader is stopped.")
def main(runs: int, *, fencing: bool, seed: int) -> None:
    """Count the writes of old leaders that succeed more than a second after the takeover."""
    chance, objects, clock = random.Random(seed), rendered(fenced=fencing), SystemClock()
    late, violations, started = 0, 0, clock.monotonic()
    with ControlPlane() as plane:
        for run in range(1, runs + 1):
            seen = take_over(plane, objects, chance.uniform(0.0, 4.0))
            late += len(seen.late)
            violations += len(seen.violations)
            click.echo(
                f"run {run}: {seen.before} evictions before the takeover; successful within a second after it: "
                f"{_counted(seen.soon)}, later: {_counted(seen.late)}; denied: {_counted(seen.denied)}"
            )
            cleaning.empty(plane)
    fence = "with" if fencing else "without"
    summary = f"{late} late writes, {violations} violations"
    click.echo(f"{runs} takeovers {fence} fencing in {clock.monotonic() - started:.0f} s: {summary}")
    sys.exit(bool(late and fencing) or bool(violations))


def _counted(events: Sequence[AuditEvent]) -> str:
    counts = Counter(f"{event.verb} {event.kind}" for event in events)
    return ", ".join(f"{count} × {kind}" for kind, count in counts.items()) or "0"


if __name__ == "__main__":
    main()
