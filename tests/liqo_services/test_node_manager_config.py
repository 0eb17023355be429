"""The node manager's configuration file and flags: parsed values, and one-line errors."""

import datetime as dt
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rescheduler.errors import ConfigError
from rescheduler.liqo.node_manager.config import Configuration, configuration
from rescheduler.liqo.node_manager.due_actions import MachineTimeouts
from rescheduler.liqo.node_manager.groups import DEFAULT_GROUPS, GPU, VirtualNodeGroup
from rescheduler.providers.base import NodeTaint
from tests.kube.conftest import kubeconfig
from tests.kube.edge import Reply, serving
from tests.liqo_services.builders import cluster, ended

SMALL = """
  - id: small
    minSize: 1
    maxSize: 5
    selector: {country: IT, hasGPU: "false"}
    resources: {min: {cpu: 500m, memory: 1Gi, pods: 20}, max: {memory: 2Gi}, added: {ephemeral-storage: 5Gi}}
    class: gold
    labels: {team: a}
    taints: [{key: k, value: v, effect: NoSchedule}]
    cost: 0.25
"""
FULL = f"""
groups:{SMALL}
provisionTimeout: 5m
showFailuresFor: 0s
unpeerAfter: 1h
"""


def test_all_keys_are_read(tmp_path: Path) -> None:
    file = tmp_path / "groups.yaml"
    file.write_text(FULL)
    small = VirtualNodeGroup(
        "small",
        1,
        5,
        {"cpu": "500m", "memory": "1Gi", "pods": "20"},
        {"memory": "2Gi"},
        {"country": "IT", "hasGPU": "false"},
        {"team": "a"},
        (NodeTaint("k", "v", "NoSchedule"),),
        0.25,
        {"ephemeral-storage": "5Gi"},
        "gold",
    )
    patience = MachineTimeouts(provision=dt.timedelta(minutes=5), shown=dt.timedelta(0))
    assert configuration(file) == Configuration((small,), patience, dt.timedelta(hours=1))


def test_a_label_that_liqo_sets_since_1_3_can_be_in_templates(tmp_path: Path) -> None:
    file = tmp_path / "groups.yaml"
    file.write_text(FULL.replace("team: a", "type: virtual-kubelet"))
    [small] = configuration(file).groups
    assert small.template_labels["type"] == small.node_labels["type"] == "virtual-kubelet"


def test_without_a_file_the_groups_are_those_of_the_original(tmp_path: Path) -> None:
    assert configuration(None).groups == DEFAULT_GROUPS
    assert [(default.id, default.selector, default.cost) for default in DEFAULT_GROUPS] == [
        ("STANDARD", {"hasGPU": "false"}, 1.0),
        ("GPU", {"hasGPU": "true"}, 25.0),
    ]
    (tmp_path / "f.yaml").write_text("provisionTimeout: 1m")
    assert configuration(tmp_path / "f.yaml").groups == DEFAULT_GROUPS


def test_a_group_requests_up_to_its_maximum() -> None:
    gpu = DEFAULT_GROUPS[1]
    shared = cluster("x", 50).shared
    assert gpu.resources_to_request({**shared, GPU: shared["cpu"]}) == {
        "cpu": "3500m",
        "memory": "8Gi",
        "pods": "110",
        GPU: "4",
    }


