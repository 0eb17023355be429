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

#: Workloads, and how many of their pods may be unavailable at the same time.
SCENES: Final[dict[str, list[Json]]] = {
    "single replicas of two kinds in two namespaces": [
        kind(f"{letter}{number}", 1, namespace=space, annotations=ONLY_HERE)
        for space in ("default", "red")
        for letter, kind in (("d", deployment), ("s", statefulset))
        for number in range(3)
    ],
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
