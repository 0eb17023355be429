"""The parts of a page as lines of text. Knows nothing of plans."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rescheduler.pages.tree import BLANK, HEADING, ChoiceTable, Line, PagePart, Span, Table, styled

#: All rows.
_ALL: Final = 1 << 30


def page_lines(
    parts: Iterable[PagePart], shown: Mapping[str, int] | None = None, *, details: bool = False
) -> Iterator[Line]:
    """Yield *parts* with a blank line before each but the first.

    *shown* is how many rows of a part are shown, by name; otherwise all. *details* shows those of choices.
    """
    blank = False
    for part in parts:
        for line in part_lines(part, (shown or {}).get(part.name, _ALL), details=details):
            if blank and not line.level:
                yield BLANK
            blank = False
            yield line
        blank = True


def part_lines(part: PagePart, shown: int = _ALL, *, details: bool = False) -> Iterator[Line]:
    """Yield the lines of *part*, with at most *shown* rows."""
    for number, each in enumerate(part.content):
        match each:
            case Line() if number < shown or part.noun is None:
                yield each
            case Table():
                yield from _table(each, shown)
            case ChoiceTable():
                yield from _choices(each, shown, details=details)
    if part.noun and shown:
        yield from _more(len(part.content) - shown, f" {part.noun}", 0)


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
        yield styled("  ".join(aligned).rstrip(), row.mood, 1)
    if table.noun:
        yield from _more(hidden, f" {table.noun}", 1)


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
            yield Line(choice.details, 3)
    if table.note:
        yield Line(table.note, 1)
    yield from _more(len(table.choices) - shown, "", 1)
