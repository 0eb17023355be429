"""Reads what ``kubectl get … -o json`` printed as a snapshot: a ``kind: List``, gzipped or not."""

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
from rescheduler import files, lists
from rescheduler.errors import InputError, UsageError

_CHUNK: Final = 1 << 20
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP: Final = 31  #: zlib's "wbits" for gzip with the largest window


def read(path: str) -> Snapshot:
    """The snapshot in the file *path*, ``-`` for standard input. Objects that cannot be decoded are noted in it.

    Raises :class:`~rescheduler.errors.UsageError` where there is no such file, and
    :class:`~rescheduler.errors.InputError` naming the file where its content as a whole is broken.
    """
    name = "standard input" if path == "-" else files.printable(path)
    decoder = Decoder(Interner())
    found: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS}
    left_out: dict[Unreadable, None] = {}

    def take(kind: str, item: bytes) -> None:
        one = decoder.decode(kind, item)
        if not (one.name if isinstance(one, Pod) else one.metadata.name):
            raise WireError(unreadable(kind, item, "expected metadata.name"))
        if (other := found[kind].setdefault(key_of(one), one)) is not one and other != one:
            raise InputError(f"{name}: {kind} {key_of(one)} is there twice, with different content")

    def refuse(error: ValueError) -> None:
        if not isinstance(error, WireError):
            raise error
        left_out[error.unreadable] = None

    try:
        lists.each(_unpacked(_chunks(path, name), name), KINDS, take, refuse)
    except ValueError as error:
        raise InputError(f"{name}: {error}") from error
    snapshot = Snapshot()
    for kind, objects in found.items():
        snapshot.replace(kind, objects.values())
    snapshot.unreadable = tuple(left_out)
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
    """*chunks*, or what they are of gzipped, where they are that: one member after the other, zeros between them."""
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
        raise InputError(f"{name}: not a whole gzip file: {error}") from error
    if not member.eof:
        raise InputError(f"{name}: not a whole gzip file: its end is missing")
