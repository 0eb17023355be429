"""HTML elements as text. All values are escaped, except elements."""

import functools
import html
from collections.abc import Iterable
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
