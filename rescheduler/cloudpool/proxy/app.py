"""The proxy as an ASGI application. Removals of machines drain their nodes first; everything else is forwarded.
Separate from the composition root, so that tests can run it with other parts.
"""

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, Protocol

from prometheus_client import CollectorRegistry
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from rescheduler.clock import Clock, SystemClock
from rescheduler.cloudpool.proxy import messages
from rescheduler.cloudpool.proxy.forward import Forwarder, client_address, raw_path, request_line
from rescheduler.cloudpool.proxy.messages import (
    AsgiMessage,
    AsgiScope,
    AsgiSend,
    BadRequest,
    ClientGone,
    Receive,
    SetMembership,
    UpdateFailed,
    disconnected,
    done,
    error,
    on_machine,
    set_membership,
    set_size,
)
from rescheduler.cloudpool.proxy.paths import UNANSWERED, Operation, ProxyMetrics, Route, UpdateResult, route
from rescheduler.errors import AuthError
from rescheduler.net import server
from rescheduler.observe.events import NOTICE

# Authentication of the proxy's clients by bearer token.


def unauthorized(scope: AsgiScope, token: Callable[[], str]) -> Response | None:
    """Return the response to a request without the expected *token*; `None` if the request has the token."""
    shown = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    scheme, _, sent = shown.partition(b" ")
    try:
        expected = token().encode()
    except AuthError as failure:
        return error(500, "the proxy cannot check the bearer token", str(failure))
    if scheme.lower() == b"bearer" and hmac.compare_digest(sent.strip(), expected):
        return None
    refused = error(401, "a bearer token is required")
    refused.headers["www-authenticate"] = "Bearer"
    return refused


# A queue that runs updates one at a time, in order of arrival. It drops those that time out or lose their client.


class QueueTimeout(Exception):
    """The update timed out in the queue."""


class UpdateTurns:
    """The queue of updates, for tasks of one event loop."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.waiting = 0  #: number of queued updates, excluding the running one

    @asynccontextmanager
    async def turn(self, disconnected: Awaitable[None], patience: float) -> AsyncIterator[None]:
        """Wait for the caller's turn and keep it during the block. *disconnected* completes once the client is gone.

        Raises QueueTimeout after *patience* seconds, and ClientGone if the client has disconnected.
        """
        taking, leaving = asyncio.ensure_future(self._lock.acquire()), asyncio.ensure_future(disconnected)
        self.waiting += 1
        try:
            await asyncio.wait({taking, leaving}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._give_back(taking)
            raise
        finally:
            self.waiting -= 1
            left = leaving.done()
            leaving.cancel()
        if left or not taking.done():
            await self._give_back(taking)
            raise ClientGone if left else QueueTimeout
        try:
            yield
        finally:
            self._lock.release()

    async def _give_back(self, taking: "asyncio.Task[Literal[True]]") -> None:
        """Cancel the wait for the lock; release the lock if it was acquired at the same time."""
        taking.cancel()
        await asyncio.wait({taking})
        if not taking.cancelled():
            self._lock.release()


_MAX_BODY: Final = 1 << 20
#: A TRACE would return the request with our credentials; a CONNECT would turn the proxy into a tunnel.
_REFLECTING: Final = frozenset({"TRACE", "CONNECT"})
_UNREAD: Final = "failed to read request body"
_NO_NODE: Final = "the request would remove a machine whose node is unknown to this proxy"

log = logging.getLogger(__name__)


class Updates(Protocol):
    """The operations that remove machines and drain their nodes. They are called from threads, one call at a time.

    Each returns a message about the part that was not done, or "", and raises UpdateFailed on failure.
    """

    def set_size(self, desired: int) -> str: ...

    def terminate(self, machine: str, *, decrement: bool) -> str: ...

    def dispose(self, machine: str) -> str:
        """Drain the machine's node and dispose of the machine, even if it is protected; the pool replaces it."""
        ...

    def detach(self, machine: str, *, decrement: bool) -> str:
        """Drain the machine's node, then detach the machine; the node stays in the cluster."""
        ...

    def is_inactive(self, machine: str) -> bool:
        """Return whether the machine is allocated but not counted in the pool's size. May be called at any time."""
        ...

    def reactivate(self, machine: str, *, evictable: bool) -> str:
        """Make the machine active again without creating a surplus machine, which the pool would terminate."""
        ...


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """The time limits for requests of clients, in seconds."""

    request: float  #: for receiving a request's body
    queue: float  #: for an update in the queue


