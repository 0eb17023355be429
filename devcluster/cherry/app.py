"""The API below ``/v1`` as an ASGI application."""

import collections
import json
import threading
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from devcluster.cherry.cloud import CherryCloud, plan_documents
from devcluster.standin.faults import App, Receive, Scope, Send

_MAX_PAGE = 100  #: servers on a page


def application(cloud: CherryCloud, *, per_second: int | None = None) -> App:
    """Return the application, which allows *per_second* requests per second of the cloud's clock; `None`: no limit."""
    routes = _Routes(cloud)
    table = [
        Route("/v1/projects/{project:int}/servers", routes.servers, methods=["GET"]),
        Route("/v1/projects/{project:int}/servers", routes.create, methods=["POST"]),
        Route("/v1/servers/{server:int}", routes.server, methods=["GET"]),
        Route("/v1/servers/{server:int}", routes.delete, methods=["DELETE"]),
        Route("/v1/plans", routes.plans, methods=["GET"]),
    ]
    return _Gate(Starlette(routes=table), cloud, per_second)


class _Routes:
    def __init__(self, cloud: CherryCloud) -> None:
        self._cloud = cloud

    async def servers(self, request: Request) -> Response:
        project = request.path_params["project"]
        limit = min(_number(request, "limit", _MAX_PAGE), _MAX_PAGE)
        offset = _number(request, "offset", 0)
        states = await run_in_threadpool(self._cloud.servers, project)
        page = [state.document(self._cloud.now()) for state in states[offset : offset + limit]]
        return JSONResponse(page, headers={"x-total-count": str(len(states))})

    async def create(self, request: Request) -> Response:
        project = request.path_params["project"]
        try:
            order = json.loads(await request.body())
        except ValueError:
            return _error(400, "the body is not JSON")
        if not isinstance(order, dict) or order.get("project_id", project) != project:
            return JSONResponse({"error": "project id mismatch"}, 400)
        try:
            server = await run_in_threadpool(self._cloud.create, project, order)
        except ValueError as error:
            return _error(400, str(error))
        return JSONResponse(server.document(self._cloud.now()), 201)

    async def server(self, request: Request) -> Response:
        state = await run_in_threadpool(self._cloud.server, request.path_params["server"])
        return _error(404, "Server not found") if state is None else JSONResponse(state.document(self._cloud.now()))

    async def delete(self, request: Request) -> Response:
        if not await run_in_threadpool(self._cloud.end, request.path_params["server"]):
            return _error(404, "Server not found")
        return Response(status_code=204)

    async def plans(self, _: Request) -> Response:
        return JSONResponse(plan_documents())


class _Gate:
    """Authentication and rate limit in front of *app*."""

    def __init__(self, app: App, cloud: CherryCloud, per_second: int | None) -> None:
        self._app, self._cloud, self._per_second = app, cloud, per_second
        self._seen: collections.deque[float] = collections.deque()
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: App = self._app
        if scope["type"] == "http":
            if Request(scope).headers.get("authorization") != f"Bearer {self._cloud.settings.token}":
                response = _error(401, "Invalid API token")
            elif self._over_limit():
                response = _error(429, "Too Many Requests", {"retry-after": "1"})
        await response(scope, receive, send)

    def _over_limit(self) -> bool:
        if self._per_second is None:
            return False
        now = self._cloud.now().timestamp()
        with self._lock:
            while self._seen and self._seen[0] <= now - 1:
                self._seen.popleft()
            if len(self._seen) >= self._per_second:
                return True
            self._seen.append(now)
        return False


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    return int(text) if text.isdigit() else default


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    document: dict[str, Any] = {"code": status, "message": message}
    return JSONResponse(document, status, headers)
