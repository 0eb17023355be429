"""Pending pods keep their room: the real scheduler preempts a pod for one of them."""

from typing import Final

import httpx2

from devcluster.api import Json
from devcluster.manifests import SPOT, deployment, pod
from devcluster.plane import ControlPlane
from devcluster.stages import NEVER, TERMINATE_AFTER
from tests.cluster.bad_days import FLAGS, NODE_1
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer

CLASS: Final[Json] = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "urgent"},
    "value": 1000,
}
ON_SPOT: Final[Json] = {SPOT: "true"}
LOW: Final = "/api/v1/namespaces/default/pods/low"


def nominated(observer: Observer) -> bool:
    return any(each["status"].get("nominatedNodeName") == "spot-1" for each in observer.pods("urgent"))


def pending(daemon: Daemon) -> Json | None:
    if not daemon.address:
        return None
    page = httpx2.get(f"{daemon.address}/statusz", headers={"Accept": "application/json"}, trust_env=False)
    found: Json | None = page.json()["pending"]
    return found


def test_the_room_of_a_nominated_pod_is_left_to_it_and_used_after_it(cluster: ControlPlane, observer: Observer) -> None:
    """Of the 4 CPU of the spot node, a pod that does not end has 2, and a nominated one waits for 3.

    The pod of the on-demand node fits beside the first one, and beside the second one without the first.
    """
    observer.nodes(1, 1)
    cluster.apply([CLASS])
    try:
        leaving = pod("low", cpu="2", annotations={TERMINATE_AFTER: NEVER}, nodeSelector=ON_SPOT)
        observer.start_on("spot-1", leaving, pods=1)
        observer.running(1, "low")
        observer.start_on(NODE_1, deployment("web", 1, cpu="1"), pods=1)
        observer.running(1, "web")
        observer.open_all()
        cluster.apply([pod("urgent", cpu="3", priorityClassName="urgent", nodeSelector=ON_SPOT)])
        observer.eventually(lambda: nominated(observer), "the nomination")
        with Daemon(cluster, *FLAGS) as daemon:
            taken = {"pods": 1, "cpu": 3000, "memory": 64 << 20, "buffered": 0}
            observer.eventually(lambda: pending(daemon) == taken, "the room that is taken", never=observer.evictions)
            assert not daemon.logged("pending-pods")
            observer.stays(observer.markings, [], seconds=3)
            cluster.api.delete(LOW, gracePeriodSeconds=0)
            observer.eventually(lambda: observer.kinds("web") == {"spot": 1}, "the pod on spot")
            observer.running(1, "urgent")
            observer.wait_unmarked()
    finally:
        cluster.api.delete("/apis/scheduling.k8s.io/v1/priorityclasses/urgent")
