"""What earlier drains owe: no machine ends while a pod that left its node does not run, or has no place for long.

One scene of each kind. The tables of signs, ages of Leases, changes of owners and crash loops are in
`tests/planning/test_last_look.py`, `tests/planning/test_debts.py` and `tests/planning/rules/test_interruptions.py`; the
same stories in memory are in `tests/housekeeping/test_owed.py` and `tests/housekeeping/test_landings.py`.
"""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster.api import Json
from devcluster.errors import ApiError
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from devcluster.stages import READY_ON
from rescheduler.clock import SystemClock
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.machines import PoolMachines, machines
from tests.cluster.observer import Observer
from tests.cluster.test_last_look import refuse_orders

NODE: Final = "od-1"

#: On spot nodes, the pods never become Ready.
READY_ON_DEMAND: Final = {READY_ON: "od"}

#: A failed drain is tried again after a second, and an owner whose pods did not run is not.
SHORT: Final = (*FLAGS, "--landing-timeout=5s", "--failure-pause=1h", "--failure-pause-max=1h")


#: Within so many seconds the next drain, a second after the one that failed, would order the end of an empty node.
A_DRAIN: Final = 10.0


@pytest.fixture
def pool(observer: Observer, tmp_path: Path) -> Iterator[PoolMachines]:
    with machines(observer, tmp_path, 1, 1) as created:
        yield created


def start(observer: Observer, *workloads: Json, pods: int, refuses: PoolMachines | None = None) -> None:
    """Start the *pods* of *workloads* on the on-demand node, then open the spot nodes. A pool may refuse all orders."""
    observer.start_on(NODE, *workloads, pods=pods)
    observer.running(pods)
    if refuses is not None:
        refuse_orders(refuses)
    observer.open_all()


def fail(observer: Observer, pool: PoolMachines) -> None:
    """Wait until a drain has failed and its node is open again."""
    observer.eventually(lambda: "DrainFailed" in observer.events(NODE), "the failure", never=pool.ordered)
    observer.wait_unmarked()


def other_pods_come(cluster: ControlPlane, observer: Observer) -> None:
    """Start pods of another owner on the reopened node, which could all move to the spot node."""
    observer.start_on(NODE, deployment("other", 2), pods=2)
    observer.open_all()


def test_pods_of_other_owners_do_not_make_a_node_drainable_that_is_owed(
    cluster: ControlPlane, observer: Observer, pool: PoolMachines
) -> None:
    start(observer, deployment("web", 1, annotations=READY_ON_DEMAND), pods=1)
    with Daemon(cluster, *SHORT, *pool.flags):
        fail(observer, pool)
        other_pods_come(cluster, observer)
        observer.stays(pool.ordered, [], seconds=A_DRAIN)
        assert observer.evicted()["default/other"] == 0


def test_what_is_owed_outlives_the_process(cluster: ControlPlane, observer: Observer, pool: PoolMachines) -> None:
    start(observer, deployment("web", 1, annotations=READY_ON_DEMAND), pods=1)
    with Daemon(cluster, *SHORT, *pool.flags) as daemon:
        observer.eventually(observer.evictions, "the eviction")
        daemon.kill()
    with Daemon(cluster, *SHORT, *pool.flags):
        observer.wait_unmarked()
        observer.stays(pool.ordered, [], seconds=A_DRAIN)
        assert len(observer.evictions()) == 1


# The node of the moved pods is about to go.

NOTICE: Final[Json] = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}


def notice(cluster: ControlPlane, node: str = "spot-1") -> None:
    taints = cluster.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints", [])
    cluster.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [*taints, NOTICE]}})


def test_a_notice_for_the_only_spot_node_keeps_the_machine(
    cluster: ControlPlane, observer: Observer, pool: PoolMachines
) -> None:
    start(observer, deployment("web", 2), pods=2, refuses=pool)
    with Daemon(cluster, *FLAGS, *pool.flags):
        observer.eventually(pool.orders, "an order")
        notice(cluster)
        pool.faulty_app.forget()
        observer.eventually(lambda: NODE not in observer.marks(), "the node reopened", never=pool.ordered)
        observer.stays(pool.ordered, [], seconds=A_DRAIN)


LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def renewed(observer: Observer, node: str, seconds: int) -> None:
    """Let the kubelet of *node* have renewed its Lease *seconds* ago."""
    at = f"{SystemClock().now() - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S.%fZ}"
    spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": at}
    meta = {"name": node, "namespace": "kube-node-lease"}
    observer.plane.apply([{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}])


@pytest.fixture
def without_leases(cluster: ControlPlane) -> Iterator[None]:
    """Delete the Leases of Nodes after the test: the next one has Nodes of the same names."""
    yield
    for lease in cluster.api.items(LEASES):
        cluster.api.delete(f"{LEASES}/{lease['metadata']['name']}")


@pytest.mark.usefixtures("without_leases")
def test_a_dead_kubelet_is_noticed_by_its_lease(cluster: ControlPlane, observer: Observer, pool: PoolMachines) -> None:
    """Node and pods say Ready for as long as the node controller waits."""
    start(observer, deployment("web", 2), pods=2, refuses=pool)
    with Daemon(cluster, *FLAGS, *pool.flags):
        observer.eventually(pool.orders, "an order")
        renewed(observer, "spot-1", 36)
        pool.faulty_app.forget()
        observer.eventually(lambda: NODE not in observer.marks(), "the node reopened", never=pool.ordered)
        observer.stays(pool.ordered, [], seconds=A_DRAIN)


# Pods whose containers restart.


GATE: Final = "example.org/up"
STRATEGIC: Final = "application/strategic-merge-patch+json"


def report(observer: Observer, pod: Json, *, ready: bool, **status: Any) -> None:
    """Report *pod* as Ready or not, as its kubelet does, with the time at which that changed."""
    known = {each["type"]: each for each in pod["status"].get("conditions", ())}
    word = str(ready)
    if not status and known.get(GATE, {}).get("status") == known.get("Ready", {}).get("status") == word:
        return
    now = f"{SystemClock().now():%Y-%m-%dT%H:%M:%SZ}"
    conditions = [{"type": kind, "status": word, "lastTransitionTime": now} for kind in (GATE, "Ready")]
    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
    with contextlib.suppress(ApiError):  # the pod may be gone
        observer.plane.api.patch(path, {"status": {"conditions": conditions, **status}}, STRATEGIC)


def on_spot(observer: Observer) -> list[Json]:
    return [pod for pod in observer.pods("web") if pod["spec"].get("nodeName", "").startswith("spot")]


def restart_unnoticed(observer: Observer, seconds: int) -> None:
    """Report that the container of a Ready pod on a spot node restarts every few *seconds*, and the pod stays Ready."""
    for pod in on_spot(observer):
        if not any(each["type"] == GATE for each in pod["status"].get("conditions", ())):
            report(observer, pod, ready=True)
            continue
        began = int(SystemClock().now().timestamp()) // seconds * seconds
        running = {"startedAt": f"{datetime.fromtimestamp(began, UTC):%Y-%m-%dT%H:%M:%SZ}"}
        state = {"name": "main", "ready": True, "restartCount": began, "image": "x", "imageID": "x"}
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
        status = {"status": {"containerStatuses": [{**state, "state": {"running": running}}]}}
        with contextlib.suppress(ApiError):
            observer.plane.api.patch(path, status, STRATEGIC)


def test_a_crash_loop_does_not_count_as_running(cluster: ControlPlane, observer: Observer, pool: PoolMachines) -> None:
    """The container restarts so fast that the pod stays Ready."""
    web = deployment("web", 1, readinessGates=[{"conditionType": GATE}])
    observer.start_on(NODE, web, pods=1)
    [old] = observer.pods("web")
    report(observer, old, ready=True)
    observer.running(1)
    observer.open_all()

    def harm() -> list[str]:
        restart_unnoticed(observer, 7)
        return pool.ordered()

    with Daemon(cluster, *FLAGS, *pool.flags):
        observer.eventually(lambda: on_spot(observer), "the pod on the spot node", never=harm)
        observer.eventually(lambda: "DrainFailed" in observer.events(NODE), "the failure", never=harm)
        observer.stays(harm, [], seconds=20)
