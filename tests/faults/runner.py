"""Concurrent trials on one control plane, each on its own site."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devcluster.errors import LocalError
from devcluster.plane import ControlPlane
from tests.faults.programs import ProgramName
from tests.faults.recording import CallOfDrain, record
from tests.faults.sites import Site, site
from tests.faults.trials import DEFAULT_PACE, FaultTrial, TrialPace, TrialResult, play


@contextlib.contextmanager
def sites(plane: ControlPlane, folder: Path, count: int) -> Iterator[list[Site]]:
    """Create *count* sites in *plane*, with their files in *folder*."""
    with contextlib.ExitStack() as stack:
        names = [f"site-{number}" for number in range(1, count + 1)]
        yield [stack.enter_context(site(plane, name, folder / name)) for name in names]


def recorded(at: Site, program: ProgramName = "daemon") -> list[CallOfDrain]:
    """Record two drains and return their calls; the calls that only the second drain made are included."""
    first, second = ({(call.name, call.occurrence): call for call in record(at, program)} for _ in range(2))
    return list((second | first).values())


def play_all(
    at: list[Site],
    trials: Iterable[FaultTrial],
    report: Callable[[TrialResult], None],
    pace: TrialPace = DEFAULT_PACE,
) -> list[TrialResult]:
    """Play *trials*, one at a time on each site; serialize the calls of *report* after each.

    A trial is repeated once if the local control plane failed. Raise LocalError if it fails again.
    """
    free: queue.SimpleQueue[Site] = queue.SimpleQueue()
    for unused in at:
        free.put(unused)
    lock = threading.Lock()

    def played(trial: FaultTrial) -> TrialResult:
        here = free.get()
        try:
            result = _played(here, trial, pace)
        finally:
            free.put(here)
        with lock:
            report(result)
        return result

    with ThreadPoolExecutor(len(at)) as threads:
        try:
            return list(threads.map(played, trials))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)  # waits for trials in progress
            raise


def _played(here: Site, trial: FaultTrial, pace: TrialPace) -> TrialResult:
    with contextlib.suppress(LocalError):
        return play(here, trial, pace)
    return play(here, trial, pace)
