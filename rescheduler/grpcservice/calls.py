"""What is told of answered calls: each order in the log, with its caller and its answer, and all calls as metrics."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

import grpc
from google.protobuf.message import Message
from prometheus_client import CollectorRegistry, Counter, Histogram

from rescheduler.backends.base import DeleteOutcome, Failed, Refused
from rescheduler.backends.externalgrpc import wire
from rescheduler.observe.logs import NOTICE
from rescheduler.observe.metrics import PREFIX

#: The calls that change something.
ORDERS: Final = frozenset({"NodeGroupIncreaseSize", "NodeGroupDeleteNodes", "NodeGroupDecreaseTargetSize"})

_NODES_NAMED: Final = 100  #: of one order; the others are counted
_LONGEST_TEXT: Final = 512  #: characters of a name or an answer: callers choose them
_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    method: str
    request: Message | None  #: None: its bytes could not be read
    caller: str
    code: grpc.StatusCode
    words: str = ""  #: of a failure
    outcomes: Mapping[str, DeleteOutcome] = field(default_factory=dict)  #: of a deletion, by node
    seconds: float = 0.0


class CallReport:
    """Takes each call once it is answered. For any number of threads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            f"{PREFIX}provider_calls", "Calls of the provider service.", ("method", "code"), registry=registry
        )
        self._seconds = Histogram(
            f"{PREFIX}provider_call_duration_seconds",
            "Calls of the provider service, to their answer.",
            ("method",),
            buckets=_BUCKETS,
            registry=registry,
        )

    def __call__(self, call: AnsweredCall) -> None:
        self._calls.labels(call.method, call.code.name).inc()
        self._seconds.labels(call.method).observe(call.seconds)
        level = NOTICE if call.method in ORDERS else logging.DEBUG
        log.log(level, "%s", told(call))


def told(call: AnsweredCall) -> str:
    """The line of the audit trail."""
    answer = call.code.name + (f": {_short(call.words)}" if call.words else "")
    ends = "".join(f"; {_short(node)}: {_end(outcome)}" for node, outcome in list(call.outcomes.items())[:_NODES_NAMED])
    return f"{call.method} by {call.caller}{_asked(call.request)}: {answer}{ends}"


def caller(peer: str, certificate: Mapping[str, list[bytes]]) -> str:
    """Who calls, by gRPC's *peer*, ``ipv4:ADDRESS:PORT``, and by the *certificate* that it shows, if any."""
    address = unquote(peer).partition(":")[2] or peer
    names = [name.decode(errors="replace") for name in certificate.get("x509_common_name", ())]
    return f"{_short(names[0])} ({address})" if names else address


def _asked(request: Message | None) -> str:
    match request:
        case None:
            return ", request unreadable"
        case wire.NodeGroupDeleteNodesRequest():
            nodes = [_node(node) for node in request.nodes[:_NODES_NAMED]]
            more = f" and {len(request.nodes) - _NODES_NAMED} more" if len(request.nodes) > _NODES_NAMED else ""
            return f", group {_short(request.id)}, nodes {', '.join(nodes) or 'none'}{more}"
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
    name, detail = type(outcome).__name__, _short(outcome.detail)
    return f"{'already gone' if name == 'AlreadyGone' else name.lower()}{detail and f': {detail}'}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
