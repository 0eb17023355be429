r"""The INI dialect of Cluster Autoscaler's cloud configurations (git's, as read by the library gcfg).

``[section]`` and ``[section "subsection"]``, ``key = value``, comments with ``#`` and ``;``, double quotes around
literal text, a backslash before ``"``, ``\``, ``n`` and ``t``, and at the end of a line to continue it. Names of
sections and keys are case-insensitive; subsections are not.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SECTION = re.compile(r'\[\s*([A-Za-z0-9-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]\s*(?:[#;].*)?')
_ENTRY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(=?)(.*)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class IniEntry:
    """A key with its value, or a section header, whose `key` is empty."""

    line: int
    section: str
    subsection: str | None
    key: str = ""
    value: str = ""


def entries(text: str) -> Iterator[IniEntry]:
    """Yield all headers and entries in order. Raises ValueError; its message begins with the line number."""
    header: IniEntry | None = None
    for line, raw in _joined(text):
        stripped = raw.strip()
        if not stripped or stripped[0] in "#;":
            continue
        if stripped.startswith("["):
            match = _SECTION.fullmatch(stripped)
            if match is None:
                raise ValueError(f'line {line}: expected a section such as [global] or [nodegroupdef "pool1"]')
            name = None if match[2] is None else re.sub(r"\\(.)", r"\1", match[2])
            header = IniEntry(line, match[1].lower(), name)
            yield header
            continue
        entry = _ENTRY.fullmatch(stripped)
        if entry is None or not entry[2]:
            raise ValueError(f"line {line}: expected a section, key = value or a comment")
        if header is None:
            raise ValueError(f"line {line}: {entry[1]}: expected a section before the first key")
        yield IniEntry(line, header.section, header.subsection, entry[1].lower(), _value(entry[3], line, entry[1]))


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Join lines that a backslash continues; yield each with the number of its first line."""
    begun, first = "", 0
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        first = first or number
        if (len(line) - len(line.rstrip("\\"))) % 2 and not line.lstrip().startswith(("#", ";")):
            begun += line[:-1]
            continue
        yield first, begun + line
        begun, first = "", 0
    if begun:
        yield first, begun


def _value(raw: str, line: int, key: str) -> str:
    """Return the value without surrounding whitespace outside quotes, and without a comment."""
    characters: list[str] = []
    protected_length = 0  #: the number of characters that must not be stripped
    quoted = False
    rest = iter(raw.strip())
    for character in rest:
        if character == "\\":
            escaped = next(rest, "")
            if escaped not in _ESCAPES:
                raise ValueError(f'line {line}: {key}: expected one of \\" \\\\ \\n \\t, got \\{escaped}')
            characters.append(_ESCAPES[escaped])
            protected_length = len(characters)
        elif character == '"':
            quoted = not quoted
            protected_length = len(characters)
        elif character in "#;" and not quoted:
            break
        else:
            characters.append(character)
            protected_length = len(characters) if quoted else protected_length
    if quoted:
        raise ValueError(f"line {line}: {key}: the quote is not closed")
    return "".join(characters[:protected_length]) + "".join(characters[protected_length:]).rstrip()
