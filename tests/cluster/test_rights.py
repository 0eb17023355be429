"""A right that is missing holds drains and is named; it is never taken for an empty list."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from deploy.local.api import Json
from deploy.local.manifests import deployment
from deploy.local.plane import ControlPlane
from tests.cluster.daemon import Daemon, Look, command, environment
from tests.cluster.rendering import kustomization
from tests.proxy.world import World, world

ACCOUNT = "spot-rescheduler"
PROXY = "cloudpool-proxy"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
ROLE = f"{ROLES}/{ACCOUNT}"
NAMESPACED_ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles"


@pytest.fixture
def rights(cluster: ControlPlane) -> Iterator[Json]:
    """The rules of the daemon's shipped ClusterRole, granted."""
    yield from _granted(cluster, "base")


@pytest.fixture
def rights_of_the_proxy(cluster: ControlPlane) -> Iterator[Json]:
    yield from _granted(cluster, "proxy")


def _granted(cluster: ControlPlane, folder: str) -> Iterator[Json]:
    made = [one for one in kustomization(folder) if "Role" in one["kind"] or one["kind"] == "ServiceAccount"]
    cluster.apply(made)
    [role] = [one for one in made if one["kind"] == "ClusterRole"]
    yield role
    for one in made:
        cluster.api.delete(cluster.api.path(one))


def without(role: Json, resource: str) -> Json:
    """*role* without any right to *resource*."""
    rules = [one | {"resources": [each for each in one["resources"] if each != resource]} for one in role["rules"]]
    return {"rules": [one for one in rules if one["resources"]]}


def drainable(cluster: ControlPlane) -> Look:
    look = Look(cluster)
    look.nodes(1, 1)
    cluster.apply([deployment("web", 2)])
    look.running(2)
    look.open_spot()
    return look


def waiting(daemon: Daemon) -> Json:
    """What the status page says the daemon waits for."""
    if not daemon.address:
        return {}
    shown: Json = httpx.get(f"{daemon.address}/statusz", headers={"accept": "application/json"}, trust_env=False).json()
    return shown["waiting"] or {}


def test_a_kind_that_may_not_be_listed_holds_drains_until_it_may(cluster: ControlPlane, rights: Json) -> None:
    look = drainable(cluster)
    cluster.api.patch(ROLE, without(rights, "csidrivers"))
    own = cluster.service_account_kubeconfig("kube-system", ACCOUNT)
    with Daemon(cluster, "--namespace=kube-system", kubeconfig=own) as daemon:
        look.eventually(lambda: "csidrivers" in waiting(daemon).get("detail", ""), "the missing right")
        held = waiting(daemon)
        assert held["reason"] == "not-synced"
        assert 'cannot list resource "csidrivers" in API group "storage.k8s.io"' in held["detail"]
        assert look.marks() == {}
        assert look.kinds() == {"on-demand": 2}
        cluster.api.patch(ROLE, {"rules": rights["rules"]})
        look.eventually(lambda: look.kinds() == {"spot": 2}, "the pods on spot")


def test_plan_warns_of_what_it_assumes(cluster: ControlPlane, rights: Json) -> None:
    drainable(cluster)
    cluster.api.patch(ROLE, without(rights, "csidrivers"))
    own = cluster.service_account_kubeconfig("kube-system", ACCOUNT)
    plan = [*command("plan", f"--kubeconfig={own}", "-o", "json")]

    def ran() -> subprocess.CompletedProcess[str]:
        return subprocess.run(plan, capture_output=True, text=True, env=environment(), check=False)

    done = cluster.wait_for(lambda: done if "csidrivers" in (done := ran()).stderr else None, "a warning")
    assert done is not None
    assert done.returncode == 0
    [line] = done.stderr.splitlines()
    assert line.startswith("rescheduler: warning: list csidrivers: csidrivers.storage.k8s.io is forbidden: ")
    assert line.endswith("; planning assumes that there are no csidrivers")
    assert '"drainable":true' in done.stdout


def test_the_proxy_removes_nothing_and_names_the_right(
    cluster: ControlPlane, rights_of_the_proxy: Json, tmp_path: Path
) -> None:
    """First one without which the cluster cannot be read, then one without which owners cannot be."""
    role, own = f"{ROLES}/{PROXY}", cluster.service_account_kubeconfig("kube-system", PROXY)
    cluster.api.patch(role, without(rights_of_the_proxy, "csidrivers"))

    def prepare(made: World) -> None:
        made.deploy("web", 1, on="od-1")

    with world(cluster, tmp_path, 2, kubeconfig=own, before=prepare) as made:
        readyz = f"{next(line for line in made.lines if 'serving on ' in line).split()[-1]}/readyz"
        terminate = {"machineId": made.id("od-1"), "decrementDesiredSize": True}
        lacking = 'cannot list resource "csidrivers" in API group "storage.k8s.io"'
        cluster.wait_for(lambda: lacking in httpx.get(readyz, trust_env=False).text, "the missing right")
        answer = httpx.post(f"{made.url}/pool/terminate", json=terminate, timeout=60, trust_env=False)
        assert (answer.status_code, lacking in answer.json()["detail"]) == (503, True)
        cluster.api.patch(role, without(rights_of_the_proxy, "replicasets"))
        answer = made.post("/pool/terminate", terminate)
        assert (answer.status_code, 'cannot get resource "replicasets"' in answer.json()["detail"]) == (503, True)
        assert (made.tainted(), set(made.pods().values()), made.orders()) == ([], {"od-1"}, [])
        cluster.api.patch(role, {"rules": rights_of_the_proxy["rules"]})
        cluster.wait_for(lambda: made.post("/pool/terminate", terminate).status_code == httpx.codes.OK, "the end")
        assert (made.running(), httpx.get(readyz, trust_env=False).text) == (["od-2"], "ok\n")


#: What k8s-spot-rescheduler's own manifests granted.
ORIGINAL: Final[list[Json]] = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "update"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "delete"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch", "update"]},
    {"apiGroups": [""], "resources": ["endpoints"], "verbs": ["create", "get", "update"]},
    {"apiGroups": ["apps"], "resources": ["statefulsets", "replicasets"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["get", "list", "watch"]},
]


def test_with_the_rights_of_k8s_spot_rescheduler_each_missing_one_is_named(cluster: ControlPlane, rights: Json) -> None:
    """It starts and serves its pages, is not ready, and drains nothing."""
    look = drainable(cluster)
    cluster.api.patch(ROLE, {"rules": ORIGINAL})
    cluster.api.patch(f"{NAMESPACED_ROLES}/{ACCOUNT}", {"rules": []})
    own = cluster.service_account_kubeconfig("kube-system", ACCOUNT)
    with Daemon(cluster, "--namespace=kube-system", "--compat=k8s-spot-rescheduler", kubeconfig=own) as daemon:
        look.eventually(lambda: waiting(daemon).get("detail", "").startswith("missing rights"), "the missing rights")
        assert waiting(daemon)["reason"] == "not-synced"
        for right in ("patch nodes", "create leases.coordination.k8s.io in namespace kube-system", "list namespaces"):
            assert [line["level"] for line in daemon.told(f"missing right: {right}")] == ["WARNING"]
        assert httpx.get(f"{daemon.address}/readyz", trust_env=False).status_code == 503
        assert "spot_rescheduler_build_info" in httpx.get(f"{daemon.address}/metrics", trust_env=False).text
        assert (look.marks(), look.kinds()) == ({}, {"on-demand": 2})
