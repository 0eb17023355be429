"""The REST API, version 5, and its multipool variant, as an ASGI application."""

import email.utils
import http
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from devcluster.cloudpool import errors
from devcluster.cloudpool.pool import ReferencePool
from devcluster.standin.faults import App, Fault, Message, Receive, Scope, Send
from rescheduler import decoding
from rescheduler.clock import Clock

Endpoint = Callable[[Request], Awaitable[Response]]
Call = Callable[[Any], Any]  #: takes the decoded request body, returns the response document; `None` for no body


class _RequestBody(msgspec.Struct, rename="camel"):
    """Base of request bodies; as in the Java server, a missing field has the default of its type."""


class SetSize(_RequestBody):
    desired_size: int = 0


class MachineRequest(_RequestBody):
    machine_id: str
    decrement_desired_size: bool | None = None


class SetServiceState(_RequestBody):
    machine_id: str
    service_state: str


class MembershipStatus(_RequestBody):
    active: bool = True
    evictable: bool = True


class CloudState(_RequestBody):
    down: bool = False
    failing_terminations: int = (
        0  #: number of terminations that fail after taking effect, without decrementing the desired size
    )


class MembershipRequest(_RequestBody):
    machine_id: str
    membership_status: MembershipStatus


def application(pool: ReferencePool) -> Starlette:
    """Return the application with the pool at `/`, or as the only instance of a multipool below `/cloudpools/`."""
    multi = pool.settings.api == "multipool"
    root = f"/cloudpools/{pool.settings.multipool_name}" if multi else ""
    routes = [
        _get(f"{root}/config", pool.config),
        _post(f"{root}/config", Any, pool.set_config),
        _post(f"{root}/start", None, lambda _: pool.start()),
        _post(f"{root}/stop", None, lambda _: pool.stop()),
        _get(f"{root}/status", pool.status),
        _get(f"{root}/pool", pool.pool),
        _get(f"{root}/pool/size", pool.size),
        _post(f"{root}/pool/size", SetSize, lambda body: pool.set_size(body.desired_size)),
        *_machine_routes(pool, root if multi else "/pool"),
    ]
    if multi:
        routes.append(Route("/cloudpools", _instances(root), methods=["GET"]))
    app = Starlette(routes=routes)
    app.state.client_errors_only = multi
    return app


def _machine_routes(pool: ReferencePool, root: str) -> list[Route]:
    return [
        _post(
            f"{root}/terminate",
            MachineRequest,
            lambda body: pool.terminate(body.machine_id, decrement=bool(body.decrement_desired_size)),
        ),
        _post(
            f"{root}/detach",
            MachineRequest,
            lambda body: pool.detach(body.machine_id, decrement=bool(body.decrement_desired_size)),
        ),
        _post(f"{root}/attach", MachineRequest, lambda body: pool.attach(body.machine_id)),
        _post(
            f"{root}/serviceState",
            SetServiceState,
            lambda body: pool.set_service_state(body.machine_id, body.service_state),
        ),
        _post(
            f"{root}/membershipStatus",
            MembershipRequest,
            lambda body: pool.set_membership(
                body.machine_id, active=body.membership_status.active, evictable=body.membership_status.evictable
            ),
        ),
    ]


def admin_routes(pool: ReferencePool, inject: Callable[[Fault], None]) -> list[Route]:
    """Return the routes for fault injection: POST /-/faults with a fault, POST /-/cloud with the cloud's state."""

    def cloud(body: CloudState) -> None:
        pool.cloud_down, pool.failing_terminations = body.down, body.failing_terminations

    return [_post("/-/faults", Fault, inject), _post("/-/cloud", CloudState, cloud)]


def _get(path: str, call: Callable[[], Any]) -> Route:
    async def endpoint(request: Request) -> Response:
        return await _answer(request, call)

    return Route(path, endpoint, methods=["GET"])


def _post(path: str, shape: Any, call: Call) -> Route:
    async def endpoint(request: Request) -> Response:
        if shape is None:
            return await _answer(request, lambda: call(None))
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return PlainTextResponse("Unsupported Media Type", http.HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        try:
            body = decoding.decode(await request.body(), shape)
        except msgspec.DecodeError as error:
            return _error(request, errors.BadInput("failed to process request", _stack_trace(error)))
        return await _answer(request, lambda: call(body))

    return Route(path, endpoint, methods=["POST"])


async def _answer(request: Request, call: Callable[[], Any]) -> Response:
    try:
        document = await run_in_threadpool(call)
    except errors.PoolError as error:
        return _error(request, error)
    if document is None:
        return Response()
    return Response(json.dumps(document, indent=2), media_type="application/json")


def _error(request: Request, error: errors.PoolError) -> Response:
    client_error = request.app.state.client_errors_only and isinstance(error, errors.NotStarted)
    body = json.dumps({"message": error.message, "detail": error.detail}, indent=2)
    status = http.HTTPStatus.BAD_REQUEST if client_error else error.status
    return Response(body, status, media_type="application/json")


def _instances(root: str) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        urls = [str(request.url.replace(path=root))]
        return Response(json.dumps(urls), media_type="application/json")

    return endpoint


def _stack_trace(error: Exception) -> str:
    """Return a `detail` text as the reference server formats it."""
    return f"{error}\n\tat com.elastisys.scale.cloudpool(Unknown Source)"


class Dated:
    """Adds a Date header from the pool's clock to responses."""

    def __init__(self, app: App, clock: Clock) -> None:
        self._app, self._clock = app, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                date = email.utils.format_datetime(self._clock.now(), usegmt=True)
                message = {**message, "headers": [*message.get("headers", []), (b"date", date.encode())]}
            await send(message)

        await self._app(scope, receive, dated)


class Authenticated:
    """Rejects requests without the accepted Authorization header."""

    def __init__(self, app: App, authorization: str) -> None:
        self._app, self._authorization = app, authorization

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and Request(scope).headers.get("authorization") != self._authorization:
            response = PlainTextResponse("Unauthorized", 401, {"www-authenticate": 'Basic realm="cloudpool"'})
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)
