"""Rolling updates whose old pod has gone while the new one does not run: the template goes back, and the node opens."""

from typing import Final

from devcluster.api import Json
from devcluster.plane import ControlPlane
from devcluster.stages import READY_ON, TERMINATE_AFTER
from tests.cluster.bad_days import NODE_1
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer, is_marked, ready
from tests.cluster.surge_scenes import (
    SURGE,
    WEB,
    gated,
    scene,
    set_gate,
    started,
    template,
)

#: The Deployment's own deadline, which is longer than a test waits.
DEADLINE: Final = {"progressDeadlineSeconds": 3600}

RECREATE: Final[Json] = {"type": "Recreate", "rollingUpdate": None}


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


def test_a_strategy_that_ends_the_old_pod_first(cluster: ControlPlane, observer: Observer) -> None:
    """`test_limits_that_change_during_a_roll_out_are_seen` in `tests/kube/test_deployments.py` has other limits."""
    before = begin(observer)
    with Daemon(cluster, *SURGE):
        begun(observer)
        cluster.api.patch(WEB, {"spec": {"strategy": RECREATE}})
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


def test_a_new_pod_that_does_not_stay(cluster: ControlPlane, observer: Observer) -> None:
    """It fails when the old pod begins to leave. `tests/draining/test_surging.py` has more that happens then."""
    old = gated(observer, {TERMINATE_AFTER: "6s"}, **DEADLINE)
    before = template(observer, "web")
    with Daemon(cluster, *SURGE):
        new = observer.eventually(lambda: started(observer), "the containers of the new pod")
        begun(observer)
        set_gate(observer, new)
        observer.eventually(lambda: leaves(observer, old), "the old pod leaving")
        set_gate(observer, new, off=True)
        observer.wait_unmarked()
        observer.eventually(lambda: "DrainFailed" in observer.events(NODE_1), "the failed drain")
        assert template(observer, "web") == before
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
