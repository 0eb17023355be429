"""The proxy before a cloudpool: what forwarding costs, and what a scale-down asks of the API server.

All are processes of their own, on the local control plane: 100 nodes of the reference cloudpool, 3,000 pods.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

import httpx

from deploy.local import kubeconfig, ports
from deploy.local.cloudpool.faults import Message, Receive, Request, Send
from deploy.local.demo import machines
from deploy.local.demo.program import Program
from deploy.local.plane import ControlPlane
from deploy.local.standin.server import Server
from rescheduler.backends.config import Endpoint
from rescheduler.backends.credentials import Credentials
from rescheduler.proxy.forward import Forwarder
from tests.bench import shapes
from tests.bench.reading import seed
from tests.bench.result import Result
from tests.bench.shapes import Json

NODES: Final = 100
PODS: Final = 3000
FEWER: Final = 10  #: nodes that the scale-down is to take
SAMPLES: Final = 1000
ROUNDS: Final = 3
CLIENTS: Final = 8
_SECONDS: Final = 300.0  #: for anything that is waited for
_WATCHES: Final = 600.0  #: between two parts of a watch's answer


def run() -> Iterator[Result]:
    with _scene() as scene:
        yield from _forwarding(scene)
        yield from _decision(scene)


@dataclass(frozen=True, slots=True)
class _Scene:
    plane: ControlPlane
    pool: str
    proxy: str
    calls: list[Request]  #: all that reached the API server by the proxy, since its start


# -- forwarded reads, beside direct ones


def _forwarding(scene: _Scene) -> Iterator[Result]:
    for path, what in (("/pool/size", "GET /pool/size"), ("/pool", f"GET /pool, {NODES} machines")):
        direct, ours = _in_turns(partial(_latencies, path=path, count=SAMPLES), scene)
        cuts = [quantiles(seconds, n=100) for seconds in (direct, ours)]
        for name, cut, bounds in (("p50", 49, (5, 3)), ("p99", 98, (6, 3))):
            peer, own = (one[cut] * 1e3 for one in cuts)
            row = f"forwarded by the proxy beside direct, {what}: latency, {name}"
            yield Result(row, f"{own:.2f} ms", f"{peer:.2f} ms", own / peer, "times", *bounds)
    direct, ours = _in_turns(lambda url: [_rate(url, "/pool/size")], scene)
    row = f"the same, GET /pool/size by {CLIENTS} clients: requests a second"
    yield Result(row, f"{max(ours):.0f}", f"{max(direct):.0f}", 100 * max(ours) / max(direct), "%", 20, 40)


def _in_turns(measure: Callable[[str], list[float]], scene: _Scene) -> tuple[list[float], list[float]]:
    """What was measured directly, and by the proxy; each was warmed up before."""
    found: dict[str, list[float]] = {scene.pool: [], scene.proxy: []}
    for _ in range(ROUNDS):
        for url, values in found.items():
            _latencies(url, "/pool/size", 50)
            values.extend(measure(url))
    return found[scene.pool], found[scene.proxy]


def _rate(url: str, path: str) -> float:
    """Answers a second, with as many clients at once as there are to be."""
    each = SAMPLES // CLIENTS
    with ThreadPoolExecutor(CLIENTS) as clients:
        began = time.perf_counter()
        taken = list(clients.map(lambda _: _latencies(url, path, each), range(CLIENTS)))
        return sum(map(len, taken)) / (time.perf_counter() - began)


def _latencies(url: str, path: str, count: int) -> list[float]:
    """Seconds from the request to the last byte of the answer, on one connection."""
    where = urlsplit(url)
    request = f"GET {path} HTTP/1.1\r\nHost: {where.netloc}\r\nAccept: application/json\r\n\r\n".encode()
    found: list[float] = []
    with socket.create_connection((where.hostname, where.port), _SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            began = time.perf_counter()
            connection.sendall(request)
            _take_answer(connection)
            found.append(time.perf_counter() - began)
    return found


def _take_answer(connection: socket.socket) -> None:
    """Read one answer of known length; anything but a 200 is an error."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += _part(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    length = int(head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
    left = length - len(body)
    while left > 0:
        left -= len(_part(connection))


def _part(connection: socket.socket) -> bytes:
    part = connection.recv(1 << 16)
    assert part, "the connection was closed in the middle of an answer"
    return part


# -- a scale-down


def _decision(scene: _Scene) -> Iterator[Result]:
    """Ask for fewer machines, and count what the proxy asks the API server until it marks its first victim.

    What is decided shows in the marks of all victims, which come before the first drain. That is not waited for: at
    its end, the proxy takes the marks back.
    """
    before = len(scene.calls)
    where, body = urlsplit(scene.proxy), json.dumps({"desiredSize": NODES - FEWER})
    head = f"POST /pool/size HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((where.hostname, where.port), _SECONDS) as client:
        began = time.perf_counter()
        client.sendall((head + body).encode())
        scene.plane.wait_for(lambda: _marked(scene.calls[before:]), "the first victim", seconds=_SECONDS)
        seconds = time.perf_counter() - began
        scene.plane.wait_for(lambda: len(_marked(scene.calls[before:])) == FEWER, f"{FEWER} victims", seconds=_SECONDS)
    calls = scene.calls[before:]
    needed = calls.index(next(one for one in calls if _is_mark(one)))
    row = f"scale-down by {FEWER} of {NODES} nodes with {PODS:,} pods"
    at_start = f"{before} at its start"
    yield Result(f"{row}: API calls until it is decided", f"{needed}", at_start, needed, "calls", 6, 1)
    yield Result(f"{row}: from the request to the first mark", f"{seconds:.2f} s", "", seconds, "s", 10, 2)


