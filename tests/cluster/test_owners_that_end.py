"""Pods whose owner is being deleted have no controller: the rest of them is not evicted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment, statefulset
from devcluster.plane import ControlPlane
from devcluster.stages import START_AFTER
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.machines import PoolMachines, machines
from tests.cluster.observer import Observer, ready

NODE: Final = "od-1"
PODS: Final = 4
SLOW: Final = {START_AFTER: "2s"}

#: Keeps an object that is being deleted, as the orphan finalizer does while the garbage collector is away.
FINALIZER: Final = "example.com/keep"

KINDS: Final = {
    "Deployment": "apis/apps/v1/namespaces/default/deployments",
    "StatefulSet": "apis/apps/v1/namespaces/default/statefulsets",
}


@pytest.fixture
def pool(observer: Observer, tmp_path: Path) -> Iterator[PoolMachines]:
    """Return the machines; afterwards, let kept objects go."""
    with machines(observer, tmp_path, 1, 2) as created:
        yield created
        for kind in KINDS.values():
            for item in observer.plane.api.items(f"/{kind}"):
                if FINALIZER in item["metadata"].get("finalizers", ()):
                    observer.plane.api.patch(f"/{kind}/{item['metadata']['name']}", {"metadata": {"finalizers": None}})


def path(workload: Json) -> str:
    return f"/{KINDS[workload['kind']]}/work"


def delete_kept(cluster: ControlPlane, target: str, **options: Any) -> None:
    cluster.api.patch(target, {"metadata": {"finalizers": [FINALIZER]}})
    cluster.api.delete(target, **options)


def test_pods_of_an_owner_that_is_being_deleted_are_not_evicted(
    cluster: ControlPlane, observer: Observer, pool: PoolMachines
) -> None:
    """The other kinds of owners are in `tests/kube/test_controllers.py` and `tests/draining/test_orphaned.py`."""
    workload = deployment("work", PODS, annotations=SLOW)
    observer.start_on(NODE, workload, pods=PODS)
    observer.running(PODS)
    observer.open_all()
    with Daemon(cluster, *FLAGS, *pool.flags):
        observer.eventually(observer.evictions, "the first eviction")
        delete_kept(cluster, path(workload), propagationPolicy="Background")
        before = len(observer.evictions())
        observer.eventually(lambda: "DrainFailed" in observer.events(NODE), "the failure", never=pool.ordered)
        observer.wait_unmarked()
        assert len(observer.evictions()) <= before + 1  # one may be in flight
        assert len(ready(observer.pods())) >= PODS - before - 1
        observer.stays(pool.ordered, [])


def test_the_pods_of_a_stateful_set_that_is_replaced_in_place_are_moved(
    cluster: ControlPlane, observer: Observer, pool: PoolMachines
) -> None:
    """Operators delete a StatefulSet without its pods and create it again, to change fields that cannot be edited."""
    workload = statefulset("work", PODS, annotations=SLOW)
    observer.start_on(NODE, workload, pods=PODS)
    observer.running(PODS)
    observer.open_all()
    with Daemon(cluster, *FLAGS, *pool.flags):
        observer.eventually(observer.evictions, "the first eviction")
        observer.running(PODS)
        cluster.api.delete(path(workload), propagationPolicy="Orphan")
        cluster.wait_for(lambda: not cluster.api.items("/apis/apps/v1/statefulsets"), "the owner gone", seconds=60)
        cluster.apply([workload])
        observer.eventually(pool.ordered, "the machine's termination")
        assert len(ready(observer.pods())) == PODS
        assert observer.kinds() == {"spot": PODS}
