"""One leader: replicas as processes under the shipped RBAC, each with the token of a pod of its own."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from deploy.local.api import Json
from deploy.local.audit import AuditEvent
from deploy.local.manifests import deployment
from deploy.local.plane import ControlPlane
from tests.cluster.bad_days import ONE
from tests.cluster.daemon import LEASE_PATH, LEASES, ROOT, environment, let_go, put_stuck, terminating
from tests.cluster.observer import Observer
from tests.cluster.replicas import Installation, installed, written_by
from tests.cluster.takeovers import holder, rendered, take_over

#: The Lease that the fence reads in place of the real one, so that the test says how far it lags behind.
SHADOW: Final = "shadow"

#: Longer than a new leader sends a write again that the fence denies.
LAG: Final = timedelta(seconds=6)


@pytest.fixture
def bare(observer: Observer) -> Iterator[Installation]:
    """A node that can be emptied, and the replicas a and b without a fence."""
    observer.nodes(1, 2)
    observer.plane.apply([deployment("web", 3)])
    observer.running(3, "web")
    with installed(Installation(observer.plane), rendered(fenced=False)) as made:
        observer.open_spot()
        yield made


def moved(observer: Observer) -> None:
    observer.eventually(lambda: observer.kinds("web") == {"spot": 3}, "the pods on spot nodes")
    observer.opened()


def test_of_two_replicas_without_a_flag_one_acts(bare: Installation, observer: Observer) -> None:
    with bare.daemon("a"), bare.daemon("b"):
        moved(observer)
        leader = bare.leader
    assert leader in {"a", "b"}
    assert {event.user.pod for event in observer.audit.writes("nodes", "pods/eviction", user=bare.user)} == {leader}


def test_a_single_round_holds_the_lease_and_gives_it_back_at_its_end(bare: Installation, observer: Observer) -> None:
    with bare.daemon("a", "--once") as daemon:
        assert daemon.end() == 0
    moved(observer)
    written = written_by(observer.audit.events(), "a")
    assert holder(written[0]).startswith("a_")
    assert (written[-1].kind, holder(written[-1]), bare.leader) == ("leases", "", "")
    assert [event.kind for event in written].count("pods/eviction") == 3


def test_whatever_the_leader_writes_has_a_deadline_before_its_lease_ends(
    bare: Installation, observer: Observer
) -> None:
    with bare.daemon("a", "--once") as daemon:
        assert daemon.end() == 0
    written = [event for event in written_by(observer.audit.events(), "a") if event.kind != "leases"]
    assert {"nodes", "pods/eviction", "events"} <= {event.kind for event in written}
    assert {seconds(event) for event in written} <= set(range(1, 14))


def seconds(event: AuditEvent) -> int:
    """What a write asked the API server to end within."""
    _, _, asked = event.request_uri.partition("timeout=")
    return int(asked.removesuffix("s"))


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
    waited = "lease default/k8s-spot-rescheduler was not ours within 0:00:03"
    told = f"rescheduler: gave up: {waited}: another replica leads: another_1"
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (1, told)
    assert observer.audit.writes("nodes", "pods/eviction", "events", "leases", agent="spot-rescheduler/") == []
    assert cluster.api.get(LEASE_PATH)["spec"]["holderIdentity"] == "another_1"


def once(kubeconfig: Path, *, patience: int) -> subprocess.CompletedProcess[str]:
    """``rescheduler run --once`` with less patience than its two minutes."""
    program = (
        "from datetime import timedelta; from rescheduler import app, cli; "
        f"app.ONCE_PATIENCE = timedelta(seconds={patience}); cli.main()"
    )
    flags = ("run", "--once", "--namespace=default", "--listen-address=127.0.0.1:0", "-v=0")
    command = [sys.executable, "-c", program, *flags, f"--kubeconfig={kubeconfig}"]
    return subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=120
    )


def test_when_the_leader_is_told_to_stop_its_lease_is_the_last_that_it_writes(
    cluster: ControlPlane, observer: Observer
) -> None:
    """So all that it tells of the drain is told before another one may act."""
    put_stuck(cluster, observer)
    with installed(Installation(cluster), rendered(fenced=True)) as made, made.daemon("a") as daemon:
        observer.eventually(lambda: terminating(cluster), "the drain under way")
        daemon.terminate()
        assert daemon.end() == 0
        assert made.leader == ""
    let_go(cluster)
    written = written_by(observer.audit.events(), "a")
    assert (written[-1].kind, holder(written[-1])) == ("leases", "")
    assert "DrainFailed" in observer.events(ONE)
    assert observer.marks() == {}


@pytest.mark.parametrize("pause", [0.2, 1.7])
def test_a_leader_that_was_stopped_writes_nothing_after_its_lease_was_taken(
    cluster: ControlPlane, pause: float
) -> None:
    """`python -m tests.cluster.takeovers` does the same many times."""
    seen = take_over(cluster, rendered(fenced=True), pause)
    assert seen.before
    assert (seen.late, seen.violations) == ((), ())


def test_a_fence_that_lags_behind_the_lease_cools_no_node_down(cluster: ControlPlane, observer: Observer) -> None:
    observer.nodes(1, 2)
    cluster.apply([deployment("web", 3)])
    observer.running(3, "web")
    with installed(Installation(cluster), lagging(rendered(fenced=True))) as made:
        shadow = f"{made.lease_path.rpartition('/')[0]}/{SHADOW}"
        cluster.api.patch(shadow, {"spec": {"holderIdentity": "b_1"}})
        observer.open_spot()
        with made.daemon("a"):
            observer.eventually(lambda: lags(observer), f"denials for {LAG}")
            assert observer.marks() == {}
            cluster.api.patch(shadow, {"spec": {"holderIdentity": "a_1"}})
            moved(observer)
    assert observer.evictions(user=made.user)
    assert "DrainCoolDown" not in observer.events(ONE)


def lagging(objects: list[Json]) -> list[Json]:
    """With a fence that reads SHADOW; the Lease stays as it is for the daemon."""
    for item in objects:
        if item["kind"] == "ValidatingAdmissionPolicyBinding":
            item["spec"]["paramRef"]["name"] = SHADOW
    [lease] = [item for item in objects if item["kind"] == "Lease"]
    return [*objects, {**lease, "metadata": {**lease["metadata"], "name": SHADOW}}]


def lags(observer: Observer) -> bool:
    """Whether the fence has denied what a did for LAG."""
    denied = [event.at for event in observer.audit.events() if (event.user.pod, event.code) == ("a", 403)]
    return bool(denied) and denied[-1] - denied[0] > LAG