def _marked(calls: Sequence[Request]) -> set[str]:
    return {one.path for one in calls if _is_mark(one)}


def _is_mark(call: Request) -> bool:
    return call.method == "PATCH" and call.path.startswith("/api/v1/nodes/")


# -- the scene


@contextmanager
def _scene() -> Iterator[_Scene]:
    with ControlPlane(running=("etcd", "kube-apiserver")) as plane, ExitStack() as until:
        folder = Path(until.enter_context(TemporaryDirectory()))
        seed(plane, _workloads(folder / "pods.json"))
        plane.start_component("kwok")
        pool = until.enter_context(machines.serving(plane, NODES, {"name": "od"}))
        plane.wait_for(lambda: _ready(plane) == NODES, "the machines to join", seconds=_SECONDS)
        for name in ("kube-controller-manager", "kube-scheduler"):
            plane.start_component(name)
        plane.wait_for(lambda: not _tainted(plane), "the nodes to take pods", seconds=_SECONDS)
        api = until.enter_context(_counted(plane))
        proxy = until.enter_context(_proxy(plane, api.url, pool.url, folder))
        yield _Scene(plane, pool.url, proxy, api.face.requests)


class _Edge:
    """The API server, handed on."""

    def __init__(self, plane: ControlPlane) -> None:
        credentials = Credentials(Endpoint(url=plane.server, ca_file=str(plane.ca)), Path())
        self._forwarder = Forwarder(plane.server, credentials, _WATCHES)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await self._forwarder.forward(scope, receive, send)

    def close(self) -> None:
        """Its connections end with the event loop's thread."""


@contextmanager
def _counted(plane: ControlPlane) -> Iterator[Server[_Edge]]:
    edge = _Edge(plane)
    with Server(edge, edge).running() as server:
        yield server


@contextmanager
def _proxy(plane: ControlPlane, api: str, pool: str, folder: Path) -> Iterator[str]:
    """``rescheduler proxy``, once it has read the cluster; its URL."""
    login = kubeconfig.write(folder / "kubeconfig", server=api, ca=plane.ca, token=plane.token, user="proxy")
    config = {
        "apiServer": {"url": api, "auth": {"kubeConfigPath": str(login)}},
        "backend": {"url": pool, "settleTime": "5s"},
    }
    file = folder / "proxy.json"
    file.write_text(json.dumps(config))
    with ExitStack() as until:
        port, pages = ports.reserve(until), ports.reserve(until)
        arguments = [f"--config-file={file}", f"--port={port}", f"--listen-address=127.0.0.1:{pages}"]
        command = ["rescheduler", "proxy", "--host=127.0.0.1", *arguments]
        until.enter_context(Program(command, shown=False))
        plane.wait_for(lambda: _is_up(f"http://127.0.0.1:{pages}/readyz"), "the proxy", seconds=_SECONDS)
        yield f"http://127.0.0.1:{port}"


def _is_up(page: str) -> bool:
    try:
        return httpx.get(page, trust_env=False).is_success
    except httpx.TransportError:
        return False


def _workloads(path: Path) -> Path:
    """30 pods a node, one more or less, of 100 workloads with budgets; every one could stand on another node."""
    items: list[Json] = [shapes.namespace("team-0")]
    nodes = [f"od-{i + 1}" for i in range(NODES) for _ in range(PODS // NODES + (1 if i % 2 else -1))]
    replicas = PODS // NODES
    for number in range(NODES):
        app = shapes.App(f"app-{number}", "team-0", "", replicas, tolerant=False, cpu=50, memory=64)
        text = shapes.PodText(shapes.pod(app))
        owner = _replica_set(app)
        items += [owner, shapes.budget(app)]
        for i, node in enumerate(nodes[number::NODES]):
            name = f"{app.name}-{app.hash}-{shapes.suffix(i)}"
            pod = json.loads(text.fill(name, node, number * replicas + i, app.namespace))
            pod["metadata"]["ownerReferences"][0]["uid"] = owner["metadata"]["uid"]
            items.append(pod)
    path.write_text(json.dumps({"items": items}))
    return path


def _replica_set(app: shapes.App) -> Json:
    """One that makes evicted pods anew."""
    requests = {"cpu": f"{app.cpu}m", "memory": f"{app.memory}Mi"}
    container = {"name": "app", "image": "registry.example.com/app:v1.2.3", "resources": {"requests": requests}}
    made = shapes.replica_set(app)
    made["spec"]["template"] = {"metadata": {"labels": app.labels}, "spec": {"containers": [container]}}
    return made


def _ready(plane: ControlPlane) -> int:
    conditions = [one["status"].get("conditions", []) for one in plane.api.items("/api/v1/nodes")]
    return sum(any((one["type"], one["status"]) == ("Ready", "True") for one in each) for each in conditions)


def _tainted(plane: ControlPlane) -> list[str]:
    return [one["metadata"]["name"] for one in plane.api.items("/api/v1/nodes") if one["spec"].get("taints")]
