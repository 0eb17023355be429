"""Updates are serialized: none overlaps another, waiting is limited, and disconnected clients are not served."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from devcluster.plane import ControlPlane
from devcluster.stages import NEVER, TERMINATE_AFTER
from tests.acceptance.scenes import scene
from tests.cluster.daemon import delete_stuck_pods, terminating
from tests.proxy.world import ProxyWorld

pytestmark = pytest.mark.cluster

QUEUE_TIMEOUT = 4
SIZE = [("GET", "/pool"), ("GET", "/pool/size"), ("POST", "/pool/size")]
TERMINATION = [("GET", "/pool")]


def test_updates_do_not_overlap(cluster: ControlPlane, tmp_path: Path) -> None:
    config = {
        "server": {"queueTimeout": f"{QUEUE_TIMEOUT}s"},
        "drain": {"evictionTimeout": "300s", "maxGracefulTermination": "300s"},
    }
    with scene(cluster, tmp_path, 2, config=config) as env, ThreadPoolExecutor(20) as clients:
        env.deploy("stuck", 1, on="od-1", annotations={TERMINATE_AFTER: NEVER})
        env.post("/pool/terminate", {"machineId": "i-0"})  # the cluster has been read
        body = {"machineId": env.id("od-1"), "decrementDesiredSize": True}
        drain = clients.submit(httpx2.post, f"{env.url}/pool/terminate", json=body, timeout=300)
        cluster.wait_for(lambda: terminating(cluster), "the drain to hang")
        env.server.faulty_app.requests.clear()
        late = clients.submit(httpx2.post, f"{env.url}/pool/size", json={"desiredSize": 7}, timeout=90)
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"{env.url}/pool/size", json={"desiredSize": 8}, timeout=httpx2.Timeout(60, read=1))
        others_are_served(env)
        response = late.result()
        assert (response.status_code, response.json()) == (
            504,
            {
                "message": "failed to set desired size",
                "detail": f"timed out after {QUEUE_TIMEOUT} s waiting for other updates",
            },
        )
        assert not drain.done()
        delete_stuck_pods(cluster)
        assert drain.result().status_code == 200
        assert (env.running(), env.desired) == (["od-2"], 1)
        assert not [
            request
            for request in env.server.faulty_app.requests
            if request.path == "/pool/size" and request.method == "POST"
        ]
        env.stop()
        # With the default timeout all updates are served, even on a slow machine.
        env.config = {"backend": env.config["backend"]}
        env.start()
        twenty_at_once(env, clients)


def others_are_served(env: ProxyWorld) -> None:
    assert httpx2.get(f"{env.url}/pool/size", timeout=60).json()["desiredSize"] == 2
    assert httpx2.post(f"{env.url}/pool/size", json={"desiredSize": -1}, timeout=60).status_code == 400


def twenty_at_once(env: ProxyWorld, clients: ThreadPoolExecutor) -> None:
    """Send ten sizes and ten terminations; their requests to the pool must not be interleaved.

    The pool must not list the terminated machine as running: a size change would wait until its cache is renewed.
    """
    env.post("/pool/terminate", {"machineId": "i-0"})
    env.plane.wait_for(lambda: listed_running(env) == 1, "the pool's cache")
    env.server.faulty_app.requests.clear()
    start = threading.Barrier(20)
    bodies = [("/pool/size", {"desiredSize": 1}), ("/pool/terminate", {"machineID": "i-0"})] * 10

    def ask(path: str, body: dict[str, object]) -> int:
        start.wait(60)
        return httpx2.post(f"{env.url}{path}", json=body, timeout=90).status_code

    statuses = list(clients.map(ask, *zip(*bodies, strict=True)))
    assert statuses == [200, 404] * 10
    seen = [(request.method, request.path) for request in env.server.faulty_app.requests]
    assert count_updates(seen) == (10, 10), "; ".join(map(" ".join, seen))


def listed_running(env: ProxyWorld) -> int:
    machines = httpx2.get(f"{env.server.url}/pool", timeout=60, trust_env=False).json()["machines"]
    return [machine["machineState"] for machine in machines].count("RUNNING")


def count_updates(calls: Sequence[tuple[str, str]]) -> tuple[int, int]:
    """Return the number of size changes and terminations in *calls*, or (-1, -1) if they are interleaved."""
    sizes = terminations = 0
    rest = list(calls)
    while rest:
        if rest[:3] == SIZE:
            sizes, rest = sizes + 1, rest[3:]
        elif rest[:1] == TERMINATION:
            terminations, rest = terminations + 1, rest[1:]
        else:
            return -1, -1
    return sizes, terminations
