"""`--min-on-demand-nodes` counts only usable nodes."""

from typing import Final

from devcluster.components import KWOK_NODE
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


def test_a_node_that_is_not_ready_does_not_count(cluster: ControlPlane, observer: Observer) -> None:
    fill(observer)
    report(cluster, NODES[2], "False")
    observer.eventually(lambda: len(not_ready(cluster)) == 1, "the node not Ready")
    with Daemon(cluster, *MINIMUM):
        observer.eventually(lambda: len(blocked(observer)) >= 2, "all nodes evaluated", never=observer.evicted)
        observer.stays(lambda: dict(observer.evicted()), {})
        report(cluster, NODES[2], "True")
        observer.eventually(lambda: observer.kinds("app1") == {"spot": 1}, "one node drained")


def report(cluster: ControlPlane, node: str, status: str) -> None:
    """Set the Ready condition like a kubelet, and remove the annotation so that kwok does not overwrite it."""
    path = f"/api/v1/nodes/{node}"
    cluster.api.patch(path, {"metadata": {"annotations": {KWOK_NODE: None}}})
    conditions = cluster.api.get(path)["status"]["conditions"]
    changed = [
        {**condition, "status": status} if condition["type"] == "Ready" else condition for condition in conditions
    ]
    cluster.api.patch(f"{path}/status", {"status": {"conditions": changed}})


def not_ready(cluster: ControlPlane) -> list[str]:
    """Return the nodes with the not-ready taint."""
    return [
        node["metadata"]["name"]
        for node in cluster.api.items("/api/v1/nodes")
        if any(taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints", ()))
    ]


def blocked(observer: Observer) -> list[str]:
    return [node for node in NODES if observer.messages(node, "DrainBlocked")]
