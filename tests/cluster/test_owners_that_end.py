"""Pods whose owner is being deleted have no controller: the rest of them is not evicted."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment, job, statefulset
from devcluster.plane import ControlPlane
from devcluster.stages import COMPLETE_AFTER, NEVER, START_AFTER
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.machines import PoolMachines, machines
from tests.cluster.observer import Observer, ready
from tests.cluster.operators import Operators, PlayedOwner

NODE: Final = "od-1"
PODS: Final = 4
SLOW: Final = {START_AFTER: "2s"}

#: Keeps an object that is being deleted, as the orphan finalizer does while the garbage collector is away.
FINALIZER: Final = "example.com/keep"

KINDS: Final = {
    "Deployment": "apis/apps/v1/namespaces/default/deployments",
    "StatefulSet": "apis/apps/v1/namespaces/default/statefulsets",
    "Job": "apis/batch/v1/namespaces/default/jobs",
    "ReplicationController": "api/v1/namespaces/default/replicationcontrollers",
}


@pytest.fixture
def pool(observer: Observer, tmp_path: Path) -> Iterator[PoolMachines]:
    """Return the machines; afterwards, let kept objects go."""
    with machines(observer, tmp_path, 1, 2) as created:
        yield created
        for kind in (*KINDS.values(), "apis/apps/v1/namespaces/default/replicasets"):
            for item in observer.plane.api.items(f"/{kind}"):
                if FINALIZER in item["metadata"].get("finalizers", ()):
                    observer.plane.api.patch(f"/{kind}/{item['metadata']['name']}", {"metadata": {"finalizers": None}})


def path(workload: Json) -> str:
    return f"/{KINDS[workload['kind']]}/work"


def replication_controller() -> Json:
    workload = deployment("work", PODS, annotations=SLOW)
    spec = workload["spec"] | {"selector": {"app": "work"}}
    return workload | {"apiVersion": "v1", "kind": "ReplicationController", "spec": spec}


def delete_kept(cluster: ControlPlane, target: str, **options: Any) -> None:
    cluster.api.patch(target, {"metadata": {"finalizers": [FINALIZER]}})
    cluster.api.delete(target, **options)


def replica_set_of(cluster: ControlPlane) -> str:
    [item] = cluster.api.items("/apis/apps/v1/namespaces/default/replicasets")
    return f"/apis/apps/v1/namespaces/default/replicasets/{item['metadata']['name']}"


#: A workload, and how its deletion begins after the first eviction.
ENDS: Final[dict[str, tuple[Json, Callable[[ControlPlane, Json], object]]]] = {
    "a StatefulSet": (
        statefulset("work", PODS, annotations=SLOW),
        lambda cluster, owner: delete_kept(cluster, path(owner), propagationPolicy="Background"),
    ),
    "a Job": (
        job("work", PODS, annotations=SLOW | {COMPLETE_AFTER: NEVER}),
        lambda cluster, owner: delete_kept(cluster, path(owner), propagationPolicy="Background"),
    ),
    "a ReplicationController": (
        replication_controller(),
        lambda cluster, owner: delete_kept(cluster, path(owner), propagationPolicy="Background"),
    ),
    "the ReplicaSet of a Deployment": (
        deployment("work", PODS, annotations=SLOW),
        lambda cluster, _: delete_kept(cluster, replica_set_of(cluster), propagationPolicy="Background"),
    ),
    "a Deployment": (
        deployment("work", PODS, annotations=SLOW),
        lambda cluster, owner: delete_kept(cluster, path(owner), propagationPolicy="Background"),
    ),
}


@pytest.mark.parametrize(("workload", "end"), ENDS.values(), ids=ENDS)
def test_pods_of_an_owner_that_is_being_deleted_are_not_evicted(
    cluster: ControlPlane,
    observer: Observer,
    pool: PoolMachines,
    workload: Json,
    end: Callable[[ControlPlane, Json], object],
) -> None:
    observer.start_on(NODE, workload, pods=PODS)
    observer.running(PODS)
    observer.open_all()
    with Daemon(cluster, *FLAGS, "--move-jobs=always", *pool.flags):
        observer.eventually(observer.evictions, "the first eviction")
        end(cluster, workload)
        before = len(observer.evictions())
        observer.eventually(lambda: "DrainFailed" in observer.events(NODE), "the failure", never=pool.ordered)
        observer.wait_unmarked()
        assert len(observer.evictions()) <= before + 1  # one may be in flight
        assert len(ready(observer.pods())) >= PODS - before - 1
        observer.stays(pool.ordered, [])


def test_pods_of_a_custom_owner_that_is_being_deleted_are_not_evicted(
    cluster: ControlPlane, observer: Observer, pool: PoolMachines
) -> None:
    """Its operator creates no pods any more, but a finalizer keeps the object."""
    row = PlayedOwner("apps.kruise.io/v1alpha1/CloneSet", "clone", NODE, wanted=PODS, scale=True, recreates=False)
    with Operators(cluster, [row]) as operators:
        observer.running(PODS)
        operators.opened = True
        observer.open_all()
        with Daemon(cluster, *FLAGS, "--scheduler-name=*", *pool.flags):
            observer.eventually(observer.evictions, "the first eviction")
            delete_kept(cluster, row.path, propagationPolicy="Background")
            observer.eventually(lambda: "DrainFailed" in observer.events(NODE), "the failure", never=pool.ordered)
            observer.wait_unmarked()
            assert len(observer.evictions()) == 1
            observer.stays(pool.ordered, [])
        cluster.api.patch(row.path, {"metadata": {"finalizers": None}})


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
