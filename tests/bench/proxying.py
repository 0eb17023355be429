"""The proxy in front of a cloudpool: the overhead of forwarding, and the API calls of a scale-down.

All parts are processes, on the local control plane with 100 nodes of the reference cloudpool and 3,000 pods.
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

import httpx2

from devcluster import kubeconfig, ports
from devcluster.demo import machines
from devcluster.demo.program import Program
from devcluster.plane import ControlPlane
from devcluster.standin.faults import LoggedRequest, Message, Receive, Send
from devcluster.standin.server import StandinServer
from rescheduler.cloudpool.proxy.forward import Forwarder
from rescheduler.net.config_files import Credentials, Endpoint
from tests.bench import shapes
from tests.bench.reading import seed
from tests.bench.result import Result, cost
from tests.bench.shapes import Json

NODES: Final = 100
PODS: Final = 3000
FEWER: Final = 10  #: nodes that the scale-down removes
SAMPLES: Final = 1000
ROUNDS: Final = 3
CLIENTS: Final = 8
_SECONDS: Final = 300.0  #: time limit of every wait
_WATCHES: Final = 600.0  #: time limit between two parts of a watch's response


def run() -> Iterator[Result]:
    with _scene() as scene:
        yield from _forwarding(scene)
        yield from _decision(scene)


@dataclass(frozen=True, slots=True)
class _ProxiedScene:
    plane: ControlPlane
    pool: str
    proxy: str
    calls: list[LoggedRequest]  #: requests of the proxy to the API server since its start


# -- forwarded and direct reads


def _forwarding(scene: _ProxiedScene) -> Iterator[Result]:
    for path, label in (("/pool/size", "GET /pool/size"), ("/pool", f"GET /pool, {NODES} machines")):
        direct, ours = _in_turns(partial(_latencies, path=path, count=SAMPLES), scene)
        cuts = [quantiles(seconds, n=100) for seconds in (direct, ours)]
        for name, cut, bounds in (("p50", 49, (5, 3)), ("p99", 98, (6, 3))):
            peer, own = (cut_points[cut] * 1e3 for cut_points in cuts)
            row = f"forwarded by the proxy compared to direct, {label}: latency, {name}"
            yield Result(row, f"{own:.2f} ms", f"{peer:.2f} ms", own / peer, "times", *bounds)
    direct, ours = _in_turns(lambda url: [_rate(url, "/pool/size")], scene)
    row = f"the same, GET /pool/size by {CLIENTS} clients: requests per second"
    yield Result(row, f"{max(ours):.0f}", f"{max(direct):.0f}", 100 * max(ours) / max(direct), "%", 20, 40)


def _in_turns(measure: Callable[[str], list[float]], scene: _ProxiedScene) -> tuple[list[float], list[float]]:
    """Return the direct and the forwarded measurements, each after a warm-up."""
    measured: dict[str, list[float]] = {scene.pool: [], scene.proxy: []}
    for _ in range(ROUNDS):
        for url, values in measured.items():
            _latencies(url, "/pool/size", 50)
            values.extend(measure(url))
    return measured[scene.pool], measured[scene.proxy]


def _rate(url: str, path: str) -> float:
    """Return the responses per second with all clients in parallel."""
    each = SAMPLES // CLIENTS
    with ThreadPoolExecutor(CLIENTS) as clients:
        start = time.perf_counter()
        latencies = list(clients.map(lambda _: _latencies(url, path, each), range(CLIENTS)))
        return sum(map(len, latencies)) / (time.perf_counter() - start)


def _latencies(url: str, path: str, count: int) -> list[float]:
    """Return the seconds from request to last byte, on one connection."""
    where = urlsplit(url)
    request = f"GET {path} HTTP/1.1\r\nHost: {where.netloc}\r\nAccept: application/json\r\n\r\n".encode()
    seconds: list[float] = []
    with socket.create_connection((where.hostname, where.port), _SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            start = time.perf_counter()
            connection.sendall(request)
            _take_answer(connection)
            seconds.append(time.perf_counter() - start)
    return seconds


def _take_answer(connection: socket.socket) -> None:
    """Read one response of known length; raise an error unless its status is 200."""
    response = b""
    while b"\r\n\r\n" not in response:
        response += _part(connection)
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    length = int(head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
    remaining = length - len(body)
    while remaining > 0:
        remaining -= len(_part(connection))


def _part(connection: socket.socket) -> bytes:
    part = connection.recv(1 << 16)
    assert part, "the connection was closed in the middle of an answer"
    return part


# -- a scale-down


def _decision(scene: _ProxiedScene) -> Iterator[Result]:
    """Request fewer machines, and count the proxy's API calls until it marks the first victim.

    The decision is visible in the marks of all victims, which are set before the first drain. The scale-down is not
    completed: at the end of the benchmark the proxy removes the marks.
    """
    before = len(scene.calls)
    where, body = urlsplit(scene.proxy), json.dumps({"desiredSize": NODES - FEWER})
    headers = (f"Host: {where.netloc}", "Content-Type: application/json", f"Content-Length: {len(body)}")
    head = "\r\n".join(("POST /pool/size HTTP/1.1", *headers, "\r\n"))
    with socket.create_connection((where.hostname, where.port), _SECONDS) as client:
        start = time.perf_counter()
        client.sendall((head + body).encode())
        scene.plane.wait_for(lambda: _marked(scene.calls[before:]), "the first victim", seconds=_SECONDS)
        seconds = time.perf_counter() - start
        scene.plane.wait_for(lambda: len(_marked(scene.calls[before:])) == FEWER, f"{FEWER} victims", seconds=_SECONDS)
    calls = scene.calls[before:]
    needed = calls.index(next(call for call in calls if _is_mark(call)))
    row = f"scale-down by {FEWER} of {NODES} nodes with {PODS:,} pods"
    at_start = f"{before} at its start"
    yield Result(f"{row}: API calls until the decision", f"{needed}", at_start, needed, "calls", 6, 1)
    yield cost(f"{row}: from the request to the first mark", seconds, "s", 10, 2)


def _marked(calls: Sequence[LoggedRequest]) -> set[str]:
    return {call.path for call in calls if _is_mark(call)}


def _is_mark(call: LoggedRequest) -> bool:
    return call.method == "PATCH" and call.path.startswith("/api/v1/nodes/")


# -- the scene


@contextmanager
def _scene() -> Iterator[_ProxiedScene]:
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
        yield _ProxiedScene(plane, pool.url, proxy, api.faulty_app.requests)


class _ForwardingEdge:
    """Forwards requests to the API server."""

    def __init__(self, plane: ControlPlane) -> None:
        credentials = Credentials(Endpoint(url=plane.server, ca_file=str(plane.ca)), Path())
        self._forwarder = Forwarder(plane.server, credentials, _WATCHES)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await self._forwarder.forward(scope, receive, send)

    def close(self) -> None:
        """Do nothing: the connections end with the event loop's thread."""


