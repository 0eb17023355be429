"""What happens to others in the middle of a rolling update: never below, and the template as before or completed."""

import threading
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from devcluster.stages import START_AFTER
from rescheduler.clock import SystemClock
from rescheduler.kube.deployments import RESTARTED_AT
from tests.cluster.bad_days import NODE_1
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer
from tests.cluster.ready_watch import never_down
from tests.cluster.surge_scenes import (
    SURGE,
    WEB,
    autoscaler,
    counted,
    disturbed,
    quota,
    restarted,
    scene,
    template,
    wait_drained,
)


def annotated(value: str | None) -> Json:
    return {"metadata": {"annotations": {RESTARTED_AT: value}}}


OTHER: Final = "2026-01-01T00:00:00Z"
THEIRS: Final = "has a template that another client changed"

#: What another client does directly after the change of the template, a text of the failure, and the value of the
#: annotation in the end.
EDITS: Final[dict[str, tuple[Json, str, str | None]]] = {
    "a pause": ({"spec": {"paused": True}}, "it was paused during its roll-out", None),
    "a restart of its own": ({"spec": {"template": annotated(OTHER)}}, THEIRS, OTHER),
}


@pytest.mark.parametrize("kind", EDITS)
def test_an_edit_by_somebody_else_ends_the_drain(
    cluster: ControlPlane, observer: Observer, tmp_path: Path, kind: str
) -> None:
    edit, text, value = EDITS[kind]
    scene(observer, "web", annotations={START_AFTER: "4s"})
    before, pods = template(observer, "web"), observer.uids("web")
    with never_down(observer, "web"), disturbed(cluster, tmp_path, lambda: cluster.api.patch(WEB, edit), when="after"):
        observer.wait_told(NODE_1, "DrainFailed", text)
        observer.wait_unmarked()
        cluster.api.patch(WEB, {"spec": {"paused": False}})
        observer.running(1)
        after = template(observer, "web")
    assert after["metadata"].get("annotations", {}).get(RESTARTED_AT) == value
    assert after["spec"] == before["spec"]
    assert (observer.uids("web") == pods) is (value is None)


def test_a_quota_that_refuses_the_new_pod_costs_nothing(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    """The quota is created after the plan, which looks at quotas as well."""
    scene(observer, "web")
    before, pods = template(observer, "web"), observer.uids("web")
    with never_down(observer, "web"), disturbed(cluster, tmp_path, lambda: counted(cluster, pods="1")):
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
        wait_drained(observer)


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
        wait_drained(observer)
        cluster.api.delete(path)


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
            wait_drained(observer)
        finally:
            ended.set()
            thread.join()
    assert sorted(set(generations)) == [1, 2]  # the only change of the spec is the daemon's


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
