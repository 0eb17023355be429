"""Plays many trials on one control plane, several at a time, each on a site of its own."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deploy.local.errors import LocalError
from deploy.local.plane import ControlPlane
from tests.faults.programs import ProgramName
from tests.faults.recording import CallOfDrain, record
from tests.faults.sites import Site, site
from tests.faults.trials import DEFAULT_PACE, Pace, Result, Trial, play


@contextlib.contextmanager
def sites(plane: ControlPlane, folder: Path, count: int) -> Iterator[list[Site]]:
    """So many sites in the *plane*; their files are in *folder*."""
    with contextlib.ExitStack() as stack:
        names = [f"site-{number}" for number in range(1, count + 1)]
        yield [stack.enter_context(site(plane, name, folder / name)) for name in names]


def recorded(at: Site, program: ProgramName = "daemon") -> list[CallOfDrain]:
    """The calls of two drains: what one of them did not need counts as well."""
    first, second = ({(call.name, call.occurrence): call for call in record(at, program)} for _ in range(2))
    return list((second | first).values())


def play_all(
    at: list[Site],
    trials: Iterable[Trial],
    report: Callable[[Result], None],
    pace: Pace = DEFAULT_PACE,
) -> list[Result]:
    """Play the *trials*, one at a time on each site; *report* is called after each, by one thread at a time.

    A trial is played a second time where the local control plane did not do its part. Raises LocalError where it
    fails to do it twice.
    """
    free: queue.SimpleQueue[Site] = queue.SimpleQueue()
    for one in at:
        free.put(one)
    lock = threading.Lock()

    def played(trial: Trial) -> Result:
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
            threads.shutdown(wait=False, cancel_futures=True)  # those that were begun end first
            raise


def _played(here: Site, trial: Trial, pace: Pace) -> Result:
    with contextlib.suppress(LocalError):
        return play(here, trial, pace)
    return play(here, trial, pace)