class ProxyApplication:
    """The ASGI application. *token* returns the bearer token that clients must send; `None`: no authentication.

    *names* are the host names of the proxy; if there are none, requests may have any Host.
    """

    def __init__(
        self,
        updates: Updates,
        forwarder: Forwarder,
        patience: ClientTimeouts,
        token: Callable[[], str] | None = None,
        metrics: ProxyMetrics | None = None,
        clock: Clock | None = None,
        names: frozenset[str] = frozenset(),
    ) -> None:
        self._seconds, self._names = (clock or SystemClock()).monotonic, names
        self._updates, self._forwarder, self._patience, self._token = updates, forwarder, patience, token
        self._metrics = metrics or ProxyMetrics(CollectorRegistry())
        self._turns = UpdateTurns()
        self._metrics.waiting_are(lambda: self._turns.waiting)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: AsgiSend) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        code, meaning, began = UNANSWERED, route(scope["method"], raw_path(scope)), self._seconds()

        async def send_and_record(message: AsgiMessage) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = str(message["status"])
            await send(message)

        refused = self._refusal(scope)
        try:
            if refused is not None:
                await refused(scope, receive, send_and_record)
            else:
                await self._handle(meaning, scope, receive, send_and_record)
        finally:
            self._metrics.answered(meaning.operation, code)
            if meaning.operation is Operation.FORWARD:
                took = self._seconds() - began
                # A refused request costs its client nothing, so it must not cost a line.
                level = logging.INFO if refused else NOTICE
                log.log(level, "%s: %s after %.3f s", request_line(scope), code, took)

    def _refusal(self, scope: AsgiScope) -> Response | None:
        """Return the response to a request that is neither interpreted nor forwarded."""
        if of_page := server.refusal(scope["method"], scope["headers"], self._names):
            return error(int(of_page[0]), "the request is refused", of_page[1])
        if self._token is not None and (refusal := unauthorized(scope, self._token)):
            return refusal
        if scope["method"].upper() in _REFLECTING:
            return error(405, f"{scope['method']} is not forwarded")
        return None

    async def _handle(self, meaning: Route, scope: AsgiScope, receive: Receive, send: AsgiSend) -> None:
        if meaning.operation is Operation.FORWARD:
            with self._metrics.forwarding():
                await self._forwarder.forward(scope, receive, send)
        else:
            log.info("%s from %s", request_line(scope), client_address(scope))
            await self._update(meaning, scope, receive, send)

    async def _lifespan(self, receive: Receive, send: AsgiSend) -> None:
        """Handle the lifespan protocol: start and stop with the server, in its event loop."""
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await self._forwarder.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _update(self, meaning: Route, scope: AsgiScope, receive: Receive, send: AsgiSend) -> None:
        try:
            body = await self._body(receive)
            response = await self._updated(meaning, body, scope, receive, send)
        except ClientGone:
            return
        except BadRequest as failure:
            response = error(400, failure.message, failure.detail)
        except UpdateFailed as failure:
            response = error(failure.status, messages.MEMBERSHIP, failure.detail)
        if response is not None:
            _log_result(scope, response)
            await response(scope, receive, send)

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

    async def _updated(
        self, meaning: Route, body: bytes, scope: AsgiScope, receive: Receive, send: AsgiSend
    ) -> Response | None:
        """Run the update and return its response; `None` if the backend's response was sent instead."""
        updates = self._updates
        match meaning.operation:
            case Operation.SIZE:
                return await self._turn(meaning, messages.SET_SIZE, partial(updates.set_size, set_size(body)), receive)
            case Operation.TERMINATE:
                request = on_machine(body, "terminateMachine", meaning.machine)
                call = partial(updates.terminate, request.machine, decrement=request.decrement)
                return await self._turn(meaning, messages.TERMINATE, call, receive)
            case Operation.DETACH:
                request = on_machine(body, "detachMachine", meaning.machine)
                call = partial(updates.detach, request.machine, decrement=request.decrement)
                return await self._turn(meaning, messages.DETACH, call, receive)
            case Operation.MEMBERSHIP:
                return await self._membership(meaning, body, scope, receive, send)
        return error(500, messages.TERMINATE, _NO_NODE)

    async def _membership(
        self, meaning: Route, body: bytes, scope: AsgiScope, receive: Receive, send: AsgiSend
    ) -> Response | None:
        """Drain first if the new status makes the pool terminate a machine on its own; forward all other changes."""
        updates, status = self._updates, set_membership(body, meaning.machine)
        if status.disposable:  # the pool would replace and terminate it
            call = partial(updates.dispose, status.machine)
        elif status.active and await run_in_threadpool(updates.is_inactive, status.machine):  # surplus
            call = partial(updates.reactivate, status.machine, evictable=status.evictable)
        else:
            await self._forwarder.forward(scope, receive, send, _plain(status, in_path=bool(meaning.machine)))
            return None
        return await self._turn(meaning, messages.MEMBERSHIP, call, receive)

    async def _turn(self, meaning: Route, message: str, call: Callable[[], str], receive: Receive) -> Response:
        operation, result = meaning.operation, UpdateResult.FAILED
        try:
            async with self._turns.turn(disconnected(receive), self._patience.queue):
                with self._metrics.updating(operation):
                    not_done = await run_in_threadpool(call)
            result = UpdateResult.PARTLY if not_done else UpdateResult.DONE
        except QueueTimeout:
            result = UpdateResult.LATE
            return error(504, message, f"timed out after {self._patience.queue:g} s waiting for other updates")
        except ClientGone:
            result = UpdateResult.LEFT
            raise
        except UpdateFailed as failure:
            return error(failure.status, message, failure.detail)
        except Exception as failure:
            log.exception(message)
            return error(500, message, f"internal error: {type(failure).__name__}")
        finally:
            self._metrics.updated(operation, result)
        return done("partially done" if not_done else "", not_done)


def _log_result(scope: AsgiScope, response: Response) -> None:
    """Log the result of an update, because the client may not keep the response."""
    document = json.loads(bytes(response.body)) if response.body else {}
    words = " ".join(": ".join(text for text in (document.get("message"), document.get("detail")) if text).split())
    refused = response.status_code in range(400, 500)
    level = logging.INFO if refused else logging.WARNING if words else NOTICE
    log.log(level, "%s: %d %s", request_line(scope), response.status_code, words or "done")


def _plain(status: SetMembership, *, in_path: bool) -> bytes:
    """Encode the decoded status again, so that the backend cannot interpret the request differently."""
    membership = {"active": status.active, "evictable": status.evictable}
    machine = {} if in_path else {"machineId": status.machine}
    return json.dumps({**machine, "membershipStatus": membership}).encode()
