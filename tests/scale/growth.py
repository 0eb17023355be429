"""SVG diagrams of the growth of figures with the size of the cluster: a panel per figure, a line per program."""

from collections.abc import Sequence
from html import escape
from typing import Final

from tests.scale.figures import ROWS, ScaleFigures

WIDTH: Final = 420
HEIGHT: Final = 130
LEFT: Final = 70
GAP: Final = 60
COLUMNS: Final = 2
COLORS: Final = ("#1f77b4", "#ff7f0e", "#2ca02c")


def growth(runs: Sequence[ScaleFigures]) -> str:
    """Return the SVG document for the runs of all sizes."""
    subjects = list(dict.fromkeys(run.subject for run in runs))
    names = [name for name in ROWS if any(getattr(run, name) is not None for run in runs)]
    panels = "".join(
        f'<g transform="translate({LEFT + number % COLUMNS * (WIDTH + LEFT + 20)},'
        f'{GAP + number // COLUMNS * (HEIGHT + GAP)})">{_panel(name, runs, subjects)}</g>'
        for number, name in enumerate(names)
    )
    key = "".join(
        f'<rect x="{LEFT + index * 260}" y="12" width="10" height="10" fill="{COLORS[index]}"/>'
        f'<text x="{LEFT + 14 + index * 260}" y="21">{escape(subject)}</text>'
        for index, subject in enumerate(subjects)
    )
    rows = -(-len(names) // COLUMNS)
    size = f'width="{COLUMNS * (WIDTH + LEFT + 20)}" height="{GAP + rows * (HEIGHT + GAP)}"'
    style = "<style>text{font:12px sans-serif}polyline{fill:none;stroke-width:1.5}</style>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}<rect {size} fill="white"/>{key}{panels}</svg>\n'


def _panel(name: str, runs: Sequence[ScaleFigures], subjects: Sequence[str]) -> str:
    title, form = ROWS[name]
    most = max((value for run in runs if (value := getattr(run, name)) is not None), default=0.0) or 1.0
    widest = max(run.nodes for run in runs)
    lines = []
    for subject, color in zip(subjects, COLORS, strict=False):
        points = [
            (run.nodes / widest * WIDTH, HEIGHT - value / most * HEIGHT)
            for run in runs
            if run.subject == subject and (value := getattr(run, name)) is not None
        ]
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}"/>' for x, y in points)
        lines.append(f'<polyline stroke="{color}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>{dots}')
    return (
        f'<text x="0" y="-6">{escape(title)}</text>'
        f'<text x="-8" y="10" text-anchor="end">{format(most, form)}</text>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#cccccc"/>'
        f'<text x="{WIDTH}" y="{HEIGHT + 14}" text-anchor="end">{widest:,} nodes</text>' + "".join(lines)
    )
