"""Rows of the benchmark's table, and the table."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """A figure with its required value (*at_least*) and its goal (*aim*), in the same unit."""

    what: str
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


def faster(what: str, ours: float, peer: float, at_least: float, aim: float) -> Result:
    """Return how many times faster we are than the peer; arguments in seconds."""
    return Result(what, f"{ours:.2f} s", f"{peer:.2f} s", peer / ours, "×", at_least, aim)


def markdown(results: Iterable[Result]) -> str:
    """Return the table in Markdown."""
    lines = ["| what | ours | peer | figure | at least | aim | |", "|---|---|---|---|---|---|---|"]
    for row in results:
        verdict = "aim reached" if row.aimed else "held" if row.held else "**missed**"
        figures = (f"{number:g} {row.unit}" for number in (row.at_least, row.aim))
        cells = (row.what, row.ours, row.peer, f"{row.figure:.3g} {row.unit}", *figures, verdict)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
