"""Calls to an external gRPC service, with deadlines, retries of reads, and status codes converted to our errors."""

import datetime as dt
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from rescheduler import errors
from rescheduler.backoff import Backoff
from rescheduler.clock import Clock
from rescheduler.errors import DeadlineExceeded
from rescheduler.net.certificates import Certificates, Pems
from rescheduler.net.pem import PemFile
from rescheduler.net.retries import attempts
from rescheduler.providers.externalgrpc import outcomes, statuses, wire
from rescheduler.providers.externalgrpc.config import ExternalGrpcFile
from rescheduler.settings import ListenAddress

SERVICE: Final = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"

_ATTEMPTS: Final = 3  #: of a call that only reads
_BACKOFF: Final = Backoff(dt.timedelta(milliseconds=250), dt.timedelta(seconds=1))
_OPTIONS: Final = (
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
        return self.code in statuses.UNSURE and _UNSENT not in self.error_text


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
        after = response.trailers.get(outcomes.RETRY_AFTER)
        return statuses.error_of(response.code, error_text, raising=raising, retry_after=_seconds(after))

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
