"""Room is made with placeholders: an autoscaler adds spot nodes for them, and then a node is drained."""

from datetime import datetime

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from tests.cluster.autoscaling import PODS, SETUP, SpotAutoscaler
from tests.cluster.daemon import NO_DELAY, Daemon
from tests.cluster.observer import Observer

ROOM = ("--make-room=placeholders", NO_DELAY)


@pytest.fixture
def autoscaler(cluster: ControlPlane) -> SpotAutoscaler:
    cluster.apply(SETUP)
    return SpotAutoscaler(cluster)


def placeholders(cluster: ControlPlane) -> list[Json]:
    return cluster.api.items(PODS)


def moved(observer: Observer) -> bool:
    pods = observer.pods("web")
    return len(pods) == 4 and all(pod["spec"].get("nodeName", "").startswith(("grown", "spot")) for pod in pods)


def full_spot(cluster: ControlPlane, observer: Observer) -> None:
    """Start 4 pods on on-demand-1, while spot-1 is full."""
    observer.nodes(1, 1)
    observer.start_on("on-demand-1", deployment("web", 4, cpu="700m"), pods=4)
    cluster.apply([deployment("filler", 1, cpu="3500m", nodeName="spot-1")])
    observer.open_all()
    observer.running(5)


def test_a_node_is_emptied_onto_new_spot_nodes(
    cluster: ControlPlane, observer: Observer, autoscaler: SpotAutoscaler
) -> None:
    full_spot(cluster, observer)
    with autoscaler.running(), Daemon(cluster, *ROOM) as daemon:
        try:
            observer.eventually(lambda: moved(observer), "the pods on spot nodes")
        finally:
            for line in daemon.lines:
                print(line)
        observer.running(5)
        observer.eventually(lambda: not placeholders(cluster), "no placeholder")
        assert autoscaler.nodes == ["grown-1"]
        assert slowest_binding(observer) < 5
        assert observer.events("on-demand-1") >= {"SpotRoomOrdered", "SpotRoomEnded", "NodeDrained"}
    assert observer.marks() == {}


def slowest_binding(observer: Observer) -> float:
    """Return the longest time in seconds from the creation of a running pod of *web* until it was bound."""
    waits = []
    for pod in observer.pods("web"):
        bound = next(entry for entry in pod["status"]["conditions"] if entry["type"] == "PodScheduled")
        waits.append((_time(bound["lastTransitionTime"]) - _time(pod["metadata"]["creationTimestamp"])).total_seconds())
    return max(waits)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
