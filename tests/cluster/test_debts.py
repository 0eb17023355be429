"""A change of an owner does not forgive the pods that a drain owes it, and pods that are lost again are owed again.

One scene of each kind; the table `CONVERTED` of `tests/planning/test_debts.py` has all changes of an owner, and
`tests/kube/test_controllers.py` what is read of each kind.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from tests.cluster.bad_days import FLAGS, SLOW
from tests.cluster.daemon import Daemon
from tests.cluster.machines import PoolMachines, machines
from tests.cluster.observer import Observer, ready
from tests.cluster.test_bad_days_replacements import webhook

NODE: Final = "od-1"
APPS: Final = "/apis/apps/v1/namespaces/default"
WEB: Final = f"{APPS}/deployments/web"


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


def test_the_creation_of_the_owner_again_does_not_forgive_a_pod_that_is_not_replaced(
    cluster: ControlPlane, observer: Observer, pool: PoolMachines
) -> None:
    """One pod is on the drained node, the other on a spot node, so nothing remains to be evicted."""
    start_with_one_pod(observer, deployment("web", 2))
    cluster.apply([webhook("default")])
    with Daemon(cluster, *FLAGS, *pool.flags):
        observer.eventually(observer.evictions, "the eviction")
        again(cluster, WEB, deployment("web", 2))
        observer.eventually(lambda: "DrainFailed" in observer.events(NODE), "the failure", never=pool.ordered)
        observer.wait_unmarked()
        observer.stays(pool.ordered, [])
        assert len(observer.evictions()) == 1
        cluster.api.delete(cluster.api.path(webhook("default")))
        observer.running(2, "web")


def start_with_one_pod(observer: Observer, workload: Json) -> None:
    """Start a pod of *workload* on the on-demand node, and one on a spot node."""
    observer.start_on(NODE, with_spec(workload, replicas=1), pods=1)
    observer.cordon(NODE)
    observer.cordon("spot-2", off=True)
    observer.plane.apply([workload])
    observer.running(2, "web")
    observer.open_all()


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


def test_a_pod_that_is_lost_after_it_landed_gets_its_node_back(
    cluster: ControlPlane, observer: Observer, pool: PoolMachines
) -> None:
    """The pod may run only on the drained node and on spot-1; pods of another owner are still being moved."""
    alone = deployment("alone", 1, affinity=ONLY_LOCAL)
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
        deleted(cluster, landed["metadata"]["name"])
        before = len(observer.evictions())
        observer.eventually(lambda: "DrainFailed" in observer.events(NODE), "the failure", never=pool.ordered)
        observer.wait_unmarked()
        assert len(observer.evictions()) <= before + 1  # one may be in flight
        observer.eventually(lambda: ready(observer.pods("alone")), "the pod on its old node")
        assert observer.places("alone") == {NODE: 1}
        assert pool.ordered() == []
