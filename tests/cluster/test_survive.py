"""A pool of spot nodes is deleted after the daemon drained what it may: with --survive=pool, all its pods run again.

``SURVIVE_SCENES`` sets the number of scenes.
"""

import os
from random import Random
from typing import Final

import pytest

from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from tests.cluster.daemon import NO_DELAY, Daemon
from tests.cluster.observer import Observer

SCENES: Final = int(os.environ.get("SURVIVE_SCENES", "1"))
NODES: Final = 3  #: of each kind; each spot node is a pool, because they are in different zones
SECONDS: Final = 60.0


class Scene:
    """On-demand nodes whose pods fit the spot nodes, but not two of them."""

    def __init__(self, cluster: ControlPlane, observer: Observer, seed: int) -> None:
        rng = Random(seed)
        self.cluster, self.observer = cluster, observer
        observer.nodes(NODES, NODES)
        self.pods = 0
        for number in range(1, NODES + 1):
            cpu = rng.randrange(860, 960, 10)
            observer.start_on(f"on-demand-{number}", deployment(f"app{number}", 3, cpu=f"{cpu}m"), pods=3)
            self.pods += 3
        observer.open_all()
        observer.running(self.pods)
        self.lost = f"spot-{rng.randint(1, NODES)}"

    def on_demand(self) -> list[str]:
        """Return the names of the on-demand nodes."""
        return [name for name in self.observer.node_names() if name.startswith("on-demand")]

    def remove_empty_nodes(self) -> int:
        """Delete the on-demand nodes without pods, as an autoscaler does. Return how many are left."""
        marked, left = self.observer.marks(), self.on_demand()
        for name in left:
            if name not in marked and not self.observer.bound_to(name):
                self.cluster.api.delete(f"/api/v1/nodes/{name}")
        return len(left)

    def lose_pool(self) -> int:
        """Delete a spot node and its pods. Return how many pods it had."""
        pods = self.observer.bound_to(self.lost)
        self.cluster.api.delete(f"/api/v1/nodes/{self.lost}")
        for pod in pods:
            name = pod["metadata"]["name"]  # without a kubelet, only a deletion without grace ends
            self.cluster.api.delete(f"/api/v1/namespaces/default/pods/{name}", gracePeriodSeconds=0)
        return len(pods)


@pytest.mark.parametrize("seed", range(SCENES))
def test_the_pods_of_a_lost_pool_run_again(cluster: ControlPlane, observer: Observer, seed: int) -> None:
    scene = Scene(cluster, observer, seed)
    with Daemon(cluster, NO_DELAY, "--survive=pool") as daemon:

        def stopped() -> bool:
            left = scene.remove_empty_nodes()
            nodes = {line.get("node") for line in daemon.logged("not drained: ", reason="would-not-survive")}
            return left < NODES and nodes >= set(scene.on_demand())

        observer.eventually(stopped, "all nodes that are left have the reason", seconds=SECONDS)
        observer.running(scene.pods)
        left = scene.remove_empty_nodes()
    assert 0 < left < NODES
    assert scene.lose_pool()
    observer.eventually(
        lambda: len(observer.pods()) == scene.pods and "" not in observer.places(), "all pods bound", seconds=SECONDS
    )
    observer.running(scene.pods)
