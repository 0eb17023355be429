"""The text of a snapshot file or of standard input, decompressed if it is gzip."""

import contextlib
import errno
import sys
import zlib
from collections.abc import Iterator
from itertools import chain
from typing import Final

from rescheduler.errors import InputError, UsageError
from rescheduler.net import files

#: Bytes read at a time. The C library keeps buffers of this size for reuse; larger ones are returned to the system.
_CHUNK: Final = 1 << 16
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP: Final = 31  #: zlib's "wbits" for gzip with the largest window


def name_of(path: str) -> str:
    """Return the name of the file *path* in messages; ``-`` is standard input."""
    return "standard input" if path == "-" else files.printable(path)


def chunks(path: str) -> Iterator[bytes]:
    """Yield the text in pieces.

    Raises :class:`~rescheduler.errors.UsageError` if the file cannot be opened or read, and
    :class:`~rescheduler.errors.InputError` if it is a corrupt gzip file. Both contain the file name.
    """
    name = name_of(path)
    return _unpacked(_chunks(path, name), name)


def _chunks(path: str, name: str) -> Iterator[bytes]:
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else files.opened(path) as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        hint = "; for a pipe, --snapshot - reads standard input" if error.errno == errno.EINVAL else ""
        raise UsageError(f"--snapshot {name}: {error.strerror or error}{hint}") from error


def _unpacked(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield *pieces*, decompressed if they are gzip. A file may have several members, with zeros between them."""
    first = next(pieces, b"")
    pieces = chain((first,), pieces)
    if not first.startswith(_GZIP_MAGIC):
        yield from pieces
        return
    member = zlib.decompressobj(_GZIP)
    try:
        for chunk in pieces:
            packed = chunk.lstrip(b"\0") if member.eof else chunk
            while packed:
                if member.eof:
                    member = zlib.decompressobj(_GZIP)
                yield member.decompress(packed)
                packed = member.unused_data.lstrip(b"\0")
    except zlib.error as error:
        raise InputError(f"{name}: corrupt gzip file: {error}") from error
    if not member.eof:
        raise InputError(f"{name}: corrupt gzip file: it is truncated")
