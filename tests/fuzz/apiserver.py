"""In-memory API server with the part of the API that the proxy and the daemon use."""

import asyncio
import contextlib
import json
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from devcluster.standin.server import listen

Json: TypeAlias = dict[str, Any]

OURS: Final = "spot-rescheduler"  #: part of the keys of the product's taints and annotations
_LOOK: Final = 0.05  #: poll interval of watches in seconds


class ApiServer:
    """Nodes and Pods; all other collections are empty. Evicted pods disappear at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version = 1
        self._objects: dict[str, dict[str, Json]] = {"nodes": {}, "pods": {}}
        self._events: list[tuple[str, Json]] = []  #: the event of version n + 2 at index n, with its collection
        self._socket = listen(0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        routes = [
            Route("/api/v1/nodes/{name}", self._node, methods=["GET", "PATCH", "DELETE"]),
            Route("/api/v1/namespaces/{namespace}/pods/{name}/eviction", self._evict, methods=["POST"]),
            Route("/api/v1/namespaces/{namespace}/events", lambda _: JSONResponse({}, 201), methods=["POST"]),
            Route("/api/v1/namespaces/{namespace}/configmaps/{name}", lambda _: _refusal(404, "no such configmap")),
            Route("/api/v1/namespaces/{namespace}/configmaps", _created, methods=["POST"]),
            Route("/{path:path}", self._collection, methods=["GET"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            lifespan="off",
            ws="none",
            http="h11",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)

    # -- state

    def put(self, plural: str, obj: Json) -> None:
        """Create or replace the object."""
        obj["metadata"].setdefault("uid", str(uuid.uuid4()))
        with self._lock:
            name = obj["metadata"]["name"]
            self._write(plural, obj, "MODIFIED" if name in self._objects[plural] else "ADDED")

    def drop(self, plural: str, name: str) -> None:
        with self._lock:
            if removed := self._objects[plural].pop(name, None):
                self._event(removed, "DELETED", plural)

    def names(self, plural: str) -> set[str]:
        with self._lock:
            return set(self._objects[plural])

    def pods_on(self, node: str) -> list[str]:
        with self._lock:
            return [name for name, obj in self._objects["pods"].items() if obj["spec"].get("nodeName") == node]

    def marked(self) -> list[str]:
        """Return the Nodes with a taint or an annotation of the product."""
        with self._lock:
            return [name for name, obj in self._objects["nodes"].items() if OURS in json.dumps(obj)]

    def _write(self, plural: str, obj: Json, kind: str) -> None:
        self._objects[plural][obj["metadata"]["name"]] = obj
        self._event(obj, kind, plural)

    def _event(self, obj: Json, kind: str, plural: str) -> None:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self._events.append((plural, {"type": kind, "object": json.loads(json.dumps(obj))}))

    # -- HTTP API

    async def _node(self, request: Request) -> Response:
        name = request.path_params["name"]
        if request.method == "DELETE":
            self.drop("nodes", name)
            return JSONResponse({})
        change = await request.json() if request.method == "PATCH" else None
        with self._lock:
            node = self._objects["nodes"].get(name)
            if node is None:
                return _refusal(404, f"nodes {name!r} not found")
            if change is None:
                return JSONResponse(node)
            wanted = change.get("metadata", {}).get("resourceVersion", node["metadata"]["resourceVersion"])
            if wanted != node["metadata"]["resourceVersion"]:
                return _refusal(409, "the object has been modified")
            self._write("nodes", merged(node, change), "MODIFIED")
            return JSONResponse(self._objects["nodes"][name])

    async def _evict(self, request: Request) -> Response:
        self.drop("pods", request.path_params["name"])
        return JSONResponse({"kind": "Status", "apiVersion": "v1", "status": "Success"}, 201)

    async def _collection(self, request: Request) -> Response:
        plural = request.url.path.rpartition("/")[2]
        if request.query_params.get("watch"):
            since = int(request.query_params.get("resourceVersion") or 1)
            return StreamingResponse(self._watched(plural, since), media_type="application/json")
        selected = request.query_params.get("fieldSelector", "").partition("spec.nodeName=")[2]
        with self._lock:
            items = [
                obj
                for obj in self._objects.get(plural, {}).values()
                if not selected or obj["spec"].get("nodeName") == selected
            ]
            return JSONResponse({"metadata": {"resourceVersion": str(self._version)}, "items": items})

    async def _watched(self, plural: str, since: int) -> AsyncIterator[str]:
        while True:
            with self._lock:
                new = self._events[max(0, since - 1) :]
            for of, event in new:
                since += 1
                if of == plural:
                    yield json.dumps(event) + "\n"
            await asyncio.sleep(_LOOK)

    @contextlib.contextmanager
    def running(self) -> Iterator["ApiServer"]:
        thread = threading.Thread(target=self._server.run, args=([self._socket],), name="api-server")
        thread.start()
        try:
            yield self
        finally:
            self._server.should_exit = True
            thread.join()
            self._socket.close()


def merged(target: Any, change: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396)."""
    if not isinstance(change, dict):
        return change
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def pod(name: str, on: str) -> Json:
    """Return a pod of a ReplicaSet, running on a Node."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}, "ownerReferences": [owner]},
        "spec": {
            "nodeName": on,
            "containers": [{"name": "web", "image": "web", "resources": {"requests": {"cpu": "100m"}}}],
        },
        "status": {"phase": "Running"},
    }


async def _created(request: Request) -> Response:
    obj = await request.json()
    obj["metadata"]["resourceVersion"] = "1"
    return JSONResponse(obj, 201)


def _refusal(code: int, message: str) -> Response:
    return JSONResponse({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}, code)
