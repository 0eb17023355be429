"""Calls of the external gRPC service: arbitrary messages, invalid messages, and bytes that are not HTTP/2."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from rescheduler.providers.externalgrpc import wire
from rescheduler.providers.externalgrpc.channel import SERVICE
from tests.fuzz.attack import AttackTally, ResourceGrowth, attack, leaks_in
from tests.fuzz.providers import FuzzedCloud
from tests.fuzz.wire import End, Exchange, exchange

METHODS: Final = {method.name: method for method in wire.POOL.FindServiceByName(SERVICE).methods}
_TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
#: Statuses of internal errors, which no request may cause.
_UNSOUND: Final = frozenset({"INTERNAL", "UNKNOWN", "DATA_LOSS"})


@dataclass(frozen=True)
class UnaryCall:
    """A unary call; *cancel* cancels it at once, *timeout* is in seconds."""

    path: str
    request: bytes
    metadata: Sequence[tuple[str, str | bytes]] = ()
    timeout: float = 5.0
    cancel: bool = False

    def __repr__(self) -> str:
        return f"UnaryCall({self.path}, {self.request[:300]!r}, {self.metadata!r:.300}, {self.timeout}, {self.cancel})"


@dataclass(frozen=True)
class StreamCall:
    """A stream of messages to a unary method."""

    path: str
    requests: Sequence[bytes]


def calls(group: str, ids: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Return a strategy for calls; *group* and *ids* exist in the cloud."""
    method = st.sampled_from(sorted(METHODS))
    message = method.flatmap(lambda name: st.tuples(st.just(name), _messages(name, group, ids)))
    valid = message.map(lambda item: UnaryCall(f"/{SERVICE}/{item[0]}", item[1]))
    metadata = st.lists(
        st.tuples(
            st.sampled_from(("x-a", "x-bin", "spot-rescheduler-ordered-at", "user-agent")), st.binary(max_size=60)
        ),
        max_size=4,
    ).map(lambda items: [_header(*item) for item in items])
    odd = st.builds(
        UnaryCall,
        st.sampled_from([f"/{SERVICE}/{name}" for name in METHODS] + ["/", "/x/y", f"/{SERVICE}/x", f"/{SERVICE}/"]),
        st.binary(max_size=60)
        | message.map(lambda item: item[1])
        | st.sampled_from((b"\x0a" * (1 << 20), b"x" * (17 << 20))),
        metadata | st.sampled_from(([("x-a", "y" * 7000)], [("x-a", "y" * 30_000)])),
        st.sampled_from((5.0, 0.0, 0.01)),
        st.booleans(),
    )
    streamed = st.builds(StreamCall, st.just(f"/{SERVICE}/NodeGroups"), st.lists(st.binary(max_size=20), max_size=5))
    return st.one_of(valid, _orders(group, ids), odd, streamed, _raw())


def _orders(group: str, ids: st.SearchStrategy[str]) -> st.SearchStrategy[UnaryCall]:
    """Return changes of the size and deletions, most of them valid."""
    nodes = st.lists(ids.map(lambda id_: wire.ExternalGrpcNode(name=id_, providerID=id_)), max_size=5)
    deletions = nodes.map(lambda batch: ("DeleteNodes", wire.NodeGroupDeleteNodesRequest(id=group, nodes=batch)))
    sizes = st.integers(-3, 3).map(
        lambda delta: (
            ("IncreaseSize", wire.NodeGroupIncreaseSizeRequest(id=group, delta=delta))
            if delta > 0
            else ("DecreaseTargetSize", wire.NodeGroupDecreaseTargetSizeRequest(id=group, delta=delta))
        )
    )
    return st.builds(
        lambda order, cancel: UnaryCall(f"/{SERVICE}/NodeGroup{order[0]}", order[1].SerializeToString(), cancel=cancel),
        deletions | sizes,
        st.sampled_from((False, False, True)),
    )


