"""The owner of the evicted pods changes during a drain; the drain does not wait for pods that are no longer desired."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from devcluster import build
from devcluster.api import Json
from devcluster.errors import ApiError
from devcluster.manifests import deployment, job, pdb, statefulset
from devcluster.plane import ControlPlane
from devcluster.stages import COMPLETE_AFTER, NEVER, TERMINATE_AFTER
from tests.cluster.bad_days import (
    FLAGS,
    NODE_1,
    SLOW,
    assert_both_drained,
    next_node,
    next_node_drained,
    others_touched,
)
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer
from tests.cluster.operators import PlayedOwner, definition

WEB: Final = "/apis/apps/v1/namespaces/default/deployments/web"
WORK: Final = "/apis/batch/v1/namespaces/default/jobs/work"

CHANGES: Final[dict[str, Callable[[ControlPlane], object]]] = {
    "scaled down": lambda cluster: cluster.api.patch(WEB, {"spec": {"replicas": 2}}),
    "deleted": lambda cluster: cluster.api.delete(WEB, propagationPolicy="Background"),
    "rolled out": lambda cluster: cluster.api.patch(
        WEB, {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
    ),
}

#: The first minor version in which an autoscaler may scale to zero (gate HPAScaleToZero).
TO_ZERO: Final = 37

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


#: A metric of waiting work, played by a custom resource: the autoscaler reads the list of this kind.
METRIC: Final = PlayedOwner("external.metrics.k8s.io/v1beta1/ExternalMetricValue", "waiting", "", plays=False)
AUTOSCALER: Final = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web"


def autoscaled() -> list[Json]:
    """Return a HorizontalPodAutoscaler that keeps one pod for each piece of waiting work, of which there are 8."""
    external = {"metric": {"name": METRIC.plural}, "target": {"type": "AverageValue", "averageValue": "1"}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 0,
        "maxReplicas": 8,
        "metrics": [{"type": "External", "external": external}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    }
    value = {"metricName": METRIC.plural, "timestamp": "2026-01-01T00:00:00Z", "value": "8"}
    meta = {"name": "web", "namespace": "default"}
    scaler = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec}
    return [METRIC.manifest | value, scaler]


def is_active(cluster: ControlPlane) -> bool:
    """Return whether the autoscaler has read its metric."""
    conditions = cluster.api.get(AUTOSCALER).get("status", {}).get("conditions") or ()
    return any(each["type"] == "ScalingActive" and each["status"] == "True" for each in conditions)


@contextlib.contextmanager
def metric_served(cluster: ControlPlane) -> Iterator[None]:
    cluster.apply([definition(METRIC)])
    try:
        cluster.wait_for(lambda: _is_served(cluster), "the metric")
        yield
    finally:
        cluster.api.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{METRIC.plural}.{METRIC.group}")


def _is_served(cluster: ControlPlane) -> bool:
    try:
        return cluster.api.items(METRIC.path.rpartition("/")[0]) == []
    except ApiError:
        return False


@pytest.mark.skipif(
    build.minor_version() < TO_ZERO,
    reason=f"a HorizontalPodAutoscaler scales to zero from Kubernetes 1.{TO_ZERO} on",
)
def test_a_horizontal_pod_autoscaler_scales_to_zero_during_a_drain(cluster: ControlPlane, observer: Observer) -> None:
    """The budget keeps the drain at one pod at a time, until the autoscaler has looked again (every 15 s)."""
    start(observer, deployment("web", 8, annotations={**SLOW, TERMINATE_AFTER: "5s"}), pods=8)
    with metric_served(cluster):
        cluster.apply([pdb("web", max_unavailable=1), *autoscaled()])
        observer.eventually(lambda: is_active(cluster), "an active autoscaler", 40)
        with Daemon(cluster, *FLAGS):
            observer.eventually(lambda: len(observer.evictions()) >= 2, "the second eviction")
            cluster.api.patch(METRIC.path, {"value": "0"})
            observer.eventually(lambda: cluster.api.get(WEB)["spec"]["replicas"] == 0, "no wanted pod", 40)
            assert "NodeDrained" not in observer.events(NODE_1), "the drain had ended before"
            assert_both_drained(observer)


def test_a_drain_does_not_wait_for_pods_of_a_job_that_is_suspended(cluster: ControlPlane, observer: Observer) -> None:
    start(observer, job("work", 4, annotations={**SLOW, COMPLETE_AFTER: NEVER}), pods=4)
    with Daemon(cluster, *FLAGS, "--move-jobs=always"):
        observer.eventually(observer.evictions, "an eviction")
        cluster.api.patch(WORK, {"spec": {"suspend": True}})
        assert_both_drained(observer)
    assert observer.first_burst() <= 2, "the drain did not go in steps"


def rolled_out_at_once() -> Json:
    workload = statefulset("work", 6, annotations=SLOW)
    return workload | {
        "spec": workload["spec"] | {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}}
    }


def replaced_late() -> Json:
    """Return a Job that creates a replacement when the old pod has ended, and after a back-off of 10 s."""
    workload = job("work", 1, annotations={**SLOW, COMPLETE_AFTER: NEVER, TERMINATE_AFTER: "6s"})
    return workload | {"spec": workload["spec"] | {"podReplacementPolicy": "Failed", "backoffLimit": 20}}


def test_a_stateful_set_that_rolls_out_several_pods_at_once_during_a_drain(
    cluster: ControlPlane, observer: Observer
) -> None:
    start(observer, rolled_out_at_once(), pods=6)
    template = {"metadata": {"annotations": {"version": "2"}}}
    with Daemon(cluster, *FLAGS):
        observer.eventually(lambda: len(observer.evictions()) >= 2, "the second eviction")
        cluster.api.patch("/apis/apps/v1/namespaces/default/statefulsets/work", {"spec": {"template": template}})
        assert_both_drained(observer)
    observer.running(6, "work")
    assert observer.kinds("work") == {"spot": 6}


def test_a_drain_waits_for_replacements_that_are_created_after_the_old_pod_has_ended(
    cluster: ControlPlane, observer: Observer
) -> None:
    start(observer, replaced_late(), pods=1)
    with Daemon(cluster, *FLAGS, "--landing-timeout=60s", "--move-jobs=always"):
        next_node_drained(observer, never=lambda: end_as_a_kubelet_does(cluster, observer))
        assert {"NodeDrained"} <= observer.events(NODE_1)
    assert "DrainFailed" not in observer.events(NODE_1)
    observer.running(1, "work")
    assert observer.kinds("work") == {"spot": 1}


def end_as_a_kubelet_does(cluster: ControlPlane, observer: Observer) -> None:
    """Set the phase of pods of `work` that are being deleted, which kwok does not do: the Job waits for it."""
    for pod in observer.pods("work"):
        deadline = pod["metadata"].get("deletionTimestamp")
        if deadline is not None and pod["status"]["phase"] == "Running":
            path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
            cluster.api.patch(path, {"status": {"phase": "Failed"}})


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
