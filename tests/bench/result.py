"""Measured figures with their limits, and the table of them: of ``make bench`` and of ``make scale``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The file with the results of ``make bench``, and after this heading those of ``make scale``.
KEPT: Final = Path(__file__).with_name("results.md")
SCALE_HEADING: Final = "## Large clusters, live"

#: A table is only saved if the load of the machine was at most this before the start.
MOST_LOAD: Final = 0.5


@dataclass(frozen=True, slots=True)
class Result:
    """A figure with its *limit* and its goal (*aim*), in the same unit. It compares *ours* with *peer*, if any."""

    label: str
    ours: str
    peer: str
    figure: float
    unit: str  #: "×" or "%": larger is better, and the limit is the least; otherwise a cost, and the limit is the most
    limit: float
    aim: float

    @property
    def held(self) -> bool:
        return self._meets(self.limit)

    @property
    def aimed(self) -> bool:
        return self._meets(self.aim)

    def _meets(self, bound: float) -> bool:
        return self.figure >= bound if self.unit in ("×", "%") else self.figure <= bound


def faster(label: str, ours: float, peer: float, limit: float, aim: float) -> Result:
    """Return how many times faster we are than the peer; *ours* and *peer* in seconds."""
    return Result(label, f"{ours:.2f} s", f"{peer:.2f} s", peer / ours, "×", limit, aim)


def cost(label: str, figure: float, unit: str, limit: float, aim: float) -> Result:
    """Return a cost that is compared with nothing. The unit must not be one in which larger is better."""
    return Result(label, "", "", figure, unit, limit, aim)


def markdown(results: Iterable[Result]) -> str:
    """Return the table of the results in Markdown."""
    return table(("what", "ours", "peer", "figure", "limit", "aim", ""), map(_cells, results))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _cells(row: Result) -> Sequence[str]:
    verdict = "aim reached" if row.aimed else "held" if row.held else "**missed**"
    bounds = (f"{number:g} {row.unit}" for number in (row.limit, row.aim))
    return row.label, row.ours, row.peer, f"{row.figure:.3g} {row.unit}", *bounds, verdict


def conditions(load: float, minutes: float) -> str:
    """Return how busy the machine was before the start (the *load* of a minute), and how long the run took."""
    return f"The load of the machine was {load:.2f} before the start. The run took {minutes:.0f} minutes."


def keep(bench: str | None = None, scale: str | None = None) -> None:
    """Replace one of the two parts of the results."""
    before, heading, after = KEPT.read_text(encoding="utf-8").partition(SCALE_HEADING)
    parts = [before if bench is None else bench, heading + after if scale is None else f"{SCALE_HEADING}\n\n{scale}"]
    KEPT.write_text("\n\n".join(part.strip() for part in parts if part) + "\n", encoding="utf-8")
