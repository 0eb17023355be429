"""Reports that were seen in clusters, on the control plane: what the daemon does, by the objects of the API server."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment, on_demand, pod, spot, statefulset
from devcluster.plane import ControlPlane
from tests.cluster.bad_days import FLAGS, NODE_1, next_node, next_node_drained, others_touched
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer

ZONE: Final = "topology.kubernetes.io/zone"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def beside(app: str) -> dict[str, Any]:
    """Return the affinity of a pod that must be in a zone with a pod of *app*."""
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAffinity": {REQUIRED: [term]}}}


def with_handler(made: Json, handler: str) -> Json:
    return made | {"status": made["status"] | {"runtimeHandlers": [{"name": ""}, {"name": handler}]}}


def priority_class(name: str, value: int) -> Json:
    meta = {"name": name}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": value}


@contextmanager
def applied(cluster: ControlPlane, made: Json) -> Iterator[None]:
    """Apply an object that is of no namespace, and delete it at the end."""
    cluster.apply([made])
    try:
        yield
    finally:
        cluster.api.delete(cluster.api.path(made))


def test_a_pod_waits_for_a_node_with_its_runtime_handler(cluster: ControlPlane, observer: Observer) -> None:
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gvisor"}}
    cluster.apply([on_demand(NODE_1), with_handler(spot("spot-1"), "runc")])
    observer.nodes_ready(2)
    with applied(cluster, runtime | {"handler": "runsc"}), Daemon(cluster, *FLAGS):
        observer.start_on(NODE_1, deployment("web", 2, runtimeClassName="gvisor"), pods=2)
        observer.running(2)
        observer.open_all()
        observer.wait_told(NODE_1, "DrainBlocked", "no runtime handler runsc")
        observer.stays(observer.evicted, {})
        observer.cordon("spot-1")
        cluster.apply([with_handler(spot("spot-2"), "runsc")])
        observer.eventually(lambda: len(observer.bound_to("spot-2")) == 2, f"{NODE_1} drained")


def test_a_pod_that_needs_long_to_terminate_keeps_its_node(cluster: ControlPlane, observer: Observer) -> None:
    observer.nodes(2, 2)
    observer.start_on(NODE_1, deployment("web", 2, terminationGracePeriodSeconds=604800), pods=2)
    next_node(observer)
    observer.running(4)
    observer.open_all()
    limit = "--max-graceful-termination=60s"
    with Daemon(cluster, *FLAGS, limit, "--shorten-grace-periods=false"):
        next_node_drained(observer, never=lambda: others_touched(observer))
        observer.stays(lambda: others_touched(observer), set())
    with Daemon(cluster, *FLAGS, limit):
        observer.eventually(lambda: observer.kinds("web") == {"spot": 2}, f"{NODE_1} drained")
    bodies = [event.request_object or {} for event in observer.evictions() if event.name.startswith("web")]
    assert [body["deleteOptions"]["gracePeriodSeconds"] for body in bodies] == [60, 60]


@pytest.mark.parametrize("owner", [deployment, statefulset])
def test_workloads_that_must_share_a_zone_move_one_after_the_other(
    cluster: ControlPlane, observer: Observer, owner: Any
) -> None:
    """A pod of the same label lets the first one start, and is deleted then."""
    observer.nodes(1, 1)
    first = pod("first", labels={"app": "a"}, nodeName=NODE_1)
    observer.start_on(NODE_1, first, owner("b", 2, **beside("a")), pods=3)
    observer.start_on(NODE_1, owner("a", 2, **beside("b")), pods=2)
    cluster.api.delete(cluster.api.path(first))
    observer.running(4)
    observer.open_all()
    with Daemon(cluster, *FLAGS):
        observer.eventually(lambda: observer.kinds("a") == observer.kinds("b") == {"spot": 2}, f"{NODE_1} drained")
        observer.wait_unmarked()
    assert observer.evicted() == {"default/a": 2, "default/b": 2}
    assert "DrainFailed" not in observer.events(NODE_1)


@pytest.mark.parametrize(("priority", "drained"), [(-1, True), (-11, True), (0, False)])
def test_pause_pods_yield_their_room_by_their_priority(
    cluster: ControlPlane, observer: Observer, priority: int, drained: bool
) -> None:
    observer.nodes(1, 1)
    with applied(cluster, priority_class("pause", priority)):
        observer.start_on("spot-1", deployment("pause", 1, cpu="3500m", priorityClassName="pause"), pods=1)
        observer.start_on(NODE_1, deployment("web", 2, cpu="1"), pods=2)
        observer.running(3)
        observer.cordon("spot-1", off=True)
        with Daemon(cluster, *FLAGS):
            if drained:
                observer.eventually(lambda: observer.kinds("web") == {"spot": 2}, f"{NODE_1} drained")
                observer.wait_unmarked()
            else:
                observer.wait_told(NODE_1, "DrainBlocked", "Insufficient cpu")
                observer.stays(observer.evicted, {})
    assert "DrainFailed" not in observer.events(NODE_1)
