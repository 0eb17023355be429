"""Report completed calls: orders in the log, with caller and result, and all calls as metrics."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

import grpc
from google.protobuf.message import Message
from prometheus_client import CollectorRegistry, Counter, Histogram

from rescheduler.observe.log_lines import NOTICE
from rescheduler.observe.metric_families import PREFIX
from rescheduler.providers.base import AlreadyGone, DeleteOutcome, Failed, Refused
from rescheduler.providers.externalgrpc import wire

#: The calls that make changes.
ORDERS: Final = frozenset({"NodeGroupIncreaseSize", "NodeGroupDeleteNodes", "NodeGroupDecreaseTargetSize"})

_NODES_NAMED: Final = 100  #: maximum number of nodes named per order; the rest are counted
_LONGEST_TEXT: Final = 512  #: maximum characters of a name or an error, which may come from callers
_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

log = logging.getLogger(__name__)


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
    response = call.code.name + (f": {_short(call.error_text)}" if call.error_text else "")
    ends = "".join(f"; {_short(node)}: {_end(outcome)}" for node, outcome in list(call.outcomes.items())[:_NODES_NAMED])
    return f"{call.method} by {call.caller}{_request_text(call.request)}: {response}{ends}"


def caller(peer: str, certificate: Mapping[str, list[bytes]]) -> str:
    """Return the caller: the *certificate*'s common name, if any, and the address from gRPC's *peer*."""
    address = unquote(peer).partition(":")[2] or peer
    names = [name.decode(errors="replace") for name in certificate.get("x509_common_name", ())]
    return f"{_short(names[0])} ({address})" if names else address


def _request_text(request: Message | None) -> str:
    match request:
        case None:
            return ", request unreadable"
        case wire.NodeGroupDeleteNodesRequest():
            nodes = [_node(node) for node in request.nodes[:_NODES_NAMED]]
            remainder = f" and {len(request.nodes) - _NODES_NAMED} more" if len(request.nodes) > _NODES_NAMED else ""
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
