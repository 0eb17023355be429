"""Drains are paused with the commands on a real API server, and judged by its objects and its audit log."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from devcluster.stages import NEVER, TERMINATE_AFTER
from rescheduler.planning.pauses import PAUSE_REASON, PAUSED
from rescheduler.settings import LEASE
from tests import forking
from tests.cluster.bad_days import FLAGS, NAMESPACE, NODE_1, lease_holder, next_node, next_node_drained
from tests.cluster.daemon import LEASE_PATH, LEASES, Daemon, delete_stuck_pods
from tests.cluster.observer import Observer
from tests.cluster.rendering import composed
from tests.cluster.replicas import FENCED, ReplicatedInstallation, installed
from tests.cluster.replicas import NAMESPACE as SHIPPED

#: From the pause to the last moment at which the node may have our marks. The leader reads its Lease every two seconds.
REACTION_TIME: Final = timedelta(seconds=10)


def run(cluster: ControlPlane, *arguments: str, namespace: str = NAMESPACE, kubeconfig: Path | None = None) -> str:
    """Run a command, by default with the credentials of an administrator, and return its output."""
    done = forking.run(*arguments, f"--kubeconfig={kubeconfig or cluster.kubeconfig}", f"--namespace={namespace}")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def status(cluster: ControlPlane) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(run(cluster, "status", "-o", "json"))
    return state


def lease(cluster: ControlPlane) -> Json:
    lease_object: Json = cluster.api.get(LEASE_PATH)
    return lease_object


def annotations(cluster: ControlPlane) -> Json:
    annotations: Json = lease(cluster)["metadata"].get("annotations", {})
    return {key: text for key, text in annotations.items() if key in (PAUSED, PAUSE_REASON)}


def stopped(cluster: ControlPlane) -> None:
    """Create the Lease as the manifests do."""
    cluster.api.delete(LEASE_PATH)
    cluster.api.post(LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE}})


@pytest.fixture
def slow(observer: Observer) -> None:
    """Two drainable nodes; the first has a pod that does not terminate, so that its drain lasts."""
    observer.nodes(2, 2)
    stuck = deployment("stuck", 1, annotations={TERMINATE_AFTER: NEVER})
    observer.start_on(NODE_1, deployment("web", 2), stuck, pods=3)
    next_node(observer)
    observer.running(5)
    observer.open_all()


@pytest.mark.usefixtures("slow")
def test_a_pause_in_the_middle_of_a_drain_rolls_it_back_and_survives_a_restart(
    cluster: ControlPlane, observer: Observer
) -> None:
    with Daemon(cluster, *FLAGS) as daemon:
        observer.eventually(observer.evictions, "an eviction")
        output = run(cluster, "pause", "--reason=a release")
        assert output == f"Lease {NAMESPACE}/{LEASE}: drains are paused: a release\n"
        observer.wait_unmarked(REACTION_TIME.total_seconds())
        evicted = len(observer.evictions())
        assert "default/next" not in observer.evicted()
        delete_stuck_pods(cluster)
        state = status(cluster)
        assert state["leader"] == lease_holder(cluster)
        assert state["paused"] == {"until": None, "reason": "a release", "unreadable": None}
        assert state["draining"] == []
        assert state["waiting"] == {"reason": "paused", "detail": "drains are paused: a release"}
        observer.eventually(lambda: "DrainsPaused" in observer.events(LEASE), "the Event about the Lease")
        assert "DrainCoolDown" not in observer.events(NODE_1)
        daemon.kill(keep_lease=True)
    with Daemon(cluster, *FLAGS):
        observer.eventually(lambda: lease_holder(cluster) != state["leader"], "the next leader")
        observer.stays(lambda: (len(observer.evictions()), observer.marks()), (evicted, {}))
        assert annotations(cluster) == {PAUSED: "true", PAUSE_REASON: "a release"}
        assert run(cluster, "resume") == f"Lease {NAMESPACE}/{LEASE}: drains are no longer paused\n"
        next_node_drained(observer)
        assert annotations(cluster) == {}


def test_concurrent_commands_keep_other_annotations(cluster: ControlPlane) -> None:
    """Each command changes the Lease that it has read, or reads it again."""
    kept = {"labels": {"kept": "yes"}, "annotations": {"kept": "yes"}}
    cluster.api.delete(LEASE_PATH)
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE, **kept}}
    cluster.api.post(LEASES, body | {"spec": {"holderIdentity": "pod-a_1"}})
    reasons = [f"reason {number}" for number in range(4)]
    with ThreadPoolExecutor(len(reasons)) as threads:
        outputs = threads.map(lambda reason: run(cluster, "pause", f"--reason={reason}"), reasons)
    assert list(outputs) == [f"Lease {NAMESPACE}/{LEASE}: drains are paused: {reason}\n" for reason in reasons]
    found = lease(cluster)["metadata"]
    assert (found["labels"], found["annotations"]["kept"], found["annotations"][PAUSED]) == (
        kept["labels"],
        "yes",
        "true",
    )
    assert found["annotations"][PAUSE_REASON] in reasons


def test_the_commands_work_in_the_pod_of_a_replica_and_with_the_fencing_policy(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    """The shipped permissions of the daemon are sufficient for the commands, even while another replica leads."""
    with (
        installed(ReplicatedInstallation(cluster), composed(tmp_path, ours=FENCED)) as installation,
        installation.daemon("b"),
    ):
        observer.eventually(lambda: installation.leader == "b", "the leader")
        for own in ({}, {"kubeconfig": installation.kubeconfig("a")}):
            message = f"Lease {SHIPPED}/{LEASE}: drains are paused"
            assert run(cluster, "pause", namespace=SHIPPED, **own) == f"{message}\n"
            assert "Paused        until rescheduler resume\n" in run(cluster, "status", namespace=SHIPPED, **own)
            assert run(cluster, "resume", namespace=SHIPPED, **own) == f"{message.replace('are', 'are no longer')}\n"
            assert run(cluster, "resume", namespace=SHIPPED, **own) == f"{message.replace('are', 'are not')}\n"
