"""The node manager as deploy/liqo ships it: its arguments, its ServiceAccount and its rights, and no more."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deploy.local.api import Json
from deploy.local.plane import ControlPlane
from rescheduler.backends.base import InstanceState
from rescheduler.clock import SystemClock
from rescheduler.liqo.nodemanager.config import Configuration, configuration
from tests.backends import pki
from tests.cluster.rendering import DEPLOY, kustomization, one
from tests.cluster.virtual import CONFIG, WAIT_SECONDS, Site, site

PARTS, ACCOUNT = "liqo-autoscaling", "node-manager"
GROUP = "STANDARD"


def shipped(kind: str) -> Json:
    return one([each for each in kustomization("liqo") if each["metadata"]["name"].startswith(ACCOUNT)], kind)


def arguments() -> list[str]:
    [container] = shipped("Deployment")["spec"]["template"]["spec"]["containers"]
    found: list[str] = container["args"]
    return found


@pytest.fixture
def installed(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The namespaces go after the test, and all in them."""
    made = [each for each in kustomization("liqo") if each["kind"] != "Deployment"]
    cluster.apply(made)
    yield cluster
    for each in made:
        if each["kind"].startswith("ClusterRole"):
            cluster.api.delete(cluster.api.path(each))


def test_it_works_with_its_own_token_and_rights_for_the_client_that_is_meant(
    installed: ControlPlane, tmp_path: Path
) -> None:
    own = installed.service_account_kubeconfig(PARTS, ACCOUNT)
    allowed = [each for each in arguments() if each.startswith("--client=")]
    assert allowed == ["--client=rescheduler"]
    with site(installed, tmp_path, {"rome": 1}, own=own, start=False) as here:
        here.start(CONFIG, *allowed)
        for name in ("rescheduler", "rome"):
            pki.issue(tmp_path, name)
        assert as_client(here, "rome").status_code == 403
        for file in ("client.crt", "client.key"):
            (tmp_path / file).write_bytes((tmp_path / file.replace("client", "rescheduler")).read_bytes())
        with here.provider() as provider:
            provider.increase_size(GROUP, 1, deadline=SystemClock().monotonic() + WAIT_SECONDS)

            def running() -> bool:
                found = provider.instances(GROUP, deadline=SystemClock().monotonic() + WAIT_SECONDS)
                return [one.state for one in found] == [InstanceState.RUNNING]

            here.eventually(running, "a virtual node")
            [name] = here.nodes()
        with client(here, "rescheduler") as old:
            down = old.get("/nodegroup/scaledown", params={"id": f"liqo://{name}", "nodegroupid": GROUP})
            assert (down.status_code, down.content) == (200, b"")
            here.eventually(lambda: not here.nodes(), "the virtual node to leave")
        assert not here.manager.told("orbidden")


def client(here: Site, name: str) -> httpx.Client:
    context = ssl.create_default_context(cafile=here.folder / "ca.pem")
    context.load_cert_chain(here.folder / f"{name}.pem")
    return httpx.Client(base_url=here.url, verify=context, timeout=60, trust_env=False)


def as_client(here: Site, name: str) -> httpx.Response:
    with client(here, name) as made:
        return made.get("/nodegroup/scaleup", params={"id": GROUP, "count": "1"})


RIGHTS = {
    ("list", "authentication.liqo.io", "resourceslices"): True,
    ("create", "authentication.liqo.io", "resourceslices"): True,
    ("delete", "authentication.liqo.io", "resourceslices"): True,
    ("patch", "authentication.liqo.io", "resourceslices"): False,
    ("create", "offloading.liqo.io", "virtualnodes"): False,
    ("delete", "offloading.liqo.io", "virtualnodes"): False,
    ("delete", "core.liqo.io", "foreignclusters"): False,
    ("patch", "", "nodes"): True,
    ("delete", "", "nodes"): False,
    ("list", "", "secrets"): False,
    ("get", "", "secrets"): False,
    ("delete", "", "pods"): False,
    ("create", "", "pods"): False,
    ("delete", "", "namespaces"): False,
}


def test_its_rights(installed: ControlPlane) -> None:
    """What is granted is told so: the question itself works."""
    found = {}
    for verb, group, resource in RIGHTS:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{PARTS}:{ACCOUNT}",
                "resourceAttributes": {"namespace": PARTS, "verb": verb, "group": group, "resource": resource},
            },
        }
        answer = installed.api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        found[verb, group, resource] = answer["status"]["allowed"]
    assert found == RIGHTS


def test_the_shipped_groups_are_those_of_a_node_manager_that_is_told_none() -> None:
    assert configuration(DEPLOY / "liqo" / "node-manager" / "groups.yaml") == Configuration()
    [mounted] = shipped("ConfigMap")["data"]
    assert f"--config=/etc/node-manager/groups/{mounted}" in arguments()


def test_one_process_is_probed_on_a_port_of_its_own_and_finds_discovery() -> None:
    found = shipped("Deployment")["spec"]
    [container] = found["template"]["spec"]["containers"]
    assert (found["replicas"], found["strategy"]) == (1, {"type": "Recreate"})
    assert {container[name]["httpGet"]["port"] for name in ("livenessProbe", "readinessProbe")} == {"http-metrics"}
    [port] = shipped("Service")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (9009, "https")
    assert found["template"]["spec"]["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    services = [each["metadata"]["name"] for each in kustomization("liqo") if each["kind"] == "Service"]
    assert "--discovery-url=https://discovery-server-svc:9010" in container["args"]
    assert "discovery-server-svc" in services
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert mounts == {"/etc/node-manager/tls", "/etc/node-manager/groups", "/var/lib/spot-rescheduler"}
