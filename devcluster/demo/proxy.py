"""``python -m devcluster.demo.proxy``: scale a pool of six machines to three and back through the proxy."""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import click
import httpx2

from devcluster import ports
from devcluster.demo import machines, scene
from devcluster.demo.machines import Machines
from devcluster.demo.program import Program, console, print_bold, run
from devcluster.demo.tables import Census, census, change, places
from devcluster.manifests import Json, daemonset, deployment, pdb, pod, statefulset
from devcluster.plane import ControlPlane
from devcluster.signals import exit_on_sigterm

LARGE_SIZE: Final = 6
SMALL_SIZE: Final = 3
POOL: Final[Json] = {"name": "on-demand"}
PODS: Final = 4 + 2 + 2 + 1 + 1  #: all pods of the workloads except those of the DaemonSet
#: Longer than the proxy's timeouts in this demo.
TIMEOUT_SECONDS: Final = 240.0


def workloads() -> list[Json]:
    """Return workloads for nodes with many and few pods, and a bare pod, whose node must not be removed."""
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
    """Start a control plane and a cloudpool, and scale the pool through the proxy."""
    exit_on_sigterm()
    print_bold("1. Start a control plane whose nodes are the six machines of a cloudpool")
    with ControlPlane() as plane, machines.serving(plane, LARGE_SIZE, POOL) as pool:
        plane.wait_for(lambda: len(scene.usable(plane)) == LARGE_SIZE, "the machines to join")
        plane.apply(workloads())
        plane.wait_for(lambda: len(scene.running(plane)) == PODS, "all pods running")
        whole = census(plane, pool)
        bare = _uid_of_debug(plane)
        console.print(places("Before", plane))
        print_bold("2. Run the proxy: rescheduler proxy")
        with _proxy(plane, pool) as (proxy, url):
            print_bold(f"3. Set the desired size to {SMALL_SIZE}")
            problems = _resize(plane, url, pool, SMALL_SIZE)
            small = census(plane, pool)
            console.print(places(f"With {SMALL_SIZE} machines", plane))
            console.print(change(f"The cloudpool, {LARGE_SIZE} → {SMALL_SIZE}", whole, small))
            problems += _differences(small, SMALL_SIZE)
            problems += [] if _uid_of_debug(plane) == bare else ["the bare pod is gone"]
            print_bold(f"4. Set the desired size to {LARGE_SIZE} again")
            problems += _resize(plane, url, pool, LARGE_SIZE)
            large = census(plane, pool)
            console.print(change(f"The cloudpool, {SMALL_SIZE} → {LARGE_SIZE}", small, large))
            problems += _differences(large, LARGE_SIZE)
        problems += [f"the proxy exited with code {proxy.status}"] if proxy.status else []
        _print_summary(whole, small, large, problems)
    sys.exit(1 if problems else 0)


@contextmanager
def _proxy(plane: ControlPlane, pool: Machines) -> Iterator[tuple[Program, str]]:
    """Run the proxy in front of *pool*, wait until it has read the cluster, and yield it with its URL."""
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
        return httpx2.get(page, trust_env=False).is_success
    except httpx2.TransportError:
        return False


def _resize(plane: ControlPlane, url: str, pool: Machines, size: int) -> list[str]:
    """Set the desired size, wait until it is reached, and return the problems."""
    body = json.dumps({"desiredSize": size})
    console.print(
        f"equivalent to: curl -X POST -H 'Content-Type: application/json' -d '{body}' {url}/pool/size", markup=False
    )
    response = httpx2.post(f"{url}/pool/size", json=json.loads(body), timeout=TIMEOUT_SECONDS, trust_env=False)
    console.print(f"HTTP {response.status_code} {response.text}", markup=False)
    if response.status_code != httpx2.codes.OK or response.text:
        return [f"setting the size {size} failed: {response.status_code} {response.text}"]
    _wait_for(plane, f"{size} machines with their Nodes", lambda: pool.running == size == len(scene.usable(plane)))
    _wait_for(plane, "all pods running again", lambda: len(scene.running(plane)) == PODS)
    console.print(f"equivalent to: curl {url}/pool/size", markup=False)
    console.print(httpx2.get(f"{url}/pool/size", trust_env=False).text, markup=False)
    return []


def _wait_for(plane: ControlPlane, description: str, condition: Callable[[], bool]) -> None:
    plane.wait_for(condition, description, seconds=TIMEOUT_SECONDS)


def _differences(now: Census, size: int) -> list[str]:
    actual = (now.running, len(now.nodes), now.desired)
    if actual == (size, size, size):
        return []
    return [
        f"expected {size}; {actual[0]} machines are running, {actual[1]} Nodes exist, the desired size is {actual[2]}"
    ]


def _print_summary(whole: Census, small: Census, large: Census, problems: list[str]) -> None:
    if problems:
        console.print("; ".join(problems), style="bold red", markup=False)
        return
    removed, new = sorted(whole.nodes.keys() - small.nodes.keys()), sorted(large.nodes.keys() - small.nodes.keys())
    print_bold(f"Drained and removed: {', '.join(removed)}. New: {', '.join(new)}. No pod was lost.")


def _uid_of_debug(plane: ControlPlane) -> str:
    """Return the UID of the bare pod, or "" if it is gone."""
    uids = [str(pod["metadata"]["uid"]) for pod in scene.movable(plane) if pod["metadata"]["name"] == "debug"]
    return uids[0] if uids else ""


if __name__ == "__main__":
    run(main)
