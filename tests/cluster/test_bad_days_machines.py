"""Machines that are never terminated, and marks for terminations that were never requested.

That such machines do not count for the minimum is in `tests/housekeeping/test_minimum_held.py`.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from predicates.snapshot import DRAIN_TAINT
from rescheduler.planning.rules.pod_traits import SAFE_TO_EVICT
from tests.cluster.bad_days import FLAGS, lease_holder
from tests.cluster.daemon import Daemon
from tests.cluster.machines import PoolMachines, machines
from tests.cluster.node_claims import ClaimedMachines, claimed
from tests.cluster.observer import Observer

NODE: Final = "od-1"


#: Creates on-demand nodes od-1 … and spot nodes: machines of a cloudpool, with BACKEND=karpenter NodeClaims.
created: Final[Callable[[Observer, Path, int, int], AbstractContextManager[Any]]] = (
    machines
    if os.environ.get("BACKEND") != "karpenter"
    else lambda observer, _, on_demand, spot: claimed(observer, on_demand, spot)
)


def test_a_lost_termination_is_not_repeated_after_protected_pods_arrived(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    """The daemon is killed during a termination request that never takes effect."""
    with created(observer, tmp_path, 1, 1) as pool:
        pool.fill(web=2)
        observer.running(2)
        observer.open_all()
        killed = kill_while_ordering(cluster, observer, pool, tmp_path)
        protected = {SAFE_TO_EVICT: "false"}
        here = {"kubernetes.io/hostname": NODE}
        remove_taint(cluster)
        cluster.apply([deployment("guard", 2, annotations=protected, nodeSelector=here)])
        observer.running(2, "guard")
        guards, orders, evictions = observer.uids("guard"), len(pool.orders()), len(observer.evictions())
        with Daemon(cluster, *FLAGS, *pool.flags):
            observer.eventually(lambda: lease_holder(cluster) not in ("", killed), "the new daemon's Lease")
            observer.stays(lambda: (len(pool.orders()), len(observer.evictions())), (orders, evictions), seconds=10)
        assert pool.ordered() == []
        assert observer.uids("guard") == guards


def kill_while_ordering(
    cluster: ControlPlane, observer: Observer, pool: PoolMachines | ClaimedMachines, folder: Path
) -> str:
    """Let a daemon drain the node, kill it during its termination request, and return its identity."""
    with pool.hanging(folder) as hangs, Daemon(cluster, *FLAGS, *pool.flags) as daemon:
        observer.eventually(hangs, "the order")
        holder = lease_holder(cluster)
        daemon.kill()
    assert pool.ordered() == []
    assert list(observer.marks()) == [NODE]
    return holder


def remove_taint(cluster: ControlPlane) -> None:
    """Remove the drain taint but not the annotation, like a user might do."""
    taints = cluster.api.get(f"/api/v1/nodes/{NODE}")["spec"]["taints"]
    kept = [taint for taint in taints if taint["key"] != DRAIN_TAINT.key]
    assert len(kept) < len(taints)
    cluster.api.patch(f"/api/v1/nodes/{NODE}", {"spec": {"taints": kept}})


def test_a_machine_that_never_terminates_does_not_block_other_nodes(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    """Several of them are in `tests/housekeeping/test_removal_checks.py`."""
    with created(observer, tmp_path, 2, 2) as pool:
        pool.fill(web=1, api=2)
        pool.never_end("od-1")
        observer.running(3)
        observer.open_all()
        with Daemon(cluster, *FLAGS, *pool.flags):
            observer.eventually(
                lambda: "od-2" in pool.termination_requests(), "the turn of the second node", seconds=300
            )
        assert pool.termination_requests() == {"od-1", "od-2"}
        observer.running(3)
        assert observer.kinds() == {"spot": 3}
