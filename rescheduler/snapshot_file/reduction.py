"""Read a large snapshot file in a second process, which passes on only the fields that are read. Separate from
the reader, because it runs as a program of its own.

The second process finds the items of the list and reduces the pods; this process decodes them at the same time. After
any error, this process reads the whole file again by itself and reports the exact error.
"""

import gc
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import IO, BinaryIO, Final, TypeAlias

import msgspec

from predicates.pod_classes import reduced
from predicates.wire import FILE_KINDS
from rescheduler.snapshot_file import items, text

#: Minimum size of a file in bytes. Reading a smaller file takes less time than starting a second process.
LARGE: Final = 16 << 20

#: Length of a batch in bytes, before the last item.
_BATCH: Final = 1 << 17

#: Size of the pipe in bytes: several batches, so that no process waits for the other. Linux allows it to any user.
_PIPE: Final = 1 << 20

_LENGTH_BYTES: Final = 8
_MOST: Final = 1 << 28  #: maximum length of a batch with its last item, in bytes

#: The kind and the JSON of each item.
_Items: TypeAlias = list[tuple[str, bytes]]

_BATCHES: Final = msgspec.msgpack.Decoder(_Items)


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


def each(path: str) -> Generator[tuple[str, bytes], None, None]:
    """Yield the kind and the JSON of each item in the file *path*. Pods contain only the fields that are read.

    Raises :class:`ReductionError`, possibly after some items.
    """
    command = [sys.executable, "-P", "-m", __name__, path]  # -P: do not import from the working directory
    try:
        process = subprocess.Popen(  # noqa: S603 - a list, and no shell
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pipesize=_PIPE
        )
    except OSError as error:
        raise ReductionError(str(error)) from error
    with process:
        assert process.stdout is not None
        try:
            while batch := _received(process.stdout):
                yield from batch
        finally:
            process.kill()  # It has already exited, unless the caller stops early.


def _received(stream: IO[bytes]) -> _Items:
    """Return the next batch; an empty batch follows the last item."""
    header = stream.read(_LENGTH_BYTES)
    length = int.from_bytes(header, "little")
    batch = stream.read(length) if length <= _MOST else b""
    if len(header) < _LENGTH_BYTES or len(batch) < length:
        raise ReductionError("the second process ended early")
    try:
        return _BATCHES.decode(batch)
    except msgspec.MsgspecError as error:
        raise ReductionError(f"the second process wrote an invalid batch: {error}") from error


class _Batches:
    """Writes items to *stream* in batches."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._items: _Items = []
        self._size = 0

    def add(self, kind: str, item: bytes) -> None:
        """Add an item. Raises ValueError if it is not valid JSON."""
        smaller = _reduced_item(kind, item)
        self._items.append((kind, smaller))
        self._size += len(smaller)
        if self._size >= _BATCH:
            self.flush()

    def finish(self) -> None:
        """Write the remaining items, and an empty batch."""
        if self._items:
            self.flush()
        self.flush()

    def flush(self) -> None:
        """Write the items that were added since the last call."""
        batch = msgspec.msgpack.encode(self._items)
        self._stream.write(len(batch).to_bytes(_LENGTH_BYTES, "little") + batch)
        self._stream.flush()
        self._items, self._size = [], 0


def _reduced_item(kind: str, item: bytes) -> bytes:
    if kind == "Pod":
        try:
            return reduced(item)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass  # The first process reports the error.
    if not items.is_json(item):
        raise ValueError("expected JSON")
    return item


def _raise(error: ValueError) -> None:
    raise error


def main() -> None:
    """Write the items of the file in the first argument to standard output; an empty batch follows the last one."""
    gc.disable()
    batches = _Batches(sys.stdout.buffer)
    items.each(text.chunks(sys.argv[1]), FILE_KINDS, batches.add, _raise)
    batches.finish()


if __name__ == "__main__":
    main()
