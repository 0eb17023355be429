"""The gRPC server: the service with deadlines and status codes, reports of calls, health and reflection, and
TLS. Separate from the composition root, so that tests can run it with any backend.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2
from prometheus_client import CollectorRegistry, Counter, Histogram

from rescheduler.clock import Clock
from rescheduler.errors import ConfigError, ReschedulerError, UsageError
from rescheduler.grpc_service.service import Call, ProviderService
from rescheduler.net import relay
from rescheduler.net.accepting import HANDSHAKE_SECONDS
from rescheduler.net.files import Certificates, Pems
from rescheduler.observe.events import NOTICE
from rescheduler.observe.metric_families import PREFIX
from rescheduler.planning.forms import and_more
from rescheduler.providers.base import AlreadyGone, DeleteOutcome, Failed, Refused
from rescheduler.providers.externalgrpc import channel, wire
from rescheduler.providers.externalgrpc.channel import SERVICE
from rescheduler.settings import ListenAddress

# Report completed calls: orders in the log, with caller and result, and all calls as metrics.

#: The calls that make changes.
ORDERS: Final = frozenset({"NodeGroupIncreaseSize", "NodeGroupDeleteNodes", "NodeGroupDecreaseTargetSize"})

_NODES_NAMED: Final = 100  #: maximum number of nodes named per order; the rest are counted
_LONGEST_TEXT: Final = 512  #: maximum characters of a name or an error, which may come from callers
_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    method: str
    request: Message | None  #: None if it could not be decoded
    caller: str
    code: grpc.StatusCode
    error_text: str = ""  #: the error, if it failed
    outcomes: Mapping[str, DeleteOutcome] = field(default_factory=dict)  #: by node name, for a deletion
    seconds: float = 0.0


class CallReport:
    """Logs and counts each completed call. Thread-safe."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            f"{PREFIX}provider_calls", "Calls of the provider service.", ("method", "code"), registry=registry
        )
        self._seconds = Histogram(
            f"{PREFIX}provider_call_duration_seconds",
            "Calls of the provider service, until their response.",
            ("method",),
            buckets=_BUCKETS,
            registry=registry,
        )

    def __call__(self, call: AnsweredCall) -> None:
        self._calls.labels(call.method, call.code.name).inc()
        self._seconds.labels(call.method).observe(call.seconds)
        level = NOTICE if call.method in ORDERS else logging.DEBUG
        log.log(level, "%s", log_line(call))


def log_line(call: AnsweredCall) -> str:
    """Return the log line of a call."""
    # The error of a deletion repeats the outcomes of its nodes.
    response = call.code.name + (f": {_short(call.error_text)}" if call.error_text and not call.outcomes else "")
    ends = "".join(f"; {_short(node)}: {_end(outcome)}" for node, outcome in list(call.outcomes.items())[:_NODES_NAMED])
    return f"{call.method} by {call.caller}{_request_text(call.request)}: {response}{ends}"


def caller(peer: str, certificate: Mapping[str, list[bytes]]) -> str:
    """Return the caller: the *certificate*'s common name, if any, and the address from gRPC's *peer*."""
    address = relay.client_of(peer)
    names = [name.decode(errors="replace") for name in certificate.get("x509_common_name", ())]
    return f"{_short(names[0])} ({address})" if names else address


def _request_text(request: Message | None) -> str:
    match request:
        case None:
            return ", request unreadable"
        case wire.NodeGroupDeleteNodesRequest():
            nodes = [_node(node) for node in request.nodes[:_NODES_NAMED]]
            remainder = and_more(len(request.nodes) - _NODES_NAMED)
            return f", group {_short(request.id)}, nodes {', '.join(nodes) or 'none'}{remainder}"
        case wire.NodeGroupIncreaseSizeRequest() | wire.NodeGroupDecreaseTargetSizeRequest():
            return f", group {_short(request.id)}, by {request.delta:+d}"
    return ""


def _node(node: wire.ExternalGrpcNode) -> str:
    if not node.providerID or node.name == node.providerID:
        return _short(node.name or node.providerID)
    return f"{_short(node.name)} ({_short(node.providerID)})"


def _end(outcome: DeleteOutcome) -> str:
    match outcome:
        case Refused(reason, detail):
            return f"refused: {reason}: {_short(detail)}"
        case Failed(error):
            return f"failed: {_short(error)}"
    result = "already gone" if isinstance(outcome, AlreadyGone) else outcome.result
    return f"{result}: {_short(outcome.detail)}" if outcome.detail else result


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


#: The time limit of calls without a deadline, and the longest time limit, in seconds.
LONGEST: Final = 300.0
#: The share of the caller's remaining time reserved for sending the response, and its maximum in seconds.
_MARGIN: Final = 0.1
_LARGEST_MARGIN: Final = 0.5

THREADS: Final = 32
_AT_ONCE: Final = 256  #: maximum number of calls, including those waiting for a thread; further calls are rejected
_LARGEST_MESSAGE: Final = 1500  #: maximum bytes in gRPC's encoding: ASCII, with everything else as %xx
_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_WRONG_USE: Final = grpc.StatusCode.INVALID_ARGUMENT
_GRACE: Final = 30.0  #: seconds until calls in progress are canceled when the service stops
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_SECONDS * 1000)),
)

Verb: TypeAlias = Callable[[Message, Call], Message]
OnCall: TypeAlias = Callable[[AnsweredCall], object]

log = logging.getLogger(__name__)


