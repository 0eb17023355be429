"""Read the output of ``kubectl get … -o json`` (a ``kind: List``, gzipped or not) as a snapshot."""

import contextlib
import errno
import sys
import zlib
from collections.abc import Iterator
from itertools import chain
from typing import Final

from predicates.objects import Object, Pod
from predicates.snapshot import Snapshot, key_of
from predicates.unreadable import Unreadable
from predicates.wire import KINDS, Decoder, Interner, WireError, unreadable
from rescheduler.errors import InputError, UsageError
from rescheduler.net import files
from rescheduler.snapshot_file import items

#: Bytes read at a time. The C library keeps buffers of this size for reuse; larger ones are returned to the system.
_CHUNK: Final = 1 << 16
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP: Final = 31  #: zlib's "wbits" for gzip with the largest window


def read(path: str) -> Snapshot:
    """Read the snapshot in the file *path*; ``-`` is standard input. It lists the objects that cannot be decoded.

    Raises :class:`~rescheduler.errors.UsageError` if the file cannot be opened, and
    :class:`~rescheduler.errors.InputError`, with the file name, if the content is not a valid List.
    """
    name = "standard input" if path == "-" else files.printable(path)
    objects = _Objects(name)
    try:
        items.each(_unpacked(_chunks(path, name), name), KINDS, objects.take, objects.refuse)
    except ValueError as error:
        raise InputError(f"{name}: {error}") from error
    return objects.snapshot()


class _Objects:
    """The objects of a file, as they are read."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._decoder = Decoder(Interner())
        self._by_kind: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS}
        self._unreadable: dict[Unreadable, None] = {}

    def take(self, kind: str, item: bytes) -> None:
        decoded = self._decoder.decode(kind, item)
        if not (decoded.name if isinstance(decoded, Pod) else decoded.metadata.name):
            raise WireError(unreadable(kind, item, "expected metadata.name"))
        existing = self._by_kind[kind].setdefault(key_of(decoded), decoded)
        if existing is not decoded and existing != decoded:
            raise InputError(f"{self._file}: {kind} {key_of(decoded)} occurs twice, with different content")

    def refuse(self, error: ValueError) -> None:
        if not isinstance(error, WireError):
            raise error
        self._unreadable[error.unreadable] = None

    def snapshot(self) -> Snapshot:
        snapshot = Snapshot()
        for kind, objects in self._by_kind.items():
            snapshot.replace_by_key(kind, objects)
        snapshot.unreadable = tuple(self._unreadable)
        return snapshot


def _chunks(path: str, name: str) -> Iterator[bytes]:
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else files.opened(path) as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        hint = "; for a pipe, --snapshot - reads standard input" if error.errno == errno.EINVAL else ""
        raise UsageError(f"--snapshot {name}: {error.strerror or error}{hint}") from error


def _unpacked(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield *chunks*, decompressed if they are gzip. A file may have several members, with zeros between them."""
    first = next(chunks, b"")
    chunks = chain((first,), chunks)
    if not first.startswith(_GZIP_MAGIC):
        yield from chunks
        return
    member = zlib.decompressobj(_GZIP)
    try:
        for chunk in chunks:
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
