"""Compatibility with k8s-spot-rescheduler: nodes that it drained, and control plane nodes."""

from pathlib import Path
from typing import Final

from devcluster.api import Json
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from predicates.objects.api import CONTROL_PLANE_LABELS
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.machines import machines
from tests.cluster.observer import Observer

CACHE: Final[Json] = {"volumes": [{"name": "cache", "emptyDir": {}}]}
COMPAT: Final = "--compat=k8s-spot-rescheduler"


def test_nodes_that_only_an_additional_guard_blocks_are_drained_with_compat(
    cluster: ControlPlane, observer: Observer
) -> None:
    """The pods have local storage, so that they are not moved by default."""
    observer.nodes(2, 2)
    cluster.apply([deployment("web", 2, **CACHE)])
    observer.running(2)
    nodes = {node for node in observer.places() if node}
    observer.open_all()
    with Daemon(cluster, *FLAGS):
        for node in nodes:
            observer.eventually(lambda node=node: "DrainBlocked" in observer.events(node), f"the reason of {node}")
        observer.stays(observer.evictions, [])
    with Daemon(cluster, *FLAGS, COMPAT):
        observer.eventually(lambda: observer.kinds() == {"spot": 2}, "the pods on spot")
        observer.wait_unmarked()


def test_control_plane_nodes_are_drained_on_request_and_their_machines_stay(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    with machines(observer, tmp_path, 1, 1) as pool:
        pool.fill(web=2)
        cluster.api.patch("/api/v1/nodes/od-1", {"metadata": {"labels": {CONTROL_PLANE_LABELS[0]: ""}}})
        observer.running(2)
        observer.open_all()
        with Daemon(cluster, *FLAGS, *pool.flags) as daemon:
            observer.eventually(lambda: "DrainBlocked" in observer.events("od-1"), "the reason")
            observer.stays(observer.evictions, [])
            daemon.kill()
        with Daemon(cluster, *FLAGS, *pool.flags, "--allow-control-plane"):
            observer.eventually(lambda: observer.kinds() == {"spot": 2}, "the pods on spot")
            observer.wait_unmarked()
            observer.stays(lambda: (pool.orders(), observer.marks()), ([], {}))
    assert "od-1" in observer.node_names()
