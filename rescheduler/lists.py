"""The items of a ``kind: List`` in JSON, one after the other, while it is still being read.

Whoever prints a list begins all its items alike, so how one ends and the next begins is known from the first. To cut
there is a guess, as the same text may stand within an item; reading the piece proves it: what begins where an item
begins and is whole JSON is that item. Where it is not, the rest is read at once, as are lists in any other form.
"""

import contextlib
import re
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

#: Is given an item's kind and its text. Raises ValueError where it cannot be read.
Take: TypeAlias = Callable[[str, bytes], None]

#: Is given the error of *take* for an item that is whole JSON.
Refuse: TypeAlias = Callable[[ValueError], None]

#: The first item as far as its first key, after what stands before each.
_FIRST: Final = re.compile(rb'"items"\s*:\s*\[(\s*)(\{\s*"[^"\\]*"\s*:)')

#: How kubectl begins each item; anything else is looked at in full.
_KIND: Final = re.compile(rb'\{\s*"apiVersion"\s*:\s*"[^"\\]*"\s*,\s*"kind"\s*:\s*"([^"\\]*)"')

#: No item is longer.
_LONGEST: Final = 16 << 20

_BYTE: Final = re.compile(r"(?<=\(byte )\d+")


class ListError(ValueError):
    """The text is no list. The message says what was expected."""


class _List(msgspec.Struct):
    kind: str | UnsetType = UNSET
    items: list[msgspec.Raw] | None = None


class _Kind(msgspec.Struct):
    kind: str = ""


def each(chunks: Iterable[bytes], kinds: Container[str], take: Take, refuse: Refuse) -> None:
    """Give every item of one of *kinds* to *take*; *chunks* are the list's text, cut anywhere.

    What *take* raises for an item goes to *refuse*, and the next item follows. A list as the API itself gives it
    (``PodList``) tells the kind of its items itself. Raises :class:`ListError`, and whatever *refuse* raises.
    """
    stream = iter(chunks)
    text = next(stream, b"")
    reader = _Reader(kinds, take, refuse)
    begun = b""
    if (first := _FIRST.search(text)) is not None and reader.begins(text[: first.start(2)]):
        begun, text = text[: first.start(2)], text[first.start(2) :]
        text = reader.cut(text, stream, b"}," + first[1], first[2])
    whole = bytearray(begun + text)
    for chunk in stream:
        whole += chunk
    reader.finish(whole, len(begun))


class _Reader:
    """Reads one list."""

    def __init__(self, kinds: Container[str], take: Take, refuse: Refuse) -> None:
        self._kinds = kinds
        self._take = take
        self._refuse = refuse
        self._inherited: str | None = None  #: the kind of all items; "" where each tells its own, None while unknown
        self._head = (b"{", "")  #: how the last item that was cut out began, and so its kind
        self._number = 0  #: items cut out
        self._passed = 0  #: bytes they took

    def begins(self, text: bytes) -> bool:
        """Whether *text* is all that stands before the items, and tells what they are."""
        try:
            begun = msgspec.json.decode(text + b"]}", type=_List)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False
        if begun.kind is not UNSET:
            self._inherited = begun.kind.removesuffix("List")
        return begun.items is not None

    def cut(self, text: bytes, stream: Iterator[bytes], gap: bytes, start: bytes) -> bytes:
        """Cut out items between *gap* and *start* as long as that works; what is left of *text*."""
        end_of_one = gap + start
        while True:
            at = 0
            while (end := text.find(end_of_one, at)) >= 0 and self._taken(text[at : end + 1]):
                at = end + len(gap)
                self._number += 1
            self._passed += at
            text = text[at:]
            if end >= 0 or len(text) > _LONGEST or (chunk := next(stream, None)) is None:
                return text
            text += chunk

    def _taken(self, item: bytes) -> bool:
        """Whether *item* was whole JSON of a known kind, and so was taken, refused or passed over."""
        kind = self._inherited or self._kind(item)
        if not kind and self._inherited is None:
            return False
        if kind not in self._kinds:
            return _is_json(item)
        try:
            self._take(kind, item)
        except ValueError as error:
            if not _is_json(item):
                return False
            self._refuse(error)
        return True

    def _kind(self, item: bytes) -> str:
        head, kind = self._head
        if item.startswith(head) and kind:
            return kind
        if (found := _KIND.match(item)) is not None:
            self._head = found[0], found[1].decode(errors="replace")
            return self._head[1]
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(item, type=_Kind).kind
        return ""

    def finish(self, text: bytearray, start: int) -> None:
        """Take the items of *text*, the list without those that were cut out at *start*."""
        try:
            whole = msgspec.json.decode(text, type=_List)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            told = _BYTE.sub(lambda byte: str(int(byte[0]) + self._passed), str(error))
            raise ListError(f"expected a JSON object of kind List, as kubectl get -o json prints: {told}") from error
        kind = whole.kind or ""
        if whole.items is None and not kind.endswith("List"):
            raise ListError(f"expected kind List, as kubectl get -o json prints, got {kind or 'no kind'!r}")
        items = whole.items or []
        if self._number and not (items and text.startswith(bytes(items[0]), start)):
            raise ListError("expected a JSON object of kind List with items once, got them twice")
        self._inherited = kind.removesuffix("List")
        for number, raw in enumerate(items, self._number):
            item = bytes(raw)
            if not item.startswith(b"{"):
                raise ListError(f"item {number} of the List is no object")
            if (one := self._inherited or self._kind(item)) in self._kinds:
                try:
                    self._take(one, item)
                except ValueError as error:
                    self._refuse(error)


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True