def _messages(name: str, group: str, ids: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    """Return encoded requests of the method with any fields set."""
    described = METHODS[name].input_type
    messages = _fields(described, group, ids).map(lambda fields: GetMessageClass(described)(**fields))
    encoded: st.SearchStrategy[bytes] = messages.map(lambda message: message.SerializeToString())
    return encoded


def _fields(described: Descriptor, group: str, ids: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={field.name: _value(field, group, ids) for field in described.fields})


def _value(field: FieldDescriptor, group: str, ids: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return st.dictionaries(_TEXT, _TEXT, max_size=3)
    single: st.SearchStrategy[Any] = _scalar(field, group, ids)
    if kind is not None:
        single = st.deferred(lambda: _fields(kind, group, ids)).map(lambda fields: GetMessageClass(kind)(**fields))
    return st.lists(single, max_size=5) if field.is_repeated else single


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
    """Encode a frame (RFC 9113, 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Encode a header field that is not in a table (RFC 7541, 6.2.2); name and value shorter than 127 bytes."""
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
        message.map(lambda data: frame(0, 1, 1, b"\x00\xff\xff\xff\xff" + data)),  # declared length of 4 GB
        message.map(lambda data: frame(0, 1, 1, b"\x01" + len(data).to_bytes(4, "big") + data)),  # compressed
        message.map(lambda data: frame(0, 0, 1, b"\x00\x00\x00\x00\x40" + data)),  # incomplete
        st.builds(frame, st.integers(0, 12), st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=40)),
        st.binary(max_size=60),
        st.lists(st.integers(1, 200), min_size=10, max_size=60).map(  # streams that are opened and reset repeatedly
            lambda frames: b"".join(
                frame(1, 4, 2 * n + 1, headers(path)) + frame(3, 0, 2 * n + 1, bytes(4)) for n in frames
            )
        ),
    )
    stream = st.lists(damaged, max_size=5).map(lambda frames: _PREFACE + opened + b"".join(frames))
    whole = stream | st.binary(max_size=80) | st.just(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return st.builds(
        lambda data, cut, pause, end: Exchange((data[:cut], data[cut:]), pause, end),
        whole,
        st.integers(0, 80),
        st.sampled_from((0.0, 0.0, 0.02)),
        st.sampled_from(End),
    )


# -- the attack


def grpc_attack(world: FuzzedCloud, channel: grpc.Channel, tally: AttackTally, examples: int, seed: int) -> None:
    growth = ResourceGrowth(world.process)
    send: dict[type, Callable[[Any], tuple[str, bytes]]] = {
        UnaryCall: partial(_ask, channel),
        StreamCall: partial(_stream, channel),
        Exchange: lambda sent: ("bytes", exchange(world.port, sent)),
    }

    def verdict(example: Any) -> Iterable[str]:
        status, response = send[type(example)](example)
        tally.examples += 1
        tally.answers[status] += 1
        if status in _UNSOUND:
            yield f"{status}: {response!r}"
        yield from leaks_in(response, world.process)
        yield from world.restore(channel)
        yield from world.process.problems()
        yield from growth.excess()

    ids = st.deferred(lambda: st.sampled_from([*world.ids(), "x://y"]))
    attack(calls(world.group, ids), verdict, examples, seed)


def _ask(channel: grpc.Channel, unary: UnaryCall) -> tuple[str, bytes]:
    """Return the status, and the response or the error message."""
    call = channel.unary_unary(unary.path).future(unary.request, timeout=unary.timeout, metadata=unary.metadata)
    if unary.cancel:
        call.cancel()
        return "canceled", b""
    try:
        answer: bytes = call.result()
    except grpc.RpcError as error:
        return error.code().name, _words(error)
    return "OK", answer + repr(call.trailing_metadata()).encode()


def _stream(channel: grpc.Channel, streamed: StreamCall) -> tuple[str, bytes]:
    answers = channel.stream_stream(streamed.path)(iter(streamed.requests), timeout=5)
    received = b""
    try:
        with contextlib.suppress(StopIteration):
            for answer in answers:
                received += answer
    except grpc.RpcError as error:
        # gRPC itself rejects a second message to a unary method, with INTERNAL or UNKNOWN.
        return f"stream {error.code().name}", _words(error)
    return "stream OK", received


def _words(error: Any) -> bytes:
    return f"{error.details()} {error.trailing_metadata()}".encode()
