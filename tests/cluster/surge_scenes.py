"""Nodes with Deployments behind budgets that allow nothing, for the tests of rolling updates."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from devcluster.api import Json
from devcluster.errors import ApiError
from devcluster.faults.injected import Hook
from devcluster.faults.proxy import before_api_server, redirected
from devcluster.faults.rules import FaultRule
from devcluster.manifests import deployment, pdb
from devcluster.plane import ControlPlane
from rescheduler.kube.deployments import RESTARTED_AT
from tests.cluster.bad_days import FLAGS, NODE_1
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer

DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
WEB: Final = f"{DEPLOYMENTS}/web"
GATE: Final = "example.org/in-service"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_SET: Final[Json] = {"type": GATE, "status": "True"}
SURGE: Final = (*FLAGS, "--surge=blocked", "--node-cooldown=1h", "--node-cooldown-max=1h")


def budget(app: str) -> Json:
    """Return a budget that never allows an eviction of the only pod of *app*."""
    return pdb(app, min_available=1)


def quota(namespace: str = "default", **hard: str) -> Json:
    meta = {"name": "team", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}


def counted(plane: ControlPlane, namespace: str = "default", **hard: str) -> None:
    """Create a quota and wait until it is enforced."""
    [created] = plane.apply([quota(namespace, **hard)])
    path = plane.api.path(created)
    plane.wait_for(lambda: plane.api.get(path).get("status", {}).get("used"), "the quota to count")


def autoscaler(least: int, namespace: str = "default") -> Json:
    """Return an autoscaler that keeps *least* pods or more of `web`."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": 3},
    }


def no_restarts(request: Json) -> Json | None:
    """Deny what has the annotation of a restart, as a webhook."""
    asked = request["object"]
    template = asked["spec"].get("template", asked)
    restarts = RESTARTED_AT in template["metadata"].get("annotations", {})
    return {"status": "Failure", "code": 403, "message": "no restarts today"} if restarts else None


def is_rejected(plane: ControlPlane, request: tuple[str, str, Json, str]) -> bool:
    """Return whether the webhook `no-restarts` rejects *request*, or is away."""
    try:
        plane.api.request(*request, {"dryRun": "All"})
    except ApiError as error:
        return "no-restarts" in str(error)
    return False


@contextmanager
def disturbed(plane: ControlPlane, folder: Path, act: Callable[[], object], *, occurrence: int = 1) -> Iterator[Daemon]:
    """Run a daemon; call *act* directly before its change of a Deployment number *occurrence* is handled."""

    def perform(_: object) -> bool:
        act()
        return True

    with before_api_server(plane) as proxy:
        proxy.rules.add(FaultRule("patch deployments", Hook("before", perform), occurrence))
        with Daemon(plane, *SURGE, kubeconfig=redirected(plane.kubeconfig, proxy, folder / "kubeconfig")) as daemon:
            yield daemon


def gated(observer: Observer, annotations: Json | None = None, **spec: Any) -> str:
    """Create a node with a pod of `web` whose readiness gate was set, and spot nodes. Return the pod's name."""
    observer.nodes(1, 2)
    web = deployment("web", cpu="100m", readinessGates=[{"conditionType": GATE}], annotations=annotations or {})
    web["spec"] |= spec
    observer.start_on(NODE_1, web, pods=1)
    observer.plane.apply([budget("web")])
    [old] = observer.pods("web")
    set_gate(observer, old)
    observer.running(1)
    observer.open_all()
    name: str = old["metadata"]["name"]
    return name


def set_gate(observer: Observer, pod: Json, *, off: bool = False) -> None:
    """Set the condition of the readiness gate, as the controller of a load balancer does; *off*: the pod fails."""
    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
    conditions = [{"type": kind, "status": "False"} for kind in (GATE, "Ready")] if off else [_SET]
    observer.plane.api.patch(path, {"status": {"conditions": conditions}}, STRATEGIC)


def started(observer: Observer) -> Json | None:
    """Return the pod of `web` on a spot node, once its containers are ready."""
    for pod in observer.pods("web"):
        ready = {each["type"] for each in pod["status"].get("conditions", ()) if each["status"] == "True"}
        if pod["spec"].get("nodeName", "").startswith("spot") and "ContainersReady" in ready:
            return pod
    return None


def template(observer: Observer, app: str) -> Json:
    spec: Json = observer.plane.api.get(f"{DEPLOYMENTS}/{app}")["spec"]["template"]
    return spec


def restarted(observer: Observer, app: str) -> bool:
    return RESTARTED_AT in template(observer, app)["metadata"].get("annotations", {})


def scene(observer: Observer, *apps: str, **fields: Any) -> None:
    """Create a node with one pod of each of *apps* behind budgets that allow nothing, and spot nodes."""
    observer.nodes(1, 2)
    observer.start_on(NODE_1, *(deployment(app, cpu="100m", **fields) for app in apps), pods=len(apps))
    observer.plane.apply([budget(app) for app in apps])
    observer.running(len(apps))
    observer.open_all()


def wait_drained(observer: Observer, node: str = NODE_1) -> None:
    """Wait until no node has our marks, and *node* has the Events of a rolling update and of a drain that were done."""
    observer.wait_unmarked()
    done = {"SurgeStarted", "SurgeDone", "NodeDrained"}
    observer.eventually(lambda: done <= observer.events(node), f"the Events {done}")
