"""The scheduler is stopped, so replacement pods are not bound."""

from pathlib import Path

from devcluster.plane import ControlPlane
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer
from tests.cluster.test_bad_days_machines import created


def test_without_a_scheduler_two_owners_wait_and_with_it_all_nodes_are_drained(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    """A replacement pod that is not bound in time fails the drain. After a second owner, the namespace is set aside."""
    with created(observer, tmp_path, 3, 2) as pool:
        pool.fill(web=2, api=3, db=4)
        observer.running(9)
        observer.open_all()
        cluster.stop_component("kube-scheduler")
        with Daemon(cluster, *FLAGS, "--failure-pause=30s", "--failure-pause-max=30s", *pool.flags):
            observer.eventually(lambda: len(observer.evictions()) == 2, "two evictions")
            observer.wait_unmarked(seconds=120)
            observer.stays(lambda: len(observer.evictions()), 2)
            assert set(observer.evicted().values()) == {1}, "the second owner lost a pod, not the first one another"
            assert len({marking.node for marking in observer.markings()}) == 2
            assert pool.ordered() == []
            cluster.start_component("kube-scheduler")
            observer.eventually(lambda: len(pool.ordered()) == 3, "the termination of all machines")
            observer.wait_unmarked()
        observer.running(9)
        assert observer.kinds() == {"spot": 9}
