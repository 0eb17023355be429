"""The proxy as an ASGI application: removals are done gracefully, all else is forwarded."""

import asyncio
import hmac
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from prometheus_client import CollectorRegistry
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from rescheduler.backends.base import AuthError
from rescheduler.clock import Clock, SystemClock
from rescheduler.observe.logs import NOTICE
from rescheduler.proxy import answers
from rescheduler.proxy.answers import UpdateFailed, done, error
from rescheduler.proxy.forward import (
    ClientGone,
    Forwarder,
    Message,
    Receive,
    Scope,
    Send,
    client_address,
    gone,
    raw_path,
)
from rescheduler.proxy.messages import BadRequest, SetMembership, on_machine, set_membership, set_size
from rescheduler.proxy.metrics import UNANSWERED, ProxyMetrics, Result
from rescheduler.proxy.paths import Operation, Route, route
from rescheduler.proxy.turns import QueueTimeout, Turns

_MAX_BODY: Final = 1 << 20
#: A TRACE is answered with the request itself, our credentials included; a CONNECT would make us a tunnel.
_REFLECTING: Final = frozenset({"TRACE", "CONNECT"})
_UNREAD: Final = "failed to read request body"
_NO_NODE: Final = "the request would remove a machine that this proxy knows no node of"

log = logging.getLogger(__name__)


class Updates(Protocol):
    """What removes machines, and drains their nodes first. Called from threads, one call at a time.

    Each returns what is left to say about a success, "" where that is nothing, and raises UpdateFailed.
    """

    def set_size(self, desired: int) -> str: ...

    def terminate(self, machine: str, *, decrement: bool) -> str: ...

    def dispose(self, machine: str) -> str:
        """Drain the machine's node and let the machine go, whatever the pool protects it from; it is replaced."""
        ...

    def detach(self, machine: str, *, decrement: bool) -> str:
        """Drain the machine's node, then detach the machine; the node goes on without it."""
        ...

    def comes_back(self, machine: str) -> bool:
        """Whether the machine runs and does not count for the pool's size. Called at any time."""
        ...

    def take_back(self, machine: str, *, evictable: bool) -> str:
        """Let the machine count again, and the pool choose nobody in its place."""
        ...


@dataclass(frozen=True, slots=True)
class Patience:
    """In seconds."""

    request: float  #: for a request's body to arrive
    queue: float  #: for an update's turn to come


