"""HTML elements as text, tables and documents. All values are escaped, except elements."""

import base64
import functools
import hashlib
import html
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Final, TypeAlias

#: Elements without content and end tag.
_VOID: Final = frozenset({"meta", "input", "br"})


class Markup(str):
    """Text that is HTML. Elements contain it unchanged; all other text is escaped."""

    __slots__ = ()


Child: TypeAlias = str | int | Iterable[str] | None
Attribute: TypeAlias = str | int | bool | None


def element(tag: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """Return the element *tag* with *children*: text, elements, or iterables of them; None is ignored.

    In the names of attributes, ``_`` stands for ``-``, and a final ``_`` is dropped (``class_``). The value True adds
    an attribute without a value; False and None add no attribute.
    """
    names = "".join([_attribute(name, value) for name, value in attributes.items()]) if attributes else ""
    if tag in _VOID:
        return Markup(f"<{tag}{names}>")
    return Markup(f"<{tag}{names}>{''.join([_text(child) for child in children])}</{tag}>")


def joined(children: Iterable[Child]) -> Markup:
    """Return the concatenated *children* without an enclosing element."""
    return Markup("".join([_text(child) for child in children]))


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    written = _attribute_name(name)
    return f" {written}" if value is True else f' {written}="{html.escape(str(value))}"'


@functools.cache
def _attribute_name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _text(child: Child) -> str:
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return html.escape(child, quote=False)
    if child is None:
        return ""
    return html.escape(str(child)) if isinstance(child, int) else "".join([_text(item) for item in child])


# Tables with a caption and header cells.


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Child]], numbers: frozenset[int]) -> Markup:
    """Return a table, or a sentence if it has no rows. *numbers* are the indexes of right-aligned columns.

    On narrow screens, the style sheet shows each row as a list, in which the name of its column precedes each cell. The
    roles say that it is still a table.
    """
    kinds = ["number" if column in numbers else None for column in range(len(head))]
    body = [element("tr", _cells(head, kinds, row), role="row") for row in rows]
    if not body:
        return element("p", "None.")
    names = [
        element("th", name, scope="col", class_=kind, role="columnheader")
        for name, kind in zip(head, kinds, strict=True)
    ]
    parts = (
        element("caption", caption),
        element("thead", element("tr", names, role="row"), role="rowgroup"),
        element("tbody", body, role="rowgroup"),
    )
    return element("div", element("table", parts, class_="listed", role="table"), class_="scroll")


def _cells(head: Sequence[str], kinds: Sequence[str | None], row: Sequence[Child]) -> list[Markup]:
    cells = zip(head, kinds, row, strict=True)
    return [element("td", cell, class_=kind, data_column=name, role="cell") for name, kind, cell in cells]


# An HTML document with inline style and script, and a Content Security Policy that allows nothing else.

_STYLE: Final = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
_SCRIPT: Final = resources.files(__package__).joinpath("page.js").read_text(encoding="utf-8")

#: Seconds after which a browser without JavaScript reloads a live page.
_REFRESH_SECONDS: Final = 10


def document(title: str, body: Markup, *, live: bool = False) -> str:
    """Return the document. A *live* page polls its own URL and updates itself."""
    refresh = element("meta", http_equiv="refresh", content=_REFRESH_SECONDS)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(live=live)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("noscript", refresh) if live else None,
        element("title", title),
        element("style", Markup(_STYLE)),
    )
    script = element("script", Markup(_SCRIPT))
    page = element("html", joined((head, element("body", body, script, data_live=live))), lang="en")
    return f"<!doctype html>\n{page}\n"


def policy(*, live: bool) -> str:
    """Return a policy that allows the page's style and script and, if *live*, requests to the page's server."""
    rules = ["default-src 'none'", f"style-src {_source(_STYLE)}", f"script-src {_source(_SCRIPT)}"]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'", *(["connect-src 'self'"] if live else [])])


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
