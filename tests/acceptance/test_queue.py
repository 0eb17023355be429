"""Updates take turns: none overlaps another, none waits for ever, and who has left is not served."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from deploy.local.plane import ControlPlane
from deploy.local.stages import NEVER, TERMINATE_AFTER
from tests.acceptance.scenes import scene
from tests.cluster.daemon import let_go, terminating
from tests.proxy.world import World

pytestmark = pytest.mark.cluster

PATIENCE = 4
SIZE = [("GET", "/pool"), ("GET", "/pool/size"), ("POST", "/pool/size")]
TERMINATION = [("GET", "/pool")]


def test_updates_take_turns(cluster: ControlPlane, tmp_path: Path) -> None:
    config = {
        "server": {"queueTimeout": f"{PATIENCE}s"},
        "drain": {"evictionTimeout": "300s", "maxGracefulTermination": "300s"},
    }
    with scene(cluster, tmp_path, 2, config=config) as made, ThreadPoolExecutor(20) as clients:
        made.deploy("stuck", 1, on="od-1", annotations={TERMINATE_AFTER: NEVER})
        made.post("/pool/terminate", {"machineId": "i-0"})  # the cluster has been read
        body = {"machineId": made.id("od-1"), "decrementDesiredSize": True}
        drain = clients.submit(httpx.post, f"{made.url}/pool/terminate", json=body, timeout=300)
        cluster.wait_for(lambda: terminating(cluster), "the drain to hang")
        made.server.face.requests.clear()
        late = clients.submit(httpx.post, f"{made.url}/pool/size", json={"desiredSize": 7}, timeout=90)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{made.url}/pool/size", json={"desiredSize": 8}, timeout=httpx.Timeout(60, read=1))
        others_are_served(made)
        answer = late.result()
        assert (answer.status_code, answer.json()) == (
            504,
            {"message": "failed to set desired size", "detail": f"other updates kept it waiting for {PATIENCE} s"},
        )
        assert not drain.done()
        let_go(cluster)
        assert drain.result().status_code == 200
        assert (made.running(), made.desired) == (["od-2"], 1)
        assert not [one for one in made.server.face.requests if one.path == "/pool/size" and one.method == "POST"]
        made.stop()
        made.config = {"backend": made.config["backend"]}  # with its patience all get a turn, however slow the machine
        made.start()
        twenty_at_once(made, clients)


def others_are_served(made: World) -> None:
    assert httpx.get(f"{made.url}/pool/size", timeout=60).json()["desiredSize"] == 2
    assert httpx.post(f"{made.url}/pool/size", json={"desiredSize": -1}, timeout=60).status_code == 400


def twenty_at_once(made: World, clients: ThreadPoolExecutor) -> None:
    """Ten sizes and ten terminations, which the pool sees one whole after the other, in whatever order."""
    made.post("/pool/terminate", {"machineId": "i-0"})
    made.server.face.requests.clear()
    start = threading.Barrier(20)
    bodies = [("/pool/size", {"desiredSize": 1}), ("/pool/terminate", {"machineID": "i-0"})] * 10

    def ask(path: str, body: dict[str, object]) -> int:
        start.wait(60)
        return httpx.post(f"{made.url}{path}", json=body, timeout=90).status_code

    statuses = list(clients.map(ask, *zip(*bodies, strict=True)))
    assert statuses == [200, 404] * 10
    seen = [(one.method, one.path) for one in made.server.face.requests]
    assert whole(seen) == (10, 10), seen


def whole(calls: Sequence[tuple[str, str]]) -> tuple[int, int]:
    """How many changes of size and terminations *calls* are, each in one piece; (-1, -1) if they are torn."""
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
