"""The parts of a page as lines of text. Knows nothing of plans."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from rescheduler.cli.console import BAD, BLANK, GOOD, HEADING, Line, styled
from rescheduler.pages.tree import (
    Bullets,
    ChoiceTable,
    CommandLine,
    Content,
    Notes,
    Notice,
    PagePart,
    Rich,
    Span,
    Table,
)

#: The style of a mood, and the color of a severity. What is as it should be has none.
STYLES: Final[Mapping[str, dict[str, Any]]] = {
    "bad": BAD,
    "good": GOOD,
    "heading": HEADING,
    "error": {"fg": "red"},
    "warning": {"fg": "yellow"},
}

#: All rows.
_ALL: Final = 1 << 30


def page_lines(
    parts: Iterable[PagePart], shown: Mapping[str, int] | None = None, *, wide: bool = False, details: bool = False
) -> Iterator[Line]:
    """Yield *parts* with a blank line before each but the first.

    *shown* is how many rows, or lines of a list, are shown of a part, by name; otherwise all. *wide* shows all items of
    lists, also where there is little room, and *details* those of choices.
    """
    blank = False
    for part in parts:
        most = (shown or {}).get(part.name, _ALL)
        for line in content_lines(part.content, most, wide=wide, details=details):
            if blank and not line.level:
                yield BLANK
            blank = False
            yield line
        blank = True


def content_lines(
    content: Iterable[Content], shown: int = _ALL, *, wide: bool = False, details: bool = False
) -> Iterator[Line]:
    """Yield the lines of a part, with at most *shown* rows."""
    for each in content:
        match each:
            case Notice():
                yield styled(each.text, STYLES.get(each.mood, {}), each.level)
            case Notes():
                yield from map(Line, each.texts[:shown])
                yield from _more(len(each.texts) - shown, " note", 0)
            case CommandLine():
                yield Line(f"{each.before}{each.text}", command=True)
                yield from [Line(each.after, 1)] if each.after else ()
            case Table():
                yield from _table(each, shown)
            case Bullets():
                yield from islice(_items(each, 1, wide=wide), shown)
            case ChoiceTable():
                yield from _choices(each, shown, details=details)


def _more(number: int, noun: str, level: int) -> Iterator[Line]:
    if number > 0:
        yield Line(f"{number} more{noun}{'s' if noun and number > 1 else ''} with -o wide.", level)


def _table(table: Table, shown: int) -> Iterator[Line]:
    """Yield the rows with aligned columns: names and words to the left, amounts to the right."""
    hidden = len(table.rows) - shown
    rest = [table.rest(shown)] if hidden > 0 and table.rest is not None else []
    rows = [*table.rows[:shown], *rest, *table.sums]
    cells = [[row.name, *(row.values[key].text for key in table.columns)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    words = [True, *(isinstance(rows[0].values[key], Span) for key in table.columns)]
    yield styled(table.heading, HEADING)
    for row, texts in zip(rows, cells, strict=True):
        aligned = [
            text.ljust(width) if left else text.rjust(width)
            for text, width, left in zip(texts, widths, words, strict=True)
            if width
        ]
        yield styled("  ".join(aligned).rstrip(), STYLES.get(row.mood, {}), 1)
    if table.noun:
        yield from _more(hidden, f" {table.noun}", 1)


def _items(listed: Bullets, level: int, *, wide: bool) -> Iterator[Line]:
    if listed.heading:
        yield styled(listed.heading, HEADING)
    items = listed.items if wide else listed.items[: listed.most]
    for text, below in items:
        yield Line(text, level)
        yield from _items(below, level + 1, wide=wide) if below is not None else ()
    if len(items) < len(listed.items):
        yield Line(listed.rest(len(listed.items) - len(items)), level)


def _choices(table: ChoiceTable, shown: int, *, details: bool) -> Iterator[Line]:
    """Yield each choice, and below it the command that tries it."""
    choices = table.choices[:shown]
    if not choices:
        return
    *columns, last = table.columns.items()
    yield styled(table.heading, HEADING)
    yield Line("".join(f"{head:{form}}  " for head, form in columns) + last[0])
    for choice in choices:
        start = "".join(f"{choice.cells[head]:{form}}  " for head, form in columns)
        for text in choice.what:
            yield Line(start + text, hang=len(start))
            start = " " * len(start)
        if choice.command:
            yield Line(choice.command, 3, command=True)
        if details and choice.details:
            yield Line(joined(choice.details), 3)
    if table.note:
        yield Line(table.note, 1)
    yield from _more(len(table.choices) - shown, "", 1)


def joined(text: Rich) -> str:
    """Return *text* without its styles."""
    return "".join(part if isinstance(part, str) else part.text for part in text)
