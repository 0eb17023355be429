"""Reads what ``kubectl get … -o json`` printed as a snapshot: a ``kind: List``, gzipped or not."""

import contextlib
import gzip
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from predicates.objects import Object, Pod
from predicates.snapshot import Snapshot, key_of
from predicates.wire import KINDS, Decoder, Interner, WireError
from rescheduler.errors import InputError, UsageError

#: How kubectl begins each item; anything else is looked at in full.
_KIND: Final = re.compile(rb'\s*\{\s*"apiVersion":\s*"[^"]*",\s*"kind":\s*"([^"]*)"')

_GZIP_MAGIC: Final = b"\x1f\x8b"


class _List(msgspec.Struct):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


class _Kind(msgspec.Struct):
    kind: str = ""


def read(path: str) -> Snapshot:
    """The snapshot in the file *path*, ``-`` for standard input.

    Raises :class:`~rescheduler.errors.UsageError` where there is no such file, and
    :class:`~rescheduler.errors.InputError` naming the file and the object where its content is broken.
    """
    name = "standard input" if path == "-" else path
    snapshot = Snapshot()
    decoder = Decoder(Interner())
    seen: dict[tuple[str, str], Object] = {}
    try:
        for kind, raw in _items(_content(path, name), name):
            if kind not in KINDS:
                continue
            one = decoder.decode(kind, raw)
            _check(kind, one, seen, name)
            snapshot.upsert(kind, one)
    except (WireError, ValueError) as error:
        raise InputError(f"{name}: {error}") from error
    return snapshot


def _content(path: str, name: str) -> bytes:
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"--snapshot {name}: {error.strerror or error}") from error
    if content.startswith(_GZIP_MAGIC):
        try:
            return gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{name}: not a whole gzip file: {error}") from error
    return content


def _items(content: bytes, name: str) -> Iterator[tuple[str, msgspec.Raw]]:
    """The items with their kinds. A list as the API itself gives it (``PodList``) does not repeat the kind."""
    try:
        whole = msgspec.json.decode(content, type=_List)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{name}: expected a JSON object of kind List, as kubectl get -o json prints: {error}"
        ) from error
    if whole.items is None:
        if not whole.kind.endswith("List"):
            raise InputError(
                f"{name}: expected kind List, as kubectl get -o json prints, got {whole.kind or 'no kind'!r}"
            )
        return
    inherited = whole.kind.removesuffix("List")
    for number, raw in enumerate(whole.items):
        if bytes(memoryview(raw)[:1]) != b"{":
            raise InputError(f"{name}: item {number} of the List is no object")
        yield _kind(raw) or inherited, raw


def _kind(raw: msgspec.Raw) -> str:
    view = memoryview(raw)
    if (found := _KIND.match(view)) is not None:
        return found[1].decode()
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(raw, type=_Kind).kind
    return ""


def _check(kind: str, one: Object, seen: dict[tuple[str, str], Object], name: str) -> None:
    """Nameless objects and two of one name are what no API server holds."""
    key = key_of(one)
    if not (one.name if isinstance(one, Pod) else one.metadata.name):
        raise InputError(f"{name}: {kind} without metadata.name")
    if (other := seen.setdefault((kind, key), one)) is not one and other != one:
        raise InputError(f"{name}: {kind} {key} is there twice, with different content")
