"""A missing permission blocks drains and is named. It is not treated as an empty list."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx2
import pytest

from devcluster.api import Json
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from tests import forking
from tests.cluster.daemon import ClusterQueries, Daemon
from tests.cluster.rendering import chart, composed, kustomization
from tests.cluster.rights import ACCESS
from tests.proxy.world import ProxyWorld, world

ACCOUNT = "spot-rescheduler"
PROXY = "cloudpool-proxy"
VIEWER = "spot-rescheduler-viewer"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
ROLE = f"{ROLES}/{ACCOUNT}"
NAMESPACED_ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/spot-rescheduler/roles"


@pytest.fixture
def rights(cluster: ControlPlane) -> Iterator[Json]:
    """The daemon's shipped RBAC is installed; the value is its ClusterRole."""
    yield from _granted(cluster, "base")


@pytest.fixture
def rights_of_the_proxy(cluster: ControlPlane) -> Iterator[Json]:
    yield from _granted(cluster, "proxy")


def _granted(cluster: ControlPlane, folder: str) -> Iterator[Json]:
    objects = [item for item in kustomization(folder) if item["kind"] in ACCESS]
    cluster.apply(objects)
    [role] = [item for item in objects if item["kind"] == "ClusterRole"]
    yield role
    for item in objects:
        cluster.api.delete(cluster.api.path(item))


def without(role: Json, resource: str) -> Json:
    """Return the rules of *role* without any right to *resource*."""
    rules = [item | {"resources": [each for each in item["resources"] if each != resource]} for item in role["rules"]]
    return {"rules": [item for item in rules if item["resources"]]}


def drainable(cluster: ControlPlane) -> ClusterQueries:
    queries = ClusterQueries(cluster)
    queries.nodes(1, 1)
    cluster.apply([deployment("web", 2)])
    queries.running(2)
    queries.open_spot()
    return queries


def waiting(daemon: Daemon) -> Json:
    """Return the reason why the daemon waits, according to its status page."""
    if not daemon.address:
        return {}
    shown: Json = httpx2.get(
        f"{daemon.address}/statusz", headers={"accept": "application/json"}, trust_env=False
    ).json()
    return shown["waiting"] or {}


def test_a_missing_list_right_blocks_drains_until_it_is_granted(cluster: ControlPlane, rights: Json) -> None:
    queries = drainable(cluster)
    cluster.api.patch(ROLE, without(rights, "csidrivers"))
    own = cluster.service_account_kubeconfig("spot-rescheduler", ACCOUNT)
    with Daemon(cluster, "--namespace=spot-rescheduler", kubeconfig=own) as daemon:
        queries.eventually(lambda: "csidrivers" in waiting(daemon).get("detail", ""), "the missing permission")
        held = waiting(daemon)
        assert held["reason"] == "not-synced"
        assert 'cannot list resource "csidrivers" in API group "storage.k8s.io"' in held["detail"]
        assert queries.marks() == {}
        assert queries.kinds() == {"on-demand": 2}
        cluster.api.patch(ROLE, {"rules": rights["rules"]})
        queries.eventually(lambda: queries.kinds() == {"spot": 2}, "the pods on spot")


def test_plan_warns_of_its_assumptions(cluster: ControlPlane, rights: Json) -> None:
    drainable(cluster)
    cluster.api.patch(ROLE, without(rights, "csidrivers"))
    own = cluster.service_account_kubeconfig("spot-rescheduler", ACCOUNT)

    def ran() -> subprocess.CompletedProcess[str]:
        return forking.run("plan", f"--kubeconfig={own}", "-o", "json")

    done = cluster.wait_for(lambda: done if "csidrivers" in (done := ran()).stderr else None, "a warning")
    assert done is not None
    assert done.returncode == 0
    line, templates = done.stderr.splitlines()
    assert line.startswith("rescheduler: warning: list csidrivers: csidrivers.storage.k8s.io is forbidden: ")
    assert line.endswith("; planning assumes that there are no csidrivers")
    assert templates.endswith(
        "planning assumes that replacement pods are like the running pods, and that no quota rejects them; "
        "deploy/components/viewer has the permissions (in the chart: rbac.viewer)"
    )
    assert '"drainable":true' in done.stdout


