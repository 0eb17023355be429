"""The API as an ASGI application."""

import json
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from devcluster.stackpoint.cloud import StackpointCloud
from devcluster.standin.faults import App, Receive, Scope, Send

_REASON = "Node is a member of the etcd cluster and cannot be deleted"


def application(cloud: StackpointCloud) -> App:
    root = f"/orgs/{cloud.settings.organization}/clusters/{cloud.settings.cluster}"

    async def nodes(_request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(cloud.documents))

    async def node(request: Request) -> Response:
        state = await run_in_threadpool(cloud.node, request.path_params["pk"])
        return _missing() if state is None else JSONResponse(state.document(cloud.settings.cluster, cloud.now()))

    async def can_delete(request: Request) -> Response:
        state = await run_in_threadpool(cloud.node, request.path_params["pk"])
        if state is None:
            return _missing()
        return JSONResponse({"eligible": True}) if state.eligible else JSONResponse({"detail": _REASON}, 400)

    async def delete(request: Request) -> Response:
        return (
            Response(status_code=204) if await run_in_threadpool(cloud.end, request.path_params["pk"]) else _missing()
        )

    routes = [
        Route(f"{root}/nodes", nodes, methods=["GET"]),
        Route(f"{root}/nodes/{{pk:int}}", node, methods=["GET"]),
        Route(f"{root}/nodes/{{pk:int}}", delete, methods=["DELETE"]),
    ]
    if cloud.settings.asks:
        routes.append(Route(f"{root}/nodes/{{pk:int}}/can_delete", can_delete, methods=["GET"]))
    routes += [*_adding(cloud, root), *(_pools(cloud, root) if cloud.settings.pools else ())]
    return _TokenCheck(Starlette(routes=routes), cloud.settings.token)


def _adding(cloud: StackpointCloud, root: str) -> list[Route]:
    """Return the route of the first API generation, which the second generation still supports."""

    async def add_node(request: Request) -> Response:
        return await run_in_threadpool(_add, cloud, await request.body(), None)

    return [Route(f"{root}/add_node", add_node, methods=["POST"])]


def _pools(cloud: StackpointCloud, root: str) -> list[Route]:
    async def pools(_request: Request) -> Response:
        return JSONResponse(msgspec.to_builtins(cloud.settings.pools))

    async def add_to_pool(request: Request) -> Response:
        return await run_in_threadpool(_add, cloud, await request.body(), request.path_params["pool"])

    return [
        Route(f"{root}/nodepools", pools, methods=["GET"]),
        Route(f"{root}/nodepools/{{pool:int}}/add", add_to_pool, methods=["POST"]),
    ]


def _add(cloud: StackpointCloud, body: bytes, of: int | None) -> Response:
    """Add nodes to a group (first generation) or to a pool; the response may list the whole cluster."""
    try:
        order = json.loads(body)
    except ValueError:
        return JSONResponse({"detail": "the body is not JSON"}, 400)
    pool = cloud.pool(of if of is not None else order.get("node_pool", 0))
    count = order.get("node_count", 0)
    if not order.get("size") or count < 1 or (of is not None and (pool is None or order.get("node_pool") != of)):
        return JSONResponse({"detail": "size, node_count or node_pool is not valid"}, 400)
    group = f"autoscaling-{pool.instance_id}" if pool else order.get("group", "")
    added = [
        cloud.add(group_name=group, size=order["size"], pool=pool.pk if pool else None).instance_id
        for _ in range(count)
    ]
    documents: list[dict[str, Any]] = [
        node for node in cloud.documents() if cloud.settings.answers_all or node["instance_id"] in added
    ]
    return JSONResponse(documents, 201)


class _TokenCheck:
    def __init__(self, app: App, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: App = self._app
        if scope["type"] == "http" and Request(scope).headers.get("authorization") != f"Bearer {self._token}":
            response = JSONResponse({"detail": "Invalid token."}, 401)
        await response(scope, receive, send)


def _missing() -> Response:
    return JSONResponse({"detail": "Not found."}, 404)
