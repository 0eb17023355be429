"""The owner of the evicted pods changes during a drain; the drain does not wait for pods that are no longer desired."""

from collections.abc import Callable
from typing import Final

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment, job
from devcluster.plane import ControlPlane
from devcluster.stages import COMPLETE_AFTER, NEVER, TERMINATE_AFTER
from tests.cluster.bad_days import (
    FLAGS,
    NODE_1,
    SLOW,
    assert_both_drained,
    next_node,
    others_touched,
)
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer

WEB: Final = "/apis/apps/v1/namespaces/default/deployments/web"
WORK: Final = "/apis/batch/v1/namespaces/default/jobs/work"

CHANGES: Final[dict[str, Callable[[ControlPlane], object]]] = {
    "scaled down": lambda cluster: cluster.api.patch(WEB, {"spec": {"replicas": 2}}),
    "deleted": lambda cluster: cluster.api.delete(WEB, propagationPolicy="Background"),
    "rolled out": lambda cluster: cluster.api.patch(
        WEB, {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
    ),
}


NO_PODS: Final[Json] = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "none", "namespace": "default"},
    "spec": {"hard": {"pods": "0"}},
}

#: Steps of 1, 1 and 2 evictions; the last step may be in progress when the quota is created.
MOST_BEFORE_THE_QUOTA: Final = 4


def start(observer: Observer, workload: Json, pods: int) -> None:
    observer.nodes(2, 2)
    observer.start_on(NODE_1, workload, pods=pods)
    next_node(observer)
    observer.running(pods + 2)
    observer.open_all()


@pytest.mark.parametrize("change", CHANGES)
def test_a_drain_does_not_wait_for_pods_that_a_changed_deployment_no_longer_wants(
    cluster: ControlPlane, observer: Observer, change: str
) -> None:
    """Pods terminate slowly, so pods that the change deletes still exist when the next step is planned."""
    start(observer, deployment("web", 8, annotations={**SLOW, TERMINATE_AFTER: "5s"}), pods=8)
    with Daemon(cluster, *FLAGS):
        observer.eventually(lambda: len(observer.evictions()) >= 2, "the second eviction")
        CHANGES[change](cluster)
        assert_both_drained(observer)
    assert observer.first_burst() <= 2, "the drain did not go in steps"


def test_a_drain_does_not_wait_for_pods_of_a_job_that_is_suspended(cluster: ControlPlane, observer: Observer) -> None:
    start(observer, job("work", 4, annotations={**SLOW, COMPLETE_AFTER: NEVER}), pods=4)
    with Daemon(cluster, *FLAGS, "--move-jobs=always"):
        observer.eventually(observer.evictions, "an eviction")
        cluster.api.patch(WORK, {"spec": {"suspend": True}})
        assert_both_drained(observer)
    assert observer.first_burst() <= 2, "the drain did not go in steps"


def test_replacements_of_an_orphaned_deployment_are_owed_to_its_replica_set(
    cluster: ControlPlane, observer: Observer
) -> None:
    """The orphaned ReplicaSet remains, and the debt to the Deployment becomes a debt to the ReplicaSet."""
    start(observer, deployment("web", 12, annotations=SLOW), pods=12)
    with Daemon(cluster, *FLAGS):
        observer.eventually(lambda: len(observer.evictions()) >= 2, "the second eviction")
        cluster.apply([NO_PODS])
        cluster.api.delete(WEB, propagationPolicy="Orphan")
        observer.eventually(lambda: observer.events(NODE_1) & {"DrainFailed"}, "the end of the drain")
        observer.wait_unmarked()
        observer.stays(lambda: others_touched(observer) - {"default/web", NODE_1}, set())
    assert len(observer.evictions()) <= MOST_BEFORE_THE_QUOTA
