"""The CPU time of simulated days: ``rescheduler simulate`` with the daemon's defaults and its usual losses of nodes."""

import datetime as dt
import json
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rescheduler.planning.policy import Policy
from rescheduler.settings import Provider, Running, Timing
from rescheduler.simulation.daemon import SLOW, DaemonSettings
from rescheduler.simulation.run import RunPlan, simulate
from rescheduler.simulation.world import WorldSettings
from tests.bench.big import big
from tests.bench.result import Result

#: The label, on-demand and spot nodes, and hours.
CASES: Final = (
    ("`simulate`: 24 h of 1,000 nodes, 30,000 pods", 333, 667, 24.0),
    ("`simulate`: 30 days of 100 nodes, 3,000 pods", 33, 67, 720.0),
)
#: Losses of spot nodes, per node and day.
LOSSES: Final = 0.05
LIMIT, AIM = 60.0, 20.0


def run() -> Iterator[Result]:
    for label, on_demand, spot, hours in CASES:
        seconds = cpu_seconds(on_demand, spot, hours)
        yield Result(label, f"{seconds:.1f} s", "", seconds, "s", LIMIT, AIM)


def cpu_seconds(on_demand: int, spot: int, hours: float) -> float:
    """Return the CPU time of the simulation of *hours*, from the objects on."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "cluster.json"
        big(path, on_demand, spot)
        items = json.loads(path.read_text())["items"]
    settings = WorldSettings(dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC), 1, LOSSES)
    running = Running(provider=Provider("simulated"), timing=Timing())
    began = time.process_time()
    simulate(RunPlan(items, settings, hours * 3600), DaemonSettings(Policy(), running, pace=SLOW))
    return time.process_time() - began
