"""The phases of a measurement: start, idle, events, drain."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tests.scale.figures import ScaleFigures
from tests.scale.measured import UnreadData, percentile
from tests.scale.rounds import watched
from tests.scale.server import START_SECONDS, ChangeableApiServer, StandIn, eventually
from tests.scale.subjects import DESCHEDULER, SUBJECTS, MeasuredSubject, daemon, descheduler

#: Flags of a daemon that drains nodes, without a provider and without delays.
ACTING: Final = (
    "--node-drain-delay=0",
    "--max-graceful-termination=5s",
    "--shorten-grace-periods",
    "--leader-elect=false",
    "--namespace=team-0",
)


@dataclass(frozen=True, slots=True)
class Phases:
    """The durations of the phases in seconds, and the rate of the events per second."""

    settle: int = 20  #: from ready to the end of the first rounds
    idle: int = 30
    events: int = 25
    rate: int = 100


def measure(
    name: str, server: ChangeableApiServer, folder: Path, nodes: int, pods: int, phases: Phases
) -> ScaleFigures:
    """Start the program *name*, run all phases, and stop it."""
    start = descheduler if name == DESCHEDULER else SUBJECTS[name]
    began = time.monotonic()  # noqa: TID251 - measured time
    with start(server.kubeconfig, folder) as subject:
        process = subject.process
        eventually(subject.ready, process)
        ready_seconds, ready_cpu = time.monotonic() - began, process.cpu  # noqa: TID251
        wait(subject, phases.settle)
        with watched(subject) as quiet:
            idle = cpu_of(subject, lambda: wait(subject, phases.idle)) / phases.idle
        with UnreadData(process, server.port) as unread:
            with watched(subject) as edits:
                status = _per_event(subject, server, "status", phases)
            with watched(subject) as turnovers:
                turnover = _per_event(subject, server, "turnover", phases)
        planning = max((*edits.plannings, *turnovers.plannings), default=None)
        return ScaleFigures(
            subject=name,
            server=server.name,
            nodes=nodes,
            pods=pods,
            ready_seconds=ready_seconds,
            ready_cpu=ready_cpu,
            resident=process.resident,
            peak=process.peak,
            idle=100 * idle,
            per_status_event=1000 * status,
            per_turnover_event=1000 * turnover,
            round_idle=quiet.mean,
            round_status=edits.longest,
            round_turnover=turnovers.longest,
            picture_age=None if planning is None else percentile(unread.seconds, 0.99) + planning,
        )


def wait(subject: MeasuredSubject, seconds: float) -> None:
    """Wait for *seconds* while the subject runs."""
    end = time.monotonic() + seconds  # noqa: TID251 - measured time
    while (remaining := end - time.monotonic()) > 0:  # noqa: TID251
        subject.process.check()
        time.sleep(min(remaining, 1.0))  # noqa: TID251


def cpu_of(subject: MeasuredSubject, act: Callable[[], object]) -> float:
    """Return the CPU seconds of the subject while *act* runs."""
    before = subject.process.cpu
    act()
    return subject.process.cpu - before


def _per_event(subject: MeasuredSubject, server: ChangeableApiServer, kind: str, phases: Phases) -> float:
    """Return the CPU seconds per event, including all other work of the subject in that time."""
    events = 0

    def act() -> None:
        nonlocal events
        events = server.churn(kind, phases.rate, phases.events)

    return cpu_of(subject, act) / events


def with_eviction(figures: ScaleFigures, server: StandIn, folder: Path, seconds: float = START_SECONDS) -> ScaleFigures:
    """Drain a node, and add the seconds from its mark to its last eviction. This changes the cluster.

    Raises RuntimeError if the drain has not ended after *seconds*.
    """
    with contextlib.ExitStack() as parts:
        subject = parts.enter_context(daemon(server.kubeconfig, folder, "--once", *ACTING))
        eventually(lambda: _mark(server) and _evictions(server) and not _evicting(server), subject.process, seconds)
    return replace(figures, eviction=(_at(_evictions(server)[-1]) - _at(_mark(server)[0])).total_seconds())


def _mark(server: StandIn) -> list[dict[str, Any]]:
    """Return the writes to nodes."""
    return [call for call in server.calls() if call["verb"] == "PATCH" and "/nodes/" in call["path"]]


def _evictions(server: StandIn) -> list[dict[str, Any]]:
    """Return the evictions that were not dry runs."""
    return [call for call in server.calls() if call["path"].endswith("/eviction") and "dryRun" not in call["query"]]


def _evicting(server: StandIn) -> bool:
    """Return whether the drain has not ended: the last write to a node is its mark."""
    return _at(_evictions(server)[-1]) > _at(_mark(server)[-1])


def _at(call: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(call["at"])
