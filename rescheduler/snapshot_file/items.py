"""Parse the items of a ``kind: List`` in JSON one by one while the input is still being read.

A serializer starts all items of a list with the same text, so the first item shows how items are separated. Cutting at
the separator is a guess, because the same text may occur inside an item. Parsing confirms it: a piece that starts where
an item starts and is valid JSON is that item. If a piece is not valid, the rest is parsed at once, as are lists in any
other format.
"""

import contextlib
import re
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

#: Receives the kind and the text of an item. Raises ValueError if the item cannot be decoded.
OnItem: TypeAlias = Callable[[str, bytes], None]

#: Receives the error that *on_item* raised for an item that is valid JSON.
OnError: TypeAlias = Callable[[ValueError], None]

#: The start of the first item up to its first key, and the whitespace before it.
_FIRST: Final = re.compile(rb'"items"\s*:\s*\[(\s*)(\{\s*"[^"\\]*"\s*:)')

#: The start of each item as kubectl prints it. Other items are parsed to find their kind.
_KIND: Final = re.compile(rb'\{\s*"apiVersion"\s*:\s*"[^"\\]*"\s*,\s*"kind"\s*:\s*"([^"\\]*)"')

#: Maximum length of an item in bytes.
_LONGEST: Final = 16 << 20

_BYTE: Final = re.compile(r"(?<=\(byte )\d+")


class ListError(ValueError):
    """The text is not a List. The message states the expected format."""


class _ListObject(msgspec.Struct):
    kind: str | UnsetType = UNSET
    items: list[msgspec.Raw] | None = None


class _ItemKind(msgspec.Struct):
    kind: str = ""


def each(chunks: Iterable[bytes], kinds: Container[str], on_item: OnItem, on_error: OnError) -> None:
    """Pass every item of one of *kinds* to *on_item*. *chunks* are the text of the list, split at any position.

    An error that *on_item* raises is passed to *on_error*, and parsing continues with the next item. In a list as
    returned by the API (``PodList``), the kind of the items is derived from the kind of the list. Raises
    :class:`ListError`, and whatever *on_error* raises.
    """
    stream = iter(chunks)
    text = next(stream, b"")
    parser = _ListParser(kinds, on_item, on_error)
    begun = b""
    if (first := _FIRST.search(text)) is not None and parser.begins(text[: first.start(2)]):
        begun, text = text[: first.start(2)], text[first.start(2) :]
        text = parser.cut(text, stream, b"}," + first[1], first[2])
    whole = bytearray(begun + text)
    for chunk in stream:
        whole += chunk
    parser.finish(whole, len(begun))


class _ListParser:
    """A parser for one list."""

    def __init__(self, kinds: Container[str], on_item: OnItem, on_error: OnError) -> None:
        self._kinds = kinds
        self._on_item = on_item
        self._on_error = on_error
        self._inherited: str | None = None  #: the kind of all items; "" if each item has its own, None while unknown
        self._head = (b"{", "")  #: the start of the last item that was cut out, and its kind
        self._number = 0  #: items cut out
        self._passed = 0  #: their length in bytes

    def begins(self, text: bytes) -> bool:
        """Return whether *text* is the complete head of a list, and record the kind of its items."""
        try:
            begun = msgspec.json.decode(text + b"]}", type=_ListObject)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False
        if begun.kind is not UNSET:
            self._inherited = begun.kind.removesuffix("List")
        return begun.items is not None

    def cut(self, text: bytes, stream: Iterator[bytes], gap: bytes, start: bytes) -> bytes:
        """Cut out items between *gap* and *start* for as long as possible. Return the rest of *text*."""
        separator = gap + start
        searched = 0
        while True:
            at = 0
            while (end := text.find(separator, searched)) >= 0 and self._is_item(text[at : end + 1]):
                at = searched = end + len(gap)
                self._number += 1
            self._passed += at
            text = text[at:]
            searched = max(0, len(text) - len(separator) + 1)
            if end >= 0 or len(text) > _LONGEST or (chunk := next(stream, None)) is None:
                return text
            text += chunk

    def _is_item(self, item: bytes) -> bool:
        """Pass on or skip *item*, and return True; return False if *item* is not valid JSON or has no kind."""
        kind = self._inherited or self._kind(item)
        if not kind and self._inherited is None:
            return False
        if kind not in self._kinds:
            return is_json(item)
        try:
            self._on_item(kind, item)
        except ValueError as error:
            if not is_json(item):
                return False
            self._on_error(error)
        return True

    def _kind(self, item: bytes) -> str:
        head, kind = self._head
        if item.startswith(head) and kind:
            return kind
        if (match := _KIND.match(item)) is not None:
            self._head = match[0], match[1].decode(errors="replace")
            return self._head[1]
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(item, type=_ItemKind).kind
        return ""

    def finish(self, text: bytearray, start: int) -> None:
        """Pass on the items of *text*, which is the list without the items that were cut out at *start*."""
        try:
            whole = msgspec.json.decode(text, type=_ListObject)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            reason = _BYTE.sub(lambda byte: str(int(byte[0]) + self._passed), str(error))
            raise ListError(f"expected a JSON object of kind List, as kubectl get -o json prints: {reason}") from error
        kind = whole.kind or ""
        if whole.items is None and not kind.endswith("List"):
            raise ListError(f"expected kind List, as kubectl get -o json prints, got {kind or 'no kind'!r}")
        items = whole.items or []
        if self._number and not (items and text.startswith(bytes(items[0]), start)):
            raise ListError("expected a JSON object of kind List with one items field, got two")
        self._inherited = kind.removesuffix("List")
        for number, raw in enumerate(items, self._number):
            item = bytes(raw)
            if not item.startswith(b"{"):
                raise ListError(f"item {number} of the List is not an object")
            if (item_kind := self._inherited or self._kind(item)) in self._kinds:
                try:
                    self._on_item(item_kind, item)
                except ValueError as error:
                    self._on_error(error)


def is_json(text: bytes) -> bool:
    """Return whether *text* is valid JSON."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True
