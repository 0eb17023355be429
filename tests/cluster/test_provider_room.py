"""The cloud provider makes room, and the daemon is killed at each step: no ordered node is left over."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from devcluster.manifests import deployment, pod
from devcluster.plane import ControlPlane
from devcluster.stages import TERMINATE_AFTER
from rescheduler.execution.room import GIVING_BACK
from rescheduler.planning.pauses import PAUSED
from tests.cluster.daemon import LEASE_PATH, NO_DELAY, Daemon
from tests.cluster.observer import Observer
from tests.cluster.spot_pool import SIZE, TERMINATE, SpotPool, spot_pool
from tests.cluster.test_room import seconds_until_bound

ROOM: Final = ("--make-room=provider", NO_DELAY)
NODE: Final = "on-demand-1"
FULL: Final = "spot-1"
NEW: Final = "spot-2"
COUNT: Final = 3  #: pods on the on-demand node

#: Pods that take a while to terminate, so that a drain can be interrupted.
SLOW: Final = {TERMINATE_AFTER: "1500ms"}


@dataclass
class OrderScene:
    """An on-demand node with pods of *web*, and a full spot node of the pool."""

    cluster: ControlPlane
    observer: Observer
    pool: SpotPool

    def __post_init__(self) -> None:
        self.observer.start_on(NODE, deployment("web", COUNT, cpu="900m", annotations=SLOW), pods=COUNT)
        self.cluster.apply([deployment("filler", 1, cpu="3500m", nodeName=FULL)])
        self.observer.open_all()
        self.observer.running(COUNT + 1)
        self.before = self.observer.uids("web")

    def node(self, name: str) -> bool:
        return name in self.observer.node_names()

    def places(self) -> set[str]:
        return set(self.observer.places("web"))

    def given_back(self) -> bool:
        """Return whether the pool is as before the order, and the Node of the order is gone."""
        return (self.pool.size, self.pool.machines) == (1, [FULL]) and not self.node(NEW)

    def moved(self) -> bool:
        return self.observer.places("web") == {NEW: COUNT}

    def marks(self) -> list[str]:
        """Return the nodes that are cordoned because they are given back."""
        items = self.cluster.api.items("/api/v1/nodes")
        return [item["metadata"]["name"] for item in items if GIVING_BACK in item["metadata"].get("annotations", {})]

    def block(self) -> None:
        """Wait for an order, and make its node impossible to drain."""
        self.observer.eventually(lambda: self.pool.requests(SIZE), "the order")
        self.cluster.apply([pod("alone", nodeName=NODE)])

    def pause(self) -> None:
        self.cluster.api.patch(LEASE_PATH, {"metadata": {"annotations": {PAUSED: "true"}}})


@pytest.fixture
def scene(cluster: ControlPlane, observer: Observer, tmp_path: Path) -> Iterator[OrderScene]:
    observer.nodes(1, 0)
    with spot_pool(observer, tmp_path) as pool:
        pool.delay(launchDelay="2s", bootDelay="1s")
        yield OrderScene(cluster, observer, pool)


def kill_at(scene: OrderScene, reached: Callable[[OrderScene], object], *, blocked: bool = False) -> None:
    """Run a daemon until *reached*, and kill it. The pool responds to the next daemon again.

    If *blocked* is true, the on-demand node can no longer be drained once the order is placed.
    """
    with Daemon(scene.cluster, *ROOM, *scene.pool.flags) as killed:
        if blocked:
            scene.block()
        scene.observer.eventually(lambda: reached(scene), "the step")
        killed.kill()
    scene.pool.faulty_app.forget()


def test_after_a_kill_the_next_daemon_continues(scene: OrderScene) -> None:
    """The killed daemon has no answer to its order. `tests/housekeeping/test_provider_room.py` has other moments."""
    scene.pool.hang(SIZE, acted=True)
    kill_at(scene, lambda scene: scene.pool.size == 2)
    with Daemon(scene.cluster, *ROOM, *scene.pool.flags):
        scene.observer.eventually(scene.moved, "the pods on the new node")
        scene.observer.running(COUNT + 1)
        scene.observer.wait_unmarked()
        scene.observer.stays(lambda: (scene.pool.machines, scene.marks()), ([FULL, NEW], []))
    assert max(seconds_until_bound(each) for each in scene.observer.pods("web")) < 5
    assert (scene.pool.requests(SIZE), scene.pool.ended) == ([{"desiredSize": 2}], [])
    assert len(scene.observer.evictions()) == COUNT


def test_a_machine_that_arrives_too_late_is_given_back_after_a_kill(scene: OrderScene) -> None:
    scene.pool.delay(launchDelay="45s")
    kill_at(scene, lambda scene: NEW in scene.pool.machines, blocked=True)
    with Daemon(scene.cluster, *ROOM, *scene.pool.flags, "--room-timeout=8s"):
        scene.observer.eventually(lambda: NEW in scene.pool.ended, "the end of the machine")
        scene.observer.eventually(scene.given_back, "the pool as before")
    assert len(scene.pool.requests(TERMINATE)) == 1
    assert scene.observer.uids("web") == scene.before


def kill_while_giving_back(scene: OrderScene) -> None:
    """Run a daemon until it gives the new node back because drains are paused, and kill it."""
    with Daemon(scene.cluster, *ROOM, *scene.pool.flags) as killed:
        scene.block()
        scene.observer.eventually(lambda: scene.node(NEW), "the node")
        scene.pause()
        scene.observer.eventually(lambda: scene.pool.requests(TERMINATE), "the termination request")
        killed.kill()
    scene.pool.faulty_app.forget()


def test_a_node_is_given_back_once_despite_a_kill(scene: OrderScene) -> None:
    """The node is cordoned, and its termination is requested; the request is lost."""
    scene.pool.hang(TERMINATE, acted=False)
    kill_while_giving_back(scene)
    with Daemon(scene.cluster, NO_DELAY, *scene.pool.flags):
        scene.observer.eventually(scene.given_back, "the pool as before")
        scene.observer.stays(scene.given_back, expected=True)
    assert scene.pool.ended == [NEW]
    assert scene.observer.uids("web") == scene.before
