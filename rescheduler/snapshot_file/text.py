"""The text of a snapshot file or of standard input: decompressed if it is gzip, in UTF-8, without a byte-order mark."""

import codecs
import contextlib
import errno
import sys
import zlib
from collections.abc import Iterator
from itertools import chain
from typing import Final

from rescheduler.errors import UsageError
from rescheduler.net import files

#: Bytes read, and decompressed, at a time. The C library keeps buffers of this size for reuse; larger ones are returned
#: to the system.
_CHUNK: Final = 1 << 16
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP: Final = 31  #: zlib's "wbits" for gzip with the largest window

#: Maximum ratio of decompression, after the first `_FREE` bytes. Lists of equal pods, indented, reach 100.
_RATIO: Final = 200
_FREE: Final = 16 << 20

#: By the byte-order mark of a text: its codec. The mark of UTF-32 starts with that of UTF-16.
_CODECS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

#: By the first bytes of a file: what it is, and the command that makes a text of it.
_OTHER: Final = (
    (_GZIP_MAGIC, "gzip in gzip", "gunzip -c"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "zstd -dc"),
    (b"\xfd7zXZ\0", "an xz file", "xz -dc"),
    (b"BZh", "a bzip2 file", "bzip2 -dc"),
    (b"PK\x03\x04", "a zip file", "unzip -p"),
)
_LONGEST_MARK: Final = 6


class TextError(ValueError):
    """The file has no text that can be read."""


def name_of(path: str) -> str:
    """Return the name of the file *path* in messages; ``-`` is standard input."""
    return "standard input" if path == "-" else files.printable(path)


def chunks(path: str) -> Iterator[bytes]:
    """Yield the text as JSON, in pieces of at most 64 KiB or little more. YAML is converted.

    Raises :class:`~rescheduler.errors.UsageError`, with the file name, if the file cannot be opened or read, and
    :class:`TextError` if it is a corrupt gzip file, decompresses to far more than lists do, or is not a text.
    """
    name = name_of(path)
    return _json(_utf8(_unpacked(_chunks(path, name))))


def _chunks(path: str, name: str) -> Iterator[bytes]:
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else files.opened(path) as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        hint = "; for a pipe, --snapshot - reads standard input" if error.errno == errno.EINVAL else ""
        raise UsageError(f"--snapshot {name}: {error.strerror or error}{hint}") from error


def _unpacked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield *pieces*, decompressed if they are gzip. A file may have several members, with zeros between them."""
    first, pieces = _start(pieces)
    if not first.startswith(_GZIP_MAGIC):
        yield from pieces
        return
    member = zlib.decompressobj(_GZIP)
    read = written = 0
    try:
        for chunk in pieces:
            read += len(chunk)
            packed, full = chunk.lstrip(b"\0") if member.eof else chunk, False
            while packed or full:
                if member.eof:
                    member = zlib.decompressobj(_GZIP)
                text = member.decompress(packed, _CHUNK)
                written += len(text)
                if written > _FREE and written > _RATIO * read:
                    raise TextError(f"expected a list of objects: it decompresses to over {_RATIO} times its size")
                yield text
                packed = member.unused_data.lstrip(b"\0") if member.eof else member.unconsumed_tail
                full = len(text) == _CHUNK and not member.eof  # there may be more without more input
    except zlib.error as error:
        raise TextError(f"corrupt gzip file: {error}") from error
    if not member.eof:
        raise TextError("corrupt gzip file: it is truncated")


def _start(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first bytes of *pieces*, enough to tell the format, and all pieces."""
    first = b""
    for piece in pieces:
        first += piece
        if len(first) >= _LONGEST_MARK:
            break
    return first, chain((first,), pieces)


def _utf8(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield *pieces* in UTF-8 without a byte-order mark. PowerShell writes UTF-16."""
    first, pieces = _start(pieces)
    for start, what, command in _OTHER:
        if first.startswith(start):
            raise TextError(f"expected text or gzip: it is {what}, which {command} decompresses")
    codec = _codec(first)
    if codec is None:
        if b"\0" in first:
            raise TextError("expected text: JSON or YAML, as kubectl get prints; it is binary")
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(codec)()
    try:
        for piece in pieces:
            yield decoder.decode(piece).encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeDecodeError as error:
        raise TextError(f"expected {codec.upper()}, as its first bytes are: {error}") from error


def _json(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield *pieces*, converted to JSON if they are not JSON."""
    first = next((piece for piece in pieces if piece.strip()), b"")
    pieces = chain((first,), pieces)
    if first.lstrip().startswith((b"{", b"[")):
        yield from pieces
        return
    from rescheduler.snapshot_file import yaml_text  # noqa: PLC0415 - YAML is rare, and takes time to import

    try:
        yield from yaml_text.as_json(pieces)
    except yaml_text.YamlError as error:
        raise TextError(f"expected JSON or YAML, as kubectl get prints: {error}") from error


def _codec(first: bytes) -> str | None:
    """Return the codec of the text that starts with *first*, or None if that is UTF-8 without a byte-order mark."""
    for mark, codec in _CODECS:
        if first.startswith(mark):
            return codec
    # The first characters of JSON and YAML are ASCII.
    return {"0101": "utf-16-be", "1010": "utf-16-le"}.get("".join("01"[byte > 0] for byte in first[:4]))
