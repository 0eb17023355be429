"""Replacement pods that ask for more than the evicted ones, and preempt other pods on spot nodes."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from devcluster.api import Json
from devcluster.manifests import IMAGE, deployment, pod, statefulset
from devcluster.plane import ControlPlane
from devcluster.stages import START_AFTER, TERMINATE_AFTER
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.machines import machines
from tests.cluster.observer import Observer

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


def replica_set() -> Json:
    return deployment("work", 4, cpu="200m", annotations=SLOW, priorityClassName="important") | {"kind": "ReplicaSet"}


@pytest.mark.parametrize(("workload", "plural"), [(on_delete, "statefulsets"), (replica_set, "replicasets")])
def test_a_replacement_that_preempts_other_pods_stops_the_drain(
    cluster: ControlPlane, observer: Observer, tmp_path: Path, workload: Callable[[], Json], plural: str
) -> None:
    """The template was edited, and the owner does not roll it out: only new pods are larger."""
    cluster.apply([CLASS])
    try:
        with machines(observer, tmp_path, 1, 1) as pool:
            observer.start_on("spot-1", deployment("low", 3, cpu="1"), pods=3)
            observer.start_on(NODE, workload(), pods=4)
            observer.running(7)
            observer.open_all()
            with Daemon(cluster, *FLAGS, "--node-cooldown=1h", "--node-cooldown-max=1h", *pool.flags):
                observer.eventually(observer.evictions, "the first eviction")
                cluster.api.patch(f"/apis/apps/v1/namespaces/default/{plural}/work", LARGER)
                observer.eventually(lambda: "DrainFailed" in observer.events(NODE), "the failure", never=pool.ordered)
                observer.wait_unmarked()
                assert len(observer.evictions()) <= 3
                observer.running(3, "low")
                observer.stays(pool.ordered, [])
    finally:
        cluster.api.delete("/apis/scheduling.k8s.io/v1/priorityclasses/important")


def at_once() -> list[Json]:
    """Return pods that are gone as soon as they are preempted."""
    return [deployment("low", 8, cpu="1")]


def slowly() -> list[Json]:
    return [deployment("low", 8, cpu="1", annotations={TERMINATE_AFTER: "3s"})]


def alone() -> list[Json]:
    """Return pods that nobody creates again."""
    return [pod(f"low-{number}", cpu="1") for number in range(8)]


@pytest.mark.parametrize("others", [at_once, slowly, alone])
def test_room_that_others_took_is_not_preempted_and_forgotten(
    cluster: ControlPlane, observer: Observer, tmp_path: Path, others: Callable[[], list[Json]]
) -> None:
    """Pods of a lower priority come to the spot node after the plan; the replacement pod preempts one of them."""
    leaving = {TERMINATE_AFTER: "3s"}
    cluster.apply([CLASS])
    try:
        with machines(observer, tmp_path, 1, 1) as pool:
            work = statefulset("work", 2, cpu="1", annotations=leaving, priorityClassName="important")
            observer.start_on(NODE, work, pods=2)
            observer.running(2)
            observer.open_all()
            with Daemon(cluster, *FLAGS, "--node-cooldown=1h", "--node-cooldown-max=1h", *pool.flags):
                observer.eventually(observer.evictions, "the first eviction")
                cluster.apply(others())
                observer.eventually(lambda: "DrainFailed" in observer.events(NODE), "the failure", never=pool.ordered)
                observer.wait_unmarked()
                assert any("preempted" in message for message in observer.messages(NODE, "DrainFailed"))
                assert len(observer.evictions()) == 1
                observer.stays(pool.ordered, [])
    finally:
        cluster.api.delete("/apis/scheduling.k8s.io/v1/priorityclasses/important")
