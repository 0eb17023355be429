"""The faults: what is done with a request in place of passing it on."""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from deploy.local.faults.calls import ApiCall
from deploy.local.faults.exchange import ConnectionEnded, ProxiedRequest
from deploy.local.faults.frames import error_event, is_protobuf, status, whole_frames
from deploy.local.faults.upstream import UpstreamAnswer

INJECTED: Final = "injected fault"
_PIECES: Final = 20  #: of a body that is sent slowly


class InjectedFault(Protocol):
    """A fault. *applies* tells whether it means anything for a call."""

    def applies(self, call: ApiCall) -> bool: ...

    def play(self, request: ProxiedRequest) -> None:
        """Handle the request. Raises ConnectionEnded where the client's connection was closed."""
        ...


class _ToAny:
    def applies(self, call: ApiCall) -> bool:  # noqa: ARG002 - as the protocol says
        return True


class _ToWatches:
    def applies(self, call: ApiCall) -> bool:
        return call.verb == "watch"


@dataclass(frozen=True, slots=True)
class Refusal(_ToAny):
    """An answer with *code* and a Status object; the server does not get the request."""

    code: int
    retry_after: int | None = None  #: seconds

    def applies(self, call: ApiCall) -> bool:
        if self.code == 409:  # noqa: PLR2004
            return call.writes
        if self.code == 410:  # noqa: PLR2004
            return call.verb in ("list", "watch")
        return True

    def play(self, request: ProxiedRequest) -> None:
        body = json.dumps(status(self.code, INJECTED, self.retry_after)).encode()
        again = [] if self.retry_after is None else [("Retry-After", str(self.retry_after))]
        headers = [("Content-Type", "application/json"), *again]
        request.pass_on(UpstreamAnswer(self.code, headers, (body,), len(body)))


@dataclass(frozen=True, slots=True)
class Reset(_ToAny):
    """The connection is reset; with *arrived* after the server has carried the request out."""

    arrived: bool

    def play(self, request: ProxiedRequest) -> None:
        if self.arrived:
            answer = request.forward()
            if request.call.verb != "watch":
                answer.read()
        request.reset()


@dataclass(frozen=True, slots=True)
class HalfBody(_ToAny):
    """The answer ends in the middle of its body; of a watch, in the middle of its first event."""

    def play(self, request: ProxiedRequest) -> None:
        answer = request.forward()
        if request.call.verb == "watch":
            request.begin(answer)
            for frame in whole_frames(answer.chunks, protobuf=is_protobuf(answer.content_type)):
                request.write(frame[: len(frame) // 2])
                break
        else:
            answer = answer.read()
            request.begin(answer)
            request.write(answer.body[: len(answer.body) // 2])
        raise ConnectionEnded


@dataclass(frozen=True, slots=True)
class Stall(_ToAny):
    """No answer for so many *seconds*, then the connection is closed; with *arrived* the request is carried out."""

    seconds: float
    arrived: bool = False

    def play(self, request: ProxiedRequest) -> None:
        if self.arrived:
            request.forward()
        request.wait(self.seconds)
        raise ConnectionEnded


@dataclass(frozen=True, slots=True)
class SlowBytes(_ToAny):
    """The answer comes in small pieces, which take so many *seconds* together; each event of a watch takes as long."""

    seconds: float

    def play(self, request: ProxiedRequest) -> None:
        answer = request.forward()
        if request.call.verb == "watch":
            parts = whole_frames(answer.chunks, protobuf=is_protobuf(answer.content_type))
        else:
            answer = answer.read()
            parts = iter(answer.chunks)
        request.begin(answer)
        for part in parts:
            size = max(1, -(-len(part) // _PIECES))
            for start in range(0, len(part), size):
                request.wait(self.seconds / _PIECES)
                request.write(part[start : start + size])
        request.finish()


@dataclass(frozen=True, slots=True)
class StaleList:
    """The oldest answer to the same LIST that *older* knows, in place of the present one."""

    older: Callable[[ProxiedRequest], UpstreamAnswer | None]

    def applies(self, call: ApiCall) -> bool:
        return call.verb == "list"

    def play(self, request: ProxiedRequest) -> None:
        request.pass_on(self.older(request) or request.forward())


@dataclass(frozen=True, slots=True)
class WatchError(_ToWatches):
    """An ERROR event with *code* after so many events, and the end of the watch."""

    code: int = 410
    after: int = 0

    def play(self, request: ProxiedRequest) -> None:
        answer = request.forward()
        protobuf = is_protobuf(answer.content_type)
        frames = itertools.islice(whole_frames(answer.chunks, protobuf=protobuf), self.after)
        error = error_event(self.code, f"{INJECTED}: too old resource version", protobuf=protobuf)
        request.pass_on(answer, itertools.chain(frames, [error]))


@dataclass(frozen=True, slots=True)
class ChangedEvents(_ToWatches):
    """Each event of a watch comes twice (`repeat`), or pairs of them the wrong way round (`reorder`)."""

    how: Literal["repeat", "reorder"]

    def play(self, request: ProxiedRequest) -> None:
        answer = request.forward()
        frames = whole_frames(answer.chunks, protobuf=is_protobuf(answer.content_type))
        request.pass_on(answer, _repeated(frames) if self.how == "repeat" else _reordered(frames))


@dataclass(frozen=True, slots=True)
class SilentWatch(_ToWatches):
    """A watch on which neither events nor bookmarks come for so many *seconds*; then it breaks off."""

    seconds: float

    def play(self, request: ProxiedRequest) -> None:
        request.begin(request.forward())
        request.wait(self.seconds)
        raise ConnectionEnded


@dataclass(frozen=True, slots=True)
class ExpiredToken(_ToAny):
    """The token of this request is refused, in this and all later requests (*expire* notes it)."""

    expire: Callable[[str], None]

    def play(self, request: ProxiedRequest) -> None:
        self.expire(request.header("authorization"))
        Refusal(401).play(request)


@dataclass(frozen=True, slots=True)
class Hook(_ToAny):
    """*action* is called before the request is passed on, or after its answer came and before that is passed on.

    It returns whether the exchange continues; otherwise the connection is closed.
    """

    moment: Literal["before", "after"]
    action: Callable[[ProxiedRequest], bool]

    def play(self, request: ProxiedRequest) -> None:
        if self.moment == "before":
            self._act(request)
            request.pass_on(request.forward())
            return
        answer = request.forward()
        if request.call.verb != "watch":
            answer = answer.read()
        self._act(request)
        request.pass_on(answer)

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
