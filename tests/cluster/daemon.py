"""The daemon as a process of its own, on the local control plane; and what tests ask of the cluster."""

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
from typing import Any, Self

import httpx

from deploy.local.api import Json
from deploy.local.errors import ApiError
from deploy.local.manifests import ON_DEMAND, deployment, mixed_nodes
from deploy.local.plane import ControlPlane
from deploy.local.stages import NEVER, TERMINATE_AFTER
from predicates.snapshot import DRAIN_TAINT
from rescheduler.draining.intent import ANNOTATION
from rescheduler.settings import LEASE

ROOT = Path(__file__).parents[2]

#: Quick enough for a test, and each one slower than what it is measured against.
QUICK = (
    "--housekeeping-interval=200ms",
    "--node-drain-delay=1h",
    "--pod-eviction-timeout=20s",
    "--max-graceful-termination=2s",
    "--listen-address=127.0.0.1:0",
    "--namespace=default",  # where its Lease is wiped between tests
    "--log-format=json",
    "-v=3",
)
NO_DELAY = "--node-drain-delay=0"
EXIT_SECONDS = 120
SOFT = "PreferNoSchedule"

PROGRAM = ("-m", "rescheduler")

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
LEASE_PATH = f"{LEASES}/{LEASE}"


class Daemon:
    """``rescheduler run`` with QUICK and *flags*; its log lines are read as they come.

    *program*: what Python runs in place of ``-m rescheduler``.
    """

    def __init__(
        self, plane: ControlPlane, *flags: str, kubeconfig: Path | None = None, program: Sequence[str] = PROGRAM
    ) -> None:
        self._plane = plane
        flags = (f"--kubeconfig={kubeconfig or plane.kubeconfig}", *QUICK, *flags)
        self._command = [sys.executable, *program, "run", *flags]
        self.lines: list[Json] = []

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ApiError, httpx.TransportError):  # the API server may be away, or deny it
                self.kill()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.lines.append({"message": line, "level": "NOT JSON"})

    def told(self, words: str, **fields: str) -> list[Json]:
        """The lines so far whose message has *words*, with these fields."""
        return [
            line
            for line in list(self.lines)
            if words in line["message"] and all(line.get(name) == value for name, value in fields.items())
        ]

    @property
    def address(self) -> str:
        """Where it serves its pages, once it does."""
        found = self.told("serving on ")
        return found[0]["message"].rpartition(" ")[2] if found else ""

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self, *, keep_lease: bool = False) -> None:
        """SIGKILL: nothing is taken back.

        The Lease in the namespace `default` is deleted, so that the next one need not wait until it runs out.
        """
        self._process.kill()
        self._process.wait()
        if not keep_lease:
            self._plane.api.delete(LEASE_PATH)

    def stop(self) -> None:
        """SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> int:
        """Wait until it ends by itself; its exit code."""
        code = self._process.wait(EXIT_SECONDS)
        self._reader.join()
        return code

    @property
    def running(self) -> bool:
        return self._process.poll() is None


def command(*arguments: str) -> list[str]:
    return [sys.executable, *PROGRAM, *arguments]


def environment() -> dict[str, str]:
    """Ours without what would set options of the daemon."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("RESCHEDULER_", "KUBE"))}


