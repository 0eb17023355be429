"""The measurements of a program at one size of the cluster, and their tables."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from tests.bench.result import table

#: By field of ScaleFigures: its row in the table, and its format.
ROWS: Final = {
    "ready_seconds": ("ready after the start, s", ".1f"),
    "ready_cpu": ("CPU until ready, s", ".2f"),
    "resident": ("resident memory, MB", ".0f"),
    "peak": ("resident memory at most, MB", ".0f"),
    "idle": ("CPU when nothing changes, % of a core", ".2f"),
    "per_status_event": ("CPU per event of a pod that stays as it is, with rounds, ms", ".2f"),
    "per_turnover_event": ("CPU per event of a pod that is replaced, with rounds, ms", ".2f"),
    "round_idle": ("round when nothing changes, s", ".3f"),
    "round_status": ("longest round during events of pods that stay as they are, s", ".3f"),
    "round_turnover": ("longest round during events of pods that are replaced, s", ".3f"),
    "picture_age": ("age of the data at a decision, p99, s", ".2f"),
    "eviction": ("from the decision to the last eviction, s", ".1f"),
}


@dataclass(frozen=True, slots=True)
class ScaleFigures:
    """The figures of one program; None where it has none. Informers make no decisions."""

    subject: str
    server: str
    nodes: int
    pods: int
    ready_seconds: float
    ready_cpu: float
    resident: float
    peak: float
    idle: float
    per_status_event: float
    per_turnover_event: float
    round_idle: float | None = None
    round_status: float | None = None
    round_turnover: float | None = None
    picture_age: float | None = None
    eviction: float | None = None


assert set(ROWS) == {field.name for field in fields(ScaleFigures)} - {"subject", "server", "nodes", "pods"}


def markdown(runs: Sequence[ScaleFigures]) -> str:
    """Return one table for each server and size, with a column for each program."""
    sizes = dict.fromkeys(map(_size, runs))
    return "\n\n".join(_table([run for run in runs if _size(run) == size]) for size in sizes)


def _size(run: ScaleFigures) -> str:
    return f"{run.server}, {run.nodes:,} nodes, {run.pods:,} pods"


def _table(runs: Sequence[ScaleFigures]) -> str:
    rows = []
    for name, (title, form) in ROWS.items():
        values = [getattr(run, name) for run in runs]
        if any(value is not None for value in values):
            rows.append([title, *("" if value is None else format(value, form) for value in values)])
    return table([_size(runs[0]), *(run.subject for run in runs)], rows)
