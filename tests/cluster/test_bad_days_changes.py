"""The owner of the evicted pods changes in the middle of a drain: what is no longer wanted is not waited for."""

from collections.abc import Callable
from typing import Final

import pytest

from deploy.local.api import Json
from deploy.local.manifests import deployment, job
from deploy.local.plane import ControlPlane
from deploy.local.stages import COMPLETE_AFTER, NEVER, TERMINATE_AFTER
from tests.cluster.bad_days import FLAGS, ONE, SLOW, drained_well, next_node
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer

WEB: Final = "/apis/apps/v1/namespaces/default/deployments/web"
WORK: Final = "/apis/batch/v1/namespaces/default/jobs/work"

CHANGES: Final[dict[str, Callable[[ControlPlane], object]]] = {
    "scaled down": lambda cluster: cluster.api.patch(WEB, {"spec": {"replicas": 2}}),
    "scaled to zero": lambda cluster: cluster.api.patch(WEB, {"spec": {"replicas": 0}}),
    "deleted": lambda cluster: cluster.api.delete(WEB, propagationPolicy="Background"),
    "rolled out": lambda cluster: cluster.api.patch(
        WEB, {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
    ),
}


def start(observer: Observer, workload: Json, pods: int) -> None:
    observer.nodes(2, 2)
    observer.start_on(ONE, workload, pods=pods)
    next_node(observer)
    observer.running(pods + 2)
    observer.open_all()


@pytest.mark.parametrize("change", CHANGES)
def test_a_deployment_changes_in_the_middle_of_a_drain(cluster: ControlPlane, observer: Observer, change: str) -> None:
    """Pods take time to end, so those that the change deletes are still there when the next step is planned."""
    start(observer, deployment("web", 8, annotations={**SLOW, TERMINATE_AFTER: "5s"}), pods=8)
    with Daemon(cluster, *FLAGS):
        observer.eventually(lambda: len(observer.evictions()) >= 2, "the second eviction")
        CHANGES[change](cluster)
        drained_well(observer)
    assert observer.first_burst() <= 2, "the drain did not go in steps"


def test_a_job_is_suspended_in_the_middle_of_a_drain(cluster: ControlPlane, observer: Observer) -> None:
    start(observer, job("work", 4, annotations={**SLOW, COMPLETE_AFTER: NEVER}), pods=4)
    with Daemon(cluster, *FLAGS, "--move-jobs=always"):
        observer.eventually(observer.evictions, "an eviction")
        cluster.api.patch(WORK, {"spec": {"suspend": True}})
        drained_well(observer)
    assert observer.first_burst() <= 2, "the drain did not go in steps"
