"""`--min-on-demand-nodes` counts only usable nodes."""

from typing import Final

from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer

NODES: Final = ("on-demand-1", "on-demand-2", "on-demand-3")
MINIMUM: Final = (*FLAGS, "--min-on-demand-nodes=2")


def fill(observer: Observer) -> None:
    """Start pods on three on-demand nodes; spot nodes have room for all of them."""
    observer.nodes(3, 2)
    for count, node in enumerate(NODES, start=1):
        observer.start_on(node, deployment(f"app{count}", count), pods=count)
    observer.running(6)
    observer.open_all()


def test_two_of_three_nodes_are_kept(cluster: ControlPlane, observer: Observer) -> None:
    fill(observer)
    with Daemon(cluster, *MINIMUM):
        observer.eventually(lambda: observer.kinds("app1") == {"spot": 1}, "one node drained")
        observer.wait_unmarked()
        observer.stays(lambda: dict(observer.evicted()), {"default/app1": 1})
