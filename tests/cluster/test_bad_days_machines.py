"""Machines that are never terminated, and marks for terminations that were never requested."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from devcluster.standin.faults import Fault
from predicates.snapshot import DRAIN_TAINT
from rescheduler.planning.rules.pod_traits import SAFE_TO_EVICT
from tests.cluster.bad_days import FLAGS, lease_holder
from tests.cluster.daemon import Daemon
from tests.cluster.machines import PoolMachines, machines
from tests.cluster.node_claims import ClaimedMachines, claimed
from tests.cluster.observer import Observer

NODE: Final = "od-1"


#: The backends that behave alike: each creates on-demand nodes od-1 … and spot nodes.
BACKENDS: Final[Mapping[str, Callable[[Observer, Path, int, int], AbstractContextManager[Any]]]] = {
    "cloudpool": machines,
    "karpenter": lambda observer, _, on_demand, spot: claimed(observer, on_demand, spot),
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_lost_termination_is_not_repeated_after_protected_pods_arrived(
    cluster: ControlPlane, observer: Observer, tmp_path: Path, backend: str
) -> None:
    """The daemon is killed during a termination request that never takes effect."""
    with BACKENDS[backend](observer, tmp_path, 1, 1) as pool:
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


def never_terminated(pool: PoolMachines | ClaimedMachines) -> None:
    """Let the first machine stay TERMINATING."""
    pool.never_end("od-1")


def never_terminating(pool: PoolMachines) -> None:
    """Let the cloud accept all termination requests without any effect."""
    pool.faulty_app.inject(Fault(path="/pool/terminate", status=200, body="", times=10_000))


@pytest.mark.parametrize(
    ("backend", "trouble"),
    [("cloudpool", never_terminated), ("cloudpool", never_terminating), ("karpenter", never_terminated)],
)
def test_a_machine_that_never_terminates_does_not_block_other_nodes(
    cluster: ControlPlane, observer: Observer, tmp_path: Path, backend: str, trouble: Callable[[Any], None]
) -> None:
    """Several of them are in `tests/housekeeping/test_removal_checks.py`."""
    with BACKENDS[backend](observer, tmp_path, 2, 2) as pool:
        pool.fill(web=1, api=2)
        trouble(pool)
        observer.running(3)
        observer.open_all()
        with Daemon(cluster, *FLAGS, *pool.flags):
            observer.eventually(
                lambda: "od-2" in pool.termination_requests(), "the turn of the second node", seconds=300
            )
        assert pool.termination_requests() == {"od-1", "od-2"}
        observer.running(3)
        assert observer.kinds() == {"spot": 3}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_minimum_holds_while_a_machine_is_terminating(
    cluster: ControlPlane, observer: Observer, tmp_path: Path, backend: str
) -> None:
    """The machine stays TERMINATING; neither this daemon nor the next one counts its node."""
    flags = (*FLAGS, "--min-on-demand-nodes=2")
    with BACKENDS[backend](observer, tmp_path, 3, 2) as pool:
        pool.fill(web=1, api=2, db=3)
        pool.never_end("od-1", "od-2", "od-3")
        observer.running(6)
        observer.open_all()
        with Daemon(cluster, *flags, *pool.flags) as daemon:
            observer.eventually(pool.ordered, "the termination of a machine")
            observer.stays(pool.ordered, [NODE], seconds=3)
            daemon.kill()
        with Daemon(cluster, *flags, *pool.flags):
            observer.stays(pool.ordered, [NODE])
        assert observer.evicted() == {"default/web": 1}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_node_whose_machine_another_client_terminates_does_not_count(
    cluster: ControlPlane, observer: Observer, tmp_path: Path, backend: str
) -> None:
    """The Node is still Ready and runs pods."""
    with BACKENDS[backend](observer, tmp_path, 3, 2) as pool:
        pool.fill(web=1, api=2, db=3)
        pool.never_end("od-3")
        observer.running(6)
        observer.open_all()
        pool.end("od-3")
        with Daemon(cluster, *FLAGS, "--min-on-demand-nodes=2", *pool.flags):
            observer.eventually(lambda: observer.messages(NODE, "DrainBlocked"), "the blocker", never=observer.evicted)
            observer.stays(lambda: dict(observer.evicted()), {})
        assert "min-on-demand-nodes: " in observer.messages(NODE, "DrainBlocked")[-1]
