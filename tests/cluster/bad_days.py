"""What the tests of bad days share: flags in a hurry, and scenes on two on-demand nodes."""

from collections.abc import Callable
from typing import Final

from deploy.local.api import Json
from deploy.local.manifests import deployment
from deploy.local.plane import ControlPlane
from deploy.local.stages import START_AFTER
from tests.cluster.daemon import NO_DELAY
from tests.cluster.observer import Observer

ONE: Final = "on-demand-1"
TWO: Final = "on-demand-2"
NAMESPACE: Final = "default"  #: of the daemon's Lease and memory

#: Failed drains are soon followed by the next try, so that a daemon that does harm does it within seconds.
FLAGS: Final = (
    f"--namespace={NAMESPACE}",
    NO_DELAY,
    "--failure-pause=1s",
    "--failure-pause-max=1s",
    "--node-cooldown=1s",
    "--node-cooldown-max=1s",
    "--landing-timeout=20s",
)

#: A pod that takes so long to become Ready makes the steps of a drain visible.
SLOW: Final = {START_AFTER: "2s"}


def next_node(observer: Observer) -> None:
    """TWO runs two pods of `next` that can move; it is fuller than ONE of a few small pods."""
    observer.start_on(TWO, deployment("next", 2, cpu="1"), pods=2)


def next_node_drained(observer: Observer, never: Callable[[], object] = lambda: None) -> None:
    """Wait until TWO of `next_node` is drained and no node is marked; *never* as for `Observer.eventually`."""
    observer.eventually(lambda: observer.kinds("next") == {"spot": 2}, f"{TWO} drained", never=never)
    observer.opened()


def others_touched(observer: Observer) -> set[str]:
    """Owners of which a pod was evicted, and nodes that were marked, other than those of `next_node`."""
    return {*observer.evicted(), *(marking.node for marking in observer.markings())} - {"default/next", TWO}


def drained_well(observer: Observer) -> None:
    """ONE was drained once and without a failure, then TWO."""
    next_node_drained(observer)
    assert [marking.node for marking in observer.markings()] == [ONE, TWO]
    assert {"NodeDrained"} <= observer.events(ONE)
    assert "DrainFailed" not in observer.events(ONE) | observer.events(TWO)


def lease_holder(plane: ControlPlane, namespace: str = NAMESPACE) -> str:
    """Who holds the daemon's Lease; "" for nobody."""
    leases: list[Json] = plane.api.items(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
    return next((lease["spec"].get("holderIdentity") or "" for lease in leases), "")
