"""Parse the items of Kubernetes lists in JSON one by one while the input is still being read.

The input is one value or several: lists, objects, and arrays of them. So the output of several commands may be
joined, also with lines of ``---`` between them, and JSON lines are read. No more than :data:`LONGEST` bytes of it are
kept, however it is formatted.

A serializer starts all items of a list with the same text, so the first item shows how items are separated. Cutting
at the separator is a guess, because the same text may occur inside an item. Parsing confirms it: a piece that starts
where an item starts and is valid JSON is that item. Where the guess is wrong, the end of the item is searched by
parsing it.
"""

import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from predicates.texts import shown

#: Receives the kind and the text of an item. Raises ValueError if the item cannot be decoded.
OnItem: TypeAlias = Callable[[str, bytes], None]

#: Receives the error that *on_item* raised for an item that is valid JSON.
OnError: TypeAlias = Callable[[ValueError], None]

#: Maximum length of an item in bytes. The API server accepts objects of a few MiB.
LONGEST: Final = 16 << 20

#: Maximum number of commas in an item. A value can be as short as ``{}``, and takes about 200 bytes when it is read.
_MOST_VALUES: Final = 250_000

#: Maximum length in bytes of the items without a kind, which wait for the kind of their list.
_MOST_WAITING: Final = 64 << 20

#: Maximum depth of lists in lists and arrays.
_DEEPEST: Final = 8

#: The start of an item up to its first key, and the whitespace before it.
_FIRST: Final = re.compile(rb'(\s*)(\{\s*"[^"\\]*"\s*:)')

#: The start of each item as kubectl prints it. Other items are parsed to find their kind.
_KIND: Final = re.compile(rb'\{\s*"apiVersion"\s*:\s*"[^"\\]*"\s*,\s*"kind"\s*:\s*"([^"\\]*)"')

#: Between values: whitespace, and the byte-order marks of files that were joined.
_SPACE: Final = re.compile(rb"(?:[ \t\r\n\x1e]|\xef\xbb\xbf)*")
_MARK: Final = 3  #: length of a byte-order mark
_SEPARATOR: Final = b"---"  #: people write it between JSON documents as well; as long as a byte-order mark

#: Fruitless searches for a separator, after which a list is parsed item by item.
_FRUITLESS: Final = 8

#: The ends of values that end there: more digits of a number may follow.
_ENDS: Final = (b"}", b"]", b'"')

_BYTE: Final = re.compile(r"\(byte (\d+)\)$")
_TRAILING: Final = "trailing characters"
_TRUNCATED: Final = "Input data was truncated"
TOO_LARGE: Final = f"an object is larger than {LONGEST >> 20} MiB"
_TOO_MANY: Final = f"an object has more than {_MOST_VALUES:,} values"


class ListError(ValueError):
    """The text is not a List. The message states the expected format."""


def wrong_kind(kind: str) -> ListError:
    """Return the error for an object of *kind* instead of a list. Its content is not told: it may be secret."""
    return ListError(f"expected kind List, as kubectl get -o json prints, got {kind or 'no kind'!r}")


class _Status(msgspec.Struct):
    message: str = ""
    code: int = 0


def _api_error(item: bytes) -> ListError:
    """Return the error for a Status, which the API server returns instead of a list."""
    try:
        status = msgspec.json.decode(item, type=_Status)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return wrong_kind("Status")
    text = shown(status.message or "an error without a message")
    return ListError(f"it contains an error of the API server instead of objects: {text} (code {status.code})")


class _KubectlError(msgspec.Struct, forbid_unknown_fields=True):
    error: str


def _without_kind(item: bytes) -> ListError:
    """Return the error for an object without a kind: what kubectl prints in place of objects reads as one."""
    try:
        failed = msgspec.json.decode(item, type=_KubectlError)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return wrong_kind("")
    return ListError(f"it contains an error of kubectl instead of objects: {shown(failed.error)}")


class PartEnd(Exception):
    """The next item is the first one of another process's part."""


class Part:
    """The items of a text that one process passes on: all, unless a subclass says otherwise."""

    asks_from = sys.maxsize  #: the position in bytes from which :meth:`at_item` is called

    def at_item(self, position: int, inherited: str | None) -> int:  # noqa: ARG002
        """Return the position from which the next item is searched; it starts at *position*.

        It is in a list that is not in an array, and *inherited* is the kind of its items. Raises PartEnd.
        """
        return position

    def begins(self, position: int, inherited: str | None) -> None:
        """Note that an item seems to start at *position*, the first one after the position that was asked for."""


