"""What deploy/ ships works: the daemon, as its ServiceAccount under its RBAC, and nothing more than it needs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.local.api import Api, Json
from deploy.local.manifests import deployment
from deploy.local.plane import ControlPlane
from tests.cluster.daemon import Daemon, Look

DEPLOY = Path(__file__).parents[2] / "deploy"
NAMESPACE = "kube-system"
ACCOUNT = "spot-rescheduler"


def shipped(folder: str) -> list[Json]:
    """The manifests that a kustomization lists, in the namespace that it names."""
    where = DEPLOY / folder
    kustomization = yaml.safe_load((where / "kustomization.yaml").read_text())
    found = [one for name in kustomization["resources"] for one in yaml.safe_load_all((where / name).read_text())]
    for one in found:
        if not one["kind"].startswith("Cluster"):
            one["metadata"].setdefault("namespace", NAMESPACE)
    return found


@pytest.fixture
def installed(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """RBAC and the ServiceAccount; the Deployment's pods need an image that no kubelet here runs."""
    made = [one for one in shipped("base") if one["kind"] not in ("Deployment", "PodDisruptionBudget")]
    cluster.apply(made)
    yield cluster
    for one in made:
        cluster.api.delete(f"{cluster.api.path(one)}")


def test_the_api_server_takes_every_manifest(cluster: ControlPlane) -> None:
    made = cluster.apply([with_labels(one) for one in shipped("base")])
    assert {one["kind"] for one in made} >= {"Deployment", "ClusterRole", "Role", "ServiceAccount"}
    for one in made:
        cluster.api.delete(f"{cluster.api.path(one)}")


def test_two_replicas_run_as_nobody_with_a_root_they_cannot_write() -> None:
    [found] = [one for one in shipped("base") if one["kind"] == "Deployment"]
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
    with Daemon(installed, "--leader-elect", kubeconfig=own) as daemon:
        look.eventually(lambda: look.kinds() == {"spot": 3}, "the pods on spot")
        look.eventually(lambda: daemon.told("drained after"), "the end of the drain")
        assert not [line for line in daemon.lines if "orbidden" in line["message"]]
        daemon.terminate()
        assert daemon.end() == 0
    look.running(3)
    assert look.marks() == {}
    assert "NodeDrained" in look.events("on-demand-1")


FORBIDDEN = (
    {"verb": "delete", "resource": "pods"},
    {"verb": "create", "resource": "pods"},
    {"verb": "delete", "resource": "nodes"},
    {"verb": "update", "resource": "nodes"},
    {"verb": "get", "resource": "secrets"},
    {"verb": "list", "resource": "configmaps"},
    {"verb": "patch", "group": "apps", "resource": "deployments"},
    {"verb": "patch", "group": "coordination.k8s.io", "resource": "leases", "name": "another"},
    {"verb": "create", "resource": "serviceaccounts", "subresource": "token"},
)


@pytest.mark.parametrize("what", FORBIDDEN, ids=lambda one: f"{one['verb']} {one['resource']}")
def test_it_may_not(installed: ControlPlane, what: Json) -> None:
    assert not allowed(installed.api, what)


def test_it_may_ask_for_evictions_and_mark_nodes(installed: ControlPlane) -> None:
    """The question itself works: what is granted is told so."""
    assert allowed(installed.api, {"verb": "create", "resource": "pods", "subresource": "eviction"})
    assert allowed(installed.api, {"verb": "patch", "resource": "nodes"})


def allowed(api: Api, what: Json) -> bool:
    user = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    attributes = {"namespace": NAMESPACE, "version": "v1", **what}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    answer = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def with_labels(one: Json) -> Json:
    """What kustomize's ``includeSelectors`` adds."""
    name = {"app.kubernetes.io/name": ACCOUNT}
    if one["kind"] == "Deployment":
        one["spec"]["selector"] = {"matchLabels": name}
        one["spec"]["template"]["metadata"]["labels"] = name
    return one
