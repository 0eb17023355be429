"""``pause``, ``resume`` and ``status`` on a real API server: missing permissions and objects, concurrent changes."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from devcluster.api import Json
from devcluster.plane import ControlPlane
from rescheduler.planning.pauses import PAUSE_REASON, PAUSED
from tests import forking
from tests.cluster.bad_days import NAMESPACE
from tests.cluster.daemon import LEASES

NAME = "pause-troubles"
PATH = f"{LEASES}/{NAME}"
LEASE = f"Lease {NAMESPACE}/{NAME}"


@pytest.fixture
def cluster_without_lease(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane, without the Lease of these tests before and after the test."""
    cluster.api.delete(PATH)
    yield cluster
    cluster.api.delete(PATH)


class PauseCommands:
    """Runs commands for a separate installation, and returns exit code, output and error."""

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster

    def __call__(self, *arguments: str, kubeconfig: Path | None = None) -> tuple[int, str, str]:
        own = (f"--kubeconfig={kubeconfig or self._cluster.kubeconfig}", f"--namespace={NAMESPACE}")
        done = forking.run(*arguments, *own, f"--lease-name={NAME}")
        return done.returncode, done.stdout, done.stderr

    def status(self) -> dict[str, Any]:
        code, out, error = self("status", "-o", "json")
        assert (code, error) == (0, "")
        state: dict[str, Any] = json.loads(out)
        return state


@pytest.fixture
def run(cluster_without_lease: ControlPlane) -> PauseCommands:
    return PauseCommands(cluster_without_lease)


def annotations(cluster: ControlPlane) -> Json:
    known: Json = cluster.api.get(PATH)["metadata"].get("annotations", {})
    return known


def lease(cluster: ControlPlane, **metadata: Json) -> None:
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME, **metadata}}
    body["spec"] = {"holderIdentity": "pod-a_1"}
    cluster.api.post(LEASES, body)


def test_without_a_lease_the_commands_fail_and_create_none(cluster: ControlPlane, run: PauseCommands) -> None:
    for command in (("pause",), ("pause", "--force"), ("resume",), ("status",)):
        code, out, error = run(*command)
        assert (code, out, error.startswith(f"rescheduler: {LEASE} does not exist; ")) == (1, "", True)
    names = [item["metadata"]["name"] for item in cluster.api.items(LEASES)]
    assert NAME not in names


def test_an_installation_is_found_in_another_namespace(cluster: ControlPlane, run: PauseCommands) -> None:
    """The API server lists the Leases of all namespaces but those of the nodes."""
    lease(cluster, labels={"app.kubernetes.io/name": "spot-rescheduler"})
    arguments = (f"--kubeconfig={cluster.kubeconfig}", f"--lease-name={NAME}")
    done = forking.run("pause", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{LEASE}: drains are paused\n", "")
    done = forking.run("resume", "-n=kube-public", *arguments)
    assert (done.returncode, f" -n {NAMESPACE} --lease-name={NAME}" in done.stderr) == (1, True)
    assert run("resume")[0] == 0


def test_resume_ends_a_pause_once(cluster: ControlPlane, run: PauseCommands) -> None:
    lease(cluster)
    assert run("pause", "--reason=a release") == (0, f"{LEASE}: drains are paused: a release\n", "")
    assert run("resume") == (0, f"{LEASE}: drains are no longer paused\n", "")
    assert run("resume") == (0, f"{LEASE}: drains are not paused\n", "")
    assert annotations(cluster) == {}


def test_a_pause_replaces_an_earlier_one_with_its_reason(cluster: ControlPlane, run: PauseCommands) -> None:
    lease(cluster)
    run("pause", "--reason=a release", "--for=1h")
    assert run("pause") == (0, f"{LEASE}: drains are paused\n", "")
    assert annotations(cluster) == {PAUSED: "true"}


@pytest.mark.parametrize("value", ["tomorrow", "", "2026-02-30T00:00:00Z", "\u001b[31m", "x" * 10_000])
def test_an_unreadable_annotation_means_paused(cluster: ControlPlane, run: PauseCommands, value: str) -> None:
    lease(cluster, annotations={PAUSED: value, PAUSE_REASON: "line 1\nline 2 \u001b[2J"})
    state, (code, out, error) = run.status(), run("status")
    assert (state["paused"]["until"], state["paused"]["reason"]) == (None, "line 1 line 2 ?[2J")
    assert state["waiting"]["reason"] == "paused"
    assert (code, error, "\x1b" in out, max(map(len, out.splitlines())) <= 80) == (0, "", False, True)
    assert run("resume")[0] == 0
    assert annotations(cluster) == {}


def test_missing_permission_is_an_error(cluster: ControlPlane, run: PauseCommands) -> None:
    cluster.apply([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": NAMESPACE}}])
    own = cluster.service_account_kubeconfig(NAMESPACE, NAME)
    for name in ("pause", "resume", "status"):
        code, out, error = run(name, kubeconfig=own)
        assert (code, out, error.count("\n")) == (1, "", 1)
        assert error.startswith(f"rescheduler: get lease {NAMESPACE}/{NAME}: ")
        assert (
            f'cannot get resource "leases" in API group "coordination.k8s.io" in the namespace "{NAMESPACE}"' in error
        )
    cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NAME}")


def test_an_invalid_token_is_an_error(cluster: ControlPlane, run: PauseCommands) -> None:
    code, out, error = run("pause", kubeconfig=cluster.token_kubeconfig(NAME, "invalid"))
    refused = "the credentials were rejected; the token may have expired (401)"
    assert (code, out, error) == (1, "", f"rescheduler: get lease {NAMESPACE}/{NAME}: {refused}\n")


def test_a_missing_namespace_is_an_error(cluster: ControlPlane) -> None:
    done = forking.run("pause", f"--kubeconfig={cluster.kubeconfig}", "--namespace=nowhere", f"--lease-name={NAME}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"rescheduler: Lease nowhere/{NAME} does not exist; ")


def test_an_unreachable_server_is_an_error(run: PauseCommands, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: c, context: {cluster: c}}]\n"
        "current-context: c\n"
    )
    for name in ("pause", "resume", "status"):
        code, out, error = run(name, kubeconfig=config)
        expected = "no connection to http://127.0.0.1:1: Connection refused"
        assert (code, out, error) == (1, "", f"rescheduler: get lease {NAMESPACE}/{NAME}: {expected}\n")


def test_concurrent_commands_keep_other_annotations(cluster: ControlPlane, run: PauseCommands) -> None:
    """Each command changes the Lease that it has read, or reads it again."""
    lease(cluster, labels={"kept": "yes"}, annotations={"kept": "yes"})
    reasons = [f"reason {number}" for number in range(4)]
    with ThreadPoolExecutor(len(reasons)) as pool:
        results = list(pool.map(lambda reason: run("pause", f"--reason={reason}"), reasons))
    assert results == [(0, f"{LEASE}: drains are paused: {reason}\n", "") for reason in reasons]
    assert cluster.api.get(PATH)["metadata"]["labels"] == {"kept": "yes"}
    final = annotations(cluster)
    assert (final["kept"], final[PAUSED], final[PAUSE_REASON] in reasons) == ("yes", "true", True)