@contextlib.contextmanager
def serving(
    service: ProviderService,
    address: ListenAddress,
    clock: Clock,
    certificates: Certificates | None,
    on_call: OnCall = lambda _: None,
) -> Iterator[int]:
    """Serve while the block runs; yield the port. At the end, wait for calls in progress.

    *on_call* is called with each completed call.

    Raises ReschedulerError if the address cannot be used.
    """
    threads, spare = ThreadPoolExecutor(THREADS, thread_name_prefix="rpc"), ThreadPoolExecutor(1, "health")
    server = grpc.server(threads, options=_OPTIONS, maximum_concurrent_rpcs=_AT_ONCE)
    server.add_generic_rpc_handlers((_handlers(service, clock, on_call),))
    standing = _add_health(server, spare)
    names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server, pool=_described())
    listener = relay.bound(address, "--address")
    name = relay.socket_name()
    _open(server, f"unix-abstract:{name}", certificates)
    server.start()
    with relay.relaying(listener, name):
        try:
            yield listener.getsockname()[1]
        finally:
            standing.enter_graceful_shutdown()
            server.stop(_GRACE).wait()
            threads.shutdown()
            spare.shutdown()


def _add_health(server: Any, spare: ThreadPoolExecutor) -> Any:
    """Add the health service, which has its own thread because all others may be waiting for the backend."""
    standing = health.HealthServicer()

    def check(request: Any, context: Any) -> Any:
        return health.HealthServicer.Check(standing, request, context)

    check.experimental_thread_pool = spare  # type: ignore[attr-defined]  # read by gRPC
    standing.Check = check
    for name in ("", SERVICE):
        standing.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(standing, server)
    return standing


def _open(server: Any, where: str, certificates: Certificates | None) -> None:
    if certificates is None:
        server.add_insecure_port(where)
    else:
        server.add_secure_port(where, _credentials(certificates))


def _credentials(certificates: Certificates) -> Any:
    """Return credentials that require client certificates. Each handshake checks the files for changes."""

    def changed() -> Any:
        pems = certificates.renewed()
        return _configuration(pems) if pems else None

    return grpc.dynamic_ssl_server_credentials(_configuration(certificates.current), changed, True)


def _configuration(pems: Pems) -> Any:
    return grpc.ssl_server_certificate_configuration([(pems.key, pems.cert)], pems.ca)


def _described() -> DescriptorPool:
    """Return the descriptors for reflection: our protocol, and health and reflection from the default pool."""
    for file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
        wire.POOL.AddSerializedFile(file.serialized_pb)
    return wire.POOL


def _handlers(service: ProviderService, clock: Clock, on_call: OnCall) -> Any:
    methods = wire.POOL.FindServiceByName(SERVICE).methods_by_name
    verbs = service.verbs()
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            _handler(name, GetMessageClass(method.input_type), verbs[name], clock, on_call),
            # The verb decodes the request: for invalid bytes, gRPC itself would return INTERNAL.
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
        for name, method in methods.items()
    }
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


def _handler(name: str, kind: Any, verb: Verb, clock: Clock, on_call: OnCall) -> Callable[[bytes, Any], Message | None]:
    def answer(raw: bytes, context: Any) -> Message | None:
        began = clock.monotonic()
        call = Call(clock.monotonic() + _patience(context.time_remaining()), context.invocation_metadata())
        response, code, message = _respond(name, lambda: verb(_parsed(kind, raw), call), call)
        if code is grpc.StatusCode.UNAVAILABLE and clock.monotonic() >= call.deadline:
            code = grpc.StatusCode.DEADLINE_EXCEEDED  # with more time, the system might have responded
        caller_name = caller(context.peer(), context.auth_context())
        seconds = clock.monotonic() - began
        on_call(AnsweredCall(name, _request(kind, raw), caller_name, code, message, call.outcomes, seconds))
        context.set_trailing_metadata(tuple(call.trailers))
        if code is not grpc.StatusCode.OK:
            context.abort(code, message)
        return response

    return answer


def _respond(name: str, verb: Callable[[], Message], call: Call) -> tuple[Message | None, grpc.StatusCode, str]:
    """Return the response, the status code and the error."""
    try:
        return verb(), grpc.StatusCode.OK, ""
    except UsageError as error:
        code = grpc.StatusCode.FAILED_PRECONDITION if isinstance(error, ConfigError) else _WRONG_USE
        return None, code, _line(error)
    except ReschedulerError as error:
        if (after := getattr(error, "retry_after", None)) is not None:
            call.trailers.append((channel.RETRY_AFTER, str(after)))
        return None, channel.code_of(error), _line(error)
    except Exception as error:
        log.exception("%s", name)
        return None, grpc.StatusCode.INTERNAL, f"internal error: {type(error).__name__}"


def _request(kind: Any, raw: bytes) -> Message | None:
    try:
        return _parsed(kind, raw)
    except UsageError:
        return None


def _parsed(kind: Any, raw: bytes) -> Message:
    try:
        message: Message = kind.FromString(raw)
    except DecodeError as error:
        raise UsageError(f"the request is not a {kind.DESCRIPTOR.name}") from error
    return message


def _patience(remaining: float | None) -> float:
    """Return the seconds until the response must be sent to a caller with *remaining* seconds."""
    if remaining is None or remaining > LONGEST:
        return LONGEST
    return remaining - min(_LARGEST_MARGIN, remaining * _MARGIN)


def _line(error: ReschedulerError) -> str:
    """Return the error in one line, truncated to the maximum size of a header."""
    text = " ".join(str(error).split())
    sizes = accumulate(len(quote(character, safe=_PLAIN, errors="replace")) for character in text)
    fitting = sum(size <= _LARGEST_MESSAGE for size in sizes)
    return text if fitting == len(text) else text[:fitting] + " …"
