"""The daemon as a process on the local control plane, and queries on the cluster."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Self

import httpx2

from devcluster.api import Json
from devcluster.errors import ApiError, PlaneError
from devcluster.manifests import ON_DEMAND, deployment, mixed_nodes
from devcluster.plane import ControlPlane
from devcluster.stages import NEVER, TERMINATE_AFTER
from predicates.snapshot import DRAIN_TAINT
from rescheduler.clock import SystemClock
from rescheduler.draining.actions import ANNOTATION
from rescheduler.settings import LEASE
from tests import forking
from tests.forking import PROGRAM, ROOT, environment

#: Short delays for tests.
QUICK = (
    "--housekeeping-interval=200ms",
    "--node-drain-delay=1h",
    "--pod-eviction-timeout=20s",
    "--max-graceful-termination=2s",
    "--shorten-grace-periods",  # the API server defaults to 30 s
    "--listen-address=127.0.0.1:0",
    "--namespace=default",  # the Lease there is deleted between tests
    "--log-format=json",
    "-v=3",
)
NO_DELAY = "--node-drain-delay=0"
EXIT_SECONDS = 120
LAST_LINES = 60  #: number of log messages that a failed test shows
SOFT = "PreferNoSchedule"
CORDON = "node.kubernetes.io/unschedulable"

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
LEASE_PATH = f"{LEASES}/{LEASE}"


class Daemon:
    """``rescheduler run`` with QUICK and *flags*, and its log lines.

    *program* are the Python arguments that start it, by default ``-m rescheduler``. The process is forked, or with
    *fresh* it is a new Python interpreter.
    """

    #: Flags of all daemons of a test, before their own: those of its backend.
    backend: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        plane: ControlPlane,
        *flags: str,
        kubeconfig: Path | None = None,
        program: Sequence[str] = PROGRAM,
        fresh: bool = False,
    ) -> None:
        self._plane = plane
        flags = (f"--kubeconfig={kubeconfig or plane.kubeconfig}", *QUICK, *self.backend, *flags)
        self._arguments = [*program, "run", *flags]
        self._fresh = fresh
        self.lines: list[Json] = []

    def __enter__(self) -> Self:
        self._process, self._log = self._started()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            latest = {line["message"]: line.get("time", "") for line in self.lines}
            messages = [f"{time} {message}" for message, time in latest.items()][-LAST_LINES:]
            error.add_note("\n".join(["the log of the daemon, each message once with its latest time:", *messages]))
        if self._process.poll() is None:
            # The API server may be stopped or deny the request.
            with contextlib.suppress(ApiError, httpx2.TransportError):
                self.kill()
        self._reader.join()
        self._log.close()

    def _started(self) -> tuple["forking.Forked | subprocess.Popen[str]", IO[str]]:
        if not self._fresh:
            return forking.with_log(forking.python(self._arguments))
        command = [sys.executable, *self._arguments]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert process.stderr is not None
        return process, process.stderr

    def _read(self) -> None:
        for line in self._log:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.lines.append({"message": line, "level": "NOT JSON"})

    def logged(self, text: str, **fields: str) -> list[Json]:
        """Return the log lines so far whose message contains *text* and that have the given fields."""
        return [
            line
            for line in list(self.lines)
            if text in line["message"] and all(line.get(name) == value for name, value in fields.items())
        ]

    @property
    def address(self) -> str:
        """The URL of the status pages; "" before they are served."""
        lines = self.logged("serving on ")
        return lines[0]["message"].rpartition(" ")[2] if lines else ""

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self, *, keep_lease: bool = False) -> None:
        """Send SIGKILL, so that the daemon rolls back nothing.

        Delete the Lease in the namespace `default` unless *keep_lease*, so that the next daemon need not wait until it
        expires.
        """
        self._process.kill()
        self._process.wait()
        if not keep_lease:
            self._plane.api.delete(LEASE_PATH)

    def stop(self) -> None:
        """Send SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> int:
        """Wait until the process exits on its own and return its exit code."""
        code = self._process.wait(EXIT_SECONDS)
        self._reader.join()
        return code

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def running(self) -> bool:
        return self._process.poll() is None


