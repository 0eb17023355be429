"""The proxy as a process, between a real control plane and the reference cloudpool, whose machines are Nodes."""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import httpx2

from devcluster import manifests
from devcluster.api import Json
from devcluster.cloudpool.cluster import Cluster
from devcluster.cloudpool.machines import PoolMachine
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.cloudpool.settings import CloudpoolSettings
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from tests import forking
from tests.providers.cloudpools import AWKWARD, LISTING, document

LABEL = "pool-worker"


class ProxyWorld:
    """Proxy, cloud and cluster."""

    def __init__(
        self,
        plane: ControlPlane,
        server: CloudpoolServer,
        folder: Path,
        kubeconfig: Path | None,
        config: Mapping[str, Json],
    ) -> None:
        self.plane, self.server, self._folder = plane, server, folder
        self.kubeconfig = kubeconfig or plane.kubeconfig
        self.config = config
        self.process: forking.Forked
        self.url = ""
        self.lines: list[str] = []

    # -- the proxy

    def start(self) -> None:
        config: dict[str, Json] = {
            "apiServer": {"auth": {"kubeConfigPath": str(self.kubeconfig)}},
            "backend": {"url": self.server.url, "timeout": "10s", "settleTime": "2s"},
            "drain": {"evictionTimeout": "15s", "maxGracefulTermination": "10s"},
        }
        for section, keys in self.config.items():
            config[section] = {**config.get(section, {}), **keys}
        file = self._folder / "config.json"
        file.write_text(json.dumps(config))
        arguments = [
            "proxy",
            f"--config-file={file}",
            f"--namespace={'default' if self.kubeconfig == self.plane.kubeconfig else 'spot-rescheduler'}",
            "--port=0",
            "--host=127.0.0.1",
            "-v=3",
            "--listen-address=127.0.0.1:0",
        ]
        self.process, log = forking.with_log(forking.python([*forking.PROGRAM, *arguments]), env=os.environ)
        self.lines = []
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(log, ready))
        self._reader.start()
        assert ready.wait(timeout=180), self.lines

    def _read(self, log: TextIO, ready: threading.Event) -> None:
        with log:
            for line in log:
                self.lines.append(line.rstrip())
                if "forwarding port " in line:
                    port = line.partition("forwarding port ")[2].split()[0]
                    self.url = f"http://127.0.0.1:{port}"
                    ready.set()
        ready.set()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal unless the process has exited; return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(timeout=120)
        self._reader.join()
        return status

    def post(self, path: str, body: Any, timeout: float = 180) -> httpx2.Response:
        """Send the request until the proxy has read the cluster; return the response."""

        def answered() -> httpx2.Response | None:
            answer = httpx2.post(f"{self.url}{path}", json=body, timeout=timeout)
            return (
                None
                if answer.status_code == httpx2.codes.SERVICE_UNAVAILABLE and "not read yet" in answer.text
                else answer
            )

        response = self.plane.wait_for(answered, "the proxy to read the cluster")
        assert response is not None
        return response

    # -- the cloud

    def machine(self, node: str) -> PoolMachine:
        return next(machine for machine in self.server.pool.machines() if machine.name == node)

    def id(self, node: str) -> str:
        return self.machine(node).id(SystemClock().now())

    def states(self) -> dict[str, str]:
        now = SystemClock().now()
        return {machine.name: machine.state(now) for machine in self.server.pool.machines()}

    def running(self) -> list[str]:
        return sorted(name for name, state in self.states().items() if state == "RUNNING")

    @property
    def desired(self) -> int:
        return int(self.server.pool.size()["desiredSize"])

    def orders(self) -> list[Json]:
        return [
            json.loads(request.body) for request in self.server.faulty_app.requests if request.path == "/pool/terminate"
        ]

    # -- the cluster

    def nodes(self) -> list[str]:
        return sorted(node["metadata"]["name"] for node in self.plane.api.items("/api/v1/nodes"))

    def tainted(self) -> list[str]:
        return sorted(
            node["metadata"]["name"]
            for node in self.plane.api.items("/api/v1/nodes")
            if any("spot-rescheduler" in taint["key"] for taint in node["spec"].get("taints", []))
            or any("spot-rescheduler" in key for key in node["metadata"].get("annotations", {}))
        )

    def pods(self) -> dict[str, str]:
        """Return the running pods that are not terminating: name → node."""
        pods = self.plane.api.items("/api/v1/namespaces/default/pods")
        return {
            pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
            for pod in pods
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        }

    def deploy(self, name: str, replicas: int, on: str = "", **spec: Any) -> None:
        """Create a controller and wait for its pods; with *on*, only that node is schedulable until then."""
        others = [node for node in self.nodes() if on and node != on]
        self.cordon(*others)
        self.plane.apply([manifests.deployment(name, replicas, **spec)])
        self.plane.wait_for(
            lambda: sum(pod.startswith(f"{name}-") for pod in self.pods()) == replicas, f"the pods of {name}"
        )
        self.cordon(*others, off=False)

    def cordon(self, *nodes: str, off: bool = True) -> None:
        """Cordon or uncordon *nodes*, and wait for the taint, which follows a moment later."""
        for name in nodes:
            self.plane.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": off or None}})
        self.plane.wait_for(lambda: all(self._cordoned(name) is off for name in nodes), "the taints of the cordons")

    def _cordoned(self, node: str) -> bool:
        taints = self.plane.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints", [])
        return any(taint["key"] == "node.kubernetes.io/unschedulable" for taint in taints)


@contextlib.contextmanager
def world(
    plane: ControlPlane,
    folder: Path,
    machines: int,
    *,
    kubeconfig: Path | None = None,
    pool: Mapping[str, Any] | None = None,
    config: Mapping[str, Json] | None = None,
    before: Callable[["ProxyWorld"], object] = lambda _: None,
    **settings: Any,
) -> Iterator[ProxyWorld]:
    """Start machines, wait until they join, and run the proxy in front of their pool.

    *kubeconfig* defaults to the administrator's. *pool* adds to the document of the pool, *config* to each section of
    the proxy's file. *before* is called between joining and the start of the proxy.
    """
    values: dict[str, Any] = {"refresh_interval": 1, "pool_update": 1, **LISTING} | settings
    clock = SystemClock()
    of = CloudpoolSettings(
        pool=document(**{"name": "od", "labels": {LABEL: "true"}, **AWKWARD, **(pool or {})}),
        desired_size=machines,
        **values,
    )
    with CloudpoolServer(of, folder, clock).running() as server:
        cluster = Cluster(str(plane.kubeconfig), server.pool, clock)
        cluster.start()
        env = ProxyWorld(plane, server, folder, kubeconfig, config or {})
        try:
            plane.wait_for(lambda: len(_ready(plane)) == machines, "the machines to join")
            before(env)
            env.start()
            yield env
            with_pods = [ended for ended in server.pool.terminations if ended.pods]
            assert not with_pods, with_pods
        finally:
            if hasattr(env, "process"):
                env.stop(signal.SIGKILL)
            cluster.close()


def _ready(plane: ControlPlane) -> list[str]:
    nodes = plane.api.items("/api/v1/nodes")
    return [node["metadata"]["name"] for node in nodes if _is_ready(node["status"].get("conditions", []))]


def _is_ready(conditions: list[Json]) -> bool:
    return any((condition["type"], condition["status"]) == ("Ready", "True") for condition in conditions)
