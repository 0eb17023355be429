"""Text on standard output for people: width, line breaks and colors."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from predicates.texts import printable
from rescheduler.pages.tree import BAD, GOOD, HEADING, Line

#: Indentation of one level, in columns.
_INDENT: Final = 2
#: The space between a number and its unit or noun, where lines do not break, and its placeholder while wrapping.
_AFTER_NUMBER: Final = re.compile(r"(?<=\d) (?=\S)")
_GLUE: Final = "\0"
#: Where a long word may be divided, as in ``namespace/name`` and ``key=value``, and its placeholder.
_WITHIN_WORD: Final = re.compile(r"(?<=[/=])(?=\S)")
_BREAK: Final = "\1"
_UNBROKEN: Final = re.compile(rf"(?<=[/=]) {_BREAK}")
#: How a shell continues a command in the next line.
_CONTINUED: Final = " \\"
#: The minimum width: narrower terminals are treated as if they had this width.
_NARROWEST: Final = 40

#: The style of each mood, used if the terminal supports colors. What is as it should be has none.
_STYLES: Final[Mapping[str, dict[str, Any]]] = {
    HEADING: {"bold": True},
    "first": {"bold": True},
    GOOD: {"bold": True, "fg": "green"},
    BAD: {"bold": True, "fg": "yellow"},
    "error": {"fg": "red"},
    "warning": {"fg": "yellow"},
}


def style_of(line: Line) -> dict[str, Any]:
    """Return the style of *line* on a terminal."""
    return {name: value for mood in line.mood.split() for name, value in _STYLES.get(mood, {}).items()}


def wrapped(line: Line, width: int) -> list[str]:
    """Split *line* into pieces of at most *width* columns.

    Only names that are wider than that are divided, after a slash or an equals sign if possible.
    """
    text = printable(line.before + line.text)
    indent = " " * (_INDENT * line.level)
    if len(indent) + len(text) <= width:
        return [indent + text if text else ""]
    rest = " " * min(line.hang, width // 2) if line.hang else indent + " " * _INDENT
    room = width - len(rest) - (len(_CONTINUED) if line.command else 0)
    words = (_WITHIN_WORD.sub(f" {_BREAK}", word) if len(word) > room else word for word in text.split(" "))
    pieces = textwrap.wrap(
        _AFTER_NUMBER.sub(_GLUE, " ".join(words)),
        width - (len(_CONTINUED) if line.command else 0),
        initial_indent=indent,
        subsequent_indent=rest,
        break_on_hyphens=False,
    )
    pieces = [_UNBROKEN.sub("", piece) for piece in pieces]
    pieces = _continued(pieces) if line.command else pieces
    return [piece.replace(_BREAK, "").replace(_GLUE, " ") for piece in pieces]


def _continued(lines: list[str]) -> list[str]:
    """Return the *lines* of a command, each of which continues in the next one: within quotes by itself.

    The rest of a divided word outside of quotes begins its line without a space.
    """
    result, quoted = lines[:1], lines[0].count("'") % 2 == 1
    for line in lines[1:]:
        divided = line.lstrip().startswith(_BREAK)
        if not quoted:
            result[-1] += _CONTINUED.strip() if divided else _CONTINUED
        result.append(line.lstrip() if divided and not quoted else line)
        quoted ^= line.count("'") % 2 == 1
    return result


def warn(text: str) -> None:
    """Print *text* as one line on standard error, after the name of the program."""
    click.echo(f"rescheduler: {printable(' '.join(text.split()))}", err=True)


def say(text: str) -> None:
    """Print *text* on standard output, even if its encoding lacks some of the characters."""
    click.echo(_encodable(text))


def page_width() -> int:
    """Return the width of pages: ``COLUMNS`` if set, otherwise the width of the terminal, otherwise 80."""
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def rendered(lines: Iterable[Line], width: int, *, colors: bool = False) -> str:
    """Return *lines* as text of at most *width* columns."""
    return "\n".join(
        click.style(piece, **style_of(line)) if colors and line.mood else piece
        for line in lines
        for piece in wrapped(line, width)
    )


def is_one_terminal() -> bool:
    """Return whether standard output and standard error are both terminals: a person sees what either gets."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def show(lines: Iterable[Line]) -> None:
    """Print *lines* on standard output, with colors if it is a terminal and ``NO_COLOR`` is not set."""
    colors = _has_colors()
    click.echo(_encodable(rendered(lines, page_width(), colors=colors)), color=colors)


def clear_screen() -> None:
    """Clear the terminal; if standard output is none, print an empty line between two pages."""
    click.echo("\033[2J\033[H" if sys.stdout.isatty() else "", nl=not sys.stdout.isatty())


def _has_colors() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _encodable(text: str) -> str:
    """Return *text* with ``?`` in place of the characters that the encoding of standard output lacks."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.replace("→", "->").encode(encoding, "replace").decode(encoding)
    return text
