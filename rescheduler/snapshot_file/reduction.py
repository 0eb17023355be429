"""Read a large snapshot file with a second process. Separate from the reader, because it runs as a program of its own.

Each process reads a part of the file: this one from the start, the second one from about :data:`_SHARE` of it. There
it searches the text that separates items. That is a guess, which this process confirms when an item ends at this
position. The second process splits pods into what is their own and what equal pods share, and passes the latter on
once. After any error, this process reads the whole file again by itself and reports the exact error.
"""

import contextlib
import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final, Self, TypeAlias

import msgspec

from predicates.pod_classes import Own, split, split_labels
from predicates.wire import FILE_KINDS
from rescheduler.net import files
from rescheduler.snapshot_file import items, text

#: Minimum size of a file in bytes. Reading a smaller file takes less time than starting a second process.
LARGE: Final = 16 << 20

#: Length of a batch in bytes, before the last item.
_BATCH: Final = 1 << 17
_OWN_BYTES: Final = 256  #: about as long are the own fields of a pod

#: Size of the pipe in bytes: several batches, so that no process waits for the other. Linux allows it to any user.
_PIPE: Final = 1 << 20
#: Items of the first part, about 3 ms, after which the pipe is emptied. It takes some 20 ms to fill it.
_TAKEN_AFTER: Final = 256

_LENGTH_BYTES: Final = 8
_MOST: Final = 1 << 28  #: maximum length of a batch with its last item, in bytes

#: The part of a file that the first process reads. It also decodes what the second one passes on.
_SHARE: Final = 0.25

#: The start of a list: its first array are the items. Other texts are not read in parts.
_LIST: Final = re.compile(rb'\s*\{[^\[]*"items"\s*:\s*\[')
_START: Final = 1 << 12  #: bytes in which this start is searched

#: Length in bytes of the shared texts that the second process remembers. Lists are sorted by name, so equal pods follow
#: each other; a text that was forgotten is passed on again.
_REMEMBERED: Final = 8 << 20


class Item(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An item of the list, or a pod that was split."""

    kind: str
    text: bytes  #: the JSON of the item. Of a split pod: the shared text, if it has a new number, else b""
    length: int  #: of the item in the file
    own: Own | None = None  #: of a split pod: its own fields
    number: int = 0  #: of a split pod: the number of its shared text; they are counted from 0


#: Where the part of the second process begins: as in :meth:`items.Part.begins`.
_Border: TypeAlias = tuple[int, str | None]

_BORDERS: Final = msgspec.msgpack.Decoder(_Border)
_BATCHES: Final = msgspec.msgpack.Decoder(list[Item])


class ReductionError(Exception):
    """The second process could not read the file, or was not started."""


def is_worthwhile(path: str) -> bool:
    """Return whether the second process saves time: *path* is a large file, and there is more than one processor."""
    if path == "-" or not sys.executable or os.cpu_count() in (None, 1):
        return False
    try:
        return Path(path).stat().st_size >= LARGE
    except (OSError, ValueError):
        return False


class SecondProcess:
    """The second process, while it is needed."""

    def __init__(self, path: str) -> None:
        """Start it for the file *path*. Raises :class:`ReductionError`."""
        self.middle = int(Path(path).stat().st_size * _SHARE) if _has_parts(path) else 0
        # -P: do not import from the working directory
        command = [sys.executable, "-P", "-m", __name__, path, str(self.middle)]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a list, and no shell
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pipesize=_PIPE
            )
        except OSError as error:
            raise ReductionError(str(error)) from error
        assert self._process.stdout is not None
        self._pipe = _Pipe(self._process.stdout.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # It has already exited, unless the caller stops early.
        self._process.__exit__(None, None, None)

    def take(self) -> None:
        """Take what the second process has written so far, so that it need not wait."""
        self._pipe.take()

    def border(self) -> _Border | None:
        """Return where its part begins, or None if it has failed. Call this once, before :meth:`items`."""
        try:
            border: _Border = _BORDERS.decode(_message(self._pipe.read))
        except (ReductionError, msgspec.MsgspecError):
            return None
        return border

    def items(self) -> Iterator[Item]:
        """Yield each item of its part. Raises :class:`ReductionError`, possibly after some items."""
        while batch := _received(self._pipe.read):
            yield from batch


class _Pipe:
    """The output of the second process. It may be more than the pipe can hold."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._taken = bytearray()

    def take(self) -> None:
        """Take what can be read without waiting. It is kept."""
        if sys.platform == "win32":
            return
        os.set_blocking(self._descriptor, False)
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._descriptor, _BATCH):
                self._taken += chunk
        os.set_blocking(self._descriptor, True)

    def read(self, length: int) -> bytes:
        """Return the next *length* bytes, or fewer at the end."""
        while len(self._taken) < length and (chunk := os.read(self._descriptor, _BATCH)):
            self._taken += chunk
        content = bytes(self._taken[:length])
        del self._taken[:length]
        return content


