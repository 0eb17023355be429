"""The faults, which handle a request instead of only forwarding it."""

import contextlib
import itertools
import json
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from typing import Final, Literal, Protocol

from devcluster.faults.calls import ApiCall
from devcluster.faults.exchange import ConnectionEnded, ProxiedRequest
from devcluster.faults.frames import error_event, status, whole_frames
from devcluster.faults.upstream import UpstreamAnswer
from rescheduler.clock import SystemClock

INJECTED: Final = "injected fault"
BUDGET: Final = "DisruptionBudget"  #: cause of a 429 response to an eviction that a budget does not allow
GATEWAY: Final = b"<html>Gateway Time-out</html>"  #: body of a 504 response
_PIECES: Final = 20  #: number of pieces of a body that is sent slowly


class InjectedFault(Protocol):
    """A fault; `applies` returns whether it is meaningful for a call."""

    def applies(self, call: ApiCall) -> bool: ...

    def play(self, request: ProxiedRequest) -> None:
        """Handle the request. Raises ConnectionEnded to close the client's connection."""
        ...


class _ToAny:
    def applies(self, call: ApiCall) -> bool:  # noqa: ARG002 - required by the protocol
        return True


class _ToWatches:
    def applies(self, call: ApiCall) -> bool:
        return call.verb == "watch"


@dataclass(frozen=True, slots=True)
class InjectedError(_ToAny):
    """A response with *code* and a Status object. The request is forwarded only if *arrived* is true."""

    code: int
    retry_after: int | None = None  #: seconds
    arrived: bool = False
    cause: str = ""  #: reason of a cause in the Status object

    def applies(self, call: ApiCall) -> bool:
        if self.cause == BUDGET:
            return call.resource == "pods/eviction"
        match self.code:
            case 204 | 502 | 504 if not call.of_pool:
                return False
            case 400 | 404 | 409:
                return call.writes
            case 410:
                return call.verb in ("list", "watch")
        return call.writes or not self.arrived

    def play(self, request: ProxiedRequest) -> None:
        if self.arrived:
            request.forward().read()
        body, kind = json.dumps(status(self.code, INJECTED, self.retry_after, self.cause)).encode(), "application/json"
        if self.code == HTTPStatus.NO_CONTENT:
            body = b""
        elif self.code == HTTPStatus.GATEWAY_TIMEOUT:
            body, kind = GATEWAY, "text/html"
        again = [] if self.retry_after is None else [("Retry-After", str(self.retry_after))]
        request.pass_on(UpstreamAnswer(self.code, [("Content-Type", kind), *again], (body,), len(body)))


@dataclass(frozen=True, slots=True)
class Reset(_ToAny):
    """A connection reset, if *arrived* is true after the server has handled the request."""

    arrived: bool

    def play(self, request: ProxiedRequest) -> None:
        if self.arrived:
            response = request.forward()
            if request.call.verb != "watch":
                response.read()
        request.reset()


