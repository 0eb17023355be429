"""Cluster Autoscaler starts to remove the node that the daemon drains: taint, evictions, deletion of the Node."""

from datetime import timedelta
from typing import Final

import pytest

from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from devcluster.stages import START_AFTER
from tests.cluster.bad_days import FLAGS, NODE_1, NODE_2, next_node, next_node_drained
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer, ready

NODE: Final = f"/api/v1/nodes/{NODE_1}"
PODS: Final = 3
DELAY: Final = 12  #: seconds between two drains

#: The number of evicted pods when Cluster Autoscaler starts, and whether it deletes the Node immediately.
SCENES: Final = {
    "all pods are evicted and the Node is deleted immediately": (PODS, True),
    "one pod is evicted": (1, False),
}


def taint(cluster: ControlPlane) -> None:
    """Set the taint that Cluster Autoscaler sets before its first eviction."""
    taints = cluster.api.get(NODE)["spec"].get("taints", [])
    taints.append({"key": "ToBeDeletedByClusterAutoscaler", "value": "1700000000", "effect": "NoSchedule"})
    cluster.api.patch(NODE, {"spec": {"taints": taints}})


def evict_the_others(cluster: ControlPlane, observer: Observer) -> None:
    for pod in observer.bound_to(NODE_1):
        name = pod["metadata"]["name"]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        cluster.api.post(f"/api/v1/namespaces/default/pods/{name}/eviction", eviction)


@pytest.mark.parametrize(("evicted", "at_once"), SCENES.values(), ids=SCENES)
def test_a_drain_that_cluster_autoscaler_finishes_does_not_fail(
    cluster: ControlPlane, observer: Observer, evicted: int, *, at_once: bool
) -> None:
    """The next drain starts after the pods of this drain run again and the drain delay has passed."""
    observer.nodes(2, 2)
    observer.start_on(NODE_1, deployment("web", PODS, annotations={START_AFTER: "5s"}), pods=PODS)
    next_node(observer)
    observer.running(PODS + 2)
    observer.open_all()

    def early() -> bool:
        """Return whether the next drain has started although pods of this drain are not Ready."""
        return NODE_2 in observer.marks() and len(ready(observer.pods("web"))) < PODS

    with Daemon(cluster, *FLAGS, f"--node-drain-delay={DELAY}s"):
        observer.eventually(lambda: len(observer.evictions()) == evicted, f"{evicted} evictions")
        taint(cluster)
        evict_the_others(cluster, observer)
        if not at_once:
            observer.wait_unmarked()
        cluster.api.delete(NODE)
        next_node_drained(observer, never=early)
    first, second = observer.markings()
    assert (first.node, second.node, first.until is not None) == (NODE_1, NODE_2, True)
    last = max(event.at for event in observer.evictions() if event.name.startswith("web"))
    assert second.since - last >= timedelta(seconds=DELAY)
    assert "NodeDrained" in observer.events(NODE_1)
    assert not {"DrainFailed", "DrainCoolDown"} & observer.events(NODE_1)
