"""The daemon is stopped, killed, cut off and replaced: what it began is finished or taken back."""

import json
from typing import Any

import pytest

from deploy.local.plane import ControlPlane
from rescheduler.draining.intent import ANNOTATION
from tests.cluster.daemon import LEASE_PATH, Daemon, Look, let_go, put_stuck, terminating

ONE = "on-demand-1"


@pytest.fixture
def look(cluster: ControlPlane) -> Look:
    return Look(cluster)


@pytest.fixture
def stuck(cluster: ControlPlane, look: Look) -> None:
    """An on-demand node that can be emptied but for a pod that does not end."""
    put_stuck(cluster, look)


def holder(annotation: str) -> str:
    said: dict[str, Any] = json.loads(annotation)
    return str(said["holder"])


@pytest.mark.usefixtures("stuck")
def test_sigterm_in_the_middle_of_a_drain_takes_it_back(cluster: ControlPlane, look: Look) -> None:
    with Daemon(cluster) as daemon:
        look.eventually(lambda: terminating(cluster), "the drain under way")
        assert set(look.marks()) == {ONE}
        daemon.terminate()
        assert daemon.end() == 0
        assert daemon.told("drain failed", node=ONE, reason="stopped")
    assert look.marks() == {}
    assert "DrainFailed" in look.events(ONE)


@pytest.mark.usefixtures("stuck")
def test_after_a_kill_the_next_one_finishes(cluster: ControlPlane, look: Look) -> None:
    with Daemon(cluster) as killed:
        look.eventually(lambda: terminating(cluster), "the drain under way")
        killed.kill()
    assert set(look.marks()) == {ONE}
    let_go(cluster)
    with Daemon(cluster) as daemon:
        look.eventually(lambda: daemon.told("drained after", node=ONE), "the end of the drain")
        assert daemon.told("found marks", node=ONE, reason="resumed")
    assert look.marks() == {}
    look.running(3)
    assert look.kinds() == {"spot": 3}


@pytest.mark.usefixtures("stuck")
def test_after_a_kill_what_cannot_go_on_is_rolled_back(cluster: ControlPlane, look: Look) -> None:
    with Daemon(cluster) as killed:
        look.eventually(lambda: terminating(cluster), "the drain under way")
        killed.kill()
    annotations = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    cluster.api.patch(f"/api/v1/nodes/{ONE}", {"metadata": {"annotations": annotations}})
    with Daemon(cluster) as daemon:
        look.eventually(lambda: daemon.told("drain failed", node=ONE, reason="plan-changed"), "the drain given up")
    assert look.marks() == {}
    let_go(cluster)


@pytest.mark.usefixtures("stuck")
def test_of_two_replicas_one_acts_and_the_other_takes_over(cluster: ControlPlane, look: Look) -> None:
    with Daemon(cluster) as first:
        look.eventually(lambda: terminating(cluster), "the first one's drain")
        with Daemon(cluster) as second:
            look.eventually(lambda: second.told("is not the leader"), "the second one waiting")
            before = holder(look.marks()[ONE])
            first.kill(keep_lease=True)
            look.eventually(lambda: second.told("found marks", node=ONE, reason="resumed"), "the change of leader")
            look.eventually(lambda: holder(look.marks()[ONE]) != before, "the new holder's name on the node")
            let_go(cluster)
            look.eventually(lambda: second.told("drained after", node=ONE), "the end of the drain")
    assert look.marks() == {}
    look.running(3)
    assert look.kinds() == {"spot": 3}


@pytest.mark.usefixtures("stuck")
def test_a_lost_lease_stops_evictions_and_leaves_the_marks_to_the_next(cluster: ControlPlane, look: Look) -> None:
    with Daemon(cluster) as daemon:
        look.eventually(lambda: terminating(cluster), "the drain under way")
        # Somebody else holds the Lease for long; our daemon's next renewal finds that out.
        spec = {"holderIdentity": "somebody else", "leaseDurationSeconds": 3600}
        cluster.api.patch(LEASE_PATH, {"spec": spec})
        look.eventually(lambda: daemon.told("drain failed", node=ONE, reason="leadership-lost"), "the loss noticed")
        assert daemon.running
        assert ANNOTATION in cluster.api.get(f"/api/v1/nodes/{ONE}")["metadata"]["annotations"]
    let_go(cluster)


def test_sigterm_while_there_is_nothing_to_do(cluster: ControlPlane, look: Look) -> None:
    look.nodes(1, 1)
    with Daemon(cluster, "--housekeeping-interval=1h") as daemon:
        look.eventually(lambda: daemon.told("planned "), "the first round")
        assert cluster.api.get(LEASE_PATH)["spec"]["holderIdentity"]
        daemon.terminate()
        assert daemon.end() == 0
        assert not cluster.api.get(LEASE_PATH)["spec"].get("holderIdentity")
        assert all(line["level"] != "NOT JSON" for line in daemon.lines)


def test_refused_credentials_are_tried_again(cluster: ControlPlane, look: Look) -> None:
    kubeconfig = cluster.token_kubeconfig("nobody", "expired")
    with Daemon(cluster, kubeconfig=kubeconfig) as daemon:
        look.eventually(lambda: daemon.told("cannot read"), "the refusal told")
        assert all("401" in line["message"] for line in daemon.told("cannot read"))
        assert daemon.running
        daemon.terminate()
        assert daemon.end() == 0
    assert all(line["level"] != "NOT JSON" for line in daemon.lines)
