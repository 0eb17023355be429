"""Many owners whose image does not start on spot nodes: few of them lose a pod."""

from pathlib import Path
from typing import Final

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment, namespace, statefulset
from devcluster.plane import ControlPlane
from devcluster.stages import READY_ON
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.machines import machines
from tests.cluster.observer import Observer, ready

NODE: Final = "od-1"
ONLY_HERE: Final = {READY_ON: "od-"}
WITHOUT_ANNOTATIONS: Final[dict[str, str]] = {}

#: Workloads, and how many of their pods may be unavailable at the same time.
SCENES: Final[dict[str, list[Json]]] = {
    "single replicas of two kinds in two namespaces": [
        kind(f"{letter}{number}", 1, namespace=space, annotations=ONLY_HERE)
        for space in ("default", "red")
        for letter, kind in (("d", deployment), ("s", statefulset))
        for number in range(3)
    ],
    "only one owner starts on spot nodes": [
        deployment(f"d{number}", 1, annotations=ONLY_HERE if number else WITHOUT_ANNOTATIONS) for number in range(12)
    ],
    "owners of three pods": [deployment(f"d{number}", 3, annotations=ONLY_HERE) for number in range(6)],
}


@pytest.mark.parametrize("workloads", SCENES.values(), ids=SCENES)
def test_an_image_that_does_not_start_on_spot_nodes_costs_one_pod(
    cluster: ControlPlane, observer: Observer, tmp_path: Path, workloads: list[Json]
) -> None:
    pods = sum(workload["spec"]["replicas"] for workload in workloads)
    with machines(observer, tmp_path, 1, 2) as pool:
        cluster.apply([namespace("red")])
        observer.start_on(NODE, *workloads, pods=pods)
        observer.running(pods)
        observer.open_all()
        with Daemon(cluster, *FLAGS, "--node-cooldown=1h", "--node-cooldown-max=1h", *pool.flags):
            observer.eventually(lambda: "DrainFailed" in observer.events(NODE), "the failure", never=pool.ordered)
            observer.wait_unmarked()
            observer.eventually(lambda: len(ready(observer.pods())) >= pods - 1, "one pod unavailable")
        assert len(observer.evictions()) <= 2
        assert pool.ordered() == []


def test_owners_that_start_on_spot_nodes_are_moved_in_steps_of_owners(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    with machines(observer, tmp_path, 1, 2) as pool:
        observer.start_on(NODE, *(deployment(f"d{number}", 2) for number in range(8)), pods=16)
        observer.running(16)
        observer.open_all()
        with Daemon(cluster, *FLAGS, *pool.flags):
            observer.eventually(pool.ordered, "the machine's termination")
        times = sorted(event.received for event in observer.evictions())
        owners = [event.name.partition("-")[0] for event in sorted(observer.evictions(), key=lambda e: e.received)]
        assert len(times) == 16
        assert sorted(owners[:8]) == sorted(set(owners)), "an owner lost a second pod before others lost their first"
        assert observer.kinds() == {"spot": 16}
