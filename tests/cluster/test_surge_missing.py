"""Rolling updates whose old pod has gone while the new one does not run: the template goes back, and the node opens."""

from collections.abc import Callable
from typing import Final

import pytest

from devcluster.api import Json
from devcluster.plane import ControlPlane
from devcluster.stages import READY_ON, TERMINATE_AFTER
from tests.cluster.bad_days import NODE_1
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer, is_marked, ready
from tests.cluster.surge_scenes import (
    SURGE,
    WEB,
    counted,
    gated,
    quota,
    scene,
    set_gate,
    started,
    template,
)

#: The Deployment's own deadline, which is longer than a test waits.
DEADLINE: Final = {"progressDeadlineSeconds": 3600}

RECREATE: Final[Json] = {"type": "Recreate", "rollingUpdate": None}

#: Strategies that end the old pod before the new one runs. More: `test_limits_that_change_during_a_roll_out_are_seen`.
STRATEGIES: Final[dict[str, Json]] = {
    "Recreate": RECREATE,
    "maxUnavailable of one, and no maxSurge": {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
}


def begin(observer: Observer) -> Json:
    """Create a node with a pod of `web`, whose new pods never run on spot nodes. Return its template."""
    scene(observer, "web", annotations={READY_ON: "on-demand"})
    observer.plane.api.patch(WEB, {"spec": DEADLINE})
    return template(observer, "web")


def begun(observer: Observer) -> None:
    """Wait until the new pod is on a spot node. Its old node is the only place for the next one."""
    observer.eventually(lambda: observer.kinds("web").get("spot") == 1, "the new pod on a spot node")
    for node in ("spot-1", "spot-2"):
        observer.cordon(node)


def is_over(observer: Observer, before: Json) -> None:
    """Assert that the template is as before, the node is open, and the pod runs there again."""
    observer.wait_unmarked()
    observer.eventually(lambda: "DrainFailed" in observer.events(NODE_1), "the failed drain")
    assert template(observer, "web") == before
    observer.running(1)
    observer.eventually(lambda: observer.kinds("web") == {"on-demand": 1}, "the pod on its old node")
    assert not observer.evictions()


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_that_ends_the_old_pod_first(cluster: ControlPlane, observer: Observer, name: str) -> None:
    before = begin(observer)
    with Daemon(cluster, *SURGE):
        begun(observer)
        cluster.api.patch(WEB, {"spec": {"strategy": STRATEGIES[name]}})
        is_over(observer, before)


def test_a_kill_after_the_old_pod_has_gone(cluster: ControlPlane, observer: Observer) -> None:
    before = begin(observer)
    with Daemon(cluster, *SURGE) as first:
        begun(observer)
        cluster.api.patch(WEB, {"spec": {"strategy": RECREATE}})
        observer.eventually(lambda: observer.kinds("web") == {"spot": 1}, "the old pod gone")
        assert is_marked(cluster.api.get(f"/api/v1/nodes/{NODE_1}"))
        first.kill()
    with Daemon(cluster, *SURGE):
        is_over(observer, before)


def fails(observer: Observer, new: Json) -> None:
    set_gate(observer, new, off=True)


def paused(observer: Observer, new: Json) -> None:
    fails(observer, new)
    observer.plane.api.patch(WEB, {"spec": {"paused": True}})


def refused(observer: Observer, new: Json) -> None:
    """Delete the new pod under a quota that refuses the next one."""
    counted(observer.plane, pods="0")
    observer.plane.api.delete(f"/api/v1/namespaces/default/pods/{new['metadata']['name']}", gracePeriodSeconds=0)


def scaled(observer: Observer, new: Json) -> None:
    """Scale to two, as an autoscaler does."""
    fails(observer, new)
    observer.plane.api.patch(f"{WEB}/scale", {"spec": {"replicas": 2}})


#: What happens when the old pod begins to leave, because the new one is Ready.
FALLS: Final[dict[str, Callable[[Observer, Json], None]]] = {
    "the new pod fails": fails,
    "the new pod fails, and the roll-out is paused": paused,
    "the new pod is lost, and a quota refuses the next one": refused,
    "the new pod fails, and the Deployment is scaled up": scaled,
}


@pytest.mark.parametrize("name", FALLS)
def test_a_new_pod_that_does_not_stay(cluster: ControlPlane, observer: Observer, name: str) -> None:
    old = gated(observer, {TERMINATE_AFTER: "6s"}, **DEADLINE)
    before = template(observer, "web")
    with Daemon(cluster, *SURGE):
        new = observer.eventually(lambda: started(observer), "the containers of the new pod")
        begun(observer)
        set_gate(observer, new)
        observer.eventually(lambda: leaves(observer, old), "the old pod leaving")
        FALLS[name](observer, new)
        observer.wait_unmarked()
        observer.eventually(lambda: "DrainFailed" in observer.events(NODE_1), "the failed drain")
        assert template(observer, "web") == before
        cluster.api.delete(cluster.api.path(quota()))
        cluster.api.patch(WEB, {"spec": {"paused": False}})
        observer.eventually(lambda: runs_again(observer), "the pod on its old node")
    assert not observer.evictions()


def leaves(observer: Observer, name: str) -> bool:
    return any(
        pod["metadata"]["name"] == name and "deletionTimestamp" in pod["metadata"]
        for pod in observer.plane.api.items("/api/v1/namespaces/default/pods")
    )


def runs_again(observer: Observer) -> bool:
    """Set the gates of the pods on the old node, and return whether one of them is Ready."""
    here = [pod for pod in observer.pods("web") if pod["spec"].get("nodeName") == NODE_1]
    for pod in here:
        set_gate(observer, pod)
    return bool(ready(here))
