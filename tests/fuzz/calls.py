"""Calls of the external gRPC service: messages of any values, and bytes that are no HTTP/2 or no message."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from rescheduler.backends.externalgrpc import wire
from rescheduler.backends.externalgrpc.channel import SERVICE
from tests.fuzz.attack import Appetite, Tally, attack, wrong_with
from tests.fuzz.providers import World
from tests.fuzz.wire import End, Exchange, exchange

METHODS: Final = {one.name: one for one in wire.POOL.FindServiceByName(SERVICE).methods}
_TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
#: Statuses that no request may cause: they stand for a program that does not know what happened to it.
_UNSOUND: Final = frozenset({"INTERNAL", "UNKNOWN", "DATA_LOSS"})


@dataclass(frozen=True)
class Asked:
    """A call; *cancel* ends it at once, *timeout* is in seconds."""

    path: str
    request: bytes
    metadata: Sequence[tuple[str, str | bytes]] = ()
    timeout: float = 5.0
    cancel: bool = False

    def __repr__(self) -> str:
        return f"Asked({self.path}, {self.request[:300]!r}, {self.metadata!r:.300}, {self.timeout}, {self.cancel})"


@dataclass(frozen=True)
class Streamed:
    """A stream of messages to a method that takes one."""

    path: str
    requests: Sequence[bytes]


def calls(group: str, ids: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Whatever a caller may do; *group* and *ids* are of the cloud behind."""
    method = st.sampled_from(sorted(METHODS))
    message = method.flatmap(lambda name: st.tuples(st.just(name), _messages(name, group, ids)))
    proper = message.map(lambda one: Asked(f"/{SERVICE}/{one[0]}", one[1]))
    metadata = st.lists(
        st.tuples(
            st.sampled_from(("x-a", "x-bin", "spot-rescheduler-ordered-at", "user-agent")), st.binary(max_size=60)
        ),
        max_size=4,
    ).map(lambda found: [_header(*one) for one in found])
    odd = st.builds(
        Asked,
        st.sampled_from([f"/{SERVICE}/{name}" for name in METHODS] + ["/", "/x/y", f"/{SERVICE}/x", f"/{SERVICE}/"]),
        st.binary(max_size=60)
        | message.map(lambda one: one[1])
        | st.sampled_from((b"\x0a" * (1 << 20), b"x" * (17 << 20))),
        metadata | st.sampled_from(([("x-a", "y" * 7000)], [("x-a", "y" * 30_000)])),
        st.sampled_from((5.0, 0.0, 0.01)),
        st.booleans(),
    )
    streamed = st.builds(Streamed, st.just(f"/{SERVICE}/NodeGroups"), st.lists(st.binary(max_size=20), max_size=5))
    return st.one_of(proper, _orders(group, ids), odd, streamed, _raw())


def _orders(group: str, ids: st.SearchStrategy[str]) -> st.SearchStrategy[Asked]:
    """Sizes and deletions that are carried out, unless the group is too small or too large for them."""
    nodes = st.lists(ids.map(lambda found: wire.ExternalGrpcNode(name=found, providerID=found)), max_size=5)
    deletions = nodes.map(lambda found: ("DeleteNodes", wire.NodeGroupDeleteNodesRequest(id=group, nodes=found)))
    sizes = st.integers(-3, 3).map(
        lambda delta: (
            ("IncreaseSize", wire.NodeGroupIncreaseSizeRequest(id=group, delta=delta))
            if delta > 0
            else ("DecreaseTargetSize", wire.NodeGroupDecreaseTargetSizeRequest(id=group, delta=delta))
        )
    )
    return st.builds(
        lambda order, cancel: Asked(f"/{SERVICE}/NodeGroup{order[0]}", order[1].SerializeToString(), cancel=cancel),
        deletions | sizes,
        st.sampled_from((False, False, True)),
    )


