"""Calls to an external gRPC service, with deadlines, retries of reads, and status codes converted to our errors."""

import datetime as dt
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import grpc
import msgspec
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from grpc import StatusCode

from rescheduler import decoding, errors
from rescheduler.clock import Clock
from rescheduler.durations import Backoff
from rescheduler.errors import AuthError, BackendUnavailable, ConfigError, DeadlineExceeded, RateLimited, UsageError
from rescheduler.net.config_files import Duration, Section
from rescheduler.net.config_files import read as config_files_read
from rescheduler.net.files import Certificates, PemFile, Pems
from rescheduler.net.http_errors import attempts
from rescheduler.providers.base import (
    AboveMaximum,
    Accepted,
    AlreadyGone,
    BelowMinimum,
    Deleted,
    DeleteOutcome,
    Failed,
    NotInGroup,
    NotSupported,
    Refusal,
    Refused,
    UnknownGroup,
)
from rescheduler.providers.externalgrpc import wire
from rescheduler.settings import ListenAddress

# The ``--cloud-config`` file: Cluster Autoscaler's keys for its externalgrpc provider, in YAML.
#
# Source: ``cluster-autoscaler/cloudprovider/externalgrpc/externalgrpc_cloud_provider.go`` (``cloudConfig``). Without
# `cert` the connection is not encrypted, and `key` and `cacert` are ignored. Relative paths are resolved against the
# folder of the file.


class ExternalGrpcFile(Section, frozen=True, kw_only=True):
    address: str  #: host:port; the host is the name in the service's certificate
    cert: str = ""
    key: str = ""
    cacert: str = ""
    grpc_timeout: Duration = msgspec.field(default=Duration(5), name="grpc_timeout")  #: of one call
    #: Between two polls while a machine is being deleted.
    poll_interval: Duration = msgspec.field(default=Duration(2), name="poll_interval")


def read_file(path: Path) -> ExternalGrpcFile:
    """Return the validated file. Raises ConfigError that names the file and the key."""
    file = config_files_read(path, ExternalGrpcFile)
    rules = {
        "address": (_is_address(file.address), "host:port, such as provider:8086 or [::1]:8086"),
        "key": (not file.cert or bool(file.key), "the file of cert's private key"),
        "cacert": (not file.cert or bool(file.cacert), "the file of the CA of the service's certificate"),
        "grpc_timeout": (file.grpc_timeout > 0, "more than 0s"),
        "poll_interval": (file.poll_interval > 0, "more than 0s"),
    }
    for key, (holds, expected) in rules.items():
        if not holds:
            raise ConfigError(f"cloud configuration {path}: {key}: expected {expected}")
    return file


def _is_address(text: str) -> bool:
    try:
        address = ListenAddress.parse(text)
    except UsageError:
        return False
    return bool(address.host) and address.port > 0 and not set(address.host) & set("/ @")


# Conversion between our errors and gRPC's status codes.

#: The first class that matches decides.
_CODES: Final[tuple[tuple[type[Exception], StatusCode], ...]] = (
    (NotSupported, StatusCode.UNIMPLEMENTED),
    (errors.NotFound, StatusCode.NOT_FOUND),
    (NotInGroup, StatusCode.INVALID_ARGUMENT),
    (RateLimited, StatusCode.RESOURCE_EXHAUSTED),
    (DeadlineExceeded, StatusCode.DEADLINE_EXCEEDED),
    (errors.Retryable, StatusCode.UNAVAILABLE),
    (errors.Forbidden, StatusCode.PERMISSION_DENIED),
    (errors.Unauthorized, StatusCode.UNAUTHENTICATED),
    (errors.Conflict, StatusCode.ABORTED),
    # Permanent also covers: below the minimum, above the maximum, the control plane.
    (errors.Permanent, StatusCode.FAILED_PRECONDITION),
)

_ERRORS: Final[dict[StatusCode, type[errors.ReschedulerError]]] = {
    StatusCode.UNIMPLEMENTED: NotSupported,
    StatusCode.NOT_FOUND: UnknownGroup,
    StatusCode.INVALID_ARGUMENT: NotInGroup,
    StatusCode.RESOURCE_EXHAUSTED: RateLimited,
    StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    StatusCode.UNAUTHENTICATED: AuthError,
    StatusCode.PERMISSION_DENIED: AuthError,
    StatusCode.FAILED_PRECONDITION: BelowMinimum,
    StatusCode.OUT_OF_RANGE: errors.Permanent,
}

#: Codes that gRPC itself may set although the service received the call and may still execute it. DATA_LOSS stands
#: for a response that cannot be decoded.
UNSURE: Final = frozenset(
    {StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED, StatusCode.DATA_LOSS}
)


