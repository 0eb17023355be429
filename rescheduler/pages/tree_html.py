"""The parts of a page as HTML. Knows nothing of plans."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from rescheduler.pages.element import Markup, element, joined, table
from rescheduler.pages.tree import (
    BAD,
    BLANK,
    Amount,
    Chart,
    ChoiceRow,
    ChoiceTable,
    Content,
    Line,
    PagePart,
    Rich,
    Span,
    Table,
)

#: The class of a mood. Lines of other moods are headings.
_CLASSES: Final[Mapping[str, str]] = {BAD: "notice", "note": "notice", "first": "first"}

#: The element of a kind of text. Others have a color, and are spans of the class.
_TAGS: Final[Mapping[str, str]] = {"b": "b", "code": "code", "demand": "b", "spot": "b"}

# The size of a chart, and its margins.
_WIDTH: Final = 560
_HEIGHT: Final = 220
_LEFT: Final = 44
_RIGHT: Final = 12
_TOP: Final = 12
_BOTTOM: Final = 36


def section(part: PagePart, *more: Markup) -> Markup:
    """Return *part* as a section, with *more* below its content."""
    heading = f"{part.name}-heading"
    title = element("h2", part.title, id=heading)
    return element("section", title, contents(part.content), more, id=part.name, aria_labelledby=heading)


def contents(content: Iterable[Content], heading: str = "h3") -> Markup:
    """Return the content of a part. Indented lines become items of a list, and headings the element *heading*."""
    return joined(
        element("ul", (_content(each, heading) for each in group))
        if indented
        else joined(_content(each, heading) for each in group)
        for indented, group in groupby((each for each in content if each != BLANK), _is_item)
    )


def _is_item(content: Content) -> bool:
    return isinstance(content, Line) and content.level > 0


def _content(content: Content, heading: str) -> Markup:
    match content:
        case Line() if content.level:
            return element("li", content.text, class_=f"level-{content.level}")
        case Line():
            text = element("code", content.text) if content.command else content.text
            mood = next((mood for mood in content.mood.split() if mood in _CLASSES), "")
            tag = heading if content.mood and not mood else "p"
            return element(tag, content.before or None, text, class_=_CLASSES.get(mood))
        case Table():
            return _table(content)
        case ChoiceTable():
            return _choices(content)
        case Chart():
            return _chart(content)


def _table(listed: Table) -> Markup:
    """Return the table with all its rows. The head of a column says the unit of its amounts."""
    keys, rows = list(listed.columns), [*listed.rows, *listed.sums]
    numbers = {number for number, key in enumerate(keys, start=1) if isinstance(rows[0].values[key], Amount)}
    cells = [(row.name, *(_cell(row.values[key]) for key in keys)) for row in rows]
    return table(listed.heading, (listed.name, *listed.columns.values()), cells, frozenset(numbers))


def _cell(value: Amount | Span) -> str:
    return value.bare if isinstance(value, Amount) else _span(value)


def _choices(listed: ChoiceTable) -> Markup:
    """Return the choices in their order, each with its bar and what tries it."""
    total = max(each.length for each in (listed.base, *listed.choices)) or 1.0
    rows = [
        element("li", _choice(each, total), element("code", each.command) if each.command else None)
        for each in listed.choices
    ]
    legend = element("p", _rich(listed.legend), class_="legend soft")
    base = element("div", _choice(listed.base, total), class_="step")
    return element("figure", legend, base, element("ol", rows, class_="steps"))


def _choice(choice: ChoiceRow, total: float) -> Markup:
    """Return what it is, and a bar beside the longest, which has the length *total*."""
    return joined((element("p", _rich(choice.said)), bar(f"{100 * choice.length / total:.1f}")))


def bar(share: int | str) -> Markup:
    """Return a bar that shows *share*, in percent."""
    part = element("rect", width=share, height=10, class_="part")
    whole = element("rect", width=100, height=10, class_="whole")
    return element(
        "svg", whole, part, viewBox="0 0 100 10", class_="fill", aria_hidden="true", preserveAspectRatio="none"
    )


def _rich(text: Rich) -> Iterator[str]:
    return (part if isinstance(part, str) else _span(part) for part in text)


def _span(span: Span) -> Markup:
    tag = _TAGS.get(span.kind, "span")
    return element(tag, span.text, class_=None if tag == span.kind else span.kind)


def _chart(chart: Chart) -> Markup:
    """Return the picture, and the table that the reader unfolds: on a telephone, it is longer than the picture."""
    *_, marked = chart.lines.values()
    drawn = element(
        "svg",
        _axes(chart),
        [
            element("polyline", points=" ".join(map(",".join, map(_place, points))), class_=f"line {kind}")
            for kind, points in chart.lines.items()
        ],
        [_circle(point, 4, "dot demand", title) for point, title in zip(marked, chart.titles, strict=True)],
        [_circle(point, 9, "ring") for point in chart.rings],
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=chart.label,
        class_="curve",
    )
    listed = table(chart.caption, chart.head, chart.rows, frozenset(range(len(chart.head))))
    folded = element("details", element("summary", "As a table"), listed)
    return element("figure", element("p", _rich(chart.legend), class_="legend soft"), drawn, folded)


def _place(point: tuple[float, float]) -> tuple[str, str]:
    return f"{_LEFT + min(point[0], 1) * (_WIDTH - _LEFT - _RIGHT):.1f}", f"{_down(point[1]):.1f}"


def _down(share: float) -> float:
    return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)


def _circle(point: tuple[float, float], radius: int, kind: str, title: str = "") -> Markup:
    x, y = _place(point)
    return element("circle", element("title", title) if title else None, cx=x, cy=y, r=radius, class_=kind)


def _axes(chart: Chart) -> Markup:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    return joined(
        (
            element("path", d=f"M{_LEFT} {_TOP}V{bottom}H{right}", class_="axis"),
            *(
                element("text", f"{share * chart.top:.0%}", x=_LEFT - 6, y=f"{_down(share) + 4:.0f}", text_anchor="end")
                for share in (0.0, 0.5, 1.0)
            ),
            element("text", "0", x=_LEFT, y=bottom + 16),
            element("text", chart.across, x=right, y=bottom + 16, text_anchor="end"),
        )
    )
