"""The limits of the figures, and the table that shows which limits are met."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tests.scale.figures import ScaleFigures

#: The events of a second while the CPU per event is measured.
RATE: Final = 100

#: The names of figures, their limits and their goals.
_SMALL: Final = (("idle", "%", 1.0, 0.5), ("picture_age", "s", 1.0, 0.5))
_LARGE: Final = (("ready_seconds", "s", 30.0, 15.0), ("peak", "MB", 700.0, 500.0), *_SMALL)
_NAMES: Final = {
    "idle": "CPU when nothing changes",
    "picture_age": "age of the data at a decision, p99",
    "ready_seconds": "ready after the start",
    "peak": "resident memory at most",
}

_Limited: TypeAlias = Sequence[tuple[str, str, float, float]]


@dataclass(frozen=True, slots=True)
class Limit:
    """A figure, and the value that it must not exceed."""

    label: str
    figure: float
    unit: str
    at_most: float
    aim: float

    @property
    def held(self) -> bool:
        return self.figure <= self.at_most


def limits_of(runs: Sequence[ScaleFigures], small: int, large: int) -> Iterator[Limit]:
    """Yield the limits for the runs on the stand-in with *small* and *large* numbers of nodes."""
    for nodes, limited in {small: _SMALL, large: _LARGE}.items():
        at_size = [run for run in runs if (run.nodes, run.server) == (nodes, "stand-in")]
        yield from _limits(at_size, f"{nodes:,} nodes", limited)


def _limits(runs: Sequence[ScaleFigures], size: str, limited: _Limited) -> Iterator[Limit]:
    """Yield the limits; of several runs of the daemon, for the worst."""
    ours = [run for run in runs if run.round_idle is not None]
    peers = [run.per_status_event for run in runs if run.round_idle is None]
    for name, unit, at_most, aim in limited:
        values = [value for run in ours if (value := getattr(run, name)) is not None]
        if values:
            yield Limit(f"{size}, dry run: {_NAMES[name]}", max(values), unit, at_most, aim)
    if ours and peers:
        more = max(run.per_status_event for run in ours) - min(peers)
        label = f"{size}, {RATE} edits of pods a second: CPU above that of the informers"
        yield Limit(label, more * RATE / 10, "points", 2.0, 1.0)  # from ms per event to % of a core


def table(limits: Iterable[Limit]) -> str:
    """Return the table in Markdown."""
    lines = ["| what | figure | at most | aim | |", "|---|---|---|---|---|"]
    for limit in limits:
        verdict = "**missed**" if not limit.held else "aim reached" if limit.figure <= limit.aim else "held"
        figures = (f"{number:.3g} {limit.unit}" for number in (limit.figure, limit.at_most, limit.aim))
        lines.append(f"| {' | '.join((limit.label, *figures, verdict))} |")
    return "\n".join(lines)