@dataclass(frozen=True, slots=True)
class HalfBody(_ToAny):
    """A response that ends in the middle of its body, or in the middle of the first event of a watch."""

    def play(self, request: ProxiedRequest) -> None:
        response = request.forward()
        if request.call.verb == "watch":
            request.begin(response)
            for frame in whole_frames(response.chunks):
                request.write(frame[: len(frame) // 2])
                break
        else:
            response = response.read()
            request.begin(response)
            request.write(response.body[: len(response.body) // 2])
        raise ConnectionEnded


@dataclass(frozen=True, slots=True)
class Stall(_ToAny):
    """No response for *seconds*, then a closed connection; if *arrived* is true, the request is forwarded."""

    seconds: float
    arrived: bool = False

    def play(self, request: ProxiedRequest) -> None:
        if self.arrived:
            request.forward()
        request.wait(self.seconds)
        raise ConnectionEnded


@dataclass(frozen=True, slots=True)
class SlowBytes(_ToAny):
    """A response in small pieces that takes *seconds* in total, or *seconds* for each event of a watch."""

    seconds: float

    def play(self, request: ProxiedRequest) -> None:
        response = request.forward()
        if request.call.verb == "watch":
            parts = whole_frames(response.chunks)
        else:
            response = response.read()
            parts = iter(response.chunks)
        request.begin(response)
        for part in parts:
            size = max(1, -(-len(part) // _PIECES))
            for start in range(0, len(part), size):
                request.wait(self.seconds / _PIECES)
                request.write(part[start : start + size])
        request.finish()


@dataclass(frozen=True, slots=True)
class StaleList:
    """The oldest recorded response to the same LIST, which *older* returns, instead of the current response."""

    older: Callable[[ProxiedRequest], UpstreamAnswer | None]

    def applies(self, call: ApiCall) -> bool:
        return call.verb == "list"

    def play(self, request: ProxiedRequest) -> None:
        request.pass_on(self.older(request) or request.forward())


@dataclass(frozen=True, slots=True)
class WatchError(_ToWatches):
    """An ERROR event with *code* after *after* events, which ends the watch."""

    code: int = 410
    after: int = 0

    def play(self, request: ProxiedRequest) -> None:
        response = request.forward()
        frames = itertools.islice(whole_frames(response.chunks), self.after)
        error = error_event(self.code, f"{INJECTED}: too old resource version")
        request.pass_on(response, itertools.chain(frames, [error]))


@dataclass(frozen=True, slots=True)
class ChangedEvents(_ToWatches):
    """Watch events that are delivered twice (`repeat`) or in swapped pairs (`reorder`)."""

    how: Literal["repeat", "reorder"]

    def play(self, request: ProxiedRequest) -> None:
        response = request.forward()
        frames = whole_frames(response.chunks)
        request.pass_on(response, _repeated(frames) if self.how == "repeat" else _reordered(frames))


@dataclass(frozen=True, slots=True)
class SilentWatch(_ToWatches):
    """A watch that delivers neither events nor bookmarks for *seconds*, then a closed connection."""

    seconds: float

    def play(self, request: ProxiedRequest) -> None:
        request.begin(request.forward())
        request.wait(self.seconds)
        raise ConnectionEnded


@dataclass(frozen=True, slots=True)
class LateWatch(_ToWatches):
    """Watch events that arrive in their order, but as late as *late* says in seconds when the server sends them."""

    late: Callable[[], float]

    def play(self, request: ProxiedRequest) -> None:
        response = request.forward()
        request.pass_on(response, self._delayed(request, whole_frames(response.chunks)))

    def _delayed(self, request: ProxiedRequest, frames: Iterable[bytes]) -> Iterator[bytes]:
        clock = SystemClock()
        arrived: queue.SimpleQueue[tuple[float, bytes] | None] = queue.SimpleQueue()

        def read() -> None:
            # The other thread may close the response, which http.client does not expect during a read.
            with contextlib.suppress(OSError, ValueError, HTTPException, AttributeError):
                for frame in frames:
                    arrived.put((clock.monotonic() + self.late(), frame))
            arrived.put(None)

        threading.Thread(target=read, name="late-watch", daemon=True).start()
        while (item := arrived.get()) is not None:
            due, frame = item
            request.wait(max(0.0, due - clock.monotonic()))
            yield frame


@dataclass(frozen=True, slots=True)
class ExpiredToken(_ToAny):
    """A 401 response for this and all later requests with the same token, which *expire* records."""

    expire: Callable[[str], None]

    def play(self, request: ProxiedRequest) -> None:
        self.expire(request.header("authorization"))
        InjectedError(401).play(request)


@dataclass(frozen=True, slots=True)
class Hook(_ToAny):
    """A call of *action* before the request is forwarded, or before its response is forwarded.

    *action* returns whether to continue; otherwise the connection is closed.
    """

    moment: Literal["before", "after"]
    action: Callable[[ProxiedRequest], bool]

    def play(self, request: ProxiedRequest) -> None:
        if self.moment == "before":
            self._act(request)
            request.pass_on(request.forward())
            return
        response = request.forward()
        if request.call.verb != "watch":
            response = response.read()
        self._act(request)
        request.pass_on(response)

    def _act(self, request: ProxiedRequest) -> None:
        if not self.action(request):
            raise ConnectionEnded


def _repeated(frames: Iterable[bytes]) -> Iterator[bytes]:
    for frame in frames:
        yield frame
        yield frame


def _reordered(frames: Iterator[bytes]) -> Iterator[bytes]:
    for frame in frames:
        following = next(frames, None)
        if following is not None:
            yield following
        yield frame
