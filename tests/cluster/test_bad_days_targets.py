"""The only spot node becomes unusable during a drain."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from devcluster.faults.injected import LateWatch
from devcluster.faults.proxy import before_api_server, redirected
from devcluster.faults.rules import FaultRule
from devcluster.manifests import deployment, pod
from devcluster.plane import ControlPlane
from tests.cluster.bad_days import FLAGS, SLOW
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer

SPOT: Final = "spot-1"

LOSSES: Final[dict[str, Callable[[ControlPlane], object]]] = {
    "deleted": lambda cluster: cluster.api.delete(f"/api/v1/nodes/{SPOT}"),
    "filled by other pods": lambda cluster: cluster.apply([pod("filler", cpu="4", nodeName=SPOT)]),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_after_a_lost_target_at_most_one_more_pod_is_evicted(
    cluster: ControlPlane, observer: Observer, loss: str
) -> None:
    observer.nodes(1, 1)
    cluster.apply([deployment("web", 8, annotations=SLOW)])
    observer.running(8)
    observer.open_spot()
    with Daemon(cluster, *FLAGS):
        observer.eventually(lambda: len(observer.evictions()) >= 2, "the second eviction")
        LOSSES[loss](cluster)
        before = len(observer.evictions())
        observer.wait_unmarked()
        observer.stays(lambda: len(observer.evictions()) - before in (0, 1), expected=True)
    assert observer.first_burst() <= 2, "the drain did not go in steps"
    assert not observer.marks()


def test_a_watch_that_is_late_but_not_silent_hides_no_lost_target(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    """The other watches are in time, and the late one still delivers events: those of half a minute ago."""
    observer.nodes(1, 1)
    cluster.apply([deployment("web", 8, annotations=SLOW)])
    observer.running(8)
    observer.open_spot()
    late = 0.0
    with before_api_server(cluster) as proxy:
        proxy.rules.add(FaultRule("watch nodes", LateWatch(lambda: late), occurrence=None))
        kubeconfig = redirected(cluster.token_kubeconfig("late", cluster.token), proxy, tmp_path / "kubeconfig")
        with Daemon(cluster, *FLAGS, kubeconfig=kubeconfig):
            observer.eventually(lambda: len(observer.evictions()) >= 2, "the second eviction")
            late = 30.0
            observer.cordon(SPOT)
            before = len(observer.evictions())
            observer.wait_unmarked()
            observer.stays(lambda: len(observer.evictions()) - before in (0, 1), expected=True)
