"""Leftovers move on a real control plane: first what makes room on the node that stays, then the node; also killed."""

from typing import Final

import pytest

from devcluster.manifests import deployment, on_demand, spot
from devcluster.plane import ControlPlane
from devcluster.stages import NEVER, TERMINATE_AFTER
from rescheduler.draining.actions import parse
from rescheduler.planning.outcome import DrainKind
from tests.cluster.daemon import NO_DELAY, SOFT, Daemon
from tests.cluster.observer import Observer, ready

NODE_1, NODE_2, SPOT = "on-demand-1", "on-demand-2", "spot-1"
LABEL: Final = "node-role.kubernetes.io/worker"
PINNED: Final = {"nodeSelector": {LABEL: "true"}}
MOVE: Final = ("--leftovers=move", NO_DELAY)


@pytest.fixture
def observer(cluster: ControlPlane) -> Observer:
    return Observer(cluster)


def start(observer: Observer, **fields: object) -> None:
    """Fill both on-demand nodes. Each has a pod that must not run on spot; on NODE_2 d can go to the spot node."""
    soft = [{"key": LABEL, "value": "true", "effect": SOFT}]
    nodes = [on_demand(name, allocatable={"cpu": "3"}, taints=soft) for name in (NODE_1, NODE_2)]
    observer.plane.apply([*nodes, spot(SPOT, allocatable={"cpu": "8"})])
    observer.nodes_ready(3)
    observer.start_on(NODE_1, deployment("a", 1, cpu="2"), deployment("b", 1, cpu="1", **PINNED), pods=2)
    own = [deployment("c", 1, cpu="1", **PINNED), deployment("d", 2, cpu="1", **fields)]
    observer.start_on(NODE_2, *own, pods=3)
    observer.running(5)


def test_room_is_made_on_the_node_that_stays_and_the_other_one_is_emptied(observer: Observer) -> None:
    start(observer)
    before = observer.uids("c")
    observer.open_all()
    with Daemon(observer.plane, *MOVE) as daemon:
        observer.eventually(lambda: "NodeDrained" in observer.events(NODE_1), "the emptied node")
        observer.eventually(lambda: daemon.logged("drained after", node=NODE_1), "its end")
        observer.wait_unmarked()
    observer.running(5)
    assert [marking.node for marking in observer.markings()][:2] == [NODE_2, NODE_1]
    assert (observer.places("a"), observer.places("b"), observer.places("c")) == ({SPOT: 1}, {NODE_2: 1}, {NODE_2: 1})
    assert observer.places("d") == {NODE_2: 1, SPOT: 1}
    assert observer.uids("c") == before
    assert {"RoomMade"} <= observer.events(NODE_2)
    assert "NodeDrained" not in observer.events(NODE_2)
    assert "DrainFailed" not in observer.events(NODE_1) | observer.events(NODE_2)


def test_after_a_kill_while_room_is_made_the_next_daemon_reopens_the_node_and_plans_again(observer: Observer) -> None:
    """The pod that is given does not terminate before the kill: the next daemon undoes what was only begun."""
    start(observer, annotations={TERMINATE_AFTER: NEVER})
    observer.open_all()
    with Daemon(observer.plane, *MOVE) as killed:
        observer.eventually(lambda: _terminating(observer), "the drain under way")
        [(node, mark)] = observer.marks().items()
        killed.kill()
    written = parse(mark)
    assert (node, written and written.kind) == (NODE_2, DrainKind.MAKES_ROOM)
    for name in _terminating(observer):
        observer.plane.api.delete(f"/api/v1/namespaces/default/pods/{name}", gracePeriodSeconds=0)
    with Daemon(observer.plane, *MOVE) as daemon:
        observer.eventually(lambda: daemon.logged("found marks", node=NODE_2, reason="rolled-back"), "the rolled back")
        observer.eventually(lambda: "NodeDrained" in observer.events(NODE_1), "the emptied node")
        observer.wait_unmarked()
    observer.eventually(lambda: len(ready(observer.pods())) == 5, "all pods")
    assert (observer.places("a"), observer.places("b")) == ({SPOT: 1}, {NODE_2: 1})


def _terminating(observer: Observer) -> list[str]:
    return [pod["metadata"]["name"] for pod in observer.pods("d") if "deletionTimestamp" in pod["metadata"]]
