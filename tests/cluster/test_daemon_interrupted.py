"""The daemon is stopped, killed, disconnected or replaced: its drain is finished or rolled back."""

import json
from typing import Any

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


def holder(annotation: str) -> str:
    mark: dict[str, Any] = json.loads(annotation)
    return str(mark["holder"])


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
def test_only_one_of_two_replicas_acts_and_the_other_takes_over(cluster: ControlPlane, queries: ClusterQueries) -> None:
    with Daemon(cluster) as first:
        queries.eventually(lambda: terminating(cluster), "the first replica's drain")
        with Daemon(cluster) as second:
            queries.eventually(lambda: second.logged("is not the leader"), "the second replica waiting")
            before = holder(queries.marks()[NODE])
            first.kill(keep_lease=True)
            queries.eventually(
                lambda: second.logged("found marks", node=NODE, reason="resumed"), "the change of leader"
            )
            queries.eventually(lambda: holder(queries.marks()[NODE]) != before, "the new holder's name on the node")
            delete_stuck_pods(cluster)
            queries.eventually(lambda: second.logged("drained after", node=NODE), "the end of the drain")
    assert queries.marks() == {}
    queries.running(3)
    assert queries.kinds() == {"spot": 3}


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


def test_rejected_credentials_are_retried(cluster: ControlPlane, queries: ClusterQueries) -> None:
    kubeconfig = cluster.token_kubeconfig("nobody", "expired")
    with Daemon(cluster, kubeconfig=kubeconfig) as daemon:
        queries.eventually(lambda: daemon.logged("cannot read"), "the logged error")
        assert all("401" in line["message"] for line in daemon.logged("cannot read"))
        assert daemon.running
        daemon.terminate()
        assert daemon.end() == 0
    assert all(line["level"] != "NOT JSON" for line in daemon.lines)
