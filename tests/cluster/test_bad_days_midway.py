"""Obstacles that begin in the middle of a drain: each costs one pod of its namespace."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, TypeAlias

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from tests.cluster.bad_days import FLAGS, NODE_1
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer
from tests.cluster.test_bad_days_replacements import quota
from tests.cluster.waiting import repeating

#: What begins on a control plane, and ends.
Obstacle: TypeAlias = Callable[[ControlPlane], AbstractContextManager[None]]

TEAM: Final = "default"
SIZES: Final = {"web": 8, "api": 4, "job": 1}
TOTAL: Final = sum(SIZES.values())


@contextmanager
def applied(plane: ControlPlane, *objects: Json) -> Iterator[None]:
    """Have *objects* in the cluster for a while."""
    plane.apply(objects)
    try:
        yield
    finally:
        for each in objects:
            plane.api.delete(plane.api.path(each))


@contextmanager
def without_scheduler(plane: ControlPlane) -> Iterator[None]:
    plane.stop_component("kube-scheduler")
    try:
        yield
    finally:
        plane.start_component("kube-scheduler")


#: What begins, and after how many evictions. `tests/draining/test_waves.py` has each obstacle at each moment.
OBSTACLES: Final[dict[str, tuple[Obstacle, int]]] = {
    "a quota": (lambda plane: applied(plane, quota(TEAM)), 7),
    "the scheduler stops": (without_scheduler, 6),
}


@contextmanager
def most_missing(observer: Observer) -> Iterator[Callable[[], int]]:
    """Return the highest number of pods at once that no bound pod has replaced."""
    most = 0

    def look() -> None:
        nonlocal most
        bound = [
            pod for pod in observer.pods() if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        ]
        most = max(most, TOTAL - len(bound))

    with repeating(look, every=0.05):
        yield lambda: most


@pytest.mark.parametrize("name", OBSTACLES)
def test_an_obstacle_costs_one_pod_whenever_it_begins(cluster: ControlPlane, observer: Observer, name: str) -> None:
    begin, after = OBSTACLES[name]
    observer.nodes(1, 2)
    observer.start_on(NODE_1, *(deployment(app, size, cpu="50m") for app, size in SIZES.items()), pods=TOTAL)
    observer.running(TOTAL)
    observer.open_all()
    with most_missing(observer) as most, Daemon(cluster, *FLAGS, "--failure-pause=1h", "--failure-pause-max=1h"):
        observer.eventually(lambda: len(observer.evictions()) >= after, f"{after} evictions")
        with begin(cluster):
            observer.eventually(lambda: "DrainFailed" in observer.events(NODE_1), "the failed drain")
            observer.wait_unmarked()
            assert len(observer.evictions()) < TOTAL
            assert most() == 1
        observer.running(TOTAL)
