"""`--min-on-demand-nodes` counts nodes that could take over."""

from typing import Final

from deploy.local.components import KWOK_NODE
from deploy.local.manifests import deployment
from deploy.local.plane import ControlPlane
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer

NODES: Final = ("on-demand-1", "on-demand-2", "on-demand-3")
MINIMUM: Final = (*FLAGS, "--min-on-demand-nodes=2")


def fill(observer: Observer) -> None:
    """Each of three on-demand nodes runs pods, and spot nodes have room for all of them."""
    observer.nodes(3, 2)
    for count, node in enumerate(NODES, start=1):
        observer.start_on(node, deployment(f"app{count}", count), pods=count)
    observer.running(6)
    observer.open_all()


def test_of_three_nodes_two_are_kept(cluster: ControlPlane, observer: Observer) -> None:
    fill(observer)
    with Daemon(cluster, *MINIMUM):
        observer.eventually(lambda: observer.kinds("app1") == {"spot": 1}, "one node drained")
        observer.opened()
        observer.stays(lambda: dict(observer.evicted()), {"default/app1": 1})


def test_a_node_that_is_not_ready_does_not_count(cluster: ControlPlane, observer: Observer) -> None:
    fill(observer)
    report(cluster, NODES[2], "False")
    observer.eventually(lambda: len(not_ready(cluster)) == 1, "the node not Ready")
    with Daemon(cluster, *MINIMUM):
        observer.eventually(lambda: len(blocked(observer)) >= 2, "all nodes judged", never=observer.evicted)
        observer.stays(lambda: dict(observer.evicted()), {})
        report(cluster, NODES[2], "True")
        observer.eventually(lambda: observer.kinds("app1") == {"spot": 1}, "one node drained")


def report(cluster: ControlPlane, node: str, status: str) -> None:
    """What a kubelet reports; without the annotation kwok leaves the node's status alone."""
    path = f"/api/v1/nodes/{node}"
    cluster.api.patch(path, {"metadata": {"annotations": {KWOK_NODE: None}}})
    conditions = cluster.api.get(path)["status"]["conditions"]
    changed = [{**one, "status": status} if one["type"] == "Ready" else one for one in conditions]
    cluster.api.patch(f"{path}/status", {"status": {"conditions": changed}})


def not_ready(cluster: ControlPlane) -> list[str]:
    """Nodes with the taint of nodes that are not Ready."""
    return [
        node["metadata"]["name"]
        for node in cluster.api.items("/api/v1/nodes")
        if any(taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints", ()))
    ]


def blocked(observer: Observer) -> list[str]:
    return [node for node in NODES if observer.messages(node, "DrainBlocked")]