def code_of(error: errors.ReschedulerError) -> StatusCode:
    """Return the status code of *error*; INTERNAL for errors that the caller neither caused nor can fix."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), StatusCode.INTERNAL)


def error_of(
    code: StatusCode, message: str, *, raising: bool = False, retry_after: float | None = None
) -> errors.ReschedulerError:
    """Return the error for a status code. *raising*: the call increases a size, so a refusal concerns the maximum.

    UNKNOWN, which upstream's example server returns for every error, and all other codes give BackendUnavailable.
    """
    if code is StatusCode.FAILED_PRECONDITION and raising:
        return AboveMaximum(message)
    kind = _ERRORS.get(code, BackendUnavailable)
    return kind(message, retry_after=retry_after) if issubclass(kind, errors.Retryable) else kind(message)


# The outcome of each node of a deletion, as call metadata, because the protocol has one status for all nodes.
#
# The service adds the trailing metadata :data:`OUTCOMES` to successful and failed calls; other clients ignore it. A
# client that repeats an earlier process's order sends its time as :data:`ORDERED_AT`; other services ignore it. A
# client that looks at the cluster before each request sends :data:`SINGLE`: then a call sends one request per node.

OUTCOMES: Final = "rescheduler-outcomes-bin"
ORDERED_AT: Final = "rescheduler-ordered-at"
SINGLE: Final = "rescheduler-single-request"
RETRY_AFTER: Final = "rescheduler-retry-after"

#: Bytes. gRPC implementations accept 8 KiB of call metadata by default, including the status message.
_LARGEST: Final = 4096

_PLAIN: Final[dict[str, type[Deleted] | type[AlreadyGone] | type[Accepted]]] = {
    "deleted": Deleted,
    "already-gone": AlreadyGone,
    "accepted": Accepted,
}

Metadata: TypeAlias = Iterable[tuple[str, str | bytes]]


class _Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    outcome: Literal["deleted", "already-gone", "accepted", "refused", "failed"]
    detail: str = ""
    reason: Refusal | None = None
    retryable: bool = False


def trailer(outcomes: Mapping[str, DeleteOutcome]) -> list[tuple[str, str | bytes]]:
    """Return the outcomes as one metadata entry, or no entry if it would be too large."""
    encoded = msgspec.json.encode({node: _encoded(outcome) for node, outcome in outcomes.items()})
    return [(OUTCOMES, encoded)] if len(encoded) <= _LARGEST else []


def read(metadata: Metadata | None) -> dict[str, DeleteOutcome]:
    """Return the outcomes by node; empty if the metadata contains none or is invalid."""
    raw = dict(metadata or ()).get(OUTCOMES, b"")
    try:
        decoded = decoding.decode(raw, dict[str, _Outcome])
    except msgspec.MsgspecError:
        return {}
    return {node: _decoded(outcome) for node, outcome in decoded.items()}


def ordered_at(metadata: Metadata | None) -> dt.datetime | None:
    """Return the time of an earlier order. Raises ValueError if it is not a time with a zone."""
    text = dict(metadata or ()).get(ORDERED_AT)
    if text is None:
        return None
    try:
        time = dt.datetime.fromisoformat(str(text))
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ValueError(f"{ORDERED_AT}: expected a time with a zone, got {text!r}")
    return time


def is_single(metadata: Metadata | None) -> bool:
    """Return whether the client asks before each request, so that a call may send only one for each node."""
    return SINGLE in dict(metadata or ())


def _encoded(outcome: DeleteOutcome) -> _Outcome:
    match outcome:
        case Deleted(detail):
            return _Outcome("deleted", detail)
        case AlreadyGone(detail):
            return _Outcome("already-gone", detail)
        case Accepted(detail):
            return _Outcome("accepted", detail)
        case Refused(reason, detail):
            return _Outcome("refused", detail, reason)
        case Failed(error, retryable):
            return _Outcome("failed", error, retryable=retryable)


def _decoded(message: _Outcome) -> DeleteOutcome:
    if message.outcome == "refused":
        return Refused(message.reason or Refusal.PROTECTED, message.detail)
    if message.outcome == "failed":
        return Failed(message.detail, message.retryable)
    return _PLAIN[message.outcome](message.detail)


SERVICE: Final = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"

_ATTEMPTS: Final = 3  #: of a call that only reads
_BACKOFF: Final = Backoff(dt.timedelta(milliseconds=250), dt.timedelta(seconds=1))
_OPTIONS: Final = (
    ("grpc.enable_retries", 0),  # each attempt is made by us: a deletion is repeated only after another look
    ("grpc.max_receive_message_length", 64 << 20),  # the response for a group of 100,000 instances is about 10 MiB
    # Reconnect to a restarted service within seconds; gRPC's default back-off grows to minutes.
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.min_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 5000),
)

#: The beginning of gRPC's message for an UNAVAILABLE call that was not sent.
_UNSENT: Final = "failed to connect to all addresses"


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of one attempt."""

    code: grpc.StatusCode
    message: Any = None  #: if `code` is OK
    error_text: str = ""  #: the error, if it is not
    trailers: Mapping[str, str | bytes] = field(default_factory=dict)

    @property
    def uncertain(self) -> bool:
        """Whether the service may have executed the call, or may still execute it."""
        return self.code in UNSURE and _UNSENT not in self.error_text