class Proxy:
    """The application. *token* reads the bearer token that clients must show; `None`: they need none."""

    def __init__(
        self,
        updates: Updates,
        forwarder: Forwarder,
        patience: Patience,
        token: Callable[[], str] | None = None,
        metrics: ProxyMetrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._seconds = (clock or SystemClock()).monotonic
        self._updates, self._forwarder, self._patience, self._token = updates, forwarder, patience, token
        self._metrics = metrics or ProxyMetrics(CollectorRegistry())
        self._turns = Turns()
        self._metrics.waiting_are(lambda: self._turns.waiting)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        code, found, began = UNANSWERED, route(scope["method"], raw_path(scope)), self._seconds()

        async def noting(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = str(message["status"])
            await send(message)

        try:
            await self._handle(found, scope, receive, noting)
        finally:
            self._metrics.answered(found.operation, code)
            if found.operation is Operation.FORWARD:
                took = self._seconds() - began
                log.log(NOTICE, "%s %s: %s after %.3f s", scope["method"], raw_path(scope), code, took)

    async def _handle(self, found: Route, scope: Scope, receive: Receive, send: Send) -> None:
        if refusal := self._refusal(scope):
            await refusal(scope, receive, send)
        elif scope["method"].upper() in _REFLECTING:
            await error(405, f"{scope['method']} is not forwarded")(scope, receive, send)
        elif found.operation is Operation.FORWARD:
            with self._metrics.forwarding():
                await self._forwarder.forward(scope, receive, send)
        else:
            log.info("%s %s from %s", scope["method"], raw_path(scope), client_address(scope))
            await self._update(found, scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start and stop with the server, in its event loop."""
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await self._forwarder.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _refusal(self, scope: Scope) -> Response | None:
        if self._token is None:
            return None
        shown = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, token = shown.partition(b" ")
        try:
            expected = self._token().encode()
        except AuthError as failure:
            return error(500, "the proxy cannot check who asks", str(failure))
        if scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), expected):
            return None
        refused = error(401, "a bearer token is needed")
        refused.headers["www-authenticate"] = "Bearer"
        return refused

    async def _update(self, found: Route, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self._body(receive)
            answer = await self._updated(found, body, scope, receive, send)
        except ClientGone:
            return
        except BadRequest as failure:
            answer = error(400, failure.message, failure.detail)
        except UpdateFailed as failure:
            answer = error(failure.status, answers.MEMBERSHIP, failure.detail)
        if answer is not None:
            _tell(scope, answer)
            await answer(scope, receive, send)

    async def _body(self, receive: Receive) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(self._patience.request):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    body += message.get("body", b"")
                    if len(body) > _MAX_BODY:
                        raise BadRequest(_UNREAD, f"it is larger than {_MAX_BODY} bytes")
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise BadRequest(_UNREAD, f"it did not arrive within {self._patience.request:g} s") from None

    async def _updated(self, found: Route, body: bytes, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """The answer; `None` where the backend has given it."""
        updates = self._updates
        match found.operation:
            case Operation.SIZE:
                return await self._turn(found, answers.SET_SIZE, partial(updates.set_size, set_size(body)), receive)
            case Operation.TERMINATE:
                asked = on_machine(body, "terminateMachine", found.machine)
                call = partial(updates.terminate, asked.machine, decrement=asked.decrement)
                return await self._turn(found, answers.TERMINATE, call, receive)
            case Operation.DETACH:
                asked = on_machine(body, "detachMachine", found.machine)
                call = partial(updates.detach, asked.machine, decrement=asked.decrement)
                return await self._turn(found, answers.DETACH, call, receive)
            case Operation.MEMBERSHIP:
                return await self._membership(found, body, scope, receive, send)
        return error(500, answers.TERMINATE, _NO_NODE)

    async def _membership(
        self, found: Route, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> Response | None:
        """A status after which the pool terminates a machine by itself is set gracefully; others are handed on."""
        updates, status = self._updates, set_membership(body, found.machine)
        if status.disposable:  # it would be replaced and terminated
            call = partial(updates.dispose, status.machine)
        elif status.active and await run_in_threadpool(updates.comes_back, status.machine):  # there is one too many
            call = partial(updates.take_back, status.machine, evictable=status.evictable)
        else:
            await self._forwarder.forward(scope, receive, send, _plain(status, in_path=bool(found.machine)))
            return None
        return await self._turn(found, answers.MEMBERSHIP, call, receive)

    async def _turn(self, found: Route, message: str, call: Callable[[], str], receive: Receive) -> Response:
        operation, result = found.operation, Result.FAILED
        try:
            async with self._turns.turn(gone(receive), self._patience.queue):
                with self._metrics.updating(operation):
                    left_to_say = await run_in_threadpool(call)
            result = Result.PARTLY if left_to_say else Result.DONE
        except QueueTimeout:
            result = Result.LATE
            return error(504, message, f"other updates kept it waiting for {self._patience.queue:g} s")
        except ClientGone:
            result = Result.LEFT
            raise
        except UpdateFailed as failure:
            return error(failure.status, message, failure.detail)
        except Exception as failure:
            log.exception(message)
            return error(500, message, f"internal error: {type(failure).__name__}")
        finally:
            self._metrics.updated(operation, result)
        return done("done in part" if left_to_say else "", left_to_say)


def _tell(scope: Scope, answer: Response) -> None:
    """What became of an update, in the log: the client may be a program that keeps no answers."""
    said = json.loads(bytes(answer.body)) if answer.body else {}
    words = " ".join(": ".join(text for text in (said.get("message"), said.get("detail")) if text).split())
    level = logging.WARNING if words and answer.status_code not in range(400, 500) else NOTICE
    log.log(level, "%s %s: %d %s", scope["method"], raw_path(scope), answer.status_code, words or "done")


def _plain(status: SetMembership, *, in_path: bool) -> bytes:
    """What we have understood, so that the backend understands the same."""
    membership = {"active": status.active, "evictable": status.evictable}
    machine = {} if in_path else {"machineId": status.machine}
    return json.dumps({**machine, "membershipStatus": membership}).encode()
