"""Decode lists and watches in Kubernetes protobuf."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from predicates.objects import FINISHED, Object, PodObject
from predicates.unreadable import Unreadable
from predicates.wire import KINDS, Interner
from rescheduler.kube import envelope, schema
from rescheduler.kube.codec import Broken, Change, ChangeType, ListPage, RawPage, key
from rescheduler.kube.proto_pods import PodReader
from rescheduler.kube.proto_structs import reader
from rescheduler.kube.responses import ApiResponse, refusal

_FRAME: Final = 4  #: bytes of a frame's length, big-endian
_LARGEST: Final = 64 << 20  #: maximum length of an event; a longer frame is invalid

#: Exceptions of decoding one object; ValueError is an invalid quantity or time.
_UNREADABLE: Final = (DecodeError, ValueError, OverflowError)

_TYPES: Final[dict[str, ChangeType]] = {
    "ADDED": "ADDED",
    "MODIFIED": "MODIFIED",
    "DELETED": "DELETED",
    "BOOKMARK": "BOOKMARK",
}


class ProtoCodec:
    """A protobuf decoder for one kind."""

    def __init__(self, kind: str, interner: Interner) -> None:
        self._kind = kind
        self._read = _reader(kind, interner)

    def split(self, body: bytes) -> RawPage:
        try:
            raw_list = schema.List.FromString(envelope.unwrap(body))
        except (envelope.EnvelopeError, DecodeError) as error:
            raise Broken(f"list {self._kind}: the response is not a protobuf list: {error}") from error
        return RawPage(raw_list.items, raw_list.metadata.resourceVersion, raw_list.metadata.continueToken)

    def decoded(self, page: RawPage) -> ListPage:
        objects, unreadable = [], {}
        for raw in page.items:
            try:
                objects.append(self._read(raw))
            except _UNREADABLE as error:
                unreadable[_name_of(raw)] = self._unreadable(raw, error)
        return ListPage(tuple(objects), page.resource_version, page.next, unreadable)

    def changes(self, chunks: Iterable[bytes]) -> Iterator[Change]:
        for frame in _frames(chunks, self._kind):
            try:
                event = schema.WatchEvent.FromString(frame)
                if event.type == "ERROR":
                    code = envelope.status(event.object.raw).code
                    raise refusal(f"watch {self._kind}", ApiResponse(code, event.object.raw, envelope.CONTENT_TYPE))
                yield self._change(event)
            except (DecodeError, envelope.EnvelopeError, KeyError) as error:
                raise Broken(f"watch {self._kind}: not a protobuf event: {error}") from error

    def _change(self, event: schema.WatchEvent) -> Change:
        raw = envelope.unwrap(event.object.raw)
        meta = schema.Head.FromString(raw).metadata
        decoded: Object | None = None
        unreadable: Unreadable | None = None
        if event.type in ("ADDED", "MODIFIED"):
            try:
                decoded = self._read(raw)
            except _UNREADABLE as error:
                unreadable = self._unreadable(raw, error)
        return Change(
            type=_TYPES[event.type],
            key=key(meta.namespace, meta.name),
            object=decoded,
            resource_version=meta.resourceVersion,
            unreadable=unreadable,
        )

    def _unreadable(self, raw: bytes, error: Exception) -> Unreadable:
        name = _name_of(raw)
        why = f"{self._kind} {name}: {' '.join(str(error).split())}"
        return Unreadable(self._kind, name, why, _node_of(raw) if self._kind == "Pod" else None)


def _reader(kind: str, interner: Interner) -> Callable[[bytes], Object]:
    if kind == "Pod":
        return PodReader(interner, reader(PodObject, schema.Pod)).read
    message: Any = getattr(schema, kind)
    read = reader(KINDS[kind], message)
    return lambda raw: read(_parsed(message, raw))


def _parsed(message: Any, raw: bytes) -> Message:
    parsed: Message = message.FromString(raw)
    return parsed


def _name_of(raw: bytes) -> str:
    try:
        meta = schema.Head.FromString(raw).metadata
    except DecodeError:
        return "without a name"
    return key(meta.namespace, meta.name) or "without a name"


def _node_of(raw: bytes) -> str | None:
    """Return :attr:`Unreadable.node` of a Pod. Most fields of the spec are not decoded, so they may be corrupt."""
    try:
        pod = schema.PodKey.FromString(raw)
        finished = schema.StatusKey.FromString(pod.status).phase in FINISHED
    except DecodeError:
        return None
    return "" if finished else pod.spec.nodeName


def _frames(chunks: Iterable[bytes], kind: str) -> Iterator[bytes]:
    """Yield complete frames. An incomplete frame at the end of the stream is dropped."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        while len(buffer) >= _FRAME:
            end = _FRAME + int.from_bytes(buffer[:_FRAME], "big")
            if end > _LARGEST:
                raise Broken(f"watch {kind}: a frame of {end} bytes is not valid protobuf")
            if len(buffer) < end:
                break
            yield bytes(buffer[_FRAME:end])
            del buffer[:end]
