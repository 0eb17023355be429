"""A change of an owner does not forgive the pods that a drain owes it, and pods that are lost again are owed again.

One scene of each kind; the table `CONVERTED` of `tests/planning/test_debts.py` has all changes of an owner, and
`tests/kube/test_controllers.py` what is read of each kind.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment, pod, statefulset
from devcluster.plane import ControlPlane
from tests.cluster.bad_days import FLAGS, SLOW
from tests.cluster.daemon import Daemon
from tests.cluster.machines import PoolMachines, machines
from tests.cluster.observer import Observer, ready
from tests.cluster.test_bad_days_replacements import webhook

NODE: Final = "od-1"
APPS: Final = "/apis/apps/v1/namespaces/default"
WEB: Final = f"{APPS}/deployments/web"
SET: Final = f"{APPS}/statefulsets/web"
EDIT: Final[Json] = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
NO_EDIT: Final[Json] = {"spec": {"template": {"metadata": {"annotations": {"version": None}}}}}


@pytest.fixture
def pool(observer: Observer, tmp_path: Path) -> Iterator[PoolMachines]:
    with machines(observer, tmp_path, 1, 2) as created:
        yield created


def with_spec(workload: Json, **fields: Any) -> Json:
    return workload | {"spec": workload["spec"] | fields}


def again(cluster: ControlPlane, path: str, workload: Json) -> None:
    """Delete an owner without its pods, and create it again under the same name."""
    cluster.api.delete(path, propagationPolicy="Background")
    cluster.wait_for(lambda: not cluster.api.items(path.rpartition("/")[0]), "the owner gone", seconds=60)
    cluster.apply([workload])


def renamed(cluster: ControlPlane) -> None:
    """Delete the Deployment without its pods, and create it under another name: it adopts the ReplicaSet."""
    cluster.api.delete(WEB, propagationPolicy="Orphan")
    cluster.wait_for(lambda: not cluster.api.items(f"{APPS}/deployments"), "the Deployment gone", seconds=60)
    workload = deployment("web", 2)
    workload["metadata"]["name"] = "renamed"
    cluster.apply([workload])


ROLLING: Final = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}

#: An owner of two pods, and its change after the first eviction, while its replacement pods are rejected.
CHANGES: Final[dict[str, tuple[Json, Callable[[ControlPlane], object]]]] = {
    "a Deployment that must keep all pods rolls out": (
        with_spec(deployment("web", 2), strategy=ROLLING),
        lambda cluster: cluster.api.patch(WEB, EDIT),
    ),
    "a StatefulSet with OnDelete is edited and rolled back": (
        with_spec(statefulset("web", 2), updateStrategy={"type": "OnDelete"}),
        lambda cluster: [cluster.api.patch(SET, edit) for edit in (EDIT, NO_EDIT)],
    ),
    "another Deployment adopts the ReplicaSet": (deployment("web", 2), renamed),
    "a Deployment is created again": (
        deployment("web", 2),
        lambda cluster: again(cluster, WEB, deployment("web", 2)),
    ),
}


@pytest.mark.parametrize(("workload", "change"), CHANGES.values(), ids=CHANGES)
def test_a_change_does_not_forgive_a_pod_that_is_not_replaced(
    cluster: ControlPlane,
    observer: Observer,
    pool: PoolMachines,
    workload: Json,
    change: Callable[[ControlPlane], object],
) -> None:
    """One pod is on the drained node, the other on a spot node, so nothing remains to be evicted."""
    start_with_one_pod(observer, workload)
    cluster.apply([webhook("default")])
    with Daemon(cluster, *FLAGS, *pool.flags):
        observer.eventually(observer.evictions, "the eviction")
        change(cluster)
        observer.eventually(lambda: "DrainFailed" in observer.events(NODE), "the failure", never=pool.ordered)
        observer.wait_unmarked()
        observer.stays(pool.ordered, [])
        assert len(observer.evictions()) == 1
        cluster.api.delete(cluster.api.path(webhook("default")))
        observer.running(2, "web")


def test_pods_are_owed_until_they_are_available_by_a_limit_that_was_raised_meanwhile(
    cluster: ControlPlane, observer: Observer, pool: PoolMachines
) -> None:
    observer.start_on(NODE, deployment("web", 2, annotations=SLOW), pods=2)
    observer.running(2)
    observer.open_all()
    with Daemon(cluster, *FLAGS, "--landing-timeout=90s", *pool.flags):
        observer.eventually(observer.evictions, "the first eviction")
        cluster.api.patch(WEB, {"spec": {"minReadySeconds": 12}})
        observer.eventually(lambda: observer.kinds("web") == {"spot": 2}, "both pods moved", never=pool.ordered)
        observer.running(2, "web")
        observer.eventually(pool.ordered, "the machine's termination")
    # The status of the Deployment would follow the pods with a delay of its own.
    assert pool.ordered_at(NODE) - last_ready(observer) >= timedelta(seconds=12)


def last_ready(observer: Observer) -> datetime:
    """Return when the last pod became Ready."""
    conditions = (condition for pod in observer.pods("web") for condition in pod["status"]["conditions"])
    return max(datetime.fromisoformat(each["lastTransitionTime"]) for each in conditions if each["type"] == "Ready")


def start_with_one_pod(observer: Observer, workload: Json) -> None:
    """Start a pod of *workload* on the on-demand node, and one on a spot node."""
    observer.start_on(NODE, with_spec(workload, replicas=1), pods=1)
    observer.cordon(NODE)
    observer.cordon("spot-2", off=True)
    observer.plane.apply([workload])
    observer.running(2, "web")
    observer.open_all()


def test_edits_every_few_seconds_do_not_empty_an_owner(
    cluster: ControlPlane, observer: Observer, pool: PoolMachines
) -> None:
    observer.start_on(NODE, with_spec(deployment("web", 4), strategy=ROLLING), pods=4)
    observer.running(4)
    observer.open_all()
    cluster.apply([webhook("default")])
    versions = iter(range(1000))

    def edit() -> list[str]:
        version = {"metadata": {"annotations": {"version": str(next(versions))}}}
        cluster.api.patch(WEB, {"spec": {"template": version}})
        return pool.ordered()

    with Daemon(cluster, *FLAGS, *pool.flags), observer.least_ready("web") as least:
        observer.eventually(lambda: "DrainFailed" in observer.events(NODE), "the failure", never=edit)
        observer.stays(edit, [], seconds=20)
        assert least() == 3
        assert len(observer.evictions()) == 1


ONLY_LOCAL: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE, "spot-1"]}]}
            ]
        }
    }
}
SPOT_1: Final = "/api/v1/nodes/spot-1"


def deleted(cluster: ControlPlane, name: str) -> None:
    """Delete the node, and the pod as the pod garbage collector does later."""
    cluster.api.delete(SPOT_1)
    cluster.api.delete(f"/api/v1/namespaces/default/pods/{name}", gracePeriodSeconds=0)


def preempted(cluster: ControlPlane, name: str) -> None:
    """Take the room of the pod for another pod, as a preemption does."""
    cluster.apply([pod("filler", cpu="3950m", nodeName="spot-1")])
    cluster.api.delete(f"/api/v1/namespaces/default/pods/{name}", gracePeriodSeconds=0)


@pytest.mark.parametrize(
    ("loss", "owner"),
    [(deleted, deployment), (preempted, statefulset)],
    ids=["its node is deleted", "its room is taken"],
)
def test_a_pod_that_is_lost_after_it_landed_gets_its_node_back(
    cluster: ControlPlane,
    observer: Observer,
    pool: PoolMachines,
    loss: Callable[[ControlPlane, str], object],
    owner: Callable[..., Json],
) -> None:
    """The pod may run only on the drained node and on spot-1; pods of another owner are still being moved."""
    alone = owner("alone", 1, affinity=ONLY_LOCAL)
    observer.start_on(NODE, alone, deployment("web", 6, annotations=SLOW), pods=7)
    observer.running(7)
    observer.open_all()
    with Daemon(cluster, *FLAGS, *pool.flags):
        observer.eventually(
            lambda: observer.places("alone") == {"spot-1": 1} and observer.evicted()["default/web"] >= 1,
            "both owners moved",
        )
        observer.running(1, "alone")
        [landed] = observer.pods("alone")
        loss(cluster, landed["metadata"]["name"])
        before = len(observer.evictions())
        observer.eventually(lambda: "DrainFailed" in observer.events(NODE), "the failure", never=pool.ordered)
        observer.wait_unmarked()
        assert len(observer.evictions()) <= before + 1  # one may be in flight
        observer.eventually(lambda: ready(observer.pods("alone")), "the pod on its old node")
        assert observer.places("alone") == {NODE: 1}
        assert pool.ordered() == []