class Channel:
    """A connection to a service. Thread-safe."""

    def __init__(self, file: ExternalGrpcFile, folder: Path, clock: Clock) -> None:
        """Create a channel, which connects at the first call. Raises ConfigError for invalid certificates."""
        self.address, self._timeout, self._clock = file.address, file.grpc_timeout, clock
        self._certificates = None
        if file.cert:
            self._certificates = Certificates(
                key=PemFile("key", folder / file.key),
                cert=PemFile("cert", folder / file.cert),
                ca=PemFile("cacert", folder / file.cacert),
            )
        self._methods = wire.POOL.FindServiceByName(SERVICE).methods_by_name
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._channel = self._open(self._certificates.current if self._certificates else None)
        self._retired: Any = None  #: the previous channel, which may still have calls

    def read(self, rpc: str, request: Message, *, deadline: float) -> Any:
        """Make a call that only reads (see `ask`), and return the response message or raise the error."""
        return self.message_of(rpc, self.ask(rpc, request, deadline=deadline))

    def ask(self, rpc: str, request: Message, *, deadline: float) -> CallResult:
        """Make a call that only reads; retry UNAVAILABLE until the deadline, but not within `one_attempt`."""
        most = attempts(_ATTEMPTS)
        for attempt in range(1, most + 1):
            response = self.attempt(rpc, request, deadline=deadline)
            left, pause = deadline - self._clock.monotonic(), _BACKOFF.seconds_after(attempt)
            if response.code is not grpc.StatusCode.UNAVAILABLE or attempt == most or left <= pause:
                break
            if self._clock.wait(pause, self._stop):
                break
        return response

    def write(self, rpc: str, request: Message, *, deadline: float, raising: bool = False) -> Any:
        """Make a call once and return its message; *raising* as in `statuses.error_of`."""
        return self.message_of(rpc, self.attempt(rpc, request, deadline=deadline), raising=raising)

    def attempt(
        self, rpc: str, request: Message, *, deadline: float, metadata: tuple[tuple[str, str], ...] = ()
    ) -> CallResult:
        """Make one call. Raises only DeadlineExceeded, in which case nothing was sent."""
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise DeadlineExceeded(f"{self._call_name(rpc)}: no time left for the call")
        if self._stop.is_set():
            return CallResult(grpc.StatusCode.CANCELLED, error_text="the provider was closed")
        method = self._methods[rpc]
        call = self._current().unary_unary(
            f"/{SERVICE}/{rpc}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
        )
        try:
            raw, done = call.with_call(request, timeout=min(self._timeout, left), metadata=metadata)
            message = GetMessageClass(method.output_type).FromString(raw)
        except grpc.RpcError as error:
            code, error_text = error.code(), " ".join((error.details() or "").split())
            return CallResult(code, error_text=error_text, trailers=dict(error.trailing_metadata() or ()))
        except DecodeError:
            return CallResult(grpc.StatusCode.DATA_LOSS, error_text=f"the response is not a {method.output_type.name}")
        except ValueError:
            return CallResult(grpc.StatusCode.CANCELLED, error_text="the provider was closed")
        return CallResult(grpc.StatusCode.OK, message, trailers=dict(done.trailing_metadata() or ()))

    def message_of(self, rpc: str, response: CallResult, *, raising: bool = False) -> Any:
        if response.code is grpc.StatusCode.OK:
            return response.message
        raise self.error_of(rpc, response, raising=raising)

    def error_of(self, rpc: str, response: CallResult, *, raising: bool = False) -> errors.ReschedulerError:
        error_text = f"{self._call_name(rpc)}: {response.code.name}: {response.error_text}"
        after = response.trailers.get(RETRY_AFTER)
        return error_of(response.code, error_text, raising=raising, retry_after=_seconds(after))

    def close(self) -> None:
        self._stop.set()
        with self._lock:
            for channel in (self._channel, self._retired):
                if channel is not None:
                    channel.close()

    def pause(self, seconds: float) -> bool:
        """Wait, and return whether the provider was closed in the meantime."""
        return self._clock.wait(seconds, self._stop)

    def _call_name(self, rpc: str) -> str:
        return f"externalgrpc {self.address} {rpc}"

    def _current(self) -> Any:
        """Return the channel; a new one if the certificates have changed."""
        if self._certificates is not None and (pems := self._certificates.renewed()):
            with self._lock:
                if self._retired is not None:
                    self._retired.close()
                self._retired, self._channel = self._channel, self._open(pems)
        return self._channel

    def _open(self, pems: Pems | None) -> Any:
        # As in Go, loopback addresses bypass the environment's proxy.
        direct = (("grpc.enable_http_proxy", 0),) if ListenAddress.parse(self.address).loopback else ()
        if pems is None:
            return grpc.insecure_channel(self.address, options=_OPTIONS + direct)
        credentials = grpc.ssl_channel_credentials(pems.ca, pems.key, pems.cert)
        return grpc.secure_channel(self.address, credentials, options=_OPTIONS + direct)


def _seconds(text: str | bytes | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
