"""A model of Liqo's first node manager: GET for all requests, and an empty response for unknown names."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from devcluster.standin.faults import Fault
from devcluster.standin.server import StandinServer
from rescheduler.liqo.client import LiqoFile
from rescheduler.liqo.provider import LiqoProvider
from rescheduler.net.config_files import Endpoint
from rescheduler.providers.base import CloudProvider, NodeRef
from tests.providers.clocks import StepClock
from tests.providers.failing import FailingDeletions

GROUP = "STANDARD"


@dataclass
class FirstNodeManager:
    """Groups with their sizes and nodes."""

    limits: dict[str, tuple[int, int]]
    nodes: dict[str, list[str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        """Do nothing; nothing is open."""

    def scale_up(self, group: str, count: int) -> None:
        with self.lock:
            members = self.nodes.setdefault(group, [])
            members += [f"cluster-{len(members) + n}" for n in range(count)]

    def scale_down(self, group: str, name: str) -> None:
        """Remove the node; an unknown node is not an error."""
        with self.lock, contextlib.suppress(ValueError, KeyError):
            self.nodes[group].remove(name)


def application(manager: FirstNodeManager) -> Starlette:
    def groups(_: Request) -> Response:
        response = [{"id": name, "maxSize": most, "minSize": least} for name, (least, most) in manager.limits.items()]
        return JSONResponse(response or None)

    def nodes(request: Request) -> Response:
        members = manager.nodes.get(request.query_params["id"])
        state = {"InstanceState": 1, "InstanceErrorInfo": ""}
        return JSONResponse([{"id": name, "--": state} for name in members] if members else None)

    def scale_up(request: Request) -> Response:
        manager.scale_up(request.query_params["id"], int(request.query_params["count"]))
        return JSONResponse(True)

    def scale_down(request: Request) -> Response:
        manager.scale_down(request.query_params["nodegroupid"], request.query_params["id"].removeprefix("liqo://"))
        return Response()

    def template(request: Request) -> Response:
        if request.query_params["id"] not in manager.limits:
            return JSONResponse(None)
        least = {"cpu": "2", "memory": "2Gi", "pods": "110", "nvidia.com/gpu": "0"}
        return JSONResponse(
            {
                "nodegroupId": request.query_params["id"],
                "resources": {"min": least, "max": least | {"memory": "3Gi"}},
                "labels": {"country": "italy", "provider": "liqo"},
                "cost": 1,
            }
        )

    def price(request: Request) -> Response:
        if request.query_params["id"].startswith("template"):
            return JSONResponse(2.5)
        return PlainTextResponse("index out of range", status_code=500)

    routes = {
        "/nodegroup": groups,
        "/nodegroup/nodes": nodes,
        "/nodegroup/scaleup": scale_up,
        "/nodegroup/scaledown": scale_down,
        "/nodegroup/template": template,
        "/nodegroup/nodeprice": price,
        "/nodegroup/podprice": lambda _: JSONResponse(1),
        "/gpu/label": lambda _: JSONResponse("nvidia.com/gpu"),
        "/gpu/types": lambda _: JSONResponse(["nvidia.com/gpu", "second type"]),
        "/{anything:path}": lambda _: Response(),
    }
    return Starlette(routes=[Route(path, response) for path, response in routes.items()])


@contextlib.contextmanager
def serving(machines: int = 0, minimum: int = 0) -> Iterator[StandinServer[FirstNodeManager]]:
    manager = FirstNodeManager({GROUP: (minimum, 10), "GPU": (0, 1)})
    manager.scale_up(GROUP, machines)
    with StandinServer(manager, application(manager)).running() as server:
        yield server


def provider(url: str, clock: StepClock, **fields: Any) -> LiqoProvider:
    return LiqoProvider(LiqoFile(node_manager=Endpoint(url=url, **fields)), Path(), clock)


def node_of(name: str) -> NodeRef:
    return NodeRef(name, f"liqo://{name}", {"liqo.io/type": "virtual-node", "type": "virtual-kubelet"})


class FirstWorld(FailingDeletions):
    """World of the conformance table (see `conformance`)."""

    group = GROUP

    def __init__(self, server: StandinServer[FirstNodeManager], clock: StepClock, stack: contextlib.ExitStack) -> None:
        self.server, self.clock, self._stack = server, clock, stack
        self._all = [node_of(name) for name in server.cloud.nodes[GROUP]]
        self.provider: CloudProvider = self._open()

    def _open(self) -> CloudProvider:
        opened = provider(self.server.url, self.clock)
        self._stack.callback(opened.close)
        return opened

    def restart(self) -> None:
        self.provider = self._open()

    def nodes(self) -> list[NodeRef]:
        return [node for node in self._all if self.runs(node)]

    def foreign(self) -> NodeRef:
        return NodeRef("worker-1", "aws:///eu-west-1a/i-0123456789")

    def placeholder(self) -> NodeRef:
        return NodeRef(self._all[0].provider_id, self._all[0].provider_id)

    def runs(self, node: NodeRef) -> bool:
        return node.provider_id.removeprefix("liqo://") in self.server.cloud.nodes[GROUP]

    def target(self) -> int:
        return len(self.server.cloud.nodes[GROUP])

    def _inject(self, **fault: Any) -> None:
        self.server.faulty_app.inject(Fault(method="GET", path="/nodegroup/scaledown", **fault))

    def go_down(self) -> None:
        for path in ("/version", "/nodegroup", "/nodegroup/nodes", "/nodegroup/scaledown"):
            self.server.faulty_app.inject(Fault(method="GET", path=path, status=503, times=1000))


@contextlib.contextmanager
def first_node_manager_world(machines: int, minimum: int) -> Iterator[FirstWorld]:
    clock = StepClock()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(machines, minimum))
        yield FirstWorld(server, clock, stack)
