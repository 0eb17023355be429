"""Lists and watches in JSON. Objects are cut out as bytes and decoded by :class:`predicates.wire.Decoder`."""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Raw

from predicates.objects import Object, ObjectMeta
from predicates.unreadable import Unreadable
from predicates.wire import Decoder, Interner, WireError
from rescheduler import shapes
from rescheduler.kube.answers import Answer, refusal
from rescheduler.kube.codec import Broken, Change, ChangeType, Page, key


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
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
    """Reads one kind."""

    def __init__(self, kind: str, interner: Interner) -> None:
        self.kind = kind
        self._decoder = Decoder(interner)
        self._lists = shapes.decoder(_List)
        self._events = shapes.decoder(_Event)
        self._heads = shapes.decoder(_Head)
        self._codes = shapes.decoder(_Code, strict=False)

    def decode(self, raw: Raw) -> Object:
        """One object. Raises WireError."""
        return self._decoder.decode(self.kind, raw)

    def page(self, body: bytes) -> Page:
        try:
            seen = self._lists.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Broken(f"list {self.kind}: the answer is no JSON list: {error}") from error
        found, unreadable = [], {}
        for raw in seen.items or ():
            try:
                found.append(self.decode(raw))
            except WireError as error:
                unreadable[error.unreadable.key] = error.unreadable
        return Page(tuple(found), seen.metadata.resource_version, seen.metadata.continue_, unreadable)

    def changes(self, chunks: Iterable[bytes]) -> Iterator[Change]:
        for line in _lines(chunks):
            try:
                event = self._events.decode(line)
                if event.type == "ERROR":
                    raise refusal(f"watch {self.kind}", self._error(bytes(event.object)))
                yield self._change(event)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise Broken(f"watch {self.kind}: not an event in JSON: {error}") from error

    def _change(self, event: _Event) -> Change:
        meta = self._heads.decode(event.object).metadata
        found: Object | None = None
        unreadable: Unreadable | None = None
        if event.type in ("ADDED", "MODIFIED"):
            try:
                found = self.decode(event.object)
            except WireError as error:
                unreadable = error.unreadable
        return Change(
            type=_type(self.kind, event.type),
            key=key(meta.namespace, meta.name),
            object=found,
            resource_version=meta.resource_version,
            unreadable=unreadable,
        )

    def _error(self, status: bytes) -> Answer:
        return Answer(code=self._codes.decode(status).code, body=status)


def _type(kind: str, text: str) -> ChangeType:
    match text:
        case "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK":
            return text
        case _:
            raise Broken(f"watch {kind}: unknown type of event {text[:20]!r}")


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines; what is left at the end of the stream was cut off and is dropped."""
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
