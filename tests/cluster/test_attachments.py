"""Volumes that attach to one node at a time, with the attach-detach controller and a driver that is slow."""

from typing import Final

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment, statefulset
from devcluster.plane import ControlPlane
from tests.cluster.attacher import WAITING, Attacher, disk, mounts
from tests.cluster.bad_days import FLAGS, NODE_1
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer

ANYWHERE_ELSE: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE_1, "spot-1"]}
                    ]
                }
            ]
        }
    }
}


def database(volume: str) -> Json:
    """Return the StatefulSet ``db``. Each test has a disk of its own: the attach-detach controller remembers others."""
    return statefulset("db", annotations=WAITING, **mounts(volume))


@pytest.mark.parametrize(
    ("workload", "volume"),
    [(database("data"), "data"), (deployment("db", annotations=WAITING, **mounts("files")), "files")],
    ids=["StatefulSet", "Deployment"],
)
def test_the_drain_waits_until_the_volume_is_detached_and_attached(
    cluster: ControlPlane, observer: Observer, workload: Json, volume: str
) -> None:
    observer.nodes(1, 2)
    cluster.apply(disk(volume))
    with Attacher(cluster, detach_seconds=5) as attacher:
        observer.start_on(NODE_1, workload, pods=1)
        observer.running(1)
        assert attacher.attached() == {f"disk-{volume}": NODE_1}
        observer.open_all()
        with Daemon(cluster, *FLAGS):
            observer.eventually(lambda: "NodeDrained" in observer.events(NODE_1), f"{NODE_1} drained")
            observer.running(1)
            [node] = observer.places("db")
            assert attacher.attached() == {f"disk-{volume}": node}
            assert node.startswith("spot-")
            assert "DrainFailed" not in observer.events(NODE_1)
            assert len(observer.evictions()) == 1
        assert attacher.most_attached == 1


def test_pods_that_share_a_volume_move_in_one_step(cluster: ControlPlane, observer: Observer) -> None:
    """Only one spot node can run them. One after the other, the first would wait for the volume for ever."""
    observer.nodes(1, 2)
    cluster.apply(disk("shared"))
    with Attacher(cluster, detach_seconds=1) as attacher:
        shared = [
            deployment(app, annotations=WAITING, affinity=ANYWHERE_ELSE, **mounts("shared")) for app in ("web", "api")
        ]
        observer.start_on(NODE_1, *shared, deployment("other"), pods=3)
        observer.running(3)
        observer.open_all()
        with Daemon(cluster, *FLAGS):
            observer.eventually(lambda: "NodeDrained" in observer.events(NODE_1), f"{NODE_1} drained")
            observer.running(3)
        assert observer.places("web") == observer.places("api") == {"spot-1": 1}
        assert "DrainFailed" not in observer.events(NODE_1)
        assert attacher.attached() == {"disk-shared": "spot-1"}


def test_a_volume_that_is_never_detached_is_named(cluster: ControlPlane, observer: Observer) -> None:
    """The replacement pod is bound. It is not refused: it has until the landing timeout, and the node is reopened."""
    observer.nodes(1, 2)
    cluster.apply(disk("stuck"))
    with Attacher(cluster, detach_seconds=600):
        observer.start_on(NODE_1, database("stuck"), pods=1)
        observer.running(1)
        observer.open_all()
        with Daemon(cluster, *FLAGS):
            observer.eventually(lambda: "DrainFailed" in observer.events(NODE_1), "the failure")
            observer.wait_unmarked()
            [message] = observer.messages(NODE_1, "DrainFailed")
            assert f"default/db-0 waits until its volume disk-stuck is detached from node {NODE_1}" in message
            assert "not Ready 20 s after the last eviction" in message
