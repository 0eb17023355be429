"""Common parts of the failure tests: flags with short delays, and scenes with two on-demand nodes."""

from collections.abc import Callable
from typing import Final

from devcluster.api import Json
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from devcluster.stages import START_AFTER
from tests.cluster.daemon import NO_DELAY
from tests.cluster.observer import Observer

NODE_1: Final = "on-demand-1"
NODE_2: Final = "on-demand-2"
NAMESPACE: Final = "default"  #: namespace of the daemon's Lease and memory

#: Short retry delays, so that a wrong action of the daemon becomes visible within seconds.
FLAGS: Final = (
    f"--namespace={NAMESPACE}",
    NO_DELAY,
    "--failure-pause=1s",
    "--failure-pause-max=1s",
    "--node-cooldown=1s",
    "--node-cooldown-max=1s",
    "--landing-timeout=20s",
)

#: Slow pods, so that a test can act between the steps of a drain.
SLOW: Final = {START_AFTER: "2s"}


def next_node(observer: Observer) -> None:
    """Create two movable pods of `next` on NODE_2, so that NODE_2 has more load than NODE_1 and is drained after it."""
    observer.start_on(NODE_2, deployment("next", 2, cpu="1"), pods=2)


def next_node_drained(observer: Observer, never: Callable[[], object] = lambda: None) -> None:
    """Wait until NODE_2 is drained and no node is marked; *never* as for `Observer.eventually`."""
    observer.eventually(lambda: observer.kinds("next") == {"spot": 2}, f"{NODE_2} drained", never=never)
    observer.wait_unmarked()


def others_touched(observer: Observer) -> set[str]:
    """Return owners with evicted pods and nodes that were marked, except those of `next_node`."""
    return {*observer.evicted(), *(marking.node for marking in observer.markings())} - {"default/next", NODE_2}


def assert_both_drained(observer: Observer) -> None:
    """Assert that NODE_1 and then NODE_2 were drained, once each and without a failure."""
    next_node_drained(observer)
    assert [marking.node for marking in observer.markings()] == [NODE_1, NODE_2]
    assert {"NodeDrained"} <= observer.events(NODE_1)
    assert "DrainFailed" not in observer.events(NODE_1) | observer.events(NODE_2)


def lease_holder(plane: ControlPlane, namespace: str = NAMESPACE) -> str:
    """Return the holder of the daemon's Lease, or ""."""
    leases: list[Json] = plane.api.items(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
    return next((lease["spec"].get("holderIdentity") or "" for lease in leases), "")
