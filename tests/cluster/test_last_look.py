"""What changes between an empty node and the request that ends its machine: the machine stays, and the node opens.

One scene of each kind; `tests/planning/test_last_look.py` has the whole table, and `tests/providers/conformance.py`
that each provider asks before each request.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from devcluster.api import Json
from devcluster.manifests import ON_DEMAND, SPOT, deployment, pod
from devcluster.plane import ControlPlane
from devcluster.standin.faults import Fault
from rescheduler.clock import SystemClock
from tests.cluster import webhooks
from tests.cluster.bad_days import FLAGS, SLOW
from tests.cluster.daemon import Daemon
from tests.cluster.machines import PoolMachines, machines
from tests.cluster.node_claims import claimed
from tests.cluster.observer import Observer
from tests.cluster.test_bad_days_minimum import report

NODE: Final = "od-1"
OTHER: Final = "od-2"
EVERYTHING: Final = [{"operator": "Exists"}]


def tolerant_pod(cluster: ControlPlane) -> None:
    """Bind a pod without a controller, as a static scheduler or an operator would."""
    cluster.apply([pod("late", nodeName=NODE, tolerations=EVERYTHING)])


def relabeled_to_spot(cluster: ControlPlane) -> None:
    cluster.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {ON_DEMAND: None, SPOT: "true"}}})


def other_node_not_ready(cluster: ControlPlane) -> None:
    report(cluster, OTHER, "False")


def spot_node_lost(cluster: ControlPlane) -> None:
    """The moved pods have no other place than the drained node."""
    cluster.api.patch(f"/api/v1/nodes/{OTHER}", {"spec": {"unschedulable": True}})
    cluster.api.delete("/api/v1/nodes/spot-1")
    for each in cluster.api.items("/api/v1/namespaces/default/pods"):
        if each["spec"].get("nodeName") == "spot-1":
            cluster.api.delete(f"/api/v1/namespaces/default/pods/{each['metadata']['name']}", gracePeriodSeconds=0)


#: What happens while the provider answers 503, by name, and the flags of the daemon.
CHANGES: Final[dict[str, tuple[Callable[[ControlPlane], None], tuple[str, ...]]]] = {
    "a pod that tolerates the taint": (tolerant_pod, ()),
    "the other on-demand node is not Ready": (other_node_not_ready, ("--min-on-demand-nodes=1",)),
    "the spot node with the moved pods is lost": (spot_node_lost, ()),
}


def refuse_orders(pool: PoolMachines) -> None:
    """Let the provider answer 503 to every order, without an effect."""
    pool.faulty_app.inject(Fault(path="/pool/terminate", status=503, times=10_000))


@contextmanager
def refusing(observer: Observer, tmp_path: Path) -> Iterator[PoolMachines]:
    """Start two machines with five pods beside a spot node, in a pool that refuses every order."""
    with machines(observer, tmp_path, 2, 1) as pool:
        pool.fill(web=2, api=3)
        observer.running(5)
        refuse_orders(pool)
        observer.open_all()
        yield pool


@pytest.mark.parametrize("change", CHANGES)
def test_a_machine_stays_if_it_may_not_end_any_more(
    cluster: ControlPlane, observer: Observer, tmp_path: Path, change: str
) -> None:
    act, flags = CHANGES[change]
    with refusing(observer, tmp_path) as pool, Daemon(cluster, *FLAGS, *flags, *pool.flags):
        observer.eventually(pool.orders, "an order")
        act(cluster)
        observer.eventually(lambda: NODE not in observer.marks(), "the node reopened", never=pool.ordered)
        pool.faulty_app.forget()
        observer.stays(lambda: NODE in pool.ordered(), False, seconds=8)


def test_a_node_claim_stays_if_its_machine_may_not_end_any_more(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    """A webhook refuses deletions of NodeClaims with 429 until the change was seen."""
    busy = Event()

    def verdict(_: Json) -> Json | None:
        return None if busy.is_set() else {"code": 429, "reason": "TooManyRequests", "message": "busy"}

    rules = webhooks.rule("karpenter.sh", "nodeclaims", "DELETE")
    with claimed(observer, 2, 1) as claims, webhooks.serving("busy", rules, verdict, tmp_path) as hook:
        claims.fill(web=2, api=3)
        observer.running(5)
        cluster.apply([hook])
        observer.open_all()
        with Daemon(cluster, *FLAGS, *claims.flags):
            observer.eventually(claims.orders, "an order")
            tolerant_pod(cluster)
            observer.eventually(lambda: NODE not in observer.marks(), "the node reopened", never=claims.ordered)
            busy.set()
            observer.stays(lambda: NODE in claims.ordered(), False, seconds=8)
        cluster.api.delete(cluster.api.path(hook))


def test_the_machine_stays_while_the_moved_pods_are_on_a_node_that_is_gone(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    """The pods look as if they ran until the pod garbage collector deletes them, which takes up to a minute."""
    with refusing(observer, tmp_path) as pool, Daemon(cluster, *FLAGS, *pool.flags):
        observer.eventually(pool.orders, "an order")
        cluster.api.patch(f"/api/v1/nodes/{OTHER}", {"spec": {"unschedulable": True}})
        cluster.api.delete("/api/v1/nodes/spot-1")
        pool.faulty_app.forget()
        observer.eventually(lambda: NODE not in observer.marks(), "the node reopened", never=pool.ordered)
        observer.stays(lambda: NODE in pool.ordered(), False, seconds=8)


def restarted(cluster: ControlPlane, observer: Observer, pool: PoolMachines, *flags: str) -> None:
    """Kill a daemon while the provider refuses its order, and start another one with *flags*."""
    with Daemon(cluster, *FLAGS, *pool.flags) as daemon:
        observer.eventually(pool.orders, "an order")
        daemon.kill()
    assert list(observer.marks()) == [NODE]
    with Daemon(cluster, *FLAGS, *flags, *pool.flags):
        observer.eventually(lambda: NODE not in observer.marks(), "the node reopened", never=pool.ordered)
        pool.faulty_app.forget()
        observer.stays(lambda: NODE in pool.ordered(), False, seconds=8)


def test_a_resumed_removal_follows_the_minimum_of_today(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    with refusing(observer, tmp_path) as pool:
        restarted(cluster, observer, pool, "--min-on-demand-nodes=2")


def test_a_resumed_removal_ends_on_a_node_that_is_not_on_demand_today(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    """The node is reopened once the pool cannot carry out the first order any more."""
    with refusing(observer, tmp_path) as pool:
        restarted(cluster, observer, pool, f"--on-demand-node-label={ON_DEMAND}=yes")
        assert any("plan is no longer valid" in each for each in observer.messages(NODE, "DrainFailed"))


def test_a_node_that_was_relabeled_while_no_daemon_ran_is_reopened(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    with machines(observer, tmp_path, 1, 1) as pool:
        observer.start_on(NODE, deployment("web", 4, annotations=SLOW), pods=4)
        observer.running(4)
        observer.open_all()
        with Daemon(cluster, *FLAGS, *pool.flags) as daemon:
            observer.eventually(observer.evictions, "the first eviction")
            daemon.kill()
        before = len(observer.evictions())
        relabeled_to_spot(cluster)
        with Daemon(cluster, *FLAGS, *pool.flags):
            observer.wait_unmarked()
            observer.stays(pool.ordered, [])
        assert len(observer.evictions()) == before


def test_a_daemon_that_is_killed_soon_after_each_start_reopens_the_node(
    cluster: ControlPlane, observer: Observer
) -> None:
    """The replacement pod fits no other node. Each daemon is killed long before a replacement would be overdue, and
    before the Lease of the daemon before it could expire.
    """
    life = 7.0
    observer.nodes(1, 1)
    observer.start_on("on-demand-1", deployment("web", 2, cpu="1"), pods=2)
    observer.open_all()
    with Daemon(cluster, *FLAGS) as daemon:
        observer.eventually(observer.evictions, "an eviction")
        observer.cordon("spot-1")
        for pod in observer.bound_to("spot-1"):
            cluster.api.delete(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}", gracePeriodSeconds=0)
        SystemClock().wait(life / 2, Event())
        daemon.kill(keep_lease=True)
    for _ in range(int(100 / life)):
        with Daemon(cluster, *FLAGS) as daemon:
            SystemClock().wait(life, Event())
            daemon.kill(keep_lease=True)
        if not observer.marks():
            break
    assert not observer.marks()
    assert len(observer.evictions()) == 1
    observer.eventually(lambda: observer.kinds("web") == {"on-demand": 2}, "both pods on the node")


def test_the_machine_ends_once_the_provider_answers(cluster: ControlPlane, observer: Observer, tmp_path: Path) -> None:
    """Without a change, the same scene ends with the machine: the checks do not stop every order."""
    with refusing(observer, tmp_path) as pool, Daemon(cluster, *FLAGS, "--min-on-demand-nodes=1", *pool.flags):
        observer.eventually(pool.orders, "an order")
        pool.faulty_app.forget()
        observer.eventually(lambda: pool.ordered() == [NODE], "the order of the machine")


def test_late_pods_move_before_the_machine_ends(cluster: ControlPlane, observer: Observer, tmp_path: Path) -> None:
    """A Deployment's pod comes to the empty node: it is moved by all rules, and then the machine ends."""
    with machines(observer, tmp_path, 1, 2) as pool:
        pool.fill(web=2)
        observer.running(2)
        refuse_orders(pool)
        observer.open_all()
        with Daemon(cluster, *FLAGS, *pool.flags):
            observer.eventually(pool.orders, "an order")
            bound = deployment("bound", 1)
            bound["spec"]["template"]["spec"]["tolerations"] = EVERYTHING
            preferred = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}
            bound["spec"]["template"]["spec"]["affinity"] = {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": preferred}]
                }
            }
            cluster.apply([bound])
            observer.eventually(lambda: observer.kinds("bound") != {}, "the late pod", never=pool.ordered)
            pool.faulty_app.forget()
            observer.stays(lambda: bool(pool.ordered()) and observer.kinds("bound").get("on-demand", 0) > 0, False)
