"""Decode lists and watches in JSON. :class:`predicates.wire.Decoder` decodes the objects from their raw bytes."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Raw

from predicates.objects import Object, ObjectMeta, Unreadable
from predicates.wire import Decoder, Interner, WireError
from rescheduler import decoding
from rescheduler.errors import Retryable
from rescheduler.kube.responses import ApiResponse, refusal

# The content of lists and watches.

#: The kind whose objects' last states are kept when they are deleted.
_WITH_LAST_STATE: Final = "Node"

ChangeType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True, slots=True)
class RawPage:
    """One page of a list whose objects are not decoded yet. The codec that returned it can decode them."""

    items: Sequence[Raw]
    resource_version: str
    next: str = ""  #: continue token of the next page; "" on the last page


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list."""

    objects: tuple[Object, ...]
    resource_version: str
    next: str = ""  #: continue token of the next page; "" on the last page
    unreadable: Mapping[str, Unreadable] = field(default_factory=dict)  #: objects left out, by key


@dataclass(frozen=True, slots=True)
class WatchedChange:
    """One event of a watch."""

    type: ChangeType
    key: str  #: ``namespace/name``, or ``name`` for cluster-scoped objects
    object: Object | None  #: None if it was deleted, cannot be decoded, or the event is a bookmark
    resource_version: str
    unreadable: Unreadable | None = None  #: set if the object cannot be decoded
    last: Object | None = None  #: the last state of a Node that was deleted


class Broken(Retryable):
    """A response that is not valid JSON or not of its kind, for example a truncated one."""


def key(namespace: str, name: str) -> str:
    """Return the key of an object within its kind."""
    return f"{namespace}/{name}" if namespace else name


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _JsonList(msgspec.Struct):
    metadata: _ListMeta
    items: list[Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: Raw


class _Head(msgspec.Struct):
    metadata: ObjectMeta


class _Code(msgspec.Struct):
    code: int = 0


class JsonCodec:
    """A decoder of one kind. Used by one thread."""

    def __init__(self, kind: str, interner: Interner) -> None:
        self.kind = kind
        self._decoder = Decoder(interner)
        self._lists = decoding.decoder(_JsonList)
        self._events = decoding.decoder(_Event)
        self._heads = decoding.decoder(_Head)
        self._codes = decoding.decoder(_Code, strict=False)

    def decode(self, raw: Raw) -> Object:
        """Decode one object. Raises WireError."""
        return self._decoder.decode(self.kind, raw)

    def page(self, body: bytes) -> ListPage:
        """Decode a page of a list. Raises Broken."""
        return self.decoded(self.split(body))

    def split(self, body: bytes) -> RawPage:
        """Read the metadata of a page, and split it into its objects, without decoding them. Raises Broken."""
        try:
            raw_list = self._lists.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Broken(f"list {self.kind}: the response is not a JSON list: {error}") from error
        return RawPage(raw_list.items or (), raw_list.metadata.resource_version, raw_list.metadata.continue_)

    def decoded(self, page: RawPage) -> ListPage:
        """Decode the objects of a page."""
        objects, unreadable = [], {}
        for raw in page.items:
            try:
                objects.append(self.decode(raw))
            except WireError as error:
                unreadable[error.unreadable.key] = error.unreadable
        return ListPage(tuple(objects), page.resource_version, page.next, unreadable)

    def changes(self, chunks: Iterable[bytes]) -> Iterator[WatchedChange]:
        """Decode the events of a watch. Raises Broken, and the error of an ERROR event (usually Expired)."""
        for line in _lines(chunks):
            try:
                event = self._events.decode(line)
                if event.type == "ERROR":
                    raise refusal(f"watch {self.kind}", self._error(bytes(event.object)))
                yield self._change(event)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise Broken(f"watch {self.kind}: not a JSON event: {error}") from error

    def _change(self, event: _Event) -> WatchedChange:
        meta = self._heads.decode(event.object).metadata
        decoded: Object | None = None
        unreadable: Unreadable | None = None
        last: Object | None = None
        if event.type in ("ADDED", "MODIFIED"):
            try:
                decoded = self.decode(event.object)
            except WireError as error:
                unreadable = error.unreadable
        elif event.type == "DELETED" and self.kind == _WITH_LAST_STATE:
            with contextlib.suppress(WireError):
                last = self.decode(event.object)
        return WatchedChange(
            type=_type(self.kind, event.type),
            key=key(meta.namespace, meta.name),
            object=decoded,
            resource_version=meta.resource_version,
            unreadable=unreadable,
            last=last,
        )

    def _error(self, status: bytes) -> ApiResponse:
        return ApiResponse(code=self._codes.decode(status).code, body=status)


def _type(kind: str, text: str) -> ChangeType:
    match text:
        case "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK":
            return text
        case _:
            raise Broken(f"watch {kind}: unknown event type {text[:20]!r}")


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield complete lines. An incomplete line at the end of the stream is dropped."""
    rest: list[bytes] = []
    for chunk in chunks:
        *whole, last = chunk.split(b"\n")
        for line in whole:
            rest.append(line)
            if joined := b"".join(rest).strip():
                yield joined
            rest = []
        if last:
            rest.append(last)
