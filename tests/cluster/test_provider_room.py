"""The cloud provider makes room, and the daemon is killed at each step: no ordered node is left over."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from devcluster.manifests import deployment, on_demand, pod
from devcluster.plane import ControlPlane
from devcluster.stages import TERMINATE_AFTER
from rescheduler.execution.room import GIVING_BACK
from rescheduler.planning.pauses import PAUSED
from tests.cluster.daemon import LEASE_PATH, NO_DELAY, SOFT, Daemon, prefers
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


def lost_answer(scene: OrderScene) -> None:
    scene.pool.hang(SIZE, acted=True)


def nothing(_: OrderScene) -> None:
    pass


#: What is prepared, and when the daemon is killed. `tests/housekeeping/test_provider_room.py` has other moments.
STEPS: Final[Mapping[str, tuple[Callable[[OrderScene], None], Callable[[OrderScene], object]]]] = {
    "the increase is sent": (lost_answer, lambda scene: scene.pool.size == 2),
    "the node has joined": (nothing, lambda scene: scene.node(NEW)),
    "the drain is under way": (nothing, lambda scene: scene.observer.evictions()),
}


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


@pytest.mark.parametrize(("prepare", "reached"), STEPS.values(), ids=STEPS)
def test_after_a_kill_the_next_daemon_continues(
    scene: OrderScene, prepare: Callable[[OrderScene], None], reached: Callable[[OrderScene], object]
) -> None:
    prepare(scene)
    kill_at(scene, reached)
    with Daemon(scene.cluster, *ROOM, *scene.pool.flags):
        scene.observer.eventually(scene.moved, "the pods on the new node")
        scene.observer.running(COUNT + 1)
        scene.observer.wait_unmarked()
        scene.observer.stays(lambda: (scene.pool.machines, scene.marks()), ([FULL, NEW], []))
    assert max(seconds_until_bound(each) for each in scene.observer.pods("web")) < 5
    assert (scene.pool.requests(SIZE), scene.pool.ended) == ([{"desiredSize": 2}], [])
    assert len(scene.observer.evictions()) == COUNT


@pytest.mark.parametrize(("prepare", "reached"), [*STEPS.values()][:-1], ids=[*STEPS][:-1])
def test_after_a_kill_a_daemon_that_makes_no_room_gives_the_node_back(
    scene: OrderScene, prepare: Callable[[OrderScene], None], reached: Callable[[OrderScene], object]
) -> None:
    prepare(scene)
    kill_at(scene, reached, blocked=True)
    with Daemon(scene.cluster, NO_DELAY, *scene.pool.flags):
        scene.observer.eventually(scene.given_back, "the pool as before")
        scene.observer.stays(scene.given_back, expected=True)
    assert [body["desiredSize"] for body in scene.pool.requests(SIZE)] == [2]
    assert len(scene.pool.requests(TERMINATE)) == 1
    assert (scene.pool.ended, scene.observer.uids("web")) == ([NEW], scene.before)
    assert scene.observer.evictions() == []


def test_an_order_that_never_reached_the_provider_is_dropped(scene: OrderScene) -> None:
    scene.pool.hang(SIZE, acted=False)
    kill_at(scene, lambda _: scene.pool.requests(SIZE))
    with Daemon(scene.cluster, *ROOM, *scene.pool.flags, "--room-timeout=5s"):
        scene.observer.eventually(lambda: "NoSpotCapacity" in scene.observer.events(NODE), "the end of the order")
        scene.observer.stays(lambda: (scene.pool.size, len(scene.pool.requests(SIZE))), (1, 1), seconds=5)
    assert (scene.pool.machines, scene.pool.ended) == ([FULL], [])
    assert scene.observer.uids("web") == scene.before


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


@pytest.mark.parametrize("acted", [False, True], ids=["the request is lost", "the answer is lost"])
def test_a_node_is_given_back_once_despite_a_kill(scene: OrderScene, *, acted: bool) -> None:
    """The node is cordoned, and its termination is requested."""
    scene.pool.hang(TERMINATE, acted=acted)
    kill_while_giving_back(scene)
    with Daemon(scene.cluster, NO_DELAY, *scene.pool.flags):
        scene.observer.eventually(scene.given_back, "the pool as before")
        scene.observer.stays(scene.given_back, expected=True)
    assert scene.pool.ended == [NEW]
    assert scene.observer.uids("web") == scene.before


def test_a_node_that_got_pods_is_not_given_back_after_a_kill(scene: OrderScene) -> None:
    """A pod is bound to the cordoned node while no daemon runs."""
    scene.pool.hang(TERMINATE, acted=False)
    kill_while_giving_back(scene)
    scene.cluster.apply([deployment("late", 1, nodeName=NEW)])
    scene.observer.running(1, "late")
    with Daemon(scene.cluster, NO_DELAY, *scene.pool.flags):
        scene.observer.eventually(lambda: not scene.marks(), "the end of the cordon")
        scene.observer.running(1, "late")
        scene.observer.stays(lambda: (scene.pool.machines, scene.pool.ended), ([FULL, NEW], []))


def test_a_node_given_back_before_a_kill_is_not_given_back_again(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    """One of two new nodes is used. The daemon is killed when the other has gone; another client orders a machine."""
    cluster.apply([on_demand(NODE, allocatable={"cpu": "8"}, taints=[{"key": "x", "value": "", "effect": SOFT}])])
    with spot_pool(observer, tmp_path) as pool:
        observer.start_on(NODE, deployment("web", 2, cpu="2500m", affinity=prefers(FULL)), pods=2)
        filler = deployment("filler", 1, cpu="3500m", nodeName=FULL)
        cluster.apply([filler])
        observer.open_all()
        observer.running(3)
        pool.hang(TERMINATE, acted=True)
        with Daemon(cluster, *ROOM, *pool.flags) as killed:
            observer.eventually(lambda: pool.size == 3, "the order")
            cluster.api.delete(cluster.api.path(filler))
            observer.eventually(lambda: pool.requests(TERMINATE), "the end of the node that is not used")
            killed.kill()
        pool.faulty_app.forget()
        [given_back] = pool.ended
        observer.eventually(lambda: given_back not in observer.node_names(), "the end of the Node")
        pool.delay(requestDelay="20s")
        pool.grow()
        with Daemon(cluster, NO_DELAY, *pool.flags):
            observer.stays(lambda: (pool.size, len(pool.machines), pool.ended), (3, 3, [given_back]), seconds=10)


def test_without_a_spot_node_one_is_ordered_by_the_template_of_the_pool(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    observer.nodes(1, 0)
    with spot_pool(observer, tmp_path, 0, template=True) as pool:
        observer.start_on(NODE, deployment("web", COUNT, cpu="900m"), pods=COUNT)
        observer.open_all()
        observer.running(COUNT)
        with Daemon(cluster, *ROOM, *pool.flags):
            observer.eventually(lambda: observer.places("web") == {"spot-1": COUNT}, "the pods on the new node")
            observer.wait_unmarked()
        assert (pool.requests(SIZE), pool.ended) == ([{"desiredSize": 1}], [])
