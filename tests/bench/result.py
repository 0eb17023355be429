"""Rows of the benchmark's table, and the table."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The file with the results of ``make bench``, and after this heading those of ``make scale``.
KEPT: Final = Path(__file__).with_name("results.md")
SCALE_HEADING: Final = "## Large clusters, live"


@dataclass(frozen=True, slots=True)
class Result:
    """A figure with its required value (*at_least*) and its goal (*aim*), in the same unit."""

    label: str
    ours: str
    peer: str
    figure: float
    unit: str  #: "×" or "%": larger is better; otherwise a cost
    at_least: float
    aim: float

    @property
    def held(self) -> bool:
        return self._meets(self.at_least)

    @property
    def aimed(self) -> bool:
        return self._meets(self.aim)

    def _meets(self, bound: float) -> bool:
        return self.figure >= bound if self.unit in ("×", "%") else self.figure <= bound


def faster(label: str, ours: float, peer: float, at_least: float, aim: float) -> Result:
    """Return how many times faster we are than the peer; arguments in seconds."""
    return Result(label, f"{ours:.2f} s", f"{peer:.2f} s", peer / ours, "×", at_least, aim)


def markdown(results: Iterable[Result]) -> str:
    """Return the table in Markdown."""
    lines = ["| what | ours | peer | figure | at least | aim | |", "|---|---|---|---|---|---|---|"]
    for row in results:
        verdict = "aim reached" if row.aimed else "held" if row.held else "**missed**"
        figures = (f"{number:g} {row.unit}" for number in (row.at_least, row.aim))
        cells = (row.label, row.ours, row.peer, f"{row.figure:.3g} {row.unit}", *figures, verdict)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def keep(bench: str | None = None, scale: str | None = None) -> None:
    """Replace one of the two parts of the results."""
    before, heading, after = KEPT.read_text(encoding="utf-8").partition(SCALE_HEADING)
    parts = [before if bench is None else bench, heading + after if scale is None else f"{SCALE_HEADING}\n\n{scale}"]
    KEPT.write_text("\n\n".join(part.strip() for part in parts if part) + "\n", encoding="utf-8")
