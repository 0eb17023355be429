"""A leader is stopped in the middle of a drain, and goes on after another replica took its Lease: what it still writes.

``python -m tests.cluster.takeovers --runs 50 [--no-fencing]`` measures it, by the API server's audit log.
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

from deploy.local import cleaning
from deploy.local.api import Json
from deploy.local.audit import AuditEvent
from deploy.local.manifests import deployment, pdb
from deploy.local.plane import ControlPlane
from deploy.local.stages import START_AFTER, TERMINATE_AFTER
from rescheduler.clock import SystemClock
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer
from tests.cluster.rendering import composed
from tests.cluster.replicas import BARE, FENCED, NAMESPACE, Installation, installed, written_by
from tests.invariants.rules import Rules, Violation
from tests.invariants.watchdog import Watchdog

OLD: Final = "a"
NEW: Final = "b"
APP: Final = "web"
PODS: Final = 6
SPOT: Final = ("spot-1", "spot-2")

#: What the old leader has begun before the takeover may still come through for so long.
TOLERANCE: Final = timedelta(seconds=1)

#: The old leader goes on so long after the takeover: later than what is tolerated.
STOPPED_SECONDS: Final = 1.5

#: For so long its writes are looked at, at least.
WATCHED_SECONDS: Final = 8.0

#: One pod after the other, and each of them slowly: so the drain lasts.
SLOW: Final = {START_AFTER: "1s", TERMINATE_AFTER: "1s"}


#: A replica that was stopped acts on what it saw before; the next leader is there after the Lease has run out.
RULES: Final = Rules(namespace=NAMESPACE, lag=30.0, look=25.0, slack=60.0, leftover=60.0, abandoned=120.0)


@dataclass(frozen=True)
class Takeover:
    """What the old leader wrote and tried after the new one had the Lease."""

    before: int  #: pods that it had evicted until then
    soon: tuple[AuditEvent, ...]  #: accepted, within TOLERANCE
    late: tuple[AuditEvent, ...]  #: accepted, later
    denied: tuple[AuditEvent, ...]  #: refused by the API server
    violations: tuple[Violation, ...]  #: of the invariants, by whomever


def rendered(*, fenced: bool) -> list[Json]:
    """The shipped manifests, with or without the fence."""
    with tempfile.TemporaryDirectory() as folder:
        return composed(Path(folder), ours=FENCED if fenced else BARE)


def take_over(plane: ControlPlane, objects: Sequence[Json], pause: float) -> Takeover:
    """Let it happen on an empty cluster; the leader is stopped *pause* seconds after its first pod terminates."""
    observer = Observer(plane)
    observer.nodes(1, len(SPOT))
    plane.apply([deployment(APP, PODS, annotations=SLOW), pdb(APP, max_unavailable=1)])
    observer.running(PODS, APP)
    watchdog = Watchdog(plane, RULES)
    with watchdog, installed(Installation(plane), objects) as installation, installation.daemon(OLD) as old:
        observer.eventually(lambda: installation.leader == OLD, "the first leader")
        with installation.daemon(NEW) as new:
            observer.eventually(lambda: new.address, "the second replica")
            for name in SPOT:
                observer.cordon(name, off=True)
            observer.eventually(lambda: _draining(observer), "the middle of a drain")
            time.sleep(pause)  # noqa: TID251 - where it is stopped is what differs between the runs
            old.stop()
            observer.eventually(lambda: installation.leader == NEW, "the new leader")
            time.sleep(STOPPED_SECONDS)  # noqa: TID251
            old.go_on()
            watched = time.monotonic() + WATCHED_SECONDS  # noqa: TID251
            observer.eventually(lambda: observer.kinds(APP) == {"spot": PODS}, "the end of the drain by the new leader")
            observer.opened()
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
    taken = next(event.at for event in events if event.accepted and holder(event).startswith(f"{NEW}_"))
    after = [event for event in events if event.user.pod == OLD and event.at > taken]
    accepted = written_by(after, OLD)
    return Takeover(
        before=sum(event.kind == "pods/eviction" for event in written_by(events, OLD) if event.at <= taken),
        soon=tuple(event for event in accepted if event.at <= taken + TOLERANCE),
        late=tuple(event for event in accepted if event.at > taken + TOLERANCE),
        denied=tuple(event for event in after if not event.accepted),
        violations=tuple(violations),
    )


def holder(event: AuditEvent) -> str:
    """Whom a write of a Lease makes its holder."""
    written: str = ((event.request_object or {}).get("spec") or {}).get("holderIdentity", "")
    return written if event.kind == "leases" else ""


@click.command()
@click.option("--runs", default=50, show_default=True)
@click.option("--fencing/--no-fencing", default=True, help="With the fencing policy, or by the daemon's checks alone.")
@click.option("--seed", default=1, show_default=True, help="Of the moments at which the leader is stopped.")
def main(runs: int, *, fencing: bool, seed: int) -> None:
    """Count the writes of deposed leaders that succeed later than a second after the takeover."""
    chance, objects, clock = random.Random(seed), rendered(fenced=fencing), SystemClock()
    late, violations, started = 0, 0, clock.monotonic()
    with ControlPlane() as plane:
        for run in range(1, runs + 1):
            seen = take_over(plane, objects, chance.uniform(0.0, 4.0))
            late += len(seen.late)
            violations += len(seen.violations)
            click.echo(
                f"run {run}: {seen.before} evictions before, accepted after the takeover: within a second "
                f"{_counted(seen.soon)}, later {_counted(seen.late)}; refused {_counted(seen.denied)}"
            )
            plane.wait_for(lambda: cleaning.wipe(plane.api), "an empty cluster")
    fence = "with" if fencing else "without"
    told = f"{late} late writes, {violations} violations"
    click.echo(f"{runs} takeovers {fence} fencing in {clock.monotonic() - started:.0f} s: {told}")
    sys.exit(bool(late and fencing) or bool(violations))


def _counted(events: Sequence[AuditEvent]) -> str:
    counts = Counter(f"{event.verb} {event.kind}" for event in events)
    return ", ".join(f"{count} × {what}" for what, count in counts.items()) or "0"


if __name__ == "__main__":
    main()
