"""Reports that were seen in clusters, on the control plane: what the daemon does, by the objects of the API server."""

from collections.abc import Iterator
from contextlib import contextmanager

from devcluster.api import Json
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from tests.cluster.bad_days import FLAGS, NODE_1
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer


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


def test_pause_pods_yield_their_room_by_their_priority(cluster: ControlPlane, observer: Observer) -> None:
    """The real scheduler preempts them. `tests/field` has other priorities, and the other reports of this kind."""
    observer.nodes(1, 1)
    with applied(cluster, priority_class("pause", -1)):
        observer.start_on("spot-1", deployment("pause", 1, cpu="3500m", priorityClassName="pause"), pods=1)
        observer.start_on(NODE_1, deployment("web", 2, cpu="1"), pods=2)
        observer.running(3)
        observer.cordon("spot-1", off=True)
        with Daemon(cluster, *FLAGS):
            observer.eventually(lambda: observer.kinds("web") == {"spot": 2}, f"{NODE_1} drained")
            observer.wait_unmarked()
    assert "DrainFailed" not in observer.events(NODE_1)