def test_the_viewer_may_plan_and_somebody_without_the_role_is_told_about_it(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    drainable(cluster)
    layers: Json = {"resources": ["../base"], "components": ["../components/viewer"]}
    roles = [item for item in composed(tmp_path, ours=layers) if item["metadata"]["name"] == VIEWER]
    shipped = [item for item in chart({"rbac": {"viewer": True}}) if item["metadata"]["name"] == VIEWER]
    assert [item["rules"] for item in shipped] == [item["rules"] for item in roles]
    account: Json = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "jane", "namespace": "default"}}
    cluster.apply([account, *roles])
    own = cluster.service_account_kubeconfig("default", "jane")
    for command in ("plan", "report", "explain"):
        refused = forking.run(command, f"--kubeconfig={own}")
        assert refused.returncode == 1, command
        assert "deploy/components/viewer has the permissions (in the chart: rbac.viewer)" in refused.stderr, command
    group: Json = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": VIEWER}
    subject = {"kind": "ServiceAccount", "name": "jane", "namespace": "default"}
    bindings: list[Json] = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": VIEWER},
            "roleRef": group,
            "subjects": [subject],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": VIEWER, "namespace": "spot-rescheduler"},
            "roleRef": {**group, "kind": "Role"},
            "subjects": [subject],
        },
    ]
    cluster.apply(bindings)
    plan = cluster.wait_for(
        lambda: done if (done := forking.run("plan", f"--kubeconfig={own}", "-o", "json")).returncode == 0 else None,
        "the permission",
    )
    assert plan is not None
    assert ("viewer" in plan.stderr, '"drainable":true' in plan.stdout) == (False, True)
    for command in ("report", "explain", "snapshot"):
        done = forking.run(command, f"--kubeconfig={own}")
        assert (done.returncode, "viewer" in done.stderr) == (0, False), done.stderr
    for item in (*bindings, *roles):
        cluster.api.delete(cluster.api.path(item))


def test_the_proxy_removes_nothing_and_names_the_right(
    cluster: ControlPlane, rights_of_the_proxy: Json, tmp_path: Path
) -> None:
    """First the right to read part of the cluster is missing, then the right to read owners."""
    role, own = f"{ROLES}/{PROXY}", cluster.service_account_kubeconfig("spot-rescheduler", PROXY)
    cluster.api.patch(role, without(rights_of_the_proxy, "csidrivers"))

    def prepare(proxied: ProxyWorld) -> None:
        proxied.deploy("web", 1, on="od-1")

    with world(cluster, tmp_path, 2, kubeconfig=own, before=prepare) as proxied:
        readyz = f"{next(line for line in proxied.lines if 'serving on ' in line).split()[-1]}/readyz"
        terminate = {"machineId": proxied.id("od-1"), "decrementDesiredSize": True}
        lacking = 'cannot list resource "csidrivers" in API group "storage.k8s.io"'
        cluster.wait_for(lambda: lacking in httpx2.get(readyz, trust_env=False).text, "the missing permission")
        response = httpx2.post(f"{proxied.url}/pool/terminate", json=terminate, timeout=60, trust_env=False)
        assert (response.status_code, lacking in response.json()["detail"]) == (503, True)
        cluster.api.patch(role, without(rights_of_the_proxy, "replicasets"))
        response = proxied.post("/pool/terminate", terminate)
        assert (response.status_code, 'cannot get resource "replicasets"' in response.json()["detail"]) == (503, True)
        assert (proxied.tainted(), set(proxied.pods().values()), proxied.orders()) == ([], {"od-1"}, [])
        cluster.api.patch(role, {"rules": rights_of_the_proxy["rules"]})
        cluster.wait_for(lambda: proxied.post("/pool/terminate", terminate).status_code == httpx2.codes.OK, "the end")
        assert (proxied.running(), httpx2.get(readyz, trust_env=False).text) == (["od-2"], "ok\n")


#: The rules in the manifests of k8s-spot-rescheduler.
ORIGINAL: Final[list[Json]] = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "update"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "delete"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch", "update"]},
    {"apiGroups": [""], "resources": ["endpoints"], "verbs": ["create", "get", "update"]},
    {"apiGroups": ["apps"], "resources": ["statefulsets", "replicasets"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["get", "list", "watch"]},
]


def test_with_the_rights_of_k8s_spot_rescheduler_each_missing_right_is_named(
    cluster: ControlPlane, rights: Json
) -> None:
    """The daemon starts and serves its pages, but is not ready and drains nothing."""
    queries = drainable(cluster)
    cluster.api.patch(ROLE, {"rules": ORIGINAL})
    cluster.api.patch(f"{NAMESPACED_ROLES}/{ACCOUNT}", {"rules": []})
    own = cluster.service_account_kubeconfig("spot-rescheduler", ACCOUNT)
    with Daemon(cluster, "--namespace=spot-rescheduler", "--compat=k8s-spot-rescheduler", kubeconfig=own) as daemon:
        queries.eventually(
            lambda: waiting(daemon).get("detail", "").startswith("missing permissions"), "the missing permissions"
        )
        assert waiting(daemon)["reason"] == "not-synced"
        for right in (
            "patch nodes",
            "get leases.coordination.k8s.io k8s-spot-rescheduler in namespace spot-rescheduler",
            "list namespaces",
        ):
            assert [line["level"] for line in daemon.logged(f"missing permission: {right}")] == ["WARNING"]
        assert httpx2.get(f"{daemon.address}/readyz", trust_env=False).status_code == 503
        assert "spot_rescheduler_build_info" in httpx2.get(f"{daemon.address}/metrics", trust_env=False).text
        assert (queries.marks(), queries.kinds()) == ({}, {"on-demand": 2})