def _has_parts(path: str) -> bool:
    """Return whether the file is a list that can be read in parts: JSON in UTF-8, and not compressed."""
    try:
        with files.opened(path) as file:
            return _LIST.match(file.read(_START)) is not None
    except OSError:
        return False


class FirstPart(items.Part):
    """The part of this process. It ends where that of *second* begins, and else with the text."""

    def __init__(self, second: SecondProcess) -> None:
        self._second = second
        self._border: _Border | None = None
        self._number = 0
        self.asks_from = 0

    def at_item(self, position: int, inherited: str | None) -> int:
        if position < self._second.middle:
            self._number += 1
            if self._number % _TAKEN_AFTER == 0:
                self._second.take()
            return position
        if self._border is None:
            self._border = self._second.border() or (0, None)
        if self._border == (position, inherited):
            raise items.PartEnd
        if position >= self._border[0]:
            self.asks_from = sys.maxsize  # The guess was wrong: this process reads everything.
        return position


class _SecondPart(items.Part):
    """The part of the second process, from about *middle*; with 0, all items."""

    def __init__(self, middle: int, stream: BinaryIO) -> None:
        self._middle = middle
        self._stream = stream
        self.asks_from = 0 if middle else sys.maxsize
        self.has_begun = not middle

    def at_item(self, position: int, inherited: str | None) -> int:
        self.asks_from = sys.maxsize
        if position >= self._middle:
            self.begins(position, inherited)
        return max(position, self._middle)

    def begins(self, position: int, inherited: str | None) -> None:
        self.has_begun = True
        _send(self._stream, (position, inherited))


def _received(read: Callable[[int], bytes]) -> list[Item]:
    """Return the next batch; an empty batch follows the last item."""
    try:
        return _BATCHES.decode(_message(read))
    except msgspec.MsgspecError as error:
        raise ReductionError(f"the second process wrote an invalid batch: {error}") from error


def _message(read: Callable[[int], bytes]) -> bytes:
    header = read(_LENGTH_BYTES)
    length = int.from_bytes(header, "little")
    message = read(length) if length <= _MOST else b""
    if len(header) < _LENGTH_BYTES or len(message) < length:
        raise ReductionError("the second process ended early")
    return message


def _send(stream: BinaryIO, content: object) -> None:
    message = msgspec.msgpack.encode(content)
    stream.write(len(message).to_bytes(_LENGTH_BYTES, "little") + message)
    stream.flush()


class _Batches:
    """Writes items to *stream* in batches."""

    def __init__(self, stream: BinaryIO, part: _SecondPart) -> None:
        self._stream = stream
        self._part = part
        self._items: list[Item] = []
        self._size = 0
        self._labels_of = lru_cache(maxsize=1024)(split_labels)
        self._numbers: dict[bytes, int] = {}  #: by shared text
        self._remembered = 0  #: length of these texts
        self._next = 0  #: the next number of a shared text

    def add(self, kind: str, item: bytes) -> None:
        """Add an item of the part. Raises ValueError if it is not valid JSON."""
        if not self._part.has_begun:
            return
        added = (self._split(item) if kind == "Pod" else None) or _whole(kind, item)
        self._items.append(added)
        self._size += len(added.text) + _OWN_BYTES
        if self._size >= _BATCH:
            self.flush()

    def finish(self) -> None:
        """Write the remaining items, and an empty batch."""
        if self._items:
            self.flush()
        self.flush()

    def flush(self) -> None:
        """Write the items that were added since the last call."""
        _send(self._stream, self._items)
        self._items, self._size = [], 0

    def _split(self, item: bytes) -> Item | None:
        """Return a split pod, or None if the first process has to report an error about it."""
        try:
            own, text = split(item, self._labels_of)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        if not own.name:
            return None
        if (number := self._numbers.get(text)) is not None:
            return Item("Pod", b"", len(item), own, number)
        return Item("Pod", text, len(item), own, self._remember(text))

    def _remember(self, text: bytes) -> int:
        """Return the number of a new shared *text*."""
        self._remembered += len(text)
        if self._remembered > _REMEMBERED:
            self._numbers.clear()
            self._remembered = len(text)
        self._numbers[text] = number = self._next
        self._next += 1
        return number


def _whole(kind: str, item: bytes) -> Item:
    if not items.is_json(item):
        raise ValueError("expected JSON")
    return Item(kind, item, len(item))


def _raise(error: ValueError) -> None:
    raise error


def main() -> None:
    """Write a part of the file in the first argument to standard output, from the position in the second one.

    An empty batch follows the last one.
    """
    gc.disable()
    path, middle = sys.argv[1:]
    part = _SecondPart(int(middle), sys.stdout.buffer)
    batches = _Batches(sys.stdout.buffer, part)
    items.each(text.chunks(path), FILE_KINDS, batches.add, _raise, part)
    batches.finish()


if __name__ == "__main__":
    main()
