"""What happens to others in the middle of a rolling update: never below, and the template as before or completed."""

from pathlib import Path
from typing import Any

from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from devcluster.stages import START_AFTER
from tests.cluster.bad_days import NODE_1
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer
from tests.cluster.ready_watch import never_down
from tests.cluster.surge_scenes import (
    SURGE,
    WEB,
    counted,
    disturbed,
    quota,
    restarted,
    scene,
    template,
)


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
