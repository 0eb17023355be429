"""State that must survive a restart (drain delay, owed replacement pods), and pods that move back repeatedly."""

from typing import Final

from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from tests.cluster.bad_days import FLAGS, NODE_1, lease_holder, next_node, next_node_drained, others_touched
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer

RETURN_WAIT: Final = 3
MOVES: Final = 2


def test_pods_that_move_back_wait_and_are_finally_not_moved_at_all(cluster: ControlPlane, observer: Observer) -> None:
    """That each wait is longer is in `tests/planning/test_movements.py`."""
    observer.nodes(1, 1)
    cluster.apply([deployment("web", 2)])
    observer.running(2)
    observer.open_spot()
    flags = (f"--return-wait={RETURN_WAIT}s", "--return-wait-max=1h", f"--max-moves-per-pod-per-day={MOVES}")
    with Daemon(cluster, *FLAGS, *flags):
        for _ in range(MOVES):
            observer.eventually(lambda: observer.kinds() == {"spot": 2}, "the pods on spot")
            observer.wait_unmarked()
            push_back(observer)
        observer.stays(lambda: len(observer.evictions()), 2 * MOVES, seconds=5 * RETURN_WAIT)
    waits = waited(observer)
    assert len(waits) == MOVES - 1
    assert min(waits) >= RETURN_WAIT


def push_back(observer: Observer) -> None:
    """Move the pods back to the on-demand node, like another controller would, and uncordon spot again.

    If the backend has removed the node, there is a new one for the pods that are pending again.
    """
    observer.cordon("spot-1")
    for pod in observer.pods():
        observer.plane.api.delete(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}")
    if NODE_1 not in observer.node_names():
        observer.nodes(1, 1)
    observer.eventually(lambda: observer.kinds() == {"on-demand": 2}, "the pods back")
    observer.running(2)
    observer.open_spot()


def waited(observer: Observer) -> list[float]:
    """Return the seconds from each move back to the next drain."""
    deletions = [event.received for event in observer.audit.writes("pods") if event.verb == "delete"]
    drains = [marking.since for marking in observer.markings()]
    return [
        (drain - max(moment for moment in deletions if moment < drain)).total_seconds()
        for drain in drains
        if any(moment < drain for moment in deletions)
    ]


def test_debts_survive_the_deletion_of_the_node_with_its_mark(cluster: ControlPlane, observer: Observer) -> None:
    """The daemon is killed after an eviction while no scheduler runs; then the Node is deleted."""
    observer.nodes(2, 2)
    observer.start_on(NODE_1, deployment("web", 2), pods=2)
    next_node(observer)
    observer.running(4)
    observer.open_all()
    cluster.stop_component("kube-scheduler")
    with Daemon(cluster, *FLAGS) as daemon:
        observer.eventually(observer.evictions, "an eviction")
        daemon.kill()
    cluster.api.delete(f"/api/v1/nodes/{NODE_1}")
    with Daemon(cluster, *FLAGS):
        observer.eventually(lambda: lease_holder(cluster), "the new daemon's Lease")
        observer.stays(lambda: others_touched(observer) - {"default/web", NODE_1}, set(), seconds=8)
        cluster.start_component("kube-scheduler")
        next_node_drained(observer)
