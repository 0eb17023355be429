"""The tree of a page: its parts in their order, which hold values with units. Text, HTML and JSON are made from it.

Who builds a tree decides what a page says, in which words, and when a part is left out. Renderers know these types, and
nothing of plans. Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from rescheduler.planning.forms import count


class Amount:
    """An amount: what programs read, what people read, and what they read where the head of a column says the unit."""

    __slots__ = ("bare", "plain", "text")

    def __init__(self, plain: Any, text: str, bare: str | None = None) -> None:
        self.plain = plain
        self.text = text
        self.bare = text if bare is None else bare

    @classmethod
    def count(cls, number: int, noun: str) -> "Amount":
        """Return a number of what the *noun* names."""
        return cls(number, count(number, noun), f"{number:,}")


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text that is a ``code``, is strong (``b``), or has the color of its kind, such as a severity."""

    text: str
    kind: str


Rich: TypeAlias = tuple[str | Span, ...]


#: The moods of a line. What has a severity has this as its mood; a line can have several, with a space between them.
HEADING: Final = "heading"
GOOD: Final = "good"
BAD: Final = "bad"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a page. In text, one that is too long is wrapped; the rest is indented by two more columns."""

    text: str
    level: int = 0  #: level of indentation
    mood: str = ""
    hang: int = 0  #: columns by which the rest of a line that is too long is indented; 0: two more than its start
    command: bool = False  #: whether the line is a command, whose rest stays a part of it when both are pasted
    before: str = ""  #: what a command is for, in the same line


BLANK: Final = Line("")


def styled(text: str, mood: str, level: int = 0) -> Line:
    """Return a line with a mood."""
    return Line(text, level, mood)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: amounts and words by the key of their column."""

    name: str
    values: Mapping[str, Amount | Span]
    mood: str = ""  #: a severity


@dataclass(frozen=True, slots=True)
class Table:
    """A table. Of its rows, the last ones may be left out, but not the *sums*."""

    heading: str
    name: str  #: the head of the column of names
    columns: Mapping[str, str]  #: the head of each column by its key
    rows: tuple[Row, ...]
    rest: Callable[[int], Row] | None = None  #: returns the row for all but so many of the first ones
    sums: tuple[Row, ...] = ()
    noun: str = ""  #: of a row, without *rest*


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """A change that can be tried."""

    cells: Mapping[str, str]  #: by the head of each column but the last one, which has *what*
    what: tuple[str, ...]  #: lines
    command: str  #: "" if it cannot be tried
    details: str = ""
    said: Rich = ()  #: what it is and what comes of it, as a sentence beside its bar
    length: float = 0.0  #: of a bar that shows what comes of it


@dataclass(frozen=True, slots=True)
class ChoiceTable:
    """Changes of which each can be tried, the best first. The last ones may be left out."""

    heading: str
    columns: Mapping[str, str]  #: the format of each by its head
    choices: tuple[ChoiceRow, ...]
    note: str = ""  #: about words in the columns
    legend: Rich = ()  #: of the bars
    base: ChoiceRow = ChoiceRow({}, (), "")  #: what is without any of them


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over one axis, and the same as a table. Only HTML draws it."""

    legend: Rich
    label: str  #: the chart in one sentence
    across: str  #: what stands at the right end of the axis
    top: float  #: the share at the upper end of the other axis
    lines: Mapping[str, tuple[tuple[float, float], ...]]  #: by their color: shares of both axes
    titles: tuple[str, ...]  #: of the points of the last line
    rings: tuple[tuple[float, float], ...]  #: points to be seen
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Content: TypeAlias = Line | Table | ChoiceTable | Chart


@dataclass(frozen=True, slots=True)
class PagePart:
    """A part of a page."""

    name: str
    title: str
    content: tuple[Content, ...] = ()
    noun: str | None = None  #: of a line, or "", if the last ones may be left out
