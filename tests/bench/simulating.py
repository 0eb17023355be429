"""Which share of a time a minute of CPU simulates: ``rescheduler simulate`` with the defaults and losses of nodes."""

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
#: CPU seconds in which the whole time should be simulated.
SECONDS: Final = 60.0


def run() -> Iterator[Result]:
    for label, on_demand, spot, hours in CASES:
        simulated, seconds = simulated_in(SECONDS, on_demand, spot, hours)
        share = simulated / hours * SECONDS / seconds
        yield Result(f"{label}: share in {SECONDS:g} s", f"{simulated:.1f} h", f"{hours:g} h", share, "×", 1.0, 3.0)


def simulated_in(most: float, on_demand: int, spot: int, hours: float) -> tuple[float, float]:
    """Return how many of the *hours* are simulated until *most* seconds of CPU time have passed, and these seconds."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "cluster.json"
        big(path, on_demand, spot)
        items = json.loads(path.read_text())["items"]
    settings = WorldSettings(dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC), 1, LOSSES)
    running = Running(provider=Provider("simulated"), timing=Timing())
    began, done = time.process_time(), 0.0

    def progress(share: float) -> None:
        nonlocal done
        done = share
        if time.process_time() - began >= most:
            raise KeyboardInterrupt

    simulate(
        RunPlan(items, settings, hours * 3600), DaemonSettings(Policy(), running, pace=SLOW, is_read=False), progress
    )
    return done * hours, time.process_time() - began
