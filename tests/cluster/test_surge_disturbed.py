"""What happens to others in the middle of a rolling update: never below, and the template as before or completed."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster.api import Json
from devcluster.faults.injected import Hook
from devcluster.faults.proxy import before_api_server, redirected
from devcluster.faults.rules import FaultRule
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from devcluster.stages import READY_ON, START_AFTER
from rescheduler.clock import SystemClock
from rescheduler.kube.deployments import RESTARTED_AT
from tests.cluster.bad_days import NODE_1
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer
from tests.cluster.ready_watch import never_down
from tests.cluster.surge_scenes import DEPLOYMENTS, SURGE, restarted, scene, template

WEB: Final = f"{DEPLOYMENTS}/web"


@contextmanager
def disturbed(
    cluster: ControlPlane, folder: Path, before: Callable[[], object] | None, after: Callable[[], object] | None = None
) -> Iterator[Daemon]:
    """Run a daemon; call *before* directly before its first change of a Deployment arrives, and *after* after it."""

    def calling(act: Callable[[], object]) -> Callable[[object], bool]:
        return lambda _: (act(), True)[1]

    with before_api_server(cluster) as proxy:
        if before is not None:
            proxy.rules.add(FaultRule("patch deployments", Hook("before", calling(before))))
        if after is not None:
            proxy.rules.add(FaultRule("patch deployments", Hook("after", calling(after))))
        kubeconfig = redirected(cluster.kubeconfig, proxy, folder / "kubeconfig")
        with Daemon(cluster, *SURGE, kubeconfig=kubeconfig) as daemon:
            yield daemon


def annotated(value: str | None) -> Json:
    return {"metadata": {"annotations": {RESTARTED_AT: value}}}


def quota(**hard: str) -> Json:
    meta = {"name": "team", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}


def counted(cluster: ControlPlane, **hard: str) -> None:
    """Create a quota and wait until it is enforced."""
    cluster.apply([quota(**hard)])
    path = cluster.api.path(quota())
    cluster.wait_for(lambda: cluster.api.get(path).get("status", {}).get("used"), "the quota to count")


OTHER: Final = "2026-01-01T00:00:00Z"
THEIRS: Final = "has a template that another client changed"

#: What another client does directly after the change of the template, a text of the failure, and the value of the
#: annotation in the end.
EDITS: Final[dict[str, tuple[Json, str, str | None]]] = {
    "a pause": ({"spec": {"paused": True}}, "it was paused during its roll-out", None),
    "a restart of its own": ({"spec": {"template": annotated(OTHER)}}, THEIRS, OTHER),
    "our annotation removed": ({"spec": {"template": annotated(None)}}, THEIRS, None),
}


@pytest.mark.parametrize("kind", EDITS)
def test_an_edit_by_somebody_else_ends_the_drain(
    cluster: ControlPlane, observer: Observer, tmp_path: Path, kind: str
) -> None:
    edit, text, value = EDITS[kind]
    scene(observer, "web", annotations={START_AFTER: "4s"})
    before, pods = template(observer, "web"), observer.uids("web")
    with never_down(observer, "web"), disturbed(cluster, tmp_path, None, lambda: cluster.api.patch(WEB, edit)):
        observer.wait_told(NODE_1, "DrainFailed", text)
        observer.wait_unmarked()
        cluster.api.patch(WEB, {"spec": {"paused": False}})
        observer.running(1)
        after = template(observer, "web")
    assert after["metadata"].get("annotations", {}).get(RESTARTED_AT) == value
    assert after["spec"] == before["spec"]
    assert (observer.uids("web") == pods) is (value is None)


@pytest.mark.parametrize("hard", [{"pods": "1"}, {"count/replicasets.apps": "1"}], ids=str)
def test_a_quota_that_refuses_the_new_pod_costs_nothing(
    cluster: ControlPlane, observer: Observer, tmp_path: Path, hard: dict[str, str]
) -> None:
    """The quota is created after the plan, which looks at quotas as well."""
    scene(observer, "web")
    before, pods = template(observer, "web"), observer.uids("web")
    with never_down(observer, "web"), disturbed(cluster, tmp_path, lambda: counted(cluster, **hard)):
        observer.eventually(lambda: "SurgeRolledBack" in observer.events(NODE_1), "the roll-back")
        observer.wait_unmarked()
        observer.wait_told(NODE_1, "DrainFailed", "exceeded quota: team")
    cluster.api.delete(cluster.api.path(quota()))
    assert (template(observer, "web"), observer.uids("web")) == (before, pods)


def test_a_quota_without_room_for_one_pod_more_is_a_reason_to_stay(cluster: ControlPlane, observer: Observer) -> None:
    scene(observer, "web")
    counted(cluster, pods="1")
    with never_down(observer, "web"), Daemon(cluster, *SURGE):
        observer.wait_told(NODE_1, "DrainBlocked", "quota-exceeded")
    cluster.api.delete(cluster.api.path(quota()))
    assert not restarted(observer, "web")


def test_a_target_that_vanishes_is_replaced(cluster: ControlPlane, observer: Observer) -> None:
    """The new pod is deleted with its node, as pod garbage collection does it, and created again on the other one."""
    scene(observer, "web", annotations={START_AFTER: "4s"})
    with never_down(observer, "web"), Daemon(cluster, *SURGE):
        observer.eventually(lambda: observer.kinds().get("spot") == 1, "the new pod on a spot node")
        lose(cluster, observer)
        observer.eventually(lambda: observer.kinds() == {"spot": 1}, "the pod on the other spot node")
        observer.wait_unmarked()
    assert {"SurgeDone", "NodeDrained"} <= observer.events(NODE_1)


def test_the_loss_of_all_targets_costs_nothing(cluster: ControlPlane, observer: Observer) -> None:
    scene(observer, "web", annotations={START_AFTER: "20s"})
    before, pods = template(observer, "web"), observer.uids("web")
    with never_down(observer, "web"), Daemon(cluster, *SURGE):
        observer.eventually(lambda: observer.kinds().get("spot") == 1, "the new pod on a spot node")
        observer.cordon("spot-1")
        observer.cordon("spot-2")
        lose(cluster, observer)
        observer.eventually(lambda: "SurgeRolledBack" in observer.events(NODE_1), "the roll-back")
        observer.wait_unmarked()
        observer.eventually(lambda: observer.uids("web") == pods, "the old pod alone")
    assert template(observer, "web") == before


def lose(cluster: ControlPlane, observer: Observer) -> None:
    """Delete the spot node with a pod, and the pod."""
    [pod] = [each for each in observer.pods() if each["spec"].get("nodeName", "").startswith("spot")]
    cluster.api.delete(f"/api/v1/nodes/{pod['spec']['nodeName']}")
    cluster.api.delete(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}", gracePeriodSeconds=0)


@pytest.mark.parametrize("starts", [True, False], ids=["completed", "rolled back"])
def test_limits_of_a_deployment_are_kept(cluster: ControlPlane, observer: Observer, starts: bool) -> None:
    """Without a history there is no old ReplicaSet to return to once the roll-out is complete."""
    scene(observer, "web", annotations={} if starts else {READY_ON: "on-demand"})
    limits = {"revisionHistoryLimit": 0, "minReadySeconds": 3, "progressDeadlineSeconds": 5}
    generation = cluster.api.patch(WEB, {"spec": limits})["metadata"]["generation"]

    def settled() -> bool:
        status = cluster.api.get(WEB)["status"]
        return bool(status["observedGeneration"] == generation and status.get("availableReplicas") == 1)

    observer.eventually(settled, "the Deployment available by its new limits")
    before, pods = template(observer, "web"), observer.uids("web")
    with never_down(observer, "web"), Daemon(cluster, *SURGE):
        wanted = "NodeDrained" if starts else "SurgeRolledBack"
        observer.eventually(lambda: wanted in observer.events(NODE_1), wanted)
        observer.wait_unmarked()
        observer.eventually(lambda: len(observer.pods("web")) == 1, "one pod")
    assert observer.kinds() == {"spot" if starts else "on-demand": 1}
    if not starts:
        assert (template(observer, "web"), observer.uids("web")) == (before, pods)
        assert any("timed out progressing" in text for text in observer.messages(NODE_1, "DrainFailed"))
    assert len(cluster.api.items("/apis/apps/v1/namespaces/default/replicasets")) == 1


def autoscaler(least: int) -> Json:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": 3},
    }


def test_an_autoscaler_may_scale_meanwhile(cluster: ControlPlane, observer: Observer) -> None:
    """The real controller scales to its minimum, in the middle of the rolling update."""
    scene(observer, "web", annotations={START_AFTER: "25s"})
    cluster.apply([autoscaler(1)])
    path = cluster.api.path(autoscaler(1))
    with never_down(observer, "web"), Daemon(cluster, *SURGE):
        observer.eventually(lambda: restarted(observer, "web"), "the roll-out")
        cluster.apply([autoscaler(2)])
        observer.eventually(lambda: cluster.api.get(WEB)["spec"]["replicas"] == 2, "the autoscaler")
        assert observer.kinds().get("on-demand") == 1  # the roll-out goes on
        observer.eventually(lambda: observer.kinds("web") == {"spot": 2}, "both pods on spot nodes")
        observer.wait_unmarked()
        cluster.api.delete(path)
    assert {"SurgeDone", "NodeDrained"} <= observer.events(NODE_1)


def test_a_controller_that_owns_the_manifest_has_nothing_to_revert(cluster: ControlPlane, observer: Observer) -> None:
    """It applies its manifest again and again, and reverts `spec.replicas` if another client changes it."""
    scene(observer, "web", annotations={START_AFTER: "2s"})
    manifest = deployment("web", cpu="100m", annotations={START_AFTER: "2s"})
    ended, generations = threading.Event(), list[int]()

    def apply() -> None:
        clock = SystemClock()
        while not clock.wait(0.2, ended):
            [stored] = cluster.api.apply([manifest])
            generations.append(stored["metadata"]["generation"])

    thread = threading.Thread(target=apply)
    with never_down(observer, "web"), Daemon(cluster, *SURGE):
        thread.start()
        try:
            observer.eventually(lambda: observer.kinds("web") == {"spot": 1}, "the pod on a spot node")
            observer.wait_unmarked()
        finally:
            ended.set()
            thread.join()
    assert sorted(set(generations)) == [1, 2]  # the only change of the spec is the daemon's
    assert {"SurgeDone", "NodeDrained"} <= observer.events(NODE_1)


def test_an_autoscaler_by_hand_that_scales_down_meanwhile(cluster: ControlPlane, observer: Observer) -> None:
    """Pods are missing only as far as nobody wants them."""
    observer.nodes(1, 2)
    fields: dict[str, Any] = {"cpu": "100m", "annotations": {START_AFTER: "3s", "spot-rescheduler/surge": "true"}}
    observer.start_on(NODE_1, deployment("web", 2, **fields), pods=2)
    observer.running(2)
    observer.open_all()
    with Daemon(cluster, *SURGE):
        observer.eventually(lambda: restarted(observer, "web"), "the roll-out")
        with observer.least_ready("web") as least:
            cluster.api.patch(f"{WEB}/scale", {"spec": {"replicas": 1}})
            observer.eventually(lambda: observer.kinds("web") == {"spot": 1}, "the pod on a spot node")
            observer.wait_unmarked()
            assert least() == 1
    assert not observer.evictions()
