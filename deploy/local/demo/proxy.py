"""``python -m deploy.local.demo.proxy``: a pool of six machines shrinks to three through the proxy, and grows again."""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import click
import httpx

from deploy.local import ports
from deploy.local.demo import machines, scene
from deploy.local.demo.machines import Machines
from deploy.local.demo.program import Program, console, run, say
from deploy.local.demo.tables import Census, census, change, places
from deploy.local.manifests import Json, daemonset, deployment, pdb, pod, statefulset
from deploy.local.plane import ControlPlane

MANY: Final = 6
FEW: Final = 3
POOL: Final[Json] = {"name": "on-demand"}
PODS: Final = 4 + 2 + 2 + 1 + 1  #: beside the DaemonSet's
#: Seconds: longer than the proxy's own deadlines in this demo.
PATIENCE: Final = 240.0


def workloads() -> list[Json]:
    """Nodes with many and few pods; on one of them a pod that no controller would recreate, so that it has to stay."""
    return [
        daemonset("agent", cpu="50m"),
        deployment("web", 4, affinity=scene.prefers(1)),
        pdb("web", max_unavailable=1),
        deployment("api", 2, affinity=scene.prefers(2)),
        statefulset("db", 2, affinity=scene.prefers(3)),
        pod("debug", affinity=scene.prefers(4)),
        deployment("cache", 1, affinity=scene.prefers(5)),
    ]


@click.command()
def main() -> None:
    """Start a real control plane and a cloudpool, and put the proxy between the pool and its client."""
    say("1. A control plane, and a cloudpool of six machines, which are its nodes")
    with ControlPlane() as plane, machines.serving(plane, MANY, POOL) as pool:
        plane.wait_for(lambda: len(scene.usable(plane)) == MANY, "the machines to join")
        plane.apply(workloads())
        plane.wait_for(lambda: len(scene.running(plane)) == PODS, "all pods running")
        whole = census(plane, pool)
        bare = _uid_of_debug(plane)
        console.print(places("Before", plane))
        say("2. The proxy, a process of its own: rescheduler proxy")
        with _proxy(plane, pool) as (proxy, url):
            say(f"3. Its client asks for {FEW} machines")
            trouble = _resize(plane, url, pool, FEW)
            small = census(plane, pool)
            console.print(places(f"With {FEW} machines", plane))
            console.print(change(f"The cloudpool, {MANY} → {FEW}", whole, small))
            trouble += _differs(small, FEW)
            trouble += [] if _uid_of_debug(plane) == bare else ["the pod that no controller would recreate is gone"]
            say(f"4. Its client asks for {MANY} again")
            trouble += _resize(plane, url, pool, MANY)
            large = census(plane, pool)
            console.print(change(f"The cloudpool, {FEW} → {MANY}", small, large))
            trouble += _differs(large, MANY)
        trouble += [f"the proxy ended with exit code {proxy.status}"] if proxy.status else []
        _conclude(whole, small, large, trouble)
    sys.exit(1 if trouble else 0)


@contextmanager
def _proxy(plane: ControlPlane, pool: Machines) -> Iterator[tuple[Program, str]]:
    """The proxy before *pool*, once it has read the cluster; its URL comes with it."""
    config = {
        "server": {"updateTimeout": "200s"},
        "apiServer": {"url": plane.server, "auth": {"kubeConfigPath": str(plane.kubeconfig)}},
        "backend": {"url": pool.url, "settleTime": "5s"},
        "drain": {"evictionTimeout": "30s"},
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as until:
        pages = ports.reserve(until)
        file = Path(folder) / "proxy.json"
        file.write_text(json.dumps(config, indent=2))
        arguments = ["rescheduler", "proxy", f"--config-file={file}", "--host=127.0.0.1", "--port=0", "-v=2"]
        with Program([*arguments, f"--listen-address=127.0.0.1:{pages}"]) as proxy:
            plane.wait_for(lambda: proxy.word_after("forwarding port "), "the proxy to listen")
            plane.wait_for(lambda: _ready(f"http://127.0.0.1:{pages}/readyz"), "the proxy to read the cluster")
            yield proxy, f"http://127.0.0.1:{proxy.word_after('forwarding port ')}"


def _ready(page: str) -> bool:
    try:
        return httpx.get(page, trust_env=False).is_success
    except httpx.TransportError:
        return False


def _resize(plane: ControlPlane, url: str, pool: Machines, size: int) -> list[str]:
    """Ask for *size* machines, and wait until that is so; what was answered instead of success."""
    body = json.dumps({"desiredSize": size})
    console.print(
        f"as with: curl -X POST -H 'Content-Type: application/json' -d '{body}' {url}/pool/size", markup=False
    )
    answer = httpx.post(f"{url}/pool/size", json=json.loads(body), timeout=PATIENCE, trust_env=False)
    console.print(f"HTTP {answer.status_code} {answer.text}", markup=False)
    if answer.status_code != httpx.codes.OK or answer.text:
        return [f"a size of {size} was answered with {answer.status_code} {answer.text}"]
    _settled(plane, f"{size} machines with their Nodes", lambda: pool.running == size == len(scene.usable(plane)))
    _settled(plane, "every pod running again", lambda: len(scene.running(plane)) == PODS)
    console.print(f"as with: curl {url}/pool/size", markup=False)
    console.print(httpx.get(f"{url}/pool/size", trust_env=False).text, markup=False)
    return []


def _settled(plane: ControlPlane, what: str, holds: Callable[[], bool]) -> None:
    plane.wait_for(holds, what, seconds=PATIENCE)


def _differs(now: Census, size: int) -> list[str]:
    found = (now.running, len(now.nodes), now.desired)
    if found == (size, size, size):
        return []
    return [f"{size} were asked for; {found[0]} machines run, there are {found[1]} Nodes, {found[2]} are desired"]


def _conclude(whole: Census, small: Census, large: Census, trouble: list[str]) -> None:
    if trouble:
        console.print("; ".join(trouble), style="bold red", markup=False)
        return
    left, new = sorted(whole.nodes.keys() - small.nodes.keys()), sorted(large.nodes.keys() - small.nodes.keys())
    say(f"Drained and gone: {', '.join(left)}. New: {', '.join(new)}. No pod was lost.")


def _uid_of_debug(plane: ControlPlane) -> str:
    """Of the bare pod; "" if it is gone."""
    uids = [str(one["metadata"]["uid"]) for one in scene.movable(plane) if one["metadata"]["name"] == "debug"]
    return uids[0] if uids else ""


if __name__ == "__main__":
    run(main)
