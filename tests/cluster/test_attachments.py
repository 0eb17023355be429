"""Volumes that attach to one node at a time, with the attach-detach controller and a driver that is slow."""

from devcluster.api import Json
from devcluster.manifests import statefulset
from devcluster.plane import ControlPlane
from tests.cluster.attacher import WAITING, Attacher, disk, mounts
from tests.cluster.bad_days import FLAGS, NODE_1
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer


def database(volume: str) -> Json:
    """Return the StatefulSet ``db``. Each test has a disk of its own: the attach-detach controller remembers others."""
    return statefulset("db", annotations=WAITING, **mounts(volume))


def test_the_drain_waits_until_the_volume_is_detached_and_attached(cluster: ControlPlane, observer: Observer) -> None:
    observer.nodes(1, 2)
    cluster.apply(disk("data"))
    with Attacher(cluster, detach_seconds=5) as attacher:
        observer.start_on(NODE_1, database("data"), pods=1)
        observer.running(1)
        assert attacher.attached() == {"disk-data": NODE_1}
        observer.open_all()
        with Daemon(cluster, *FLAGS):
            observer.eventually(lambda: "NodeDrained" in observer.events(NODE_1), f"{NODE_1} drained")
            observer.running(1)
            [node] = observer.places("db")
            assert attacher.attached() == {"disk-data": node}
            assert node.startswith("spot-")
            assert "DrainFailed" not in observer.events(NODE_1)
            assert len(observer.evictions()) == 1
        assert attacher.most_attached == 1
