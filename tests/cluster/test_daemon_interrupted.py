"""The daemon is stopped, killed, disconnected or replaced: its drain is finished or rolled back."""

import pytest

from devcluster.plane import ControlPlane
from rescheduler.draining.actions import ANNOTATION
from tests.cluster.daemon import LEASE_PATH, ClusterQueries, Daemon, create_stuck_pod, delete_stuck_pods, terminating

NODE = "on-demand-1"


@pytest.fixture
def queries(cluster: ControlPlane) -> ClusterQueries:
    return ClusterQueries(cluster)


@pytest.fixture
def stuck(cluster: ControlPlane, queries: ClusterQueries) -> None:
    """An on-demand node that is drainable except for a pod that does not terminate."""
    create_stuck_pod(cluster, queries)


@pytest.mark.usefixtures("stuck")
def test_sigterm_during_a_drain_rolls_it_back(cluster: ControlPlane, queries: ClusterQueries) -> None:
    with Daemon(cluster) as daemon:
        queries.eventually(lambda: terminating(cluster), "the drain under way")
        assert set(queries.marks()) == {NODE}
        daemon.terminate()
        assert daemon.end() == 0
        assert daemon.logged("drain failed", node=NODE, reason="stopped")
    assert queries.marks() == {}
    assert "DrainFailed" in queries.events(NODE)


@pytest.mark.usefixtures("stuck")
def test_after_a_kill_the_next_daemon_finishes_the_drain(cluster: ControlPlane, queries: ClusterQueries) -> None:
    with Daemon(cluster) as killed:
        queries.eventually(lambda: terminating(cluster), "the drain under way")
        killed.kill()
    assert set(queries.marks()) == {NODE}
    delete_stuck_pods(cluster)
    with Daemon(cluster) as daemon:
        queries.eventually(lambda: daemon.logged("drained after", node=NODE), "the end of the drain")
        assert daemon.logged("found marks", node=NODE, reason="resumed")
    assert queries.marks() == {}
    queries.running(3)
    assert queries.kinds() == {"spot": 3}


@pytest.mark.usefixtures("stuck")
def test_after_a_kill_a_drain_that_cannot_continue_is_rolled_back(
    cluster: ControlPlane, queries: ClusterQueries
) -> None:
    with Daemon(cluster) as killed:
        queries.eventually(lambda: terminating(cluster), "the drain under way")
        killed.kill()
    annotations = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    cluster.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": annotations}})
    with Daemon(cluster) as daemon:
        queries.eventually(lambda: daemon.logged("drain failed", node=NODE, reason="plan-changed"), "the aborted drain")
    assert queries.marks() == {}
    delete_stuck_pods(cluster)


@pytest.mark.usefixtures("stuck")
def test_a_lost_lease_stops_evictions_and_leaves_the_marks_to_the_next_leader(
    cluster: ControlPlane, queries: ClusterQueries
) -> None:
    with Daemon(cluster) as daemon:
        queries.eventually(lambda: terminating(cluster), "the drain under way")
        # Another holder takes the Lease for a long time; the daemon detects it at its next renewal.
        spec = {"holderIdentity": "another holder", "leaseDurationSeconds": 3600}
        cluster.api.patch(LEASE_PATH, {"spec": spec})
        queries.eventually(
            lambda: daemon.logged("drain failed", node=NODE, reason="leadership-lost"), "the loss of the Lease"
        )
        assert daemon.running
        assert ANNOTATION in cluster.api.get(f"/api/v1/nodes/{NODE}")["metadata"]["annotations"]
    delete_stuck_pods(cluster)


def test_an_idle_daemon_releases_the_lease_on_sigterm(cluster: ControlPlane, queries: ClusterQueries) -> None:
    queries.nodes(1, 1)
    with Daemon(cluster, "--housekeeping-interval=1h") as daemon:
        queries.eventually(lambda: daemon.logged("planned "), "the first round")
        assert cluster.api.get(LEASE_PATH)["spec"]["holderIdentity"]
        daemon.terminate()
        assert daemon.end() == 0
        assert not cluster.api.get(LEASE_PATH)["spec"].get("holderIdentity")
        assert all(line["level"] != "NOT JSON" for line in daemon.lines)
