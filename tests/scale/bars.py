"""The limits of the figures."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from tests.bench.result import Result, cost
from tests.scale.figures import ScaleFigures

#: The events of a second while the CPU per event is measured.
RATE: Final = 100

#: The names of figures, their limits and their goals.
_SMALL: Final = (("idle", "% of a core", 1.0, 0.5), ("picture_age", "s", 1.0, 0.5))
_LARGE: Final = (("ready_seconds", "s", 30.0, 15.0), ("peak", "MB", 700.0, 500.0), *_SMALL)
_NAMES: Final = {
    "idle": "CPU when nothing changes",
    "picture_age": "age of the data at a decision, p99",
    "ready_seconds": "ready after the start",
    "peak": "resident memory at most",
}

_Limited: TypeAlias = Sequence[tuple[str, str, float, float]]


def limits_of(runs: Sequence[ScaleFigures], small: int, large: int) -> Iterator[Result]:
    """Yield the limits for the runs on the stand-in with *small* and *large* numbers of nodes."""
    for nodes, limited in {small: _SMALL, large: _LARGE}.items():
        at_size = [run for run in runs if (run.nodes, run.server) == (nodes, "stand-in")]
        yield from _limits(at_size, f"{nodes:,} nodes", limited)


def _limits(runs: Sequence[ScaleFigures], size: str, limited: _Limited) -> Iterator[Result]:
    """Yield the limits; of several runs of the daemon, for the worst."""
    ours = [run for run in runs if run.round_idle is not None]
    peers = [run.per_status_event for run in runs if run.round_idle is None]
    for name, unit, at_most, aim in limited:
        values = [value for run in ours if (value := getattr(run, name)) is not None]
        if values:
            yield cost(f"{size}, dry run: {_NAMES[name]}", max(values), unit, at_most, aim)
    if ours and peers:
        more = max(run.per_status_event for run in ours) - min(peers)
        label = f"{size}, {RATE} edits of pods a second: CPU above that of the informers"
        yield cost(label, more * RATE / 10, "points", 2.0, 1.0)  # from ms per event to % of a core
