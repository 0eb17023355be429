"""What others do at each moment of a rolling update: the pods are never fewer, and what they wrote stays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster.api import Json
from devcluster.manifests import IMAGE, ON_DEMAND, deployment, on_demand, pdb
from devcluster.plane import ControlPlane
from devcluster.stages import READY_ON, START_AFTER
from rescheduler.kube.deployments import RESTARTED_AT
from tests.cluster.bad_days import NODE_1
from tests.cluster.daemon import SOFT, Daemon
from tests.cluster.observer import Observer
from tests.cluster.ready_watch import never_down
from tests.cluster.surge_scenes import SURGE, WEB, budget, disturbed, restarted, scene, template

STRATEGIC: Final = "application/strategic-merge-patch+json"
NEW: Final = f"{IMAGE}-new"
NEW_IMAGE: Final[Json] = {"containers": [{"name": "main", "image": NEW}]}


def test_an_image_that_somebody_changes_stays(cluster: ControlPlane, observer: Observer, tmp_path: Path) -> None:
    """It is changed right before the daemon undoes the roll-out. More: `tests/kube/test_deployments.py`."""
    scene(observer, "web", annotations={READY_ON: "on-demand"})
    cluster.api.patch(WEB, {"spec": {"progressDeadlineSeconds": 3}})
    # the new image starts everywhere
    change: Json = {"metadata": {"annotations": {READY_ON: None}}, "spec": NEW_IMAGE}

    def act() -> None:
        cluster.api.patch(WEB, {"spec": {"template": change}}, STRATEGIC)

    with never_down(observer, "web"), disturbed(cluster, tmp_path, act, occurrence=2):
        observer.eventually(lambda: image(observer) == NEW, "the change")
        observer.eventually(lambda: complete(cluster), "the roll-out of the other client")
        observer.wait_unmarked()
    assert image(observer) == NEW
    assert [pod["spec"]["containers"][0]["image"] for pod in observer.pods("web")] == [NEW]


def image(observer: Observer) -> str:
    found: str = template(observer, "web")["spec"]["containers"][0]["image"]
    return found


def complete(cluster: ControlPlane) -> bool:
    found = cluster.api.get(WEB)
    status, replicas = found["status"], found["spec"]["replicas"]
    counts = {status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")}
    return counts == {replicas} and status["observedGeneration"] == found["metadata"]["generation"]


def scaled(observer: Observer) -> None:
    """Scale up and down, behind a second budget."""
    observer.plane.apply([pdb("everything", app="web", max_unavailable=0)])
    observer.plane.api.patch(f"{WEB}/scale", {"spec": {"replicas": 3}})
    observer.eventually(lambda: len(observer.pods("web")) >= 3, "three pods or more")
    observer.plane.api.patch(f"{WEB}/scale", {"spec": {"replicas": 1}})


def doubled(observer: Observer) -> None:
    """Create a second Deployment that selects the same pods."""
    twin = deployment("twin", cpu="100m", labels={"app": "web"})
    twin["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    observer.plane.apply([twin])


#: What others do in the middle, and which pods there are in the end.
ACTS: Final[dict[str, tuple[Callable[[Observer], None], int]]] = {
    "scaled to three and back, and a second budget": (scaled, 1),
    "a second Deployment with the same selector": (doubled, 2),
}


@pytest.mark.parametrize("name", ACTS)
def test_a_rolling_update_is_completed_beside_others(cluster: ControlPlane, observer: Observer, name: str) -> None:
    act, count = ACTS[name]
    scene(observer, "web", annotations={START_AFTER: "3s"})
    with never_down(observer, "web"), Daemon(cluster, *SURGE):
        observer.eventually(lambda: restarted(observer, "web"), "the roll-out")
        act(observer)
        observer.eventually(lambda: observer.kinds("web") == {"spot": count}, "the pods on spot nodes")
        observer.wait_unmarked()
        observer.eventually(lambda: complete(cluster), "the complete roll-out")
        observer.eventually(lambda: "SurgeDone" in observer.events(NODE_1), "the Event of its end")
    assert restarted(observer, "web")


def test_a_deployment_that_is_created_again_is_left_alone(cluster: ControlPlane, observer: Observer) -> None:
    """The one that is created again adopts the ReplicaSets, and returns to the old one."""
    scene(observer, "web", annotations={START_AFTER: "5s"})
    pods = observer.uids("web")
    with Daemon(cluster, *SURGE):
        observer.eventually(lambda: restarted(observer, "web"), "the roll-out")
        with never_down(observer, "web"):
            cluster.api.delete(WEB, propagationPolicy="Orphan")
            cluster.wait_for(lambda: not cluster.api.items(WEB.rpartition("/")[0]), "no Deployment")
            cluster.apply([deployment("web", cpu="100m", annotations={START_AFTER: "5s"})])
            observer.eventually(lambda: complete(cluster) and observer.uids("web") == pods, "the old pod alone")
        observer.eventually(lambda: "SurgeStopped" in observer.events(NODE_1), "the end")
        observer.wait_unmarked()
    assert RESTARTED_AT not in template(observer, "web")["metadata"].get("annotations", {})
    assert not observer.evictions()


def test_the_failure_of_one_deployment_leaves_the_others_as_they_are(cluster: ControlPlane, observer: Observer) -> None:
    observer.nodes(1, 2)
    never: dict[str, Any] = {"cpu": "100m", "annotations": {READY_ON: "on-demand"}}
    observer.start_on(NODE_1, deployment("web", cpu="100m"), deployment("zzz", **never), pods=2)
    cluster.api.patch(f"{WEB[:-3]}zzz", {"spec": {"progressDeadlineSeconds": 3}})
    cluster.apply([budget("web"), budget("zzz")])
    observer.running(2)
    observer.open_all()
    before, pods = template(observer, "zzz"), observer.uids("zzz")
    with never_down(observer, "web", "zzz"), Daemon(cluster, *SURGE):
        observer.eventually(lambda: "SurgeRolledBack" in observer.events(NODE_1), "the roll-back")
        observer.wait_unmarked()
        observer.eventually(lambda: observer.uids("zzz") == pods, "the old pod alone")
        observer.running(2)
    assert template(observer, "zzz") == before
    assert not observer.evictions()


def test_a_new_pod_on_another_on_demand_node_is_never_missing(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    """Spot nodes are cordoned before the template is changed, so that the scheduler takes another node."""
    scene(observer, "web", annotations={START_AFTER: "2s"})
    cluster.apply([on_demand("on-demand-2", taints=[{"key": ON_DEMAND, "value": "true", "effect": SOFT}])])

    def close() -> None:
        for node in ("spot-1", "spot-2"):
            observer.cordon(node)

    with never_down(observer, "web"), disturbed(cluster, tmp_path, close):
        observer.eventually(lambda: restarted(observer, "web"), "the roll-out")
        observer.wait_unmarked()
        observer.eventually(lambda: complete(cluster), "a complete roll-out")
    assert not observer.evictions()