_ALL: Final = Part()


class _ItemKind(msgspec.Struct):
    kind: str = ""


def each(chunks: Iterable[bytes], kinds: Container[str], on_item: OnItem, on_error: OnError, part: Part = _ALL) -> None:
    """Pass every item of one of *kinds* to *on_item*. *chunks* are the text in UTF-8, split at any position.

    An error that *on_item* raises is passed to *on_error*, and parsing continues with the next item. In a list as
    returned by the API (``PodList``), the kind of the items is derived from the kind of the list. Raises
    :class:`ListError`, and whatever *on_error* raises; PartEnd if *part* does.
    """
    _Lists(_Text(chunks, part), Items(kinds, on_item, on_error)).read()


class Items:
    """Passes on the items of lists.

    Items inherit the kind of a list as returned by the API. It is "" if each item has a kind, and None while unknown.
    """

    def __init__(self, kinds: Container[str], on_item: OnItem, on_error: OnError) -> None:
        self.number = 0  #: items of the current list or array
        self._kinds = kinds
        self._on_item = on_item
        self._on_error = on_error
        self._head = (b"{", "")  #: the start of the last item that was cut out, and its kind
        self._waiting: list[bytes] = []  #: items without a kind in a list whose kind is not known
        self._waiting_bytes = 0

    def try_item(self, item: bytes, inherited: str | None) -> bool:
        """Pass on or skip *item*, and return True. Return False if it is not valid JSON, has no kind, or is a list."""
        kind = inherited or self.kind(item)
        if not kind or kind.endswith("List"):
            return False
        if kind in self._kinds:
            _count_values(item)
            try:
                self._on_item(kind, item)
            except ValueError as error:
                if not is_json(item):
                    return False
                self._on_error(error)
            except RecursionError:
                return False
        elif not is_json(item):
            return False
        self.number += 1
        return True

    def take(self, item: bytes, inherited: str | None) -> None:
        """Pass on or skip *item*, which is valid JSON. Raises ListError if it is not an object, or has no kind."""
        if not item.startswith(b"{"):
            raise ListError(f"item {self.number} of the List is not an object")
        kind = inherited or self.kind(item)
        if kind == "Status":
            raise _api_error(item)
        if kind.endswith("List"):
            raise ListError(f"item {self.number} of the List is a {kind}, which can only be an item of an array")
        if kind in self._kinds:
            _count_values(item)
            try:
                self._on_item(kind, item)
            except ValueError as error:
                self._on_error(error)
            except RecursionError:
                raise ListError(f"item {self.number} of the List is nested too deeply") from None
        elif not kind:
            self._wait(item, inherited)
        self.number += 1

    def end_list(self, kind: str) -> None:
        """Pass on the items that waited for *kind*, the kind of their list."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self.number -= len(waiting)
        for item in waiting:
            self.take(item, kind.removesuffix("List"))

    def take_object(self, kind: str, item: bytes) -> None:
        """Pass on or skip *item*, an object that is not in a list. Raises ListError if it is no Kubernetes object."""
        if not kind:
            raise _without_kind(item)
        if not kind.endswith("List"):
            self.take(item, kind)

    @property
    def has_waiting(self) -> bool:
        """Whether there are items that wait for the kind of their list."""
        return bool(self._waiting)

    def kind(self, item: bytes) -> str:
        """Return the kind that *item* states, or ""."""
        head, kind = self._head
        if item.startswith(head) and kind:
            return kind
        if (match := _KIND.match(item)) is not None:
            self._head = match[0], match[1].decode(errors="replace")
            return self._head[1]
        try:
            return msgspec.json.decode(item, type=_ItemKind).kind
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return ""

    def _wait(self, item: bytes, inherited: str | None) -> None:
        if inherited is not None:
            raise ListError(f"item {self.number} of the List has no kind")
        self._waiting.append(item)
        self._waiting_bytes += len(item)
        if self._waiting_bytes > _MOST_WAITING:
            raise ListError(
                f"the items have no kind, and the kind of the List is not in its first {_MOST_WAITING >> 20} MiB"
            )


class _Text:
    """The text that was read but not parsed yet."""

    def __init__(self, chunks: Iterable[bytes], part: Part) -> None:
        self._chunks = iter(chunks)
        self._part = part
        self._passed = 0  #: length of the text that was dropped, in bytes
        self._text = b""
        self._at = 0

    def space(self) -> bytes:
        """Pass over whitespace, and return the next character; b"" at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._left >= _MARK or not self._more():
                return self._text[self._at : self._at + 1]

    def skip(self) -> None:
        """Pass over a character."""
        self._at += 1

    def is_separator(self) -> bool:
        """Pass over a line that separates documents in YAML, after :meth:`space`, and return whether there is one."""
        if found := self._text.startswith(_SEPARATOR, self._at):
            self._at += len(_SEPARATOR)
        return found

    def value(self) -> bytes:
        """Return the JSON value that starts here, and pass over it. Raises ListError."""
        while (length := self._length()) is None or (length == self._left and not self._text.endswith(_ENDS)):
            if self._left > LONGEST:
                raise self.error(TOO_LARGE)
            if not self._more(max(1, self._left)):  # twice the text, because it is parsed from its start
                if length is None:
                    raise self.error(_TRUNCATED)
                break
        self._at += length
        return self._text[self._at - length : self._at].rstrip()

    def cut(self, items: Items, inherited: str | None, *, in_parts: bool) -> bool:
        """Pass on items that are separated like the first one for as long as possible. Return whether any were.

        *in_parts* is whether a part may begin and end here.
        """
        if (first := _FIRST.match(self._text, self._at)) is None:
            return False
        self._at = first.start(2)
        gap, start = b"}," + first[1], first[2]
        separator = gap + start
        searched, before = self._at, items.number
        while True:
            while (end := self._find(separator, searched)) >= 0 and items.try_item(
                self._text[self._at : end + 1], inherited
            ):
                self._at = searched = end + len(gap)
                if in_parts and self._at >= self._part.asks_from - self._passed and not items.has_waiting:
                    searched = self._ask(gap, separator, inherited)
            left = self._left
            if end >= 0 or left > LONGEST or not self._more(left // 2):
                return items.number > before
            searched = max(0, left - len(separator) + 1)

    def _find(self, separator: bytes, start: int) -> int:
        """Return where *separator* begins, at *start* or later, or -1.

        Where each item is a line, a line break is found several times as fast as a longer text. So the first one that
        follows is tried before the whole separator is searched.
        """
        if (mark := separator.find(b"\n")) >= 0:
            at = self._text.find(b"\n", start + mark) - mark
            if self._text.startswith(separator, at) and at >= start:
                return at
        return self._text.find(separator, start)

    def _ask(self, gap: bytes, separator: bytes, inherited: str | None) -> int:
        """Ask the part where to go on, and go there. Return the position in the text that is kept."""
        position = self._passed + self._at
        if (onward := self._part.at_item(position, inherited)) > position:
            while self._passed + len(self._text) < onward:
                self._at = len(self._text)
                if not self._more():
                    raise self.error(_TRUNCATED)
            self._at = onward - self._passed
            while (end := self._find(separator, self._at)) < 0:
                self._at = max(self._at, len(self._text) - len(separator) + 1)
                if not self._more():
                    raise self.error(_TRUNCATED)
            self._at = end + len(gap)
            self._part.begins(self._passed + self._at, inherited)
        return self._at

    def error(self, reason: str) -> ListError:
        """Return the error for *reason*. The position in it, if any, is counted from here."""
        reason = _BYTE.sub(lambda byte: f"(byte {int(byte[1]) + self._passed + self._at})", reason)
        return ListError(f"expected a JSON object of kind List, as kubectl get -o json prints: {reason}")

    def unexpected(self, expected: str) -> ListError:
        """Return the error for the next character."""
        return self.error(f"JSON is malformed: expected {expected} (byte 0)" if self._left else _TRUNCATED)

    @property
    def _left(self) -> int:
        return len(self._text) - self._at

    def _length(self) -> int | None:
        """Return the length of the value that starts here, or None if the text ends in it. Raises ListError."""
        try:
            msgspec.json.decode(memoryview(self._text)[self._at :], type=msgspec.Raw)
        except msgspec.DecodeError as error:
            if (byte := _BYTE.search(str(error))) and _TRAILING in str(error):
                return int(byte[1]) - _PAST
            if str(error) == _TRUNCATED:
                return None
            raise self.error(str(error)) from error
        except RecursionError:
            raise self.error("nested too deeply") from None
        return self._left

    def _more(self, least: int = 1) -> bool:
        """Drop the text that was passed over, and append at least *least* bytes. Return False at the end."""
        self._passed += self._at
        parts = [self._text[self._at :]]
        for chunk in self._chunks:
            parts.append(chunk)
            least -= len(chunk)
            if least <= 0:
                break
        self._text, self._at = b"".join(parts), 0
        return len(parts) > 1


class _Lists:
    """The values of a text: lists, objects and arrays of them."""

    def __init__(self, text: _Text, items: Items) -> None:
        self._text = text
        self._items = items

    def read(self) -> None:
        """Read all values. Raises ListError."""
        if not self._text.space():
            raise ListError("expected a JSON object of kind List, as kubectl get -o json prints: it is empty")
        while self._text.space():
            if not self._text.is_separator():
                self._value(0)

    def _value(self, depth: int) -> None:
        first = self._text.space()
        if first == b"{":
            self._object(in_parts=not depth)
        elif first == b"[" and depth < _DEEPEST:
            for _ in self._sequence(None):
                self._value(depth + 1)
        else:
            raise self._text.unexpected("'{'")

    def _object(self, *, in_parts: bool) -> None:
        """Read a list or another object: the kind may follow the items."""
        kind: str | None = None
        members: list[bytes] = []
        size, items, no_array = 0, False, False
        for key in self._keys():
            if key == b'"items"' and (kind is None or kind.endswith("List")) and self._text.space() == b"[":
                if items:
                    raise ListError("expected a JSON object of kind List with one items field, got two")
                items = True
                self._list(kind, in_parts=in_parts)
                continue
            value = self._text.value()
            no_array = no_array or (key == b'"items"' and value != b"null")
            members.append(key + b":" + value)
            size += len(members[-1])
            if size > LONGEST:
                raise self._text.error(TOO_LARGE)
            if key == b'"kind"':
                kind = self._items.kind(b"{%b}" % members[-1])
        if no_array and (kind or "").endswith("List"):
            raise ListError(f"the items of the {kind} are not an array")
        if items:
            self._items.end_list(kind or "")
        else:
            self._items.take_object(kind or "", b"{%b}" % b",".join(members))

    def _list(self, kind: str | None, *, in_parts: bool) -> None:
        inherited = None if kind is None else kind.removesuffix("List")
        for _ in self._sequence(inherited, in_parts=in_parts):
            self._items.take(self._text.value(), inherited)

    def _keys(self) -> Iterator[bytes]:
        """Yield the keys of the object that starts here. The caller passes over each value."""
        text = self._text
        text.skip()
        if text.space() == b"}":
            text.skip()
            return
        while True:
            if text.space() != b'"':
                raise text.unexpected("a key")
            key = text.value()
            if text.space() != b":":
                raise text.unexpected("':'")
            text.skip()
            text.space()
            yield key
            if self._ends(b"}"):
                return

    def _sequence(self, inherited: str | None, *, in_parts: bool = False) -> Iterator[None]:
        """Yield before each value of the array that starts here, except those that can be cut out, for the caller."""
        text = self._text
        text.skip()
        self._items.number, fruitless, first = 0, 0, True
        while True:
            if fruitless < _FRUITLESS:
                fruitless += not text.cut(self._items, inherited, in_parts=in_parts)
            if text.space() == b"]" and first and not self._items.number:
                text.skip()
                return
            first = False
            yield
            if self._ends(b"]"):
                return

    def _ends(self, end: bytes) -> bool:
        """Pass over a comma or *end*, and return whether it is *end*. Raises ListError."""
        following = self._text.space()
        if following not in (end, b","):
            raise self._text.unexpected(f"',' or '{end.decode()}'")
        self._text.skip()
        return following == end


def _count_values(item: bytes) -> None:
    """Raise ListError if *item* has more values than the API server would store."""
    if len(item) > 2 * _MOST_VALUES and item.count(b",") > _MOST_VALUES:
        raise ListError(_TOO_MANY)


def is_json(text: bytes) -> bool:
    """Return whether *text* is valid JSON."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def _past() -> int:
    """Return how far behind the end of a value the position is that msgspec states for what follows it."""
    try:
        msgspec.json.decode(b"{}{", type=msgspec.Raw)
    except msgspec.DecodeError as error:
        if byte := _BYTE.search(str(error)):
            return int(byte[1]) - 2
    raise AssertionError("msgspec does not state the position of trailing characters")


_PAST: Final = _past()