class ClusterQueries:
    """Queries on the cluster, and its setup."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._api = plane.api

    def nodes(self, on_demand: int, spot: int) -> None:
        """Create nodes on-demand-1 … and spot-1 …; spot nodes are cordoned until :meth:`open_spot`.

        On-demand nodes have a PreferNoSchedule taint, as the README recommends.
        """
        nodes = mixed_nodes(on_demand, spot)
        for node in nodes[:on_demand]:
            node["spec"]["taints"] = [{"key": ON_DEMAND, "value": "true", "effect": SOFT}]
        for node in nodes[on_demand:]:
            node["spec"]["unschedulable"] = True  # from the beginning: the scheduler sees later changes with a delay
        self._plane.apply(nodes)
        self.nodes_ready(on_demand + spot)

    def nodes_ready(self, count: int) -> None:
        """Wait until *count* nodes are Ready: before that, the scheduler prefers none of them."""
        self.eventually(lambda: len(self._ready(CORDON)) == count, "nodes Ready")

    def open_spot(self) -> None:
        """Let pods run on spot nodes, when no pod was created in the current second.

        Creation times have whole seconds, so a pod of the second in which a drain begins counts as a replacement.
        """
        self._cordon(unschedulable=None)
        self.eventually(lambda: len(self._ready()) == len(self._api.items("/api/v1/nodes")), "the taint of the cordon")
        created = {pod["metadata"]["creationTimestamp"] for pod in self._api.items("/api/v1/pods")}
        self.eventually(lambda: f"{SystemClock().now():%Y-%m-%dT%H:%M:%SZ}" not in created, "the next second")

    def _cordon(self, *, unschedulable: bool | None) -> None:
        for node in self._api.items("/api/v1/nodes", labelSelector="node-role.kubernetes.io/spot-worker"):
            self._api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": unschedulable}})

    def _ready(self, *allowed: str) -> list[Json]:
        """Return the Ready nodes without taints of other keys than *allowed*; a new node loses its own when Ready."""
        return [
            node
            for node in self._api.items("/api/v1/nodes")
            if _condition(node, "Ready") == "True"
            and all(taint["effect"] == SOFT or taint["key"] in allowed for taint in node["spec"].get("taints", ()))
        ]

    def pods(self, app: str = "") -> list[Json]:
        """Return the unfinished pods of *app*, or of all apps."""
        items = self._api.items("/api/v1/pods", labelSelector=f"app={app}" if app else "")
        return [entry for entry in items if entry["status"]["phase"] not in ("Succeeded", "Failed")]

    def running(self, count: int, app: str = "") -> None:
        """Wait until *count* pods are Ready."""

        def all_ready() -> bool:
            pods = self.pods(app)
            return len(pods) == count and all(_condition(pod, "Ready") == "True" for pod in pods)

        try:
            self.eventually(all_ready, f"{count} pods {app} Ready")
        except PlaneError as error:
            pods = [(pod["metadata"], pod["spec"].get("nodeName"), pod["status"]) for pod in self.pods(app)]
            error.add_note(f"the pods: {pods}")
            raise

    def places(self, app: str = "") -> dict[str, int]:
        """Return the number of pods on each node; "" counts unbound pods."""
        return dict(Counter(entry["spec"].get("nodeName", "") for entry in self.pods(app)))

    def kinds(self, app: str = "") -> dict[str, int]:
        """Return the number of pods on each kind of node: `spot`, `on-demand`, and "" for unbound pods."""
        items = self.pods(app)
        return dict(Counter(entry["spec"].get("nodeName", "").rpartition("-")[0] for entry in items))

    def marks(self) -> dict[str, str]:
        """Return the nodes with our taint or annotation, and the annotation."""
        items = {}
        for node in self._api.items("/api/v1/nodes"):
            tainted = any(entry["key"] == DRAIN_TAINT.key for entry in node["spec"].get("taints", ()))
            annotation = node["metadata"].get("annotations", {}).get(ANNOTATION)
            if tainted or annotation is not None:
                items[node["metadata"]["name"]] = annotation or ""
        return items

    def events(self, name: str, reporter: str = "rescheduler") -> set[str]:
        """Return the reasons of our Kubernetes Events about the object *name*."""
        items = self._api.items("/api/v1/events")
        return {
            entry["reason"]
            for entry in items
            if entry["involvedObject"]["name"] == name and entry["source"].get("component") == reporter
        }

    def eventually(self, predicate: Any, description: str, seconds: float = 180) -> Any:
        return self._plane.wait_for(predicate, description, seconds=seconds)


def create_stuck_pod(plane: ControlPlane, queries: ClusterQueries) -> None:
    """Create an on-demand node that is drainable except for a pod that does not terminate."""
    queries.nodes(1, 2)
    plane.apply([deployment("web", 2), deployment("stuck", 1, annotations={TERMINATE_AFTER: NEVER})])
    queries.running(3)
    queries.open_spot()


def terminating(plane: ControlPlane) -> list[str]:
    items = plane.api.items("/api/v1/pods", labelSelector="app=stuck")
    return [entry["metadata"]["name"] for entry in items if "deletionTimestamp" in entry["metadata"]]


def delete_stuck_pods(plane: ControlPlane) -> None:
    """Force the deletion of the stuck pods that are terminating."""
    for name in terminating(plane):
        plane.api.delete(f"/api/v1/namespaces/default/pods/{name}", gracePeriodSeconds=0)


def prefers(node: str) -> Json:
    """Return an affinity that prefers *node*."""
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    term = {"weight": 100, "preference": {"matchExpressions": [hostname]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


def _condition(item: Json, kind: str) -> str:
    items = item["status"].get("conditions", ())
    return next((entry["status"] for entry in items if entry["type"] == kind), "")
