"""Fault injection between a client and a stand-in: a list of faults, each for the next matching requests."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

Kind = Literal["answer", "hang", "reset", "cut", "late"]


class Fault(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A fault.

    `answer` responds with `status`, `headers` and `body`. `hang` never responds. `reset` closes the connection without
    a response. `cut` closes it in the middle of the real response. `late` sends the real response, computed before the
    delay. All kinds wait for `delay` seconds first. If `acted` is true, the request takes effect. Bytes of `body` that
    are not valid text are represented by Python's surrogate escapes.
    """

    path: str
    method: str = "POST"
    sends: str = ""  #: only for requests whose body contains it
    kind: Kind = "answer"
    acted: bool = False
    status: int = 500
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: str = '{"message": "injected", "detail": ""}'
    delay: float = 0
    times: int = 1


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """A received request; *path* is decoded, *target* is the raw path with the query."""

    method: str
    path: str
    body: bytes
    target: str
    headers: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, scope: Scope, body: bytes) -> "LoggedRequest":
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
        return cls(scope["method"], scope["path"], body, (scope["raw_path"] + query).decode("latin-1"), headers)

    def all(self, name: str) -> list[str]:
        """Return all values of the header *name*, which must be in lower case."""
        return [value for key, value in self.headers if key == name]


class FaultyApp:
    """Middleware that injects faults and records all received requests."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self.requests: list[LoggedRequest] = []

    def inject(self, *faults: Fault) -> None:
        with self._lock:
            self._faults.extend(fault for fault in faults for _ in range(fault.times))

    def forget(self) -> None:
        """Remove the faults that have not occurred yet."""
        with self._lock:
            self._faults.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = await body_of(receive)
        fault = self._next(LoggedRequest.of(scope, body))
        if fault is None:
            await self._app(scope, _replay(body, receive), send)
            return
        response: list[Message] = []
        if fault.kind == "late":
            await self._app(scope, _replay(body, receive), _keep(response))
        await asyncio.sleep(fault.delay)
        if fault.acted or fault.kind == "cut":
            await self._app(scope, _replay(body, receive), _keep(response))
        await _misbehave(fault, response, receive, send)

    def _next(self, request: LoggedRequest) -> Fault | None:
        with self._lock:
            self.requests.append(request)
            for fault in self._faults:
                named = (fault.method, fault.path) == (request.method, request.path)
                if named and fault.sends.encode() in request.body:
                    self._faults.remove(fault)
                    return fault
        return None


async def _misbehave(fault: Fault, response: list[Message], receive: Receive, send: Send) -> None:
    if fault.kind == "answer":
        body = fault.body.encode("utf-8", "surrogateescape")
        headers = {"content-type": "application/json", "content-length": str(len(body))} | fault.headers
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": fault.status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})
        return
    if fault.kind == "late":
        for message in response:
            await send(message)
        return
    if fault.kind == "cut":
        for message in response:
            part = {**message, "body": message["body"][:-1], "more_body": True} if "body" in message else message
            await send(part)
    if fault.kind != "hang":
        # uvicorn's `send` is a method of an object that has the transport.
        send.__self__.transport.abort()  # type: ignore[attr-defined]
    while (await receive())["type"] != "http.disconnect":
        pass


async def body_of(receive: Receive) -> bytes:
    """Return the whole body of a request."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


def _keep(response: list[Message]) -> Send:
    async def send(message: Message) -> None:
        response.append(message)

    return send
