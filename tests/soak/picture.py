"""SVG diagram of a soak: missing pods, drains, memory and CPU over time."""

from collections.abc import Callable, Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

from tests.soak.replicas import Replica, Usage

WIDTH: Final = 1000
LEFT: Final = 70
PANEL: Final = 120
GAP: Final = 40
COLORS: Final = ("#1f77b4", "#ff7f0e")
OUTCOMES: Final = {
    "removed": "#2ca02c",
    "emptied": "#98df8a",
    "rolled back": "#d62728",
    "removed empty": "#17becf",
    "nothing evicted": "#c7c7c7",
    "open": "#9467bd",
}

Line = tuple[str, Sequence[tuple[float, float]]]  #: color, and points


def picture(report: dict[str, Any], replicas: Sequence[Replica]) -> str:
    """Return the SVG document."""
    seconds = max(report["seconds"], 1.0)
    memory = [(color, _memory(replica.usages)) for color, replica in zip(COLORS, replicas, strict=False)]
    cpu = [(color, _cpu(replica.usages)) for color, replica in zip(COLORS, replicas, strict=False)]
    panels = [
        _lines("evicted pods without a Ready successor", [(COLORS[0], _steps(report["missing"], seconds))], seconds),
        _drains(report["drained"], seconds),
        _lines("resident memory of each replica, MiB", memory, seconds),
        _lines("CPU of each replica, % of a core", cpu, seconds),
    ]
    height = len(panels) * (PANEL + GAP) + GAP
    body = "".join(
        f'<g transform="translate({LEFT},{GAP + index * (PANEL + GAP)})">{panel}</g>'
        for index, panel in enumerate(panels)
    )
    size = f'width="{WIDTH + LEFT + 20}" height="{height}"'
    style = "<style>text{font:12px sans-serif}line,polyline{fill:none;stroke-width:1.2}</style>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}<rect {size} fill="white"/>{body}</svg>\n'


def _lines(title: str, lines: Sequence[Line], seconds: float) -> str:
    most = max((value for _, points in lines for _, value in points), default=1.0) or 1.0
    return _frame(title, seconds, f"{most:.0f}") + "".join(
        f'<polyline stroke="{color}" points="{_points(points, seconds, most)}"/>' for color, points in lines
    )


def _points(points: Sequence[tuple[float, float]], seconds: float, most: float) -> str:
    return " ".join(f"{at / seconds * WIDTH:.1f},{PANEL - value / most * PANEL:.1f}" for at, value in points)


def _drains(drained: Sequence[tuple[str, float, float, str]], seconds: float) -> str:
    """Draw one bar per drain, with a row for each concurrent drain, colored by outcome."""
    rows = 6
    bars = []
    for index, (node, begin, end, outcome) in enumerate(drained):
        x, width = begin / seconds * WIDTH, max(1.0, (end - begin) / seconds * WIDTH)
        y = index % rows * PANEL / rows
        bar = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{PANEL / rows - 3:.1f}"'
        bars.append(f'{bar} fill="{OUTCOMES[outcome]}"><title>{escape(node)}: {outcome}</title></rect>')
    key = "".join(
        f'<rect x="{120 + index * 130}" y="-16" width="10" height="10" fill="{color}"/>'
        f'<text x="{134 + index * 130}" y="-7">{outcome}</text>'
        for index, (outcome, color) in enumerate(OUTCOMES.items())
    )
    return _frame("drains", seconds, "") + key + "".join(bars)


def _frame(title: str, seconds: float, top: str) -> str:
    minutes = f'<text x="{WIDTH}" y="{PANEL + 14}" text-anchor="end">{seconds / 60:.0f} min</text>'
    return (
        f'<text x="0" y="-6">{escape(title)}</text><text x="-8" y="10" text-anchor="end">{top}</text>'
        f'<rect width="{WIDTH}" height="{PANEL}" fill="none" stroke="#cccccc"/>{minutes}'
    )


def _steps(points: Sequence[tuple[float, int]], seconds: float) -> list[tuple[float, float]]:
    """Extend each value until the next one."""
    steps: list[tuple[float, float]] = [(0.0, 0.0)]
    for at, value in points:
        steps += [(max(0.0, at), steps[-1][1]), (max(0.0, at), float(value))]
    return [*steps, (seconds, steps[-1][1])]


def _memory(usages: Sequence[Usage]) -> list[tuple[float, float]]:
    return [(usage.at, usage.resident / 2**20) for usage in usages]


def _cpu(usages: Sequence[Usage]) -> list[tuple[float, float]]:
    """Return the CPU usage, averaged over ten measurements; the counter of a new process restarts at zero."""
    every: Callable[[int], Usage] = usages.__getitem__
    pairs = [(every(index), every(index + 10)) for index in range(0, len(usages) - 10, 10)]
    return [
        (later.at, 100 * (later.cpu - earlier.cpu) / max(later.at - earlier.at, 0.1))
        for earlier, later in pairs
        if earlier.pid == later.pid
    ]
