"""The text of a snapshot file or of standard input: decompressed if it is gzip, in UTF-8, without a byte-order mark."""

import codecs
import contextlib
import errno
import sys
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

from predicates.texts import shown
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

#: Receives a sentence about what is not read.
OnSkipped: TypeAlias = Callable[[str], None]

#: In so many first bytes, the first object is searched; how it begins in JSON or in the YAML of kubectl, and otherwise.
_NOISE: Final = 1 << 12
_OBJECT: Final = (b"{", b"[", b"---", b"apiVersion:")
_ALSO: Final = (b"#", b"- ", b"items:", b"kind:", b"metadata:")

#: Around the logs in the output of ``kubectl cluster-info dump``. No JSON contains a line break in a text.
_LOGS: Final = b"\n==== START logs for container "
_LOGS_END: Final = b"\n==== END logs for container "


class TextError(ValueError):
    """The file has no text that can be read."""


def name_of(path: str) -> str:
    """Return the name of the file *path* in messages; ``-`` is standard input."""
    return "standard input" if path == "-" else files.printable(path)


def chunks(path: str, skipped: OnSkipped = lambda _: None) -> Iterator[bytes]:
    """Yield the text as JSON, in pieces of at most 64 KiB or little more. YAML is converted.

    Of a folder, the JSON files are read one after the other. *skipped* gets a sentence about what is not read: other
    files, lines before the first object, and the logs in the output of ``kubectl cluster-info dump``.

    Raises :class:`~rescheduler.errors.UsageError`, with the file name, if the file cannot be opened or read, and
    :class:`TextError` if it is a corrupt gzip file, decompresses to far more than lists do, or is not a text.
    """
    name = name_of(path)
    if path != "-" and Path(path).is_dir():
        return _of_folder(Path(path), skipped)
    return _json(_without_noise(_utf8(_unpacked(_chunks(path, name))), skipped))


def _of_folder(folder: Path, skipped: OnSkipped) -> Iterator[bytes]:
    """Yield the text of all JSON files in *folder* and below, as ``kubectl cluster-info dump`` writes them."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    wanted = [path for path in found if path.suffix == ".json"]
    if not wanted:
        expected = "expected JSON files in the folder, as kubectl cluster-info dump writes them"
        raise UsageError(f"--snapshot {name_of(str(folder))}: {expected}")
    if others := len(found) - len(wanted):
        skipped(f"{others} file{'' if others == 1 else 's'} without the extension .json")
    for path in wanted:
        yield from chunks(str(path), skipped)
        yield b"\n"


def _without_noise(pieces: Iterator[bytes], skipped: OnSkipped) -> Iterator[bytes]:
    """Yield *pieces* without the lines before the first object, such as warnings of kubectl, and without logs."""
    first, pieces = _start(pieces, _NOISE)
    lines = first.splitlines(keepends=True)
    number = next((number for number, line in enumerate(lines) if line.startswith(_OBJECT)), 0)
    noise = [line for line in lines[:number] if line.strip()]
    if noise and not noise[0].startswith(_ALSO):
        others = f", nor {'is line 2' if number == 2 else f'are the lines 2 to {number}'}" if number > 1 else ""  # noqa: PLR2004
        skipped(f"line 1 is not JSON{others}: {shown(lines[0].decode(errors='replace').strip())}")
        next(pieces)
        pieces = chain((b"".join(lines[number:]),), pieces)
    yield from _without_logs(pieces, skipped)


def _without_logs(pieces: Iterator[bytes], skipped: OnSkipped) -> Iterator[bytes]:
    """Yield *pieces* without what is between the lines that begin with :data:`_LOGS` and :data:`_LOGS_END`."""
    rest, logs, inside = b"", 0, False
    for piece in pieces:
        text, rest = rest + piece, b""
        while text:
            mark = _LOGS_END if inside else _LOGS
            at = text.find(mark)
            if at < 0:
                if not inside:
                    yield text[: 1 - len(mark)]
                rest = text[1 - len(mark) :]  # the mark may continue in the next piece
                break
            if inside and (end := text.find(b"\n", at + 1)) < 0:
                rest = text[at:]
                break
            if not inside:
                yield text[:at]
            text, inside, logs = text[end if inside else at + len(mark) :], not inside, logs + (not inside)
    if not inside:
        yield rest
    if logs:
        skipped(f"the logs of {logs} container{'' if logs == 1 else 's'}")


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


def _start(pieces: Iterator[bytes], least: int = _LONGEST_MARK) -> tuple[bytes, Iterator[bytes]]:
    """Return the first bytes of *pieces*, at least *least*, enough to tell the format, and all pieces."""
    first = b""
    for piece in pieces:
        first += piece
        if len(first) >= least:
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
