"""Leader election between replicas, which are processes with the shipped RBAC and pod-bound tokens."""

import subprocess
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final
from unittest.mock import patch

import httpx2
import pytest
import yaml

from devcluster.api import Api, Json
from devcluster.audit import AuditEvent
from devcluster.errors import ApiError
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from rescheduler import cli
from rescheduler.housekeeping import composition
from tests import forking
from tests.cluster.bad_days import NODE_1
from tests.cluster.daemon import LEASE_PATH, LEASES, create_stuck_pod, delete_stuck_pods, terminating
from tests.cluster.observer import Observer
from tests.cluster.rendering import leader_lease
from tests.cluster.replicas import ReplicatedInstallation, installed, written_by
from tests.cluster.takeovers import holder, rendered, take_over

#: The Lease that the fencing policy reads instead of the real one, so that the test controls its lag.
SHADOW: Final = "shadow"

#: Longer than a new leader retries a write that the fencing policy denies.
LAG: Final = timedelta(seconds=6)


@pytest.fixture
def bare(observer: Observer) -> Iterator[ReplicatedInstallation]:
    """A drainable node, and the replicas a and b without fencing."""
    observer.nodes(1, 2)
    observer.plane.apply([deployment("web", 3)])
    observer.running(3, "web")
    with installed(ReplicatedInstallation(observer.plane), rendered(fenced=False)) as installation:
        observer.open_spot()
        yield installation


def moved(observer: Observer) -> None:
    observer.eventually(lambda: observer.kinds("web") == {"spot": 3}, "the pods on spot nodes")
    observer.wait_unmarked()


def test_only_one_of_two_replicas_acts_by_default(bare: ReplicatedInstallation, observer: Observer) -> None:
    with bare.daemon("a"), bare.daemon("b"):
        moved(observer)
        leader = bare.leader
    assert leader in {"a", "b"}
    assert {event.user.pod for event in observer.audit.writes("nodes", "pods/eviction", user=bare.user)} == {leader}


def test_a_single_round_holds_the_lease_and_releases_it_at_the_end(
    bare: ReplicatedInstallation, observer: Observer
) -> None:
    with bare.daemon("a", "--once") as daemon:
        assert daemon.end() == 0
    moved(observer)
    written = written_by(observer.audit.events(), "a")
    assert holder(written[0]).startswith("a_")
    assert (written[-1].kind, holder(written[-1]), bare.leader) == ("leases", "", "")
    assert [event.kind for event in written].count("pods/eviction") == 3


def test_all_writes_of_the_leader_have_a_deadline_before_its_lease_expires(
    bare: ReplicatedInstallation, observer: Observer
) -> None:
    with bare.daemon("a", "--once") as daemon:
        assert daemon.end() == 0
    nothing = {"leases", "selfsubjectaccessreviews"}  # a review changes nothing
    written = [event for event in written_by(observer.audit.events(), "a") if event.kind not in nothing]
    assert {"nodes", "pods/eviction", "events"} <= {event.kind for event in written}
    assert {seconds(event) for event in written} <= set(range(1, 14))


def seconds(event: AuditEvent) -> int:
    """Return the timeout in seconds that a write requested from the API server."""
    _, _, value = event.request_uri.partition("timeout=")
    return int(value.removesuffix("s"))


def test_a_single_round_does_nothing_while_another_replica_leads(cluster: ControlPlane, observer: Observer) -> None:
    observer.nodes(1, 2)
    cluster.apply([deployment("web", 1)])
    observer.running(1, "web")
    observer.open_spot()
    metadata = {"name": LEASE_PATH.rpartition("/")[2]}
    spec = {"holderIdentity": "another_1", "leaseDurationSeconds": 3600}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    cluster.api.post(LEASES, lease)
    ended = once(cluster.kubeconfig, patience=3)
    waited = "lease default/k8s-spot-rescheduler was not acquired within 0:00:03"
    message = f"rescheduler: gave up: {waited}: another replica leads: another_1"
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (1, message)
    assert observer.audit.writes("nodes", "pods/eviction", "events", "leases", agent="spot-rescheduler/") == []
    assert cluster.api.get(LEASE_PATH)["spec"]["holderIdentity"] == "another_1"


