"""The node manager with the manifests of deploy/liqo: arguments, ServiceAccount and exact rights."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from devcluster.api import Json
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from rescheduler.liqo.node_manager.config import Configuration, configuration
from rescheduler.providers.base import InstanceState
from tests.cluster.rendering import DEPLOY, kustomization, only_of_kind
from tests.cluster.rights import is_allowed, user
from tests.cluster.virtual import CONFIG, WAIT_SECONDS, VirtualSite, site
from tests.providers import pki

PARTS, ACCOUNT = "liqo-autoscaling", "node-manager"
GROUP = "STANDARD"


def shipped(kind: str) -> Json:
    return only_of_kind([each for each in kustomization("liqo") if each["metadata"]["name"].startswith(ACCOUNT)], kind)


def arguments() -> list[str]:
    [container] = shipped("Deployment")["spec"]["template"]["spec"]["containers"]
    result: list[str] = container["args"]
    return result


@pytest.fixture
def installed(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The manifests without Deployments. The cleanup deletes the namespaces; this fixture deletes cluster roles."""
    objects = [each for each in kustomization("liqo") if each["kind"] != "Deployment"]
    cluster.apply(objects)
    yield cluster
    for each in objects:
        if each["kind"].startswith("ClusterRole"):
            cluster.api.delete(cluster.api.path(each))


def test_the_shipped_token_and_rights_are_sufficient_for_the_allowed_client(
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
                result = provider.instances(GROUP, deadline=SystemClock().monotonic() + WAIT_SECONDS)
                return [instance.state for instance in result] == [InstanceState.RUNNING]

            here.eventually(running, "a virtual node")
            [name] = here.nodes()
        with client(here, "rescheduler") as old:
            down = old.get("/nodegroup/scaledown", params={"id": f"liqo://{name}", "nodegroupid": GROUP})
            assert (down.status_code, down.content) == (200, b"")
            here.eventually(lambda: not here.nodes(), "the deletion of the virtual node")
        assert not here.manager.logged("orbidden")


def client(here: VirtualSite, name: str) -> httpx2.Client:
    context = ssl.create_default_context(cafile=here.folder / "ca.pem")
    context.load_cert_chain(here.folder / f"{name}.pem")
    return httpx2.Client(base_url=here.url, verify=context, timeout=60, trust_env=False)


def as_client(here: VirtualSite, name: str) -> httpx2.Response:
    with client(here, name) as http:
        return http.get("/nodegroup/scaleup", params={"id": GROUP, "count": "1"})


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


def test_the_node_manager_has_exactly_the_documented_rights(installed: ControlPlane) -> None:
    """Granted rights are included to prove that the reviews work."""
    result = {}
    for verb, group, resource in RIGHTS:
        attributes = {"namespace": PARTS, "verb": verb, "group": group, "resource": resource}
        result[verb, group, resource] = is_allowed(installed.api, user(PARTS, ACCOUNT), attributes)
    assert result == RIGHTS


def test_the_shipped_groups_are_the_defaults() -> None:
    assert configuration(DEPLOY / "liqo" / "node-manager" / "groups.yaml") == Configuration()
    [mounted] = shipped("ConfigMap")["data"]
    assert f"--config=/etc/node-manager/groups/{mounted}" in arguments()


def test_the_deployment_has_one_replica_a_probe_port_and_the_discovery_url() -> None:
    result = shipped("Deployment")["spec"]
    [container] = result["template"]["spec"]["containers"]
    assert (result["replicas"], result["strategy"]) == (1, {"type": "Recreate"})
    assert {container[name]["httpGet"]["port"] for name in ("livenessProbe", "readinessProbe")} == {"http-metrics"}
    [port] = shipped("Service")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (9009, "https")
    assert result["template"]["spec"]["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    services = [each["metadata"]["name"] for each in kustomization("liqo") if each["kind"] == "Service"]
    assert "--discovery-url=https://discovery-server-svc:9010" in container["args"]
    assert "discovery-server-svc" in services
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert mounts == {"/etc/node-manager/tls", "/etc/node-manager/groups", "/var/lib/spot-rescheduler"}
