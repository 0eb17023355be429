"""Convert YAML, as ``kubectl get -o yaml`` prints it, to JSON while it is being read. Each document becomes a line.
It is imported when a file is not JSON.

Plain scalars are numbers, booleans and nulls as in JSON, and otherwise strings, as in the YAML of Kubernetes. Aliases
are expanded up to a limit, because a few lines of aliases of aliases stand for any amount of text. Objects that were
appended to a file without a separator are read as well: each starts with its `apiVersion`.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import yaml

#: Maximum length in bytes of the text of an event, of all anchored values, and of all expanded aliases.
_MOST: Final = 16 << 20

#: Maximum depth of a value. Objects of Kubernetes have less than 30 levels.
_DEEPEST: Final = 100

#: Bytes of JSON that are yielded at a time.
_BATCH: Final = 1 << 16

#: The first key of an object as kubectl prints it.
_FIRST_KEY: Final = "apiVersion"
#: The key that merges another mapping into the one that contains it. Kubernetes' own YAML has none.
_MERGE: Final = "<<"
#: The byte-order mark of a file that was appended to another one.
_MARK: Final = b"\xef\xbb\xbf"

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT_TAG: Final = "tag:yaml.org,2002:str"
_CONSTANTS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), b"null"),
    **dict.fromkeys(("true", "True", "TRUE"), b"true"),
    **dict.fromkeys(("false", "False", "FALSE"), b"false"),
}
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_LONGEST_NUMBER: Final = 64


class YamlError(ValueError):
    """The text is not YAML, or cannot be converted. The message contains the line."""


def as_json(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the documents in *chunks* as JSON, in pieces. Raises :class:`YamlError`."""
    text = _Text(_without_marks(chunks))
    writer = _Writer()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            text.unread = 0
            try:
                writer.write(event)
            except YamlError as error:
                raise YamlError(f"{_line(event.start_mark)}{error}") from None
            if writer.size >= _BATCH:
                yield writer.taken()
    except yaml.MarkedYAMLError as error:
        raise YamlError(f"{_line(error.problem_mark)}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise YamlError(" ".join(str(error).split())) from error
    yield writer.taken()


def _without_marks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield *chunks* without the byte-order marks at the starts of lines."""
    kept = b""
    for chunk in chunks:
        text = (kept + chunk).replace(b"\n" + _MARK, b"\n")
        kept = text[-len(_MARK) :]
        yield text[: -len(_MARK)]
    yield kept


def _line(mark: Any) -> str:
    return f"line {mark.line + 1}: " if mark is not None else ""


class _Text:
    """The stream that the parser reads. The parser keeps what it has read since the last event."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""
        self.unread = 0  #: bytes since the last event

    def read(self, size: int = _BATCH, /) -> bytes:
        """Return at most *size* bytes, and b"" at the end."""
        while not self._rest and (chunk := next(self._chunks, None)) is not None:
            self._rest = chunk
        text, self._rest = self._rest[:size], self._rest[size:]
        self.unread += len(text)
        if self.unread > _MOST:
            raise YamlError(f"a value is larger than {_MOST >> 20} MiB")
        return text


class _Writer:
    """Writes the events of a YAML parser as JSON."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0  #: bytes that were not taken
        self._open: list[_Collection] = []
        self._anchors: dict[str, bytes] = {}
        self._anchored = 0  #: bytes of the values of all anchors, also of those that are being recorded
        self._expanded = 0  #: bytes of all aliases

    def taken(self) -> bytes:
        """Return the text that was written since the last call."""
        text, self._parts, self.size = b"".join(self._parts), [], 0
        return text

    def write(self, event: yaml.Event) -> None:
        """Write *event*. Raises YamlError."""
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._begin(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._end()
        elif isinstance(event, yaml.AliasEvent):
            self._alias(str(event.anchor))
        elif isinstance(event, yaml.DocumentEndEvent):
            self._anchors.clear()
            self._append(b"\n")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        if not self._open:
            if event.value and event.value not in _CONSTANTS:
                raise YamlError("expected an object, got text")
            return
        collection = self._open[-1]
        if collection.awaits_key:
            self._key(event, collection)
            return
        value = _json(event)
        self._append(collection.separator() + value)
        if event.anchor is not None:
            self._remember(event.anchor, value)

    def _key(self, event: yaml.ScalarEvent, collection: "_Collection") -> None:
        if event.value == _MERGE and event.implicit[0]:
            raise YamlError(f"expected no {_MERGE}, which merges mappings")
        if event.value == _FIRST_KEY and not self._open[1:]:
            if collection.has_first_key:
                self._append(b"}\n{")
                collection.begin_again()
            collection.has_first_key = True
        self._append(collection.separator() + msgspec.json.encode(event.value) + b":")

    def _begin(self, event: yaml.CollectionStartEvent) -> None:
        if len(self._open) >= _DEEPEST:
            raise YamlError(f"expected at most {_DEEPEST} levels")
        if self._open:
            if self._open[-1].awaits_key:
                raise YamlError("expected a text as the key")
            self._append(self._open[-1].separator())
        self._open.append(_Collection(mapping=isinstance(event, yaml.MappingStartEvent), anchor=event.anchor))
        self._append(b"{" if self._open[-1].mapping else b"[")

    def _end(self) -> None:
        self._append(b"}" if self._open[-1].mapping else b"]")
        collection = self._open.pop()
        if collection.anchor is not None:
            self._remember(collection.anchor, b"".join(collection.recorded))

    def _alias(self, anchor: str) -> None:
        if not self._open or self._open[-1].awaits_key:
            raise YamlError("expected a text as the key, got an alias")
        if (value := self._anchors.get(anchor)) is None:
            raise YamlError(f"the alias {anchor!r} stands for itself, or for nothing")
        self._expanded += len(value)
        if self._expanded > _MOST:
            raise YamlError(f"the aliases stand for more than {_MOST >> 20} MiB")
        self._append(self._open[-1].separator() + value)

    def _remember(self, anchor: str, value: bytes) -> None:
        self._anchors[anchor] = value

    def _append(self, text: bytes) -> None:
        self._parts.append(text)
        self.size += len(text)
        for collection in self._open:
            if collection.anchor is not None:
                collection.recorded.append(text)
                self._anchored += len(text)
        if self._anchored > _MOST:
            raise YamlError(f"values with anchors are larger than {_MOST >> 20} MiB")


class _Collection:
    """A mapping or a sequence that has not ended."""

    def __init__(self, *, mapping: bool, anchor: str | None) -> None:
        self.mapping = mapping
        self.anchor = anchor
        self.recorded: list[bytes] = []  #: its text, if it has an anchor
        self.has_first_key = False
        self._number = 0  #: keys and values

    @property
    def awaits_key(self) -> bool:
        return self.mapping and self._number % 2 == 0

    def begin_again(self) -> None:
        """Go on as an empty collection."""
        self._number = 0

    def separator(self) -> bytes:
        """Return the text before the next key or item."""
        number, self._number = self._number, self._number + 1
        return b"," if number and (not self.mapping or number % 2 == 0) else b""


def _json(event: yaml.ScalarEvent) -> bytes:
    text = event.value
    if event.implicit[0] or (event.tag not in (None, _TEXT_TAG) and not event.style):
        if (constant := _CONSTANTS.get(text)) is not None:
            return constant
        if _INTEGER.fullmatch(text):
            return bytes(text, "ascii")
        if len(text) <= _LONGEST_NUMBER and _NUMBER.fullmatch(text) and math.isfinite(number := float(text)):
            return msgspec.json.encode(number)
    return msgspec.json.encode(text)
