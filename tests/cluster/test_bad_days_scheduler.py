"""The scheduler is stopped, so replacement pods are not bound."""

from pathlib import Path

from devcluster.plane import ControlPlane
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.machines import machines
from tests.cluster.observer import Observer


def test_without_a_scheduler_one_pod_waits_and_with_it_all_nodes_are_drained(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    """A replacement pod that is not bound within a minute fails the drain; it stays owed and blocks other drains."""
    with machines(observer, tmp_path, 3, 2) as pool:
        pool.fill(web=2, api=3, db=4)
        observer.running(9)
        observer.open_all()
        cluster.stop_component("kube-scheduler")
        with Daemon(cluster, *FLAGS, *pool.flags):
            observer.eventually(observer.evictions, "an eviction")
            observer.wait_unmarked(seconds=120)
            observer.stays(lambda: len(observer.evictions()), 1)
            assert len({marking.node for marking in observer.markings()}) == 1
            assert pool.ordered() == []
            cluster.start_component("kube-scheduler")
            observer.eventually(lambda: len(pool.ordered()) == 3, "the termination of all machines")
            observer.wait_unmarked()
        observer.running(9)
        assert observer.kinds() == {"spot": 9}