class Look:
    """Questions to the cluster."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._api = plane.api

    def nodes(self, on_demand: int, spot: int) -> None:
        """on-demand-1 …, spot-1 …; spot is cordoned until :meth:`open_spot`, so pods start on on-demand nodes.

        On-demand nodes carry a PreferNoSchedule taint, as the README asks for.
        """
        made = mixed_nodes(on_demand, spot)
        for node in made[:on_demand]:
            node["spec"]["taints"] = [{"key": ON_DEMAND, "value": "true", "effect": SOFT}]
        self._plane.apply(made)
        self.eventually(lambda: len(self._ready()) == on_demand + spot, "nodes Ready")
        self._cordon(unschedulable=True)

    def open_spot(self) -> None:
        self._cordon(unschedulable=None)
        self.eventually(lambda: len(self._ready()) == len(self._api.items("/api/v1/nodes")), "the taint of the cordon")

    def _cordon(self, *, unschedulable: bool | None) -> None:
        for node in self._api.items("/api/v1/nodes", labelSelector="node-role.kubernetes.io/spot-worker"):
            self._api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": unschedulable}})

    def _ready(self) -> list[Json]:
        """Those that take pods: the taint of a new node goes a moment after it is Ready."""
        return [
            node
            for node in self._api.items("/api/v1/nodes")
            if _condition(node, "Ready") == "True"
            and all(taint["effect"] == SOFT for taint in node["spec"].get("taints", ()))
        ]

    def pods(self, app: str = "") -> list[Json]:
        """Pods that have not ended, of one app or of all."""
        found = self._api.items("/api/v1/pods", labelSelector=f"app={app}" if app else "")
        return [one for one in found if one["status"]["phase"] not in ("Succeeded", "Failed")]

    def running(self, count: int, app: str = "") -> None:
        """Wait until *count* pods are Ready."""

        def there() -> bool:
            found = self.pods(app)
            return len(found) == count and all(_condition(one, "Ready") == "True" for one in found)

        self.eventually(there, f"{count} pods {app} Ready")

    def places(self, app: str = "") -> dict[str, int]:
        """How many pods there are on each node."""
        return dict(Counter(one["spec"].get("nodeName", "") for one in self.pods(app)))

    def kinds(self, app: str = "") -> dict[str, int]:
        """How many pods there are on each kind of node: spot, on-demand, "" = no node yet."""
        found = self.pods(app)
        return dict(Counter(one["spec"].get("nodeName", "").rpartition("-")[0] for one in found))

    def marks(self) -> dict[str, str]:
        """Nodes with our taint or annotation, and the annotation."""
        found = {}
        for node in self._api.items("/api/v1/nodes"):
            tainted = any(one["key"] == DRAIN_TAINT.key for one in node["spec"].get("taints", ()))
            annotation = node["metadata"].get("annotations", {}).get(ANNOTATION)
            if tainted or annotation is not None:
                found[node["metadata"]["name"]] = annotation or ""
        return found

    def events(self, name: str, by: str = "rescheduler") -> set[str]:
        """Reasons of our Kubernetes Events about the object *name*."""
        found = self._api.items("/api/v1/events")
        return {
            one["reason"]
            for one in found
            if one["involvedObject"]["name"] == name and one["source"].get("component") == by
        }

    def eventually(self, predicate: Any, what: str, seconds: float = 180) -> Any:
        return self._plane.wait_for(predicate, what, seconds=seconds)


def put_stuck(plane: ControlPlane, look: Look) -> None:
    """An on-demand node that can be emptied but for a pod that does not end."""
    look.nodes(1, 2)
    plane.apply([deployment("web", 2), deployment("stuck", 1, annotations={TERMINATE_AFTER: NEVER})])
    look.running(3)
    look.open_spot()


def terminating(plane: ControlPlane) -> list[str]:
    found = plane.api.items("/api/v1/pods", labelSelector="app=stuck")
    return [one["metadata"]["name"] for one in found if "deletionTimestamp" in one["metadata"]]


def let_go(plane: ControlPlane) -> None:
    """The stuck pods that are being deleted end."""
    for name in terminating(plane):
        plane.api.delete(f"/api/v1/namespaces/default/pods/{name}", gracePeriodSeconds=0)


def prefers(node: str) -> Json:
    """An affinity that keeps pods on *node* while it takes any, and lets them go elsewhere."""
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    term = {"weight": 100, "preference": {"matchExpressions": [hostname]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


def _condition(item: Json, kind: str) -> str:
    found = item["status"].get("conditions", ())
    return next((one["status"] for one in found if one["type"] == kind), "")
