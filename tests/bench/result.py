"""One line of the benchmark's table, and the table."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """A figure beside what it must be (*at_least*) and should become (*aim*), in the same unit."""

    what: str
    ours: str
    peer: str
    figure: float
    unit: str  #: "×" where larger is better, else what is spent
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
    """How many times faster we are than the peer; seconds."""
    return Result(what, f"{ours:.2f} s", f"{peer:.2f} s", peer / ours, "×", at_least, aim)


def markdown(results: Iterable[Result]) -> str:
    """The table as it is printed and kept."""
    lines = ["| what | ours | peer | figure | at least | aim | |", "|---|---|---|---|---|---|---|"]
    for one in results:
        verdict = "aim reached" if one.aimed else "held" if one.held else "**missed**"
        figures = (f"{number:g} {one.unit}" for number in (one.at_least, one.aim))
        cells = (one.what, one.ours, one.peer, f"{one.figure:.3g} {one.unit}", *figures, verdict)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
