r"""The INI dialect of Cluster Autoscaler's cloud configurations (git's, as the library gcfg reads it).

``[section]`` and ``[section "subsection"]``, ``key = value``, comments with ``#`` and ``;``, double quotes around what
must be kept, a backslash before ``"``, ``\``, ``n`` and ``t``, and at the end of a line that goes on. Names of
sections and keys are read in any case; subsections are not.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SECTION = re.compile(r'\[\s*([A-Za-z0-9-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]\s*(?:[#;].*)?')
_ENTRY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(=?)(.*)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value, or a section's header, whose `key` is empty."""

    line: int
    section: str
    subsection: str | None
    key: str = ""
    value: str = ""


def entries(text: str) -> Iterator[Entry]:
    """All headers and entries in their order; ValueError begins with the line."""
    header: Entry | None = None
    for line, raw in _joined(text):
        stripped = raw.strip()
        if not stripped or stripped[0] in "#;":
            continue
        if stripped.startswith("["):
            found = _SECTION.fullmatch(stripped)
            if found is None:
                raise ValueError(f'line {line}: expected a section such as [global] or [nodegroupdef "pool1"]')
            name = None if found[2] is None else re.sub(r"\\(.)", r"\1", found[2])
            header = Entry(line, found[1].lower(), name)
            yield header
            continue
        entry = _ENTRY.fullmatch(stripped)
        if entry is None or not entry[2]:
            raise ValueError(f"line {line}: expected a section, key = value or a comment")
        if header is None:
            raise ValueError(f"line {line}: {entry[1]}: stands before the first section")
        yield Entry(line, header.section, header.subsection, entry[1].lower(), _value(entry[3], line, entry[1]))


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines with those that a backslash continues; each with the number of its first."""
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
    """Blanks are cut at both ends outside quotes; a comment ends the value."""
    found: list[str] = []
    kept = 0  #: so many characters are not to be cut
    quoted = False
    rest = iter(raw.strip())
    for character in rest:
        if character == "\\":
            escaped = next(rest, "")
            if escaped not in _ESCAPES:
                raise ValueError(f'line {line}: {key}: expected one of \\" \\\\ \\n \\t, got \\{escaped}')
            found.append(_ESCAPES[escaped])
            kept = len(found)
        elif character == '"':
            quoted = not quoted
            kept = len(found)
        elif character in "#;" and not quoted:
            break
        else:
            found.append(character)
            kept = len(found) if quoted else kept
    if quoted:
        raise ValueError(f"line {line}: {key}: a quote is not closed")
    return "".join(found[:kept]) + "".join(found[kept:]).rstrip()
