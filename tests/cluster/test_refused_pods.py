"""Kubelets of spot nodes refuse replacement pods: one pod is evicted, and the next plans avoid such nodes."""

import json
from typing import Any, Final

from devcluster.api import Json
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from devcluster.stages import COMPLETE_AFTER, NEVER, REFUSED_ON
from tests import forking
from tests.cluster.bad_days import FLAGS, NODE_1
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer

REFUSED: Final = {REFUSED_ON: "spot-1", COMPLETE_AFTER: NEVER}
SHORT: Final = (*FLAGS, "--return-wait=1s", "--return-wait-max=1s", "--max-moves-per-pod-per-day=0")


def refused(observer: Observer) -> list[Json]:
    pods = observer.plane.api.items("/api/v1/pods")
    return [pod for pod in pods if pod["status"].get("reason") == "SysctlForbidden"]


def reasons(cluster: ControlPlane) -> set[str]:
    """Return why the first node is not drained, by a plan with what the daemon remembers."""
    done = forking.run("plan", f"--kubeconfig={cluster.kubeconfig}", "--from-daemon", "-o", "json", check=True)
    nodes: list[dict[str, Any]] = json.loads(done.stdout)["nodes"]
    return {blocker["reason"] for node in nodes if node["node"] == NODE_1 for blocker in node["blockers"]}


def close_spot(observer: Observer) -> None:
    for name in observer.node_names():
        observer.cordon(name, off=not name.startswith("spot"))


def refuse_one(observer: Observer, *workloads: Json, pods: int) -> None:
    """Drain a node until a kubelet refuses a replacement pod. After that, no spot node accepts pods."""
    observer.start_on(NODE_1, *workloads, pods=pods)
    observer.running(pods)
    observer.open_spot()
    with Daemon(observer.plane, *SHORT):
        observer.eventually(lambda: refused(observer), "a refused pod")
        observer.wait_told(NODE_1, "DrainFailed", "refused it: SysctlForbidden: Pod was rejected: forbidden sysctl")
        close_spot(observer)
        observer.wait_unmarked()
    observer.running(pods)


def test_a_refused_pod_stops_the_drain_and_is_remembered(cluster: ControlPlane, observer: Observer) -> None:
    """A daemon that starts later does not try again. More: `tests/housekeeping/test_refused_pods.py`."""
    observer.nodes(1, 1)
    refuse_one(observer, deployment("web", 3, annotations=REFUSED), pods=3)
    assert observer.evicted() == {"default/web": 1}
    observer.open_spot()
    with Daemon(cluster, *SHORT) as daemon:
        observer.eventually(lambda: daemon.address, "a daemon that leads")
        observer.eventually(lambda: "kubelet-refused" in reasons(cluster), "the reason")
        observer.stays(observer.evicted, {"default/web": 1})