def _messages(name: str, group: str, ids: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    """The bytes of the method's request, any fields set."""
    described = METHODS[name].input_type
    made = _fields(described, group, ids).map(lambda fields: GetMessageClass(described)(**fields))
    found: st.SearchStrategy[bytes] = made.map(lambda message: message.SerializeToString())
    return found


def _fields(described: Descriptor, group: str, ids: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={one.name: _value(one, group, ids) for one in described.fields})


def _value(field: FieldDescriptor, group: str, ids: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return st.dictionaries(_TEXT, _TEXT, max_size=3)
    one: st.SearchStrategy[Any] = _scalar(field, group, ids)
    if kind is not None:
        one = st.deferred(lambda: _fields(kind, group, ids)).map(lambda fields: GetMessageClass(kind)(**fields))
    return st.lists(one, max_size=5) if field.is_repeated else one


def _scalar(field: FieldDescriptor, group: str, ids: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return st.binary(max_size=60)
        case FieldDescriptor.CPPTYPE_STRING:
            return {"id": st.just(group) | _TEXT, "providerID": ids | _TEXT}.get(field.name, _TEXT)
        case FieldDescriptor.CPPTYPE_INT32:
            return st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1)
        case FieldDescriptor.CPPTYPE_INT64:
            return st.integers(-(2**63), 2**63 - 1)
        case FieldDescriptor.CPPTYPE_BOOL:
            return st.booleans()
    return st.floats()


def _header(name: str, value: bytes) -> tuple[str, str | bytes]:
    return (name, value) if name.endswith("-bin") else (name, value.hex())


# -- bytes of HTTP/2

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """RFC 9113, 4.1."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header field without a place in a table (RFC 7541, 6.2.2); name and value of less than 127 bytes."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def headers(path: str) -> bytes:
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()), (b":authority", b"x"))
    more = ((b"te", b"trailers"), (b"content-type", b"application/grpc"))
    return b"".join(literal(name, value) for name, value in (*fields, *more))


def _raw() -> st.SearchStrategy[Exchange]:
    path = f"/{SERVICE}/NodeGroups"
    opened = frame(4, 0, 0, b"") + frame(1, 4, 1, headers(path))
    message = st.binary(max_size=40)
    damaged = st.one_of(
        message.map(lambda data: frame(0, 1, 1, b"\x00" + len(data).to_bytes(4, "big") + data)),
        message.map(lambda data: frame(0, 1, 1, b"\x00\xff\xff\xff\xff" + data)),  # it says it is 4 GB
        message.map(lambda data: frame(0, 1, 1, b"\x01" + len(data).to_bytes(4, "big") + data)),  # compressed
        message.map(lambda data: frame(0, 0, 1, b"\x00\x00\x00\x00\x40" + data)),  # its end never comes
        st.builds(frame, st.integers(0, 12), st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=40)),
        st.binary(max_size=60),
        st.lists(st.integers(1, 200), min_size=10, max_size=60).map(  # opened and reset, again and again
            lambda found: b"".join(
                frame(1, 4, 2 * n + 1, headers(path)) + frame(3, 0, 2 * n + 1, bytes(4)) for n in found
            )
        ),
    )
    stream = st.lists(damaged, max_size=5).map(lambda found: _PREFACE + opened + b"".join(found))
    whole = stream | st.binary(max_size=80) | st.just(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    return st.builds(
        lambda data, cut, pause, end: Exchange((data[:cut], data[cut:]), pause, end),
        whole,
        st.integers(0, 80),
        st.sampled_from((0.0, 0.0, 0.02)),
        st.sampled_from(End),
    )


# -- the attack


def grpc_attack(world: World, channel: grpc.Channel, tally: Tally, examples: int, seed: int) -> None:
    appetite = Appetite(world.process)
    send: dict[type, Callable[[Any], tuple[str, bytes]]] = {
        Asked: partial(_ask, channel),
        Streamed: partial(_stream, channel),
        Exchange: lambda sent: ("bytes", exchange(world.port, sent)),
    }

    def verdict(made: Any) -> Iterable[str]:
        status, words = send[type(made)](made)
        tally.examples += 1
        tally.answers[status] += 1
        if status in _UNSOUND:
            yield f"{status}: {words!r}"
        yield from wrong_with(words, world.process)
        yield from world.settled(channel)
        yield from world.process.complaints()
        yield from appetite.excess()

    ids = st.deferred(lambda: st.sampled_from([*world.ids(), "x://y"]))
    attack(calls(world.group, ids), verdict, examples, seed)


def _ask(channel: grpc.Channel, asked: Asked) -> tuple[str, bytes]:
    """The status, and the answer or the words of the refusal."""
    call = channel.unary_unary(asked.path).future(asked.request, timeout=asked.timeout, metadata=asked.metadata)
    if asked.cancel:
        call.cancel()
        return "cancelled", b""
    try:
        answer: bytes = call.result()
    except grpc.RpcError as error:
        return error.code().name, _words(error)
    return "OK", answer + repr(call.trailing_metadata()).encode()


def _stream(channel: grpc.Channel, streamed: Streamed) -> tuple[str, bytes]:
    answers = channel.stream_stream(streamed.path)(iter(streamed.requests), timeout=5)
    found = b""
    try:
        with contextlib.suppress(StopIteration):
            for answer in answers:
                found += answer
    except grpc.RpcError as error:
        # That a method takes one message is gRPC's own to refuse, and it says INTERNAL or UNKNOWN.
        return f"stream {error.code().name}", _words(error)
    return "stream OK", found


def _words(error: Any) -> bytes:
    return f"{error.details()} {error.trailing_metadata()}".encode()