def once(kubeconfig: Path, *, patience: int) -> subprocess.CompletedProcess[str]:
    """Run ``rescheduler run --once`` with a shorter timeout than the default of two minutes."""
    flags = ("--once", "--namespace=default", "--listen-address=127.0.0.1:0", "-v=0", f"--kubeconfig={kubeconfig}")
    return forking.completed(partial(_once, patience, flags))


def _once(patience: int, flags: Sequence[str]) -> None:
    with patch.object(composition, "ONCE_PATIENCE", timedelta(seconds=patience)):
        cli.main(["run", *flags])


def test_the_lease_is_the_last_write_of_a_stopped_leader(cluster: ControlPlane, observer: Observer) -> None:
    """All other writes of the drain are complete before another replica may act."""
    create_stuck_pod(cluster, observer)
    with (
        installed(ReplicatedInstallation(cluster), rendered(fenced=True)) as installation,
        installation.daemon("a") as daemon,
    ):
        observer.eventually(lambda: terminating(cluster), "the drain under way")
        daemon.terminate()
        assert daemon.end() == 0
        assert installation.leader == ""
    delete_stuck_pods(cluster)
    written = written_by(observer.audit.events(), "a")
    assert (written[-1].kind, holder(written[-1])) == ("leases", "")
    assert "DrainFailed" in observer.events(NODE_1)
    assert observer.marks() == {}


@pytest.mark.parametrize("pause", [0.2, 1.7])
def test_a_paused_leader_writes_nothing_after_its_lease_was_taken(cluster: ControlPlane, pause: float) -> None:
    """`python -m tests.cluster.takeovers` does the same many times."""
    seen = take_over(cluster, rendered(fenced=True), pause)
    assert seen.before
    assert (seen.late, seen.violations) == ((), ())


def test_a_fence_that_lags_behind_the_lease_causes_no_cool_down(cluster: ControlPlane, observer: Observer) -> None:
    observer.nodes(1, 2)
    cluster.apply([deployment("web", 3)])
    observer.running(3, "web")
    with installed(ReplicatedInstallation(cluster), lagging(rendered(fenced=True))) as installation:
        shadow = f"{installation.lease_path.rpartition('/')[0]}/{SHADOW}"
        cluster.api.patch(shadow, {"spec": {"holderIdentity": "b_1"}})
        cluster.wait_for(lambda: is_denied(installation, "a"), "the effect of the policy")
        observer.open_spot()
        with installation.daemon("a"):
            observer.eventually(lambda: lags(observer), f"denials for {LAG}")
            assert observer.marks() == {}
            cluster.api.patch(shadow, {"spec": {"holderIdentity": "a_1"}})
            moved(observer)
    assert observer.evictions(user=installation.user)
    assert "DrainCoolDown" not in observer.events(NODE_1)


def lagging(objects: list[Json]) -> list[Json]:
    """Let the fencing policy read SHADOW; the daemon uses the unchanged Lease."""
    for item in objects:
        if item["kind"] == "ValidatingAdmissionPolicyBinding":
            item["spec"]["paramRef"]["name"] = SHADOW
    lease = leader_lease(objects)
    return [*objects, {**lease, "metadata": {**lease["metadata"], "name": SHADOW}}]


def is_denied(installation: ReplicatedInstallation, replica: str) -> bool:
    """Return whether the fencing policy denies a write to a node by the replica. It takes effect with a delay."""
    plane = installation.plane
    token = yaml.safe_load(installation.kubeconfig(replica).read_text())["users"][0]["user"]["token"]
    with Api(plane.server, ca=plane.ca, token=token) as api:
        try:
            api.patch(f"/api/v1/nodes/{NODE_1}?dryRun=All", {"metadata": {"annotations": {"mark": "x"}}})
        except ApiError as error:
            return error.status == httpx2.codes.FORBIDDEN
    return False


def lags(observer: Observer) -> bool:
    """Return whether the fencing policy has denied the writes of replica a for LAG."""
    events = [event for event in observer.audit.events() if not event.dry_run]
    denied = [event.at for event in events if (event.user.pod, event.code) == ("a", 403)]
    return bool(denied) and denied[-1] - denied[0] > LAG