WRONG = {
    "no group": ("groups: []", "groups: expected at least one"),
    "no id": ("groups: [{maxSize: 1, resources: {min: {}}}]", "missing required field `id` - at `$.groups[0]`"),
    "unknown key": ("group: []", "unknown field `group`"),
    "a key twice": ("groups: []\ngroups: []", "the key 'groups' occurs twice"),
    "not YAML": ("groups: [", "groups.yaml: while parsing"),
    "an invalid label value": (FULL.replace("small", "not a label"), "groups[0].id: expected at most 63 of"),
    "twice": (f"groups:\n{2 * SMALL}", "groups[1].id: 'small' occurs twice"),
    "max below min": (FULL.replace("maxSize: 5", "maxSize: 0"), "groups[0].maxSize: expected minSize or more"),
    "negative size": (FULL.replace("minSize: 1", "minSize: -1"), "Expected `int` >= 0 - at `$.groups[0].minSize`"),
    "an invalid quantity": (
        FULL.replace("500m", "half"),
        "groups[0].resources.min.cpu: quantity 'half': expected a number",
    ),
    "an invalid resource name": (
        FULL.replace("cpu: 500m", "cpu: 500m, a b: 1"),
        "groups[0].resources.min: 'a b': expected the name",
    ),
    "an infinite price": (FULL.replace("cost: 0.25", "cost: .inf"), "Expected `float` <= 1000000000.0"),
    "an invalid taint": (FULL.replace("key: k", "key: k k"), "groups[0].taints: expected Kubernetes taints"),
    "an invalid class": (FULL.replace("class: gold", "class: a b"), "groups[0].class: expected at most 63 of"),
    "an invalid added amount": (
        FULL.replace("5Gi", "much"),
        "groups[0].resources.added.ephemeral-storage: quantity 'much': expected a number",
    ),
    "an amount of zero": (FULL.replace("500m", "0"), "groups[0].resources.min.cpu: expected more than 0"),
    "max amount below min": (FULL.replace("2Gi", "1Mi"), "groups[0].resources.max.memory: expected min.memory or more"),
    "a max without a min": (FULL.replace("{memory: 2Gi}", "{gpu: 1}"), "groups[0].resources.max.gpu: expected min"),
    "an invalid label": (FULL.replace("team: a", "team: a b"), "groups[0].labels: expected Kubernetes labels"),
    "a label of Liqo": (FULL.replace("team", "liqo.io/type"), "groups[0].labels: liqo.io/type: expected labels that"),
    "a taint's effect": (FULL.replace("NoSchedule", "Never"), "Invalid enum value 'Never'"),
    "a duration": (FULL.replace("5m", "300"), 'expected a duration such as "90s"'),
    "zero duration": (FULL.replace("5m", "0s"), "provisionTimeout: expected more than 0s"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_configuration_errors_are_one_line(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "groups.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as failure:
        configuration(file)
    line = str(failure.value)
    assert line.startswith(f"configuration {file}: ")
    assert message in line
    assert "\n" not in line


PLAIN = ("--insecure-plaintext", "--listen=127.0.0.1:0", "--discovery-url=http://127.0.0.1:1", "--database=:memory:")


def run(folder: Path, *flags: str) -> tuple[int, str]:
    """Run the command, which is expected to fail."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("RESCHEDULER_", "KUBE"))}
    done = subprocess.run(
        [sys.executable, "-m", "rescheduler", "liqo", "node-manager", "--health-address=127.0.0.1:0", *flags],
        cwd=folder,
        env={**environment, "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    [line] = done.stderr.splitlines()
    return done.returncode, line


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "--tls-cert, --tls-key and --tls-client-ca: expected all three, for mutual TLS, or --insecure-plaintext"),
        ((*PLAIN, "--client=me"), "--client: expected with mutual TLS"),
        ((*PLAIN, "--config=nothing.yaml"), "configuration nothing.yaml: cannot be read: No such file or directory"),
        ((*PLAIN, "--discovery-url=http://10.0.0.1"), "--discovery-url: expected https, or http to a loopback address"),
        ((*PLAIN, "--discovery-url=here"), "--discovery-url: discovery.url: expected http(s)://host"),
        ((*PLAIN, "--discovery-ca=nothing.pem"), "nothing.pem: cannot be read: No such file or directory"),
        (PLAIN, "kubeconfig ~/.kube/config: no such file"),
        (
            (*PLAIN, "--kubeconfig=k", "--database=/nowhere/db"),
            "--database /nowhere/db: cannot be written: No such file or directory",
        ),
        ((*PLAIN, "--kubeconfig=k", "--liqoctl=nothing"), "--liqoctl nothing: expected a program that can be run"),
        ((*PLAIN, "--kubeconfig=k", "--config=unpeer.yaml"), "unpeerAfter: expected together with --liqoctl"),
    ],
)
def test_usage_errors_are_one_line_with_exit_code_2(
    flags: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    kubeconfig(tmp_path, "http://127.0.0.1:1").rename(tmp_path / "k")
    (tmp_path / "unpeer.yaml").write_text("unpeerAfter: 1h")
    code, errors = ended(tmp_path, monkeypatch, capfd, "node-manager", "--health-address=127.0.0.1:0", *flags)
    [line] = errors.splitlines()
    assert (code, message in line) == (2, True), line
    assert "caFile" not in line


def test_startup_fails_without_liqo(tmp_path: Path) -> None:
    with serving() as edge:
        edge.on(
            "GET",
            "/apis/authentication.liqo.io/v1beta1/resourceslices",
            Reply({"kind": "Status", "message": "the server could not find the requested resource"}, 404),
        )
        code, line = run(tmp_path, *PLAIN, f"--kubeconfig={kubeconfig(tmp_path, edge.url)}")
    assert code == 1
    assert line == (
        "rescheduler: list resourceslices: the server could not find the requested resource (404): "
        "expected Liqo 1.0 or later in the cluster"
    )
