"""Tests of the manifests in deploy/: daemon and proxy work with their ServiceAccounts, which have minimal rights."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from deploy.release import derived
from devcluster.api import Api, Json
from devcluster.manifests import deployment, mixed_nodes
from devcluster.plane import ControlPlane
from rescheduler.cli.install import MANIFESTS
from rescheduler.cloudpool.proxy import config
from tests.cluster.daemon import ClusterQueries, Daemon
from tests.cluster.rendering import DEPLOY, kustomization, only_of_kind
from tests.cluster.rights import ACCESS, is_allowed, user
from tests.proxy.world import world

NAMESPACE = "spot-rescheduler"
ACCOUNT = "spot-rescheduler"
PROXY = "cloudpool-proxy"


@pytest.fixture
def installed(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The daemon's RBAC and ServiceAccount, without the Deployment, because no kubelet can run its image."""
    with rights(cluster, "base"):
        yield cluster


@pytest.fixture
def installed_proxy(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The proxy's RBAC and ServiceAccount."""
    with rights(cluster, "proxy"):
        yield cluster


@contextlib.contextmanager
def rights(cluster: ControlPlane, folder: str) -> Iterator[None]:
    objects = [item for item in kustomization(folder) if item["kind"] in ACCESS]
    cluster.apply(objects)
    try:
        yield
    finally:
        for item in objects:
            cluster.api.delete(f"{cluster.api.path(item)}")


@pytest.mark.parametrize("folder", ["base", "proxy"])
def test_the_api_server_accepts_every_manifest(folder: str, cluster: ControlPlane) -> None:
    objects = cluster.apply(kustomization(folder))
    assert {item["kind"] for item in objects} >= {"Deployment", "ClusterRole", "ClusterRoleBinding", "ServiceAccount"}
    for item in objects:
        cluster.api.delete(f"{cluster.api.path(item)}")


def test_the_manifests_of_install_are_those_of_the_base() -> None:
    """And have a namespace. `python -m deploy.release.derived` writes them."""
    assert derived.manifests() == MANIFESTS.read_text(encoding="utf-8"), "run: python -m deploy.release.derived"


@pytest.mark.parametrize(
    ("preset", "on_demand", "spot"),
    [
        ("karpenter", {"karpenter.sh/capacity-type": "on-demand"}, {"karpenter.sh/capacity-type": "spot"}),
        ("clusterapi", {}, {"cluster.x-k8s.io/interruptible": ""}),
    ],
)
def test_the_daemon_that_install_prints_plans_and_changes_nothing(
    preset: str, on_demand: dict[str, str], spot: dict[str, str], cluster: ControlPlane
) -> None:
    command = [sys.executable, "-m", "rescheduler", "install", f"--preset={preset}", "--namespace=ops"]
    objects = list(yaml.safe_load_all(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    for _ in range(2):  # the second time, everything exists
        cluster.apply(objects)
    nodes = mixed_nodes(1, 1)
    for node, labels in zip(nodes, (on_demand, spot), strict=True):
        node["metadata"]["labels"] = labels
    cluster.apply(nodes)
    [container] = only_of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    flags = [arg for arg in container["args"][1:] if not arg.startswith("--listen-address")]
    own = cluster.service_account_kubeconfig("ops", ACCOUNT)
    with Daemon(cluster, *flags, "--namespace=ops", kubeconfig=own) as daemon:
        ClusterQueries(cluster).eventually(lambda: daemon.logged("", node="on-demand-1"), "the result of a round")
        assert daemon.logged(", dry run, serving on")
        assert daemon.logged("missing permission") == []
    assert "spot-rescheduler" not in str(cluster.api.get("/api/v1/nodes/on-demand-1"))
    for item in reversed(objects):
        cluster.api.delete(cluster.api.path(item))


def test_two_replicas_run_as_non_root_with_a_read_only_file_system() -> None:
    [workload] = [item for item in kustomization("base") if item["kind"] == "Deployment"]
    pod = workload["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert workload["spec"]["replicas"] == 2
    assert "--leader-elect" in container["args"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_daemon_drains_with_its_own_token_and_rights(installed: ControlPlane) -> None:
    queries = ClusterQueries(installed)
    queries.nodes(1, 2)
    installed.apply([deployment("web", 3)])
    queries.running(3)
    queries.open_spot()
    own = installed.service_account_kubeconfig(NAMESPACE, ACCOUNT)
    with Daemon(installed, f"--namespace={NAMESPACE}", kubeconfig=own) as daemon:
        queries.eventually(lambda: queries.kinds() == {"spot": 3}, "the pods on spot")
        queries.eventually(lambda: daemon.logged("drained after"), "the end of the drain")
        assert not [line for line in daemon.lines if "orbidden" in line["message"]]
        daemon.terminate()
        assert daemon.end() == 0
    queries.running(3)
    assert queries.marks() == {}
    assert "NodeDrained" in queries.events("on-demand-1")


def test_the_proxy_has_one_replica_and_a_separate_probe_port() -> None:
    """Two proxies would update the pool concurrently. Probes use another port, because kubelets have no certificate."""
    [workload] = [item for item in kustomization("proxy") if item["kind"] == "Deployment"]
    [container] = workload["spec"]["template"]["spec"]["containers"]
    assert (workload["spec"]["replicas"], workload["spec"]["strategy"]) == (1, {"type": "Recreate"})
    probes = {name: container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")}
    assert probes == {
        "livenessProbe": {"path": "/healthz", "port": "http-metrics"},
        "readinessProbe": {"path": "/readyz", "port": "http-metrics"},
    }
    [service] = [item for item in kustomization("proxy") if item["kind"] == "Service"]
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ["https"]
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_the_proxy_accepts_its_shipped_configuration() -> None:
    parsed = config.read(DEPLOY / "proxy" / "proxy.json")
    assert (parsed.api_server.auth.in_cluster, parsed.backend_url) == (True, "http://cloudpool.kube-system.svc:8080")


def test_the_proxy_shrinks_a_pool_with_its_own_token_and_rights(installed_proxy: ControlPlane, tmp_path: Path) -> None:
    """The cloud does not delete Nodes here, so the proxy must delete them."""
    own = installed_proxy.service_account_kubeconfig(NAMESPACE, PROXY)
    with world(installed_proxy, tmp_path, 3, kubeconfig=own, nodes_stay=True) as proxied:
        proxied.deploy("web", 2, on="od-1")
        proxied.deploy("api", 1, on="od-2")
        [pod] = [name for name in proxied.pods() if name.startswith("api-")]
        response = proxied.post("/pool/size", {"desiredSize": 1})
        assert (response.status_code, response.text) == (200, "")
        assert (proxied.nodes(), proxied.running(), proxied.desired, proxied.tainted()) == (["od-1"], ["od-1"], 1, [])
        queries = ClusterQueries(installed_proxy)
        for name, reason in {"od-3": "NodeDrained", "od-2": "MachineRemovalOrdered", pod: "Rescheduler"}.items():
            queries.eventually(partial(_has_event, queries, name, reason), f"{reason} about {name}")
        assert not [line for line in proxied.lines if "orbidden" in line]
        assert [line for line in proxied.lines if "starts as cloudpool-proxy." in line]


def _has_event(queries: ClusterQueries, name: str, reason: str) -> bool:
    return reason in queries.events(name, PROXY)


@pytest.mark.parametrize("folder", ["base", "proxy"])
def test_daemon_and_proxy_get_the_name_of_their_node(folder: str) -> None:
    """Daemon and proxy must never drain their own node."""
    assert variables(folder)["RESCHEDULER_NODE_NAME"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_the_daemon_gets_the_name_of_its_pod() -> None:
    """The fencing policy compares the pod's name."""
    assert variables("base")["RESCHEDULER_POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}


def variables(folder: str) -> Json:
    [workload] = [item for item in kustomization(folder) if item["kind"] == "Deployment"]
    return {
        item["name"]: item.get("valueFrom") for item in workload["spec"]["template"]["spec"]["containers"][0]["env"]
    }


FORBIDDEN = (
    {"verb": "delete", "resource": "pods"},
    {"verb": "create", "resource": "pods"},
    {"verb": "delete", "resource": "nodes"},
    {"verb": "update", "resource": "nodes"},
    {"verb": "get", "resource": "secrets"},
    {"verb": "list", "resource": "configmaps"},
    {"verb": "create", "resource": "configmaps"},
    {"verb": "create", "group": "coordination.k8s.io", "resource": "leases"},
    {"verb": "patch", "group": "apps", "resource": "deployments"},
    {"verb": "list", "group": "apps", "resource": "replicasets"},
    {"verb": "watch", "resource": "events"},
    {"verb": "patch", "group": "coordination.k8s.io", "resource": "leases", "name": "another"},
    {"verb": "create", "resource": "serviceaccounts", "subresource": "token"},
)


@pytest.mark.parametrize(
    "attributes",
    [item for item in FORBIDDEN if (item["verb"], item["resource"]) != ("delete", "nodes")],
    ids=lambda item: f"{item['verb']} {item['resource']}",
)
def test_the_proxy_has_no_further_rights(installed_proxy: ControlPlane, attributes: Json) -> None:
    assert not allowed(installed_proxy.api, attributes, PROXY)


def test_the_proxy_may_delete_the_node_of_a_machine_that_is_gone(installed_proxy: ControlPlane) -> None:
    """Granted rights are included to prove that the reviews work."""
    assert allowed(installed_proxy.api, {"verb": "delete", "resource": "nodes"}, PROXY)


@pytest.mark.parametrize("attributes", FORBIDDEN, ids=lambda item: f"{item['verb']} {item['resource']}")
def test_the_daemon_has_no_further_rights(installed: ControlPlane, attributes: Json) -> None:
    assert not allowed(installed.api, attributes)


def test_the_daemon_may_evict_pods_and_patch_nodes(installed: ControlPlane) -> None:
    """Granted rights are included to prove that the reviews work."""
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
        for item in READABLE:
            cluster.wait_for(partial(allowed, cluster.api, item, account), f"{account}: {item}")


def allowed(api: Api, attributes: Json, account: str = ACCOUNT) -> bool:
    return is_allowed(api, user(NAMESPACE, account), {"namespace": NAMESPACE, "version": "v1", **attributes})
