"""Replacement pods that ask for more than the evicted ones, and preempt other pods on spot nodes.

More about such pods is in `tests/housekeeping/test_course.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from devcluster.api import Json
from devcluster.manifests import IMAGE, deployment, pod, statefulset
from devcluster.plane import ControlPlane
from devcluster.stages import START_AFTER
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.machines import machines
from tests.cluster.observer import Observer
from tests.cluster.test_last_look import refuse_orders

NODE: Final = "od-1"
CLASS: Final[Json] = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "important"},
    "value": 1000,
}
SLOW: Final = {START_AFTER: "2s"}
LARGER: Final[Json] = {
    "spec": {
        "template": {
            "spec": {"containers": [{"name": "main", "image": IMAGE, "resources": {"requests": {"cpu": "2"}}}]}
        }
    }
}


def on_delete() -> Json:
    workload = statefulset("work", 4, cpu="200m", annotations=SLOW, priorityClassName="important")
    return workload | {"spec": workload["spec"] | {"updateStrategy": {"type": "OnDelete"}}}


@contextmanager
def important(cluster: ControlPlane) -> Iterator[None]:
    cluster.apply([CLASS])
    try:
        yield
    finally:
        cluster.api.delete("/apis/scheduling.k8s.io/v1/priorityclasses/important")


def test_a_replacement_that_preempts_other_pods_stops_the_drain(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    """The template was edited, and the owner does not roll it out: only new pods are larger."""
    with important(cluster), machines(observer, tmp_path, 1, 1) as pool:
        observer.start_on("spot-1", deployment("low", 3, cpu="1"), pods=3)
        observer.start_on(NODE, on_delete(), pods=4)
        observer.running(7)
        observer.open_all()
        with Daemon(cluster, *FLAGS, "--node-cooldown=1h", "--node-cooldown-max=1h", *pool.flags):
            observer.eventually(observer.evictions, "the first eviction")
            cluster.api.patch("/apis/apps/v1/namespaces/default/statefulsets/work", LARGER)
            observer.eventually(lambda: "DrainFailed" in observer.events(NODE), "the failure", never=pool.ordered)
            observer.wait_unmarked()
            assert len(observer.evictions()) <= 3
            observer.running(3, "low")
            observer.stays(pool.ordered, [])


#: Nothing is overdue while no daemon runs, and no second drain begins.
PATIENT: Final = (
    *("--max-graceful-termination=1m", "--landing-timeout=2m"),
    *("--node-cooldown=1h", "--node-cooldown-max=1h"),
)


def preempted_by(cluster: ControlPlane, preemptor: Json) -> set[str]:
    """Return the names of the pods of which Events of the scheduler tell that *preemptor* took their place.

    Since Kubernetes 1.36, only the message contains its UID.
    """
    events = cluster.api.items("/api/v1/events", fieldSelector="reason=Preempted")
    uid = preemptor["metadata"]["uid"]
    told = [each for each in events if uid in each["message"] or uid == (each.get("related") or {}).get("uid")]
    return {each["involvedObject"]["name"] for each in told}


def wait_for_preemption(cluster: ControlPlane, observer: Observer) -> None:
    """Wait until a pod of `work` runs on spot-1, and the pods that it preempted are gone."""
    observer.eventually(lambda: observer.places("work").get("spot-1") == 1, "a replacement pod on the spot node")
    [moved] = [each for each in observer.pods("work") if each["spec"].get("nodeName") == "spot-1"]
    observer.eventually(lambda: preempted_by(cluster, moved), "an Event of the scheduler")
    victims = preempted_by(cluster, moved)
    observer.eventually(
        lambda: victims.isdisjoint(each["metadata"]["name"] for each in observer.pods()), "the preempted pods gone"
    )
    assert all(name.startswith("low") for name in victims)


def test_pods_that_were_preempted_while_no_daemon_ran_keep_the_machine_of_a_resumed_removal(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    """The moved pod is lost while the provider refuses the order and no daemon runs; its successor has no free room."""
    with important(cluster), machines(observer, tmp_path, 1, 1) as pool:
        refuse_orders(pool)
        observer.start_on(NODE, statefulset("work", 1, cpu="1", priorityClassName="important"), pods=1)
        observer.running(1)
        observer.open_all()
        with Daemon(cluster, *FLAGS, *PATIENT, *pool.flags) as daemon:
            observer.eventually(pool.orders, "an order")
            daemon.kill()
        cluster.apply([pod(f"low-{number}", cpu="1", nodeName="spot-1") for number in range(4)])
        cluster.api.delete("/api/v1/namespaces/default/pods/work-0", gracePeriodSeconds=0)
        wait_for_preemption(cluster, observer)
        with Daemon(cluster, *FLAGS, *PATIENT, *pool.flags):
            observer.eventually(lambda: not observer.marks(), "the node reopened", never=pool.ordered)
            pool.faulty_app.forget()
            observer.wait_told(NODE, "DrainFailed", "preempted pods on other nodes")
            observer.stays(pool.ordered, [], seconds=8)
