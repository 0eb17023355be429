"""Pods that must not be evicted or cannot terminate: their node is blocked with a reason, the next node is drained."""

from typing import Final

from devcluster.api import Json
from devcluster.manifests import deployment, job
from devcluster.plane import ControlPlane
from devcluster.stages import COMPLETE_AFTER, NEVER, TERMINATE_AFTER
from tests.cluster.bad_days import FLAGS, NODE_1, next_node, next_node_drained, others_touched
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer

PODS: Final = "/api/v1/namespaces/default/pods"


def unforgiving_job(observer: Observer) -> None:
    """Create a Job that fails if one of its pods is lost."""
    strict = job("strict", 2, annotations={COMPLETE_AFTER: NEVER})
    strict["spec"]["backoffLimit"] = 0
    observer.start_on(NODE_1, strict, pods=2)


def test_a_pod_of_a_job_that_would_fail_blocks_its_node(cluster: ControlPlane, observer: Observer) -> None:
    observer.nodes(2, 2)
    unforgiving_job(observer)
    observer.start_on(NODE_1, deployment("web", 1), pods=1)
    next_node(observer)
    pods = len(observer.pods())
    observer.running(pods)
    before = {pod["metadata"]["uid"] for pod in observer.bound_to(NODE_1)}
    observer.open_all()
    with Daemon(cluster, *FLAGS):
        next_node_drained(observer, lambda: others_touched(observer))
        messages = observer.eventually(lambda: observer.messages(NODE_1, "DrainBlocked"), "the reason")
    assert "job-would-fail: " in messages[-1]
    assert not others_touched(observer)
    assert {pod["metadata"]["uid"] for pod in observer.bound_to(NODE_1)} == before


def test_a_stuck_pod_blocks_its_node(cluster: ControlPlane, observer: Observer) -> None:
    """The pod first counts as terminating and half a minute later as stuck; no other pod of the node is evicted."""
    observer.nodes(2, 2)
    observer.start_on(NODE_1, deployment("web", 2), deployment("held", 1, annotations={TERMINATE_AFTER: NEVER}), pods=3)
    next_node(observer)
    observer.running(5)
    observer.open_all()
    hold(cluster, observer.pods("held"))
    with Daemon(cluster, *FLAGS):
        next_node_drained(observer, lambda: others_touched(observer))
        observer.eventually(
            lambda: any("pod-stuck-terminating: " in text for text in observer.messages(NODE_1, "DrainBlocked")),
            "the reason",
            never=lambda: others_touched(observer),
        )
        observer.stays(lambda: others_touched(observer), set(), seconds=2)


def hold(cluster: ControlPlane, pods: list[Json]) -> None:
    """Delete *pods* after adding a finalizer to them."""
    for pod in pods:
        path = f"{PODS}/{pod['metadata']['name']}"
        cluster.api.patch(path, {"metadata": {"finalizers": ["example.com/held"]}})
        cluster.api.delete(path, gracePeriodSeconds=1)