@contextmanager
def _counted(plane: ControlPlane) -> Iterator[StandinServer[_ForwardingEdge]]:
    edge = _ForwardingEdge(plane)
    with StandinServer(edge, edge).running() as server:
        yield server


@contextmanager
def _proxy(plane: ControlPlane, api: str, pool: str, folder: Path) -> Iterator[str]:
    """Start ``rescheduler proxy``, wait until it has read the cluster, and return its URL."""
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
        return httpx2.get(page, trust_env=False).is_success
    except httpx2.TransportError:
        return False


def _workloads(path: Path) -> Path:
    """Write about 30 pods per node, of 100 workloads with budgets; each pod fits on another node."""
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
    """Return a ReplicaSet that replaces evicted pods."""
    requests = {"cpu": f"{app.cpu}m", "memory": f"{app.memory}Mi"}
    container = {"name": "app", "image": "registry.example.com/app:v1.2.3", "resources": {"requests": requests}}
    replica_set = shapes.replica_set(app)
    replica_set["spec"]["template"] = {"metadata": {"labels": app.labels}, "spec": {"containers": [container]}}
    return replica_set


def _ready(plane: ControlPlane) -> int:
    conditions = [node["status"].get("conditions", []) for node in plane.api.items("/api/v1/nodes")]
    return sum(any((c["type"], c["status"]) == ("Ready", "True") for c in each) for each in conditions)


def _tainted(plane: ControlPlane) -> list[str]:
    return [node["metadata"]["name"] for node in plane.api.items("/api/v1/nodes") if node["spec"].get("taints")]
