"""The page of a simulation: the figures of its runs side by side, and what changed over time, as one HTML file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from rescheduler.pages.element import Markup, document, element, joined, table

#: A line has at most two steps in each of so many equal times: more cannot be seen.
_POINTS: Final = 400
_HOUR: Final = 3600.0
#: From here on, numbers are written without decimals.
_LARGE: Final = 1000

_WIDTH: Final = 420
_HEIGHT: Final = 180
_LEFT: Final = 52
_RIGHT: Final = 12
_TOP: Final = 12
_BOTTOM: Final = 28

#: Number of kinds of lines in the style sheet, one for each run; further runs begin again.
_KINDS: Final = 5


@dataclass(frozen=True, slots=True)
class RunPicture:
    """One run. The series are steps: pairs of the seconds since the start and the value from then on."""

    figures: Mapping[str, str]
    lines: Sequence[str]  #: what happened
    seconds: float
    series: Mapping[str, Sequence[tuple[float, float]]]  #: by the title of the picture


def simulation_page(runs: Mapping[str, RunPicture]) -> str:
    """Return the page of *runs* by their flags."""
    titles = list(dict.fromkeys(title for run in runs.values() for title in run.series))
    hours = max(run.seconds for run in runs.values()) / _HOUR
    pictures = (_picture(title, runs) for title in titles)
    body = joined(
        (
            element("header", element("h1", "A simulated cluster"), element("p", f"{hours:g} hours", class_="first")),
            element(
                "main",
                element("h2", "Figures"),
                _figures(runs),
                element("h2", "Over time"),
                _legend(list(runs)) if len(runs) > 1 else None,
                element("div", pictures, class_="pictures"),
                element("h2", "What happened"),
                (_course(name, run) for name, run in runs.items()),
            ),
            element("footer", element("p", "Made by rescheduler simulate. Nothing in a real cluster was changed.")),
        )
    )
    return document("A simulated cluster", body)


def _figures(runs: Mapping[str, RunPicture]) -> Markup:
    labels = dict.fromkeys(label for run in runs.values() for label in run.figures)
    rows = [(label, *(run.figures.get(label, "") for run in runs.values())) for label in labels]
    head = ("Figure", *(name or "Result" for name in runs))
    return table("All runs have the same cluster, events and random numbers", head, rows, frozenset())


def _legend(names: Sequence[str]) -> Markup:
    entries = (element("li", _sample(number), element("code", name)) for number, name in enumerate(names))
    return element("ul", entries, class_="legend runs")


def _sample(number: int) -> Markup:
    line = element("path", d="M0 5H30", class_=f"line {_kind(number)}")
    return element("svg", line, viewBox="0 0 30 10", class_="curve sample", aria_hidden="true")


def _kind(number: int) -> str:
    return f"run-{number % _KINDS}"


def _course(name: str, run: RunPicture) -> Markup:
    lines = element("ul", (element("li", line) for line in run.lines))
    return element("details", element("summary", name or "Course"), lines, class_="node")


# A picture: the steps of all runs in one frame, from zero.


def _picture(title: str, runs: Mapping[str, RunPicture]) -> Markup:
    drawn = {number: run for number, run in enumerate(runs.values()) if title in run.series}
    values = [value for run in drawn.values() for _, value in run.series[title]]
    low, high = min(0.0, *values), max(0.0, *values)
    high = high if high > low else low + 1.0
    seconds = max(run.seconds for run in drawn.values()) or 1.0

    def at(moment: float, value: float) -> str:
        across = _LEFT + moment / seconds * (_WIDTH - _LEFT - _RIGHT)
        return f"{across:.1f},{_down((value - low) / (high - low)):.1f}"

    lines = (
        element("polyline", points=" ".join(_corners(run, title, at)), class_=f"line {_kind(number)}")
        for number, run in drawn.items()
    )
    ends = "; ".join(_ends(run.series[title]) for run in drawn.values())
    svg = element(
        "svg",
        _axes(low, high, seconds / _HOUR),
        lines,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"{title}: {ends}",
        class_="curve",
    )
    return element("figure", element("h3", title), svg)


def _ends(steps: Sequence[tuple[float, float]]) -> str:
    return f"{_number(steps[0][1])} to {_number(steps[-1][1])}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= _LARGE else f"{value:.2f}"


def _corners(run: RunPicture, title: str, at: Callable[[float, float], str]) -> Iterator[str]:
    last = run.series[title][0][1]
    for moment, value in _thinned(run.series[title], run.seconds):
        yield at(moment, last)
        yield at(moment, value)
        last = value
    yield at(run.seconds, last)


def _thinned(steps: Sequence[tuple[float, float]], seconds: float) -> Iterator[tuple[float, float]]:
    """Yield the largest and the last of the steps of each small time."""
    if len(steps) <= 2 * _POINTS:
        yield from steps
        return
    for _, grouped in groupby(steps, lambda step: int(step[0] / seconds * _POINTS)):
        here = list(grouped)
        yield here[0][0], max(value for _, value in here)
        yield here[-1]


def _down(share: float) -> float:
    return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)


def _axes(low: float, high: float, hours: float) -> Markup:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    zero = _down(-low / (high - low))
    marks = sorted({low, 0.0, high})
    return joined(
        (
            element("path", d=f"M{_LEFT} {_TOP}V{bottom}M{_LEFT} {zero:.1f}H{right}", class_="axis"),
            *(
                element(
                    "text",
                    _number(value),
                    x=_LEFT - 6,
                    y=f"{_down((value - low) / (high - low)) + 4:.0f}",
                    text_anchor="end",
                )
                for value in marks
            ),
            element("text", "0 h", x=_LEFT, y=bottom + 18),
            element("text", f"{hours:g} h", x=right, y=bottom + 18, text_anchor="end"),
        )
    )
