"""The results of ``rescheduler simulate``: the course of one run, and the figures of all side by side."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rescheduler.planning.forms import and_more

if TYPE_CHECKING:
    from rescheduler.simulation.course import Course

#: Shown in the course of one run; the rest is in ``-o json``.
_LINES: Final = 60
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
#: Points of the line of blocks.
_POINTS: Final = 24
_HOUR: Final = 3600.0


def text_of(courses: "Mapping[str, Course]") -> str:
    """Return the table of all settings, by their flags; before it, the course if there is only one."""
    lines = [*course_lines(next(iter(courses.values()))), ""] if len(courses) == 1 else []
    return "\n".join([*lines, *table(courses)]) + "\n"


def as_page(courses: "Mapping[str, Course]") -> str:
    """Return the page with the figures and pictures of all settings."""
    from rescheduler.pages.simulation import RunPicture, simulation_page  # noqa: PLC0415 - imported on demand

    runs = {
        name: RunPicture(figures(course, blocks=False), course_lines(course, None), course.seconds, _series(course))
        for name, course in courses.items()
    }
    return simulation_page(runs)


def _series(course: "Course") -> dict[str, Sequence[tuple[float, float]]]:
    """Return what the page draws, by title."""
    found: dict[str, Sequence[tuple[float, float]]] = {
        "On-demand nodes": course.on_demand,
        "Spot nodes": course.spot,
        "Pods below the wanted number": course.missing,
    }
    if course.money_saved() is not None:
        found[f"Cost of all nodes in {course.currency or 'the currency of the prices'} per hour"] = [
            (at, float(cost)) for at, cost in course.cost
        ]
    return found


def table(courses: "Mapping[str, Course]") -> list[str]:
    """Return the figures of all settings, side by side."""
    columns = {name or "result": figures(course) for name, course in courses.items()}
    labels = list(dict.fromkeys(label for column in columns.values() for label in column))
    width = max(map(len, labels))
    widths = {name: max(len(name), *map(len, column.values())) for name, column in columns.items()}
    lines = [" " * width + "  " + "  ".join(f"{name:<{size}}" for name, size in widths.items()).rstrip()]
    for label in labels:
        cells = "  ".join(f"{columns[name].get(label, ''):<{size}}" for name, size in widths.items())
        lines.append(f"{label:<{width}}  {cells}".rstrip())
    return lines


def figures(course: "Course", *, blocks: bool = True) -> dict[str, str]:
    """Return the figures of one setting by name; with *blocks*, also the nodes over time."""
    figures = course.summary()
    money, below, pending = figures["moneySaved"], figures["ownersBelowWanted"], figures["podsPending"]
    failed = ", ".join(f"{count} {reason}" for reason, count in figures["drains"]["failed"].items())
    nodes = figures["onDemandNodes"]
    found = {
        "on-demand nodes": f"{nodes['start']} → {nodes['end']}{'  ' + _blocks(course) if blocks else ''}",
        "on-demand node-hours saved": f"{figures['onDemandNodeHoursSaved']:.1f} in {figures['hours']:g} h",
        "drains done": str(figures["drains"]["done"]),
        "drains failed": failed or "0",
        "evictions": str(figures["evictions"]),
        "spot nodes lost": str(figures["spotNodes"]["lost"]),
        "owners below the wanted number": f"{below['times']} times, {_span(below['seconds'])} in total, longest "
        f"{_span(below['longestSeconds'])}"
        if below["times"]
        else "never",
        "pods Pending for more than 1m": f"{pending['pods']}, longest {_span(pending['longestSeconds'])}"
        if pending["pods"]
        else "0",
        "longest landing": _span(figures["longestLandingSeconds"]),
    }
    if money is not None:
        found["money saved, net"] = f"{course.currency}{money:,.2f}"
    return found


def _blocks(course: "Course") -> str:
    """Return the number of on-demand nodes over time as a line of blocks."""
    values = [course.on_demand_at(course.seconds * (point + 1 / 2) / _POINTS) for point in range(_POINTS)]
    most = max(nodes for _, nodes in course.on_demand) or 1
    return "".join(_BLOCKS[round(value / most * (len(_BLOCKS) - 1))] for value in values)


def _span(seconds: float) -> str:
    """Return a length of time for people: ``45s``, ``12m``, ``3.5h``."""
    if seconds < 2 * 60:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f}h"


def course_lines(course: "Course", most: int | None = _LINES) -> list[str]:
    """Return what happened, at most *most* lines."""
    lines = [f"{int(line.at // _HOUR):02d}:{int(line.at % _HOUR // 60):02d}  {line.text}" for line in course.lines]
    if most is not None and len(lines) > most:
        lines = [*lines[:most], and_more(len(lines) - most, "; -o json has all", "… ")]
    return lines
