"""Discovery as deploy/liqo ships it: its arguments, its certificates' names, its ServiceAccount and its rights."""

import base64
import contextlib
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.local.api import Json
from deploy.local.plane import ControlPlane
from tests.acceptance.program import Program
from tests.backends import pki
from tests.cluster.rendering import kustomization, one
from tests.liqo.kubeconfigs import kubeconfig

PARTS, CLUSTERS = "liqo-autoscaling", "liqo-clusters"
ACCOUNT = "discovery-server"
SECRETS = f"/api/v1/namespaces/{CLUSTERS}/secrets"
WAIT_SECONDS = 120.0


def shipped(kind: str) -> Json:
    return one([each for each in kustomization("liqo") if each["metadata"]["name"].startswith(ACCOUNT)], kind)


@pytest.fixture
def installed(cluster: ControlPlane) -> ControlPlane:
    """Namespaces go after the test, and all in them; there is nothing of discovery outside of them."""
    cluster.apply([each for each in kustomization("liqo") if each["kind"] != "Deployment"])
    return cluster


class Installed:
    """The program with the Deployment's arguments, and its clients by the common names of their certificates."""

    def __init__(self, folder: Path, url: str, stack: contextlib.ExitStack) -> None:
        self._folder, self._url, self._stack = folder, url, stack

    def client(self, name: str) -> httpx.Client:
        pki.issue(self._folder, name)
        context = ssl.create_default_context(cafile=self._folder / "ca.pem")
        context.load_cert_chain(self._folder / f"{name}.pem")
        return self._stack.enter_context(httpx.Client(base_url=self._url, verify=context, timeout=60, trust_env=False))


def arguments(folder: Path, own: Path) -> list[str]:
    """The Deployment's, on this machine's paths and ports."""
    [container] = shipped("Deployment")["spec"]["template"]["spec"]["containers"]
    mounts = {"/etc/discovery-server/tls": str(folder), "/var/lib/spot-rescheduler": str(folder)}
    assert mounts.keys() == {each["mountPath"] for each in container["volumeMounts"]}
    places = mounts | {"--listen=:9010": "--listen=127.0.0.1:0", "0.0.0.0:9235": "127.0.0.1:0"}
    found = list(container["args"])
    for there, here in places.items():
        found = [each.replace(there, here) for each in found]
    return [*found, f"--kubeconfig={own}"]


@pytest.fixture
def running(installed: ControlPlane, tmp_path: Path) -> Iterator[Installed]:
    pki.make(tmp_path)
    for file, key in {"server.crt": "tls.crt", "server.key": "tls.key", "ca.pem": "ca.crt"}.items():
        (tmp_path / key).write_bytes((tmp_path / file).read_bytes())
    own = installed.service_account_kubeconfig(PARTS, ACCOUNT)
    words = "serving the list of clusters on "
    with contextlib.ExitStack() as stack:
        program = stack.enter_context(Program(tmp_path / "log", *arguments(tmp_path, own)))
        installed.wait_for(lambda: program.told(words) or not program.running, words, seconds=WAIT_SECONDS)
        assert program.running, program.lines
        where = str(program.told(words)[0]["message"]).removeprefix(words).partition(",")[0]
        yield Installed(tmp_path, f"https://{where}", stack)
        assert not program.told("orbidden")


def secret(name: str, **labels: str) -> Json:
    info = {"resources": {"cpu": "8", "memory": "16Gi"}, "labels": {"hasGPU": "false"}, "hasNat": False}
    data = {"kubeconfig": kubeconfig(), "info": json.dumps(info)}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    metadata = {"name": name, "namespace": CLUSTERS, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}


def test_secrets_are_followed_with_its_own_token_and_agents_speak_of_their_own_cluster(
    running: Installed, installed: ControlPlane
) -> None:
    manager, agent = running.client("node-manager-svc"), running.client("turin")

    def becomes(*names: str) -> list[Any]:
        def listed() -> bool:
            return [each["name"] for each in manager.get("/list").json()] == list(names)

        installed.wait_for(listed, f"the list of {names}", seconds=WAIT_SECONDS)
        found: list[Any] = manager.get("/list").json()
        return found

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
    known = [("rome", ""), ("turin", "")]  # by their agents alone
    installed.wait_for(
        lambda: [(each["name"], each["kubeconfig"]) for each in manager.get("/list").json()] == known,
        "the Secret's word to go",
        seconds=WAIT_SECONDS,
    )
    assert agent.post("/update", json={"deleted": ["turin"]}).json() == {"updated": 0, "deleted": 1}
    becomes("rome")


def test_the_api_server_takes_every_manifest(cluster: ControlPlane) -> None:
    made = cluster.apply(kustomization("liqo"))
    assert {each["kind"] for each in made} >= {"Namespace", "Deployment", "Service", "Role", "RoleBinding"}


def test_one_process_writes_the_database_and_is_probed_on_a_port_of_its_own() -> None:
    """Clients of the other port show a certificate, which a kubelet has not."""
    found = shipped("Deployment")["spec"]
    [container] = found["template"]["spec"]["containers"]
    assert (found["replicas"], found["strategy"]) == (1, {"type": "Recreate"})
    probes = {container[name]["httpGet"]["port"] for name in ("livenessProbe", "readinessProbe")}
    assert probes == {"http-metrics"}
    [port] = shipped("Service")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (9010, "https")
    assert found["template"]["spec"]["securityContext"]["runAsNonRoot"]
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


def test_it_may_read_secrets_of_one_namespace_and_nothing_else(installed: ControlPlane) -> None:
    def allowed(verb: str, resource: str, namespace: str) -> bool:
        asked = {"verb": verb, "resource": resource, "namespace": namespace, "version": "v1"}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": f"system:serviceaccount:{PARTS}:{ACCOUNT}", "resourceAttributes": asked},
        }
        answer = installed.api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    # RBAC is read by the API server a moment after it is written.
    installed.wait_for(lambda: allowed("list", "secrets", CLUSTERS), "the Role to count", seconds=WAIT_SECONDS)
    assert {what: allowed(*what) for what in RIGHTS} == RIGHTS
