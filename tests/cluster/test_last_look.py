"""What changes between an empty node and the request that ends its machine: the machine stays, and the node opens.

A pod comes that tolerates the taint; `tests/planning/test_last_look.py` has the whole table, `tests/housekeeping` what
happens to nodes, pods and processes meanwhile, and `tests/providers/conformance.py` that each provider asks before each
request.
"""

from pathlib import Path
from threading import Event
from typing import Final

from devcluster.api import Json
from devcluster.manifests import pod
from devcluster.plane import ControlPlane
from devcluster.standin.faults import Fault
from tests.cluster import webhooks
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.machines import PoolMachines, machines
from tests.cluster.node_claims import claimed
from tests.cluster.observer import Observer

NODE: Final = "od-1"
EVERYTHING: Final = [{"operator": "Exists"}]


def tolerant_pod(cluster: ControlPlane) -> None:
    """Bind a pod without a controller, as a static scheduler or an operator would."""
    cluster.apply([pod("late", nodeName=NODE, tolerations=EVERYTHING)])


def refuse_orders(pool: PoolMachines) -> None:
    """Let the provider answer 503 to every order, without an effect."""
    pool.faulty_app.inject(Fault(path="/pool/terminate", status=503, times=10_000))


def test_a_machine_stays_if_it_may_not_end_any_more(cluster: ControlPlane, observer: Observer, tmp_path: Path) -> None:
    with machines(observer, tmp_path, 2, 1) as pool:
        pool.fill(web=2, api=3)
        observer.running(5)
        refuse_orders(pool)
        observer.open_all()
        with Daemon(cluster, *FLAGS, *pool.flags):
            observer.eventually(pool.orders, "an order")
            tolerant_pod(cluster)
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
