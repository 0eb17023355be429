"""Measurements that are made at one size only: commands, rounds with forecasts, pages."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.bench.result import Result, cost
from tests.forking import ROOT, environment
from tests.scale.measuring import ACTING, Phases, cpu_of, wait
from tests.scale.rounds import requested, slowest, watched
from tests.scale.server import StandIn, eventually
from tests.scale.subjects import LABELS, MeasuredSubject, daemon

#: The default of ``--planning-timeout``, in seconds.
PLANNING_TIMEOUT: Final = 2.0

_PAGES: Final = ("/metrics", "/statusz")
_WAIT_FOR_PLANS: Final = 30  #: seconds in which rounds compute forecasts
_QUIET_ROUND: Final = 0.2  #: seconds; a shorter round has computed nothing
_TIMEOUT: Final = 240.0


def extras(server: StandIn, folder: Path, size: str, phases: Phases) -> Iterator[Result]:
    """Yield the figures that are not those of :mod:`tests.scale.figures`. This changes the cluster of *server*."""
    yield cost(f"{size}: rescheduler plan on the API server", _live_plan(server), "s", 6, 4)
    yield from _changed_rounds(server, folder, size, phases)
    avoid_spot(server)
    yield from _limited_rounds(server, folder, size)
    yield _acting_idle(server, folder, size, phases)


def _live_plan(server: StandIn) -> float:
    """Return the seconds of ``rescheduler plan``, from the start of the process to its end."""
    command = [*(sys.executable, "-m", "rescheduler", "plan"), f"--kubeconfig={server.kubeconfig}", *LABELS]
    before = time.monotonic()  # noqa: TID251 - measured time
    subprocess.run(command, check=True, cwd=ROOT, env=environment(), capture_output=True)
    return time.monotonic() - before  # noqa: TID251


def _changed_rounds(server: StandIn, folder: Path, size: str, phases: Phases) -> Iterator[Result]:
    """Replace 1 % of the pods between two rounds, with forecasts and without them."""
    for flags, kind, at_most, aim in (
        ((), "with forecasts", 1.0, 0.5),
        (("--planning-timeout=0",), "beside forecasts", 0.2, 0.05),
    ):
        with daemon(server.kubeconfig, folder, "--dry-run", *flags) as subject:
            eventually(subject.ready, subject.process)
            wait(subject, phases.settle)
            with watched(subject) as rounds:
                server.churn("turnover", phases.rate, phases.events)
        yield cost(
            f"{size}: longest round with 1 % of the pods replaced, {kind}", rounds.longest or 0.0, "s", at_most, aim
        )


def avoid_spot(server: StandIn) -> None:
    """Taint the spot nodes, so that the scheduler prefers other nodes: forecasts then reject all plans."""
    nodes: list[dict[str, Any]] = server.client.get("/api/v1/nodes").raise_for_status().json()["items"]
    for node in nodes:
        name = node["metadata"]["name"]
        if name.startswith("spot-"):
            taints = [*node["spec"].get("taints", []), {"key": "spot", "effect": "PreferNoSchedule"}]
            server.patch_node(name, {"spec": {"taints": taints}})


def _limited_rounds(server: StandIn, folder: Path, size: str) -> Iterator[Result]:
    """Compute forecasts in each round, as many as the time allows, and request pages at the same time."""
    flags = ("--housekeeping-interval=1s", *ACTING)
    with daemon(server.kubeconfig, folder, *flags) as subject, watched(subject) as rounds:
        eventually(subject.ready, subject.process)
        with requested(subject, _PAGES[0]) as metrics, requested(subject, _PAGES[1]) as status:
            wait(subject, _WAIT_FOR_PLANS)
    bound = 1.1 * PLANNING_TIMEOUT
    yield cost(
        f"{size}: longest round with forecasts for all plans", rounds.longest or 0.0, "s", bound, PLANNING_TIMEOUT
    )
    for path, seconds in zip(_PAGES, (metrics, status), strict=True):
        yield cost(f"{size}: {path} while it plans, p99", 1000 * slowest(seconds), "ms", 20, 10)


def _acting_idle(server: StandIn, folder: Path, size: str, phases: Phases) -> Result:
    """Measure a daemon that is not a dry run, and that has found that no node can be drained."""
    with daemon(server.kubeconfig, folder, f"--planning-timeout={_WAIT_FOR_PLANS}s", *ACTING) as subject:
        eventually(subject.ready, subject.process)
        end = time.monotonic() + _TIMEOUT  # noqa: TID251 - measured time
        while not _is_quiet(server, subject) and time.monotonic() < end:  # noqa: TID251
            pass
        idle = cpu_of(subject, lambda: wait(subject, phases.idle)) / phases.idle
    return cost(f"{size}, not a dry run: CPU when nothing changes", 100 * idle, "% of a core", 1.0, 0.5)


def _is_quiet(server: StandIn, subject: MeasuredSubject) -> bool:
    """Wait for a round, and return whether it has computed nothing and all Events have been written."""
    before = _events(server)
    with watched(subject) as rounds:
        eventually(lambda: rounds.rounds, subject.process)
    return rounds.rounds[-1] < _QUIET_ROUND and _events(server) == before


def _events(server: StandIn) -> int:
    """Return the number of written Events. Their rate is limited, so they follow a round for a minute."""
    return sum(call["verb"] == "POST" and call["path"].endswith("/events") for call in server.calls())
