"""Execution of the commands and files in docs/liqo.md, with changed ports and a simulated Liqo."""

import json
import re
import shlex
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from devcluster import manifests
from devcluster.liqo.controller import LiqoPolicy
from devcluster.liqo.playing import playing
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from rescheduler.providers import load
from rescheduler.providers.base import CloudProvider, Deleted, InstanceState, NodeRef
from tests.acceptance.program import LoggedProgram
from tests.cluster.rendering import DEPLOY, kustomization

PAGE = (Path(__file__).parents[2] / "docs" / "liqo.md").read_text(encoding="utf-8")
WAIT_SECONDS = 120.0
CLOCK = SystemClock()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def file(name: str) -> str:
    [match] = [each for each in blocks("yaml") if each.startswith(f"# {name}\n")]
    return str(match)


def command(begins: str) -> list[str]:
    [match] = [each for each in blocks("bash") if each.startswith(begins)]
    return shlex.split(match.replace("\\\n", " "))


def within() -> float:
    return CLOCK.monotonic() + WAIT_SECONDS


class Here:
    """The services of the page on this machine."""

    def __init__(self, plane: ControlPlane, folder: Path, stack: ExitStack) -> None:
        self.plane, self.folder, self._stack = plane, folder, stack

    def start(self, part: str, message: str, *, instead: dict[str, str]) -> str:
        """Run the page's command of *part* with replaced arguments, and return the logged address."""
        arguments = [self._placed(each, instead) for each in command(f"rescheduler liqo {part}")[1:]]
        program = LoggedProgram(self.folder / f"{part}.log", *arguments, f"--kubeconfig={self.plane.kubeconfig}")
        self._stack.enter_context(program)
        self.plane.wait_for(lambda: program.logged(message) or not program.running, message, seconds=WAIT_SECONDS)
        assert program.running, (self.folder / f"{part}.log").read_text()
        return str(program.logged(message)[0]["message"]).partition(message)[2].partition(",")[0]

    def _placed(self, argument: str, instead: dict[str, str]) -> str:
        flag, equals, value = argument.partition("=")
        if (self.folder / value).is_file() or value.endswith(".db"):
            value = str(self.folder / value)
        return instead.get(argument, flag + equals + value)

    def provider(self, url: str) -> CloudProvider:
        text = file("liqo.yaml").replace("https://127.0.0.1:9009", f"https://{url}")
        (self.folder / "liqo.yaml").write_text(text)
        name = dict(each.split("=") for each in command("rescheduler run")[2:])["--cloud-provider"]
        provider = load(name, self.folder / "liqo.yaml", CLOCK)
        self._stack.callback(provider.close)
        return provider

    def update(self, url: str) -> Any:
        """Send the request of the agent's curl command and return the response."""
        arguments = command("curl")
        given = {each: arguments[arguments.index(each) + 1] for each in ("--cacert", "--cert", "--key", "--json")}
        context = ssl.create_default_context(cafile=self.folder / given["--cacert"])
        context.load_cert_chain(self.folder / given["--cert"], self.folder / given["--key"])
        with httpx2.Client(verify=context, trust_env=False, timeout=60) as agent:
            return agent.post(f"https://{url}/update", json=json.loads(given["--json"])).json()


@contextmanager
def prepared(plane: ControlPlane, folder: Path) -> Iterator[Here]:
    """Create the certificates, the Secret and the files, and a Liqo peering with the cluster."""
    bash = shutil.which("bash")
    assert bash is not None
    script = next(each for each in blocks("bash") if each.startswith("openssl"))
    subprocess.run([bash, "-euc", script], cwd=folder, check=True, capture_output=True)
    (folder / "groups.yaml").write_text(file("groups.yaml"))
    secret = yaml.safe_load(file("secret.yaml"))
    plane.apply([manifests.namespace(secret["metadata"]["namespace"]), secret])

    def wait(match: Any, description: str) -> Any:
        return plane.wait_for(match, description, seconds=WAIT_SECONDS)

    with playing(plane.api, wait, [secret["metadata"]["name"]], LiqoPolicy()), ExitStack() as stack:
        yield Here(plane, folder, stack)


def test_the_page_gives_the_node_manager_liqoctl_and_its_rights(tmp_path: Path) -> None:
    (tmp_path / "deploy").symlink_to(DEPLOY)
    folder = tmp_path / "ours"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(file("kustomization.yaml").replace("deploy/", "../deploy/"))
    objects = {(each["kind"], each["metadata"]["name"]): each for each in kustomization(folder)}
    [container] = objects["Deployment", "node-manager"]["spec"]["template"]["spec"]["containers"]
    added = ["--liqoctl=/usr/local/bin/liqoctl", "--liqoctl-argument=--networking-disabled"]
    assert container["args"][-2:] == added
    assert container["image"] == "registry.example.com/spot-rescheduler-liqoctl:0.1.0"
    granted = [objects[kind, "node-manager-liqoctl"]["rules"] for kind in ("Role", "ClusterRole")]
    for rule in [*granted[0], *granted[1]]:
        row = f"| {', '.join(rule['verbs'])} |"
        assert [line for line in PAGE.splitlines() if row in line and f"`{rule['resources'][0]}`" in line], rule


def test_the_commands_of_the_page_work(cluster: ControlPlane, tmp_path: Path) -> None:
    any_port = {f"--health-address=127.0.0.1:{port}": "--health-address=127.0.0.1:0" for port in (9236, 9237)}
    with prepared(cluster, tmp_path) as here:
        listen = {"--listen=127.0.0.1:9010": "--listen=127.0.0.1:0"}
        discovery = here.start("discovery", "serving the list of clusters on ", instead=any_port | listen)
        listen = {"--listen=127.0.0.1:9009": "--listen=127.0.0.1:0"}
        match = {"--discovery-url=https://127.0.0.1:9010": f"--discovery-url=https://{discovery}"}
        manager = here.start("node-manager", "serving STANDARD, GPU on ", instead=any_port | listen | match)
        assert here.update(discovery) == {"updated": 1, "deleted": 0}
        provider = here.provider(manager)

        def running() -> list[str]:
            instances = provider.instances("STANDARD", deadline=within())
            return [instance.id for instance in instances if instance.state is InstanceState.RUNNING]

        provider.increase_size("STANDARD", 1, deadline=within())
        cluster.wait_for(running, "a virtual node", seconds=WAIT_SECONDS)
        [node] = cluster.api.items("/api/v1/nodes", labelSelector="node-role.kubernetes.io/worker=true")
        assert [node["spec"]["providerID"]] == running()
        # The cluster's free amounts, up to the group's maximum, and the resources that the cluster adds.
        wanted = {"cpu": "2", "memory": "3Gi", "pods": "110", "ephemeral-storage": "20Gi"}
        assert node["status"]["allocatable"] == wanted
        name, labels = node["metadata"]["name"], node["metadata"]["labels"]
        gone = provider.delete_nodes("STANDARD", [NodeRef(name, node["spec"]["providerID"], labels)], deadline=within())
        assert gone == {name: Deleted("no longer there")}
        with pytest.raises(Exception, match="no cluster for 1 of 1: turin: its label hasGPU is 'false'"):
            provider.increase_size("GPU", 1, deadline=within())
