"""What deploy/ ships works: daemon and proxy, as their ServiceAccounts under their RBAC, and no more than they need."""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from deploy.local.api import Api, Json
from deploy.local.manifests import deployment
from deploy.local.plane import ControlPlane
from rescheduler.proxy import config
from tests.cluster.daemon import Daemon, Look
from tests.cluster.rendering import DEPLOY, kustomization
from tests.proxy.world import world

NAMESPACE = "kube-system"
ACCOUNT = "spot-rescheduler"
PROXY = "cloudpool-proxy"


@pytest.fixture
def installed(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The daemon's RBAC and ServiceAccount; the Deployment's pods need an image that no kubelet here runs."""
    with rights(cluster, "base"):
        yield cluster


@pytest.fixture
def installed_proxy(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The proxy's."""
    with rights(cluster, "proxy"):
        yield cluster


@contextlib.contextmanager
def rights(cluster: ControlPlane, folder: str) -> Iterator[None]:
    made = [one for one in kustomization(folder) if "Role" in one["kind"] or one["kind"] == "ServiceAccount"]
    cluster.apply(made)
    try:
        yield
    finally:
        for one in made:
            cluster.api.delete(f"{cluster.api.path(one)}")


@pytest.mark.parametrize("folder", ["base", "proxy"])
def test_the_api_server_takes_every_manifest(folder: str, cluster: ControlPlane) -> None:
    made = cluster.apply(kustomization(folder))
    assert {one["kind"] for one in made} >= {"Deployment", "ClusterRole", "ClusterRoleBinding", "ServiceAccount"}
    for one in made:
        cluster.api.delete(f"{cluster.api.path(one)}")


def test_two_replicas_run_as_nobody_with_a_root_they_cannot_write() -> None:
    [found] = [one for one in kustomization("base") if one["kind"] == "Deployment"]
    pod = found["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert found["spec"]["replicas"] == 2
    assert "--leader-elect" in container["args"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_daemon_drains_with_its_own_token_and_rights(installed: ControlPlane) -> None:
    look = Look(installed)
    look.nodes(1, 2)
    installed.apply([deployment("web", 3)])
    look.running(3)
    look.open_spot()
    own = installed.service_account_kubeconfig(NAMESPACE, ACCOUNT)
    with Daemon(installed, f"--namespace={NAMESPACE}", kubeconfig=own) as daemon:
        look.eventually(lambda: look.kinds() == {"spot": 3}, "the pods on spot")
        look.eventually(lambda: daemon.told("drained after"), "the end of the drain")
        assert not [line for line in daemon.lines if "orbidden" in line["message"]]
        daemon.terminate()
        assert daemon.end() == 0
    look.running(3)
    assert look.marks() == {}
    assert "NodeDrained" in look.events("on-demand-1")


def test_one_proxy_runs_and_is_probed_on_a_port_of_its_own() -> None:
    """Two would update one pool side by side; what its clients may ask is not what a kubelet asks."""
    [found] = [one for one in kustomization("proxy") if one["kind"] == "Deployment"]
    [container] = found["spec"]["template"]["spec"]["containers"]
    assert (found["spec"]["replicas"], found["spec"]["strategy"]) == (1, {"type": "Recreate"})
    probes = {name: container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")}
    assert probes == {
        "livenessProbe": {"path": "/healthz", "port": "http-metrics"},
        "readinessProbe": {"path": "/readyz", "port": "http-metrics"},
    }
    [service] = [one for one in kustomization("proxy") if one["kind"] == "Service"]
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ["https"]
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_the_proxy_takes_its_shipped_configuration() -> None:
    found = config.read(DEPLOY / "proxy" / "proxy.json")
    assert (found.api_server.auth.in_cluster, found.backend_url) == (True, "http://cloudpool.kube-system.svc:8080")


def test_the_proxy_shrinks_a_pool_with_its_own_token_and_rights(installed_proxy: ControlPlane, tmp_path: Path) -> None:
    """The Node stays behind its machine here, so that it is the proxy that deletes it."""
    own = installed_proxy.service_account_kubeconfig(NAMESPACE, PROXY)
    with world(installed_proxy, tmp_path, 3, kubeconfig=own, nodes_stay=True) as made:
        made.deploy("web", 2, on="od-1")
        made.deploy("api", 1, on="od-2")
        [pod] = [name for name in made.pods() if name.startswith("api-")]
        answer = made.post("/pool/size", {"desiredSize": 1})
        assert (answer.status_code, answer.text) == (200, "")
        assert (made.nodes(), made.running(), made.desired, made.tainted()) == (["od-1"], ["od-1"], 1, [])
        look = Look(installed_proxy)
        for name, reason in {"od-3": "NodeDrained", "od-2": "MachineRemovalOrdered", pod: "Rescheduler"}.items():
            look.eventually(partial(_told, look, name, reason), f"{reason} about {name}")
        assert not [line for line in made.lines if "orbidden" in line]
        assert [line for line in made.lines if "starts as cloudpool-proxy." in line]


def _told(look: Look, name: str, reason: str) -> bool:
    return reason in look.events(name, PROXY)


@pytest.mark.parametrize("folder", ["base", "proxy"])
def test_they_know_their_node(folder: str) -> None:
    """So that they never drain it."""
    assert variables(folder)["RESCHEDULER_NODE_NAME"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_the_daemon_knows_its_pod() -> None:
    """Its name is what the fencing policy compares."""
    assert variables("base")["RESCHEDULER_POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}


def variables(folder: str) -> Json:
    [found] = [one for one in kustomization(folder) if one["kind"] == "Deployment"]
    return {one["name"]: one["valueFrom"] for one in found["spec"]["template"]["spec"]["containers"][0]["env"]}


FORBIDDEN = (
    {"verb": "delete", "resource": "pods"},
    {"verb": "create", "resource": "pods"},
    {"verb": "delete", "resource": "nodes"},
    {"verb": "update", "resource": "nodes"},
    {"verb": "get", "resource": "secrets"},
    {"verb": "list", "resource": "configmaps"},
    {"verb": "patch", "group": "apps", "resource": "deployments"},
    {"verb": "list", "group": "apps", "resource": "replicasets"},
    {"verb": "watch", "resource": "events"},
    {"verb": "patch", "group": "coordination.k8s.io", "resource": "leases", "name": "another"},
    {"verb": "create", "resource": "serviceaccounts", "subresource": "token"},
)


@pytest.mark.parametrize(
    "what",
    [one for one in FORBIDDEN if (one["verb"], one["resource"]) != ("delete", "nodes")],
    ids=lambda one: f"{one['verb']} {one['resource']}",
)
def test_the_proxy_may_not(installed_proxy: ControlPlane, what: Json) -> None:
    assert not allowed(installed_proxy.api, what, PROXY)


def test_the_proxy_may_delete_the_node_of_a_machine_that_is_gone(installed_proxy: ControlPlane) -> None:
    """The question itself works: what is granted is told so."""
    assert allowed(installed_proxy.api, {"verb": "delete", "resource": "nodes"}, PROXY)


@pytest.mark.parametrize("what", FORBIDDEN, ids=lambda one: f"{one['verb']} {one['resource']}")
def test_it_may_not(installed: ControlPlane, what: Json) -> None:
    assert not allowed(installed.api, what)


def test_it_may_ask_for_evictions_and_mark_nodes(installed: ControlPlane) -> None:
    """The question itself works: what is granted is told so."""
    assert allowed(installed.api, {"verb": "create", "resource": "pods", "subresource": "eviction"})
    assert allowed(installed.api, {"verb": "patch", "resource": "nodes"})


READABLE = (
    {"verb": "get", "group": "apps", "resource": "replicasets"},
    {"verb": "get", "group": "apps", "resource": "deployments"},
    {"verb": "get", "group": "apps", "resource": "statefulsets"},
    {"verb": "get", "resource": "replicationcontrollers"},
    {"verb": "get", "group": "batch", "resource": "jobs"},
    {"verb": "list", "resource": "events"},
)


def test_both_may_read_controllers_and_events(installed: ControlPlane, installed_proxy: ControlPlane) -> None:
    for cluster, account in ((installed, ACCOUNT), (installed_proxy, PROXY)):
        for one in READABLE:
            cluster.wait_for(partial(allowed, cluster.api, one, account), f"{account}: {one}")


def allowed(api: Api, what: Json, account: str = ACCOUNT) -> bool:
    user = f"system:serviceaccount:{NAMESPACE}:{account}"
    attributes = {"namespace": NAMESPACE, "version": "v1", **what}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    answer = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
