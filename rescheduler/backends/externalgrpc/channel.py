"""Calls to an external gRPC service: each with a deadline, reads repeated a few times, statuses as our errors."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from rescheduler import errors
from rescheduler.backends.base import DeadlineExceeded
from rescheduler.backends.certificates import Certificates, Pems
from rescheduler.backends.externalgrpc import outcomes, statuses, wire
from rescheduler.backends.externalgrpc.config import ExternalGrpcFile
from rescheduler.clock import Clock
from rescheduler.pem import File
from rescheduler.settings import Address

SERVICE: Final = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"

_ATTEMPTS: Final = 3  #: of a call that only reads
_FIRST_PAUSE: Final = 0.25  #: seconds before the second; each later pause is twice as long
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 64 << 20),  # a group of 100,000 instances has some 10 MiB
    # A service that comes back is found within seconds; gRPC's own pauses grow to minutes.
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.min_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 5000),
)

#: How gRPC begins the words of an UNAVAILABLE whose call never left.
_UNSENT: Final = "failed to connect to all addresses"


@dataclass(frozen=True, slots=True)
class Answer:
    """How one attempt ended."""

    code: grpc.StatusCode
    message: Any = None  #: where `code` is OK
    words: str = ""  #: where it is not
    trailers: Mapping[str, str | bytes] = field(default_factory=dict)

    @property
    def unsure(self) -> bool:
        """Whether the service may be at work on the call, or have done it."""
        return self.code in statuses.UNSURE and _UNSENT not in self.words


class Channel:
    """One service. Safe to use from several threads."""

    def __init__(self, file: ExternalGrpcFile, folder: Path, clock: Clock) -> None:
        """Connects at the first call. ConfigError for certificates of no use."""
        self.address, self._timeout, self._clock = file.address, file.grpc_timeout, clock
        self._certificates = None
        if file.cert:
            self._certificates = Certificates(
                key=File("key", folder / file.key),
                cert=File("cert", folder / file.cert),
                ca=File("cacert", folder / file.cacert),
            )
        self._methods = wire.POOL.FindServiceByName(SERVICE).methods_by_name
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._channel = self._open(self._certificates.current if self._certificates else None)
        self._retired: Any = None  #: calls may still be under way there

    def read(self, rpc: str, request: Message, *, deadline: float) -> Any:
        """The message of `ask`, or its error."""
        return self.message_of(rpc, self.ask(rpc, request, deadline=deadline))

    def ask(self, rpc: str, request: Message, *, deadline: float) -> Answer:
        """The answer to a call that only reads; UNAVAILABLE is tried again, as far as there is time."""
        pause = _FIRST_PAUSE
        for attempt in range(1, _ATTEMPTS + 1):
            answer = self.attempt(rpc, request, deadline=deadline)
            left = deadline - self._clock.monotonic()
            if answer.code is not grpc.StatusCode.UNAVAILABLE or attempt == _ATTEMPTS or left <= pause:
                break
            if self._clock.wait(pause, self._stop):
                break
            pause *= 2
        return answer

    def write(self, rpc: str, request: Message, *, deadline: float, raising: bool = False) -> Any:
        """The answer's message, of a call that is made once; *raising* as in `statuses.error_of`."""
        return self.message_of(rpc, self.attempt(rpc, request, deadline=deadline), raising=raising)

    def attempt(
        self, rpc: str, request: Message, *, deadline: float, metadata: tuple[tuple[str, str], ...] = ()
    ) -> Answer:
        """One call. Raises only DeadlineExceeded, and then nothing was sent."""
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise DeadlineExceeded(f"{self._where(rpc)}: there was no time left for the call")
        if self._stop.is_set():
            return Answer(grpc.StatusCode.CANCELLED, words="the provider was closed")
        method = self._methods[rpc]
        call = self._current().unary_unary(
            f"/{SERVICE}/{rpc}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
        )
        try:
            raw, done = call.with_call(request, timeout=min(self._timeout, left), metadata=metadata)
            message = GetMessageClass(method.output_type).FromString(raw)
        except grpc.RpcError as error:
            code, words = error.code(), " ".join((error.details() or "").split())
            return Answer(code, words=words, trailers=dict(error.trailing_metadata() or ()))
        except DecodeError:
            return Answer(grpc.StatusCode.DATA_LOSS, words=f"the answer is no {method.output_type.name}")
        except ValueError:
            return Answer(grpc.StatusCode.CANCELLED, words="the provider was closed")
        return Answer(grpc.StatusCode.OK, message, trailers=dict(done.trailing_metadata() or ()))

    def message_of(self, rpc: str, answer: Answer, *, raising: bool = False) -> Any:
        if answer.code is grpc.StatusCode.OK:
            return answer.message
        raise self.error_of(rpc, answer, raising=raising)

    def error_of(self, rpc: str, answer: Answer, *, raising: bool = False) -> errors.ReschedulerError:
        words = f"{self._where(rpc)}: {answer.code.name}: {answer.words}"
        after = answer.trailers.get(outcomes.RETRY_AFTER)
        return statuses.error_of(answer.code, words, raising=raising, retry_after=_seconds(after))

    def close(self) -> None:
        self._stop.set()
        with self._lock:
            for channel in (self._channel, self._retired):
                if channel is not None:
                    channel.close()

    def pause(self, seconds: float) -> bool:
        """Wait; whether the provider was closed in the meantime."""
        return self._clock.wait(seconds, self._stop)

    def _where(self, rpc: str) -> str:
        return f"externalgrpc {self.address} {rpc}"

    def _current(self) -> Any:
        """A new one where the certificates have changed."""
        if self._certificates is not None and (pems := self._certificates.renewed()):
            with self._lock:
                if self._retired is not None:
                    self._retired.close()
                self._retired, self._channel = self._channel, self._open(pems)
        return self._channel

    def _open(self, pems: Pems | None) -> Any:
        # As in Go, the environment's proxy is not for this machine.
        direct = (("grpc.enable_http_proxy", 0),) if Address.parse(self.address).loopback else ()
        if pems is None:
            return grpc.insecure_channel(self.address, options=_OPTIONS + direct)
        credentials = grpc.ssl_channel_credentials(pems.ca, pems.key, pems.cert)
        return grpc.secure_channel(self.address, credentials, options=_OPTIONS + direct)


def _seconds(text: str | bytes | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
