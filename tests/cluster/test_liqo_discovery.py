"""Discovery with the manifests of deploy/liqo: arguments, certificate names, ServiceAccount and rights."""

import base64
import contextlib
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from devcluster.api import Json
from devcluster.plane import ControlPlane
from tests.acceptance.program import LoggedProgram
from tests.cluster.rendering import kustomization, only_of_kind
from tests.cluster.rights import is_allowed, user
from tests.liqo_services.kubeconfigs import kubeconfig
from tests.providers import pki

PARTS, CLUSTERS = "liqo-autoscaling", "liqo-clusters"
ACCOUNT = "discovery-server"
SECRETS = f"/api/v1/namespaces/{CLUSTERS}/secrets"
WAIT_SECONDS = 120.0


def shipped(kind: str) -> Json:
    return only_of_kind([each for each in kustomization("liqo") if each["metadata"]["name"].startswith(ACCOUNT)], kind)


@pytest.fixture
def installed(cluster: ControlPlane) -> ControlPlane:
    """The manifests without Deployments; the cleanup deletes the namespaces, which contain all objects."""
    cluster.apply([each for each in kustomization("liqo") if each["kind"] != "Deployment"])
    return cluster


class InstalledDiscovery:
    """The program with the Deployment's arguments, and clients with certificates."""

    def __init__(self, folder: Path, url: str, stack: contextlib.ExitStack) -> None:
        self._folder, self._url, self._stack = folder, url, stack

    def client(self, name: str) -> httpx2.Client:
        pki.issue(self._folder, name)
        context = ssl.create_default_context(cafile=self._folder / "ca.pem")
        context.load_cert_chain(self._folder / f"{name}.pem")
        return self._stack.enter_context(httpx2.Client(base_url=self._url, verify=context, timeout=60, trust_env=False))


def arguments(folder: Path, own: Path) -> list[str]:
    """Return the Deployment's arguments with local paths and ports."""
    [container] = shipped("Deployment")["spec"]["template"]["spec"]["containers"]
    mounts = {"/etc/discovery-server/tls": str(folder), "/var/lib/spot-rescheduler": str(folder)}
    assert mounts.keys() == {each["mountPath"] for each in container["volumeMounts"]}
    places = mounts | {"--listen=:9010": "--listen=127.0.0.1:0", "0.0.0.0:9235": "127.0.0.1:0"}
    result = list(container["args"])
    for there, here in places.items():
        result = [each.replace(there, here) for each in result]
    return [*result, f"--kubeconfig={own}"]


@pytest.fixture
def running(installed: ControlPlane, tmp_path: Path) -> Iterator[InstalledDiscovery]:
    pki.make(tmp_path)
    for file, key in {"server.crt": "tls.crt", "server.key": "tls.key", "ca.pem": "ca.crt"}.items():
        (tmp_path / key).write_bytes((tmp_path / file).read_bytes())
    own = installed.service_account_kubeconfig(PARTS, ACCOUNT)
    message = "serving the list of clusters on "
    with contextlib.ExitStack() as stack:
        program = stack.enter_context(LoggedProgram(tmp_path / "log", *arguments(tmp_path, own)))
        installed.wait_for(lambda: program.logged(message) or not program.running, message, seconds=WAIT_SECONDS)
        assert program.running, program.lines
        where = str(program.logged(message)[0]["message"]).removeprefix(message).partition(",")[0]
        yield InstalledDiscovery(tmp_path, f"https://{where}", stack)
        assert not program.logged("orbidden")


def secret(name: str, **labels: str) -> Json:
    info = {"resources": {"cpu": "8", "memory": "16Gi"}, "labels": {"hasGPU": "false"}, "hasNat": False}
    data = {"kubeconfig": kubeconfig(), "info": json.dumps(info)}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    metadata = {"name": name, "namespace": CLUSTERS, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}


def test_secrets_are_watched_and_agents_may_only_update_their_own_cluster(
    running: InstalledDiscovery, installed: ControlPlane
) -> None:
    manager, agent = running.client("node-manager-svc"), running.client("turin")

    def becomes(*names: str) -> list[Any]:
        def listed() -> bool:
            return [each["name"] for each in manager.get("/list").json()] == list(names)

        installed.wait_for(listed, f"the list of {names}", seconds=WAIT_SECONDS)
        result: list[Any] = manager.get("/list").json()
        return result

    becomes()
    installed.apply([secret("turin", autoscaling="true"), secret("milan", autoscaling="true"), secret("other")])
    _, turin = becomes("milan", "turin")
    assert (turin["kubeconfig"], turin["resources"]) == (kubeconfig(), {"cpu": "8", "memory": "16Gi"})
    assert agent.post("/update", json={"clusters": [{"name": "turin", "price": 0.5}]}).is_success
    assert [each["price"] for each in becomes("milan", "turin")] == [None, 0.5]
    assert agent.post("/update", json={"clusters": [{"name": "milan", "price": 0}]}).status_code == 403
    assert agent.get("/list").status_code == 403
    assert running.client("operator").post("/update", json={"clusters": [{"name": "rome"}]}).is_success
    becomes("milan", "rome", "turin")
    installed.api.patch(f"{SECRETS}/milan", {"metadata": {"labels": {"autoscaling": "false"}}})
    becomes("rome", "turin")
    installed.api.delete(f"{SECRETS}/turin")
    known = [("rome", ""), ("turin", "")]  # only from their agents
    installed.wait_for(
        lambda: [(each["name"], each["kubeconfig"]) for each in manager.get("/list").json()] == known,
        "the removal of the Secret's data",
        seconds=WAIT_SECONDS,
    )
    assert agent.post("/update", json={"deleted": ["turin"]}).json() == {"updated": 0, "deleted": 1}
    becomes("rome")


def test_the_api_server_accepts_every_manifest(cluster: ControlPlane) -> None:
    applied = cluster.apply(kustomization("liqo"))
    assert {each["kind"] for each in applied} >= {"Namespace", "Deployment", "Service", "Role", "RoleBinding"}


def test_the_deployment_has_one_replica_and_a_separate_probe_port() -> None:
    """The other port requires client certificates, which kubelets do not have."""
    result = shipped("Deployment")["spec"]
    [container] = result["template"]["spec"]["containers"]
    assert (result["replicas"], result["strategy"]) == (1, {"type": "Recreate"})
    probes = {container[name]["httpGet"]["port"] for name in ("livenessProbe", "readinessProbe")}
    assert probes == {"http-metrics"}
    [port] = shipped("Service")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (9010, "https")
    assert result["template"]["spec"]["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]


RIGHTS = {
    ("list", "secrets", CLUSTERS): True,
    ("watch", "secrets", CLUSTERS): True,
    ("update", "secrets", CLUSTERS): False,
    ("delete", "secrets", CLUSTERS): False,
    ("list", "secrets", PARTS): False,
    ("list", "secrets", "kube-system"): False,
    ("list", "secrets", ""): False,
    ("list", "pods", CLUSTERS): False,
    ("list", "nodes", ""): False,
}


def test_discovery_may_only_read_secrets_of_one_namespace(installed: ControlPlane) -> None:
    def allowed(verb: str, resource: str, namespace: str) -> bool:
        attributes = {"verb": verb, "resource": resource, "namespace": namespace, "version": "v1"}
        return is_allowed(installed.api, user(PARTS, ACCOUNT), attributes)

    # RBAC changes take effect with a delay.
    installed.wait_for(lambda: allowed("list", "secrets", CLUSTERS), "the Role to take effect", seconds=WAIT_SECONDS)
    assert {right: allowed(*right) for right in RIGHTS} == RIGHTS
