"""``rescheduler install``: the manifests of deploy/base, with the labels, the namespace and the flags of the user.

tests/cluster/test_manifests.py applies them to a control plane.
"""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from rescheduler import cli
from rescheduler.cli import install
from rescheduler.cli.install import MANIFESTS, RIGHTS
from rescheduler.planning.node_labels import PRESETS

SHIPPED: list[dict[str, Any]] = list(yaml.safe_load_all(MANIFESTS.read_text(encoding="utf-8")))
OF_PROVIDERS: dict[str, list[dict[str, Any]]] = {
    name: list(yaml.safe_load_all(file.read_text(encoding="utf-8"))) for name, file in RIGHTS.items()
}
#: The cloud providers that presets select.
SELECTED = {"eks": "aws", "karpenter": "karpenter", "clusterapi": "clusterapi", "openshift": "clusterapi"}


#: What is said on standard error, because the manifests go to kubectl.
HINTS = ("is in no registry", "a role with the policy in docs/aws.md")


def printed(capsys: pytest.CaptureFixture[str], *flags: str) -> list[dict[str, Any]]:
    with pytest.raises(SystemExit) as exited:
        cli.main(["install", *flags])
    out, err = capsys.readouterr()
    assert exited.value.code == 0
    assert [line for line in err.splitlines() if not any(hint in line for hint in HINTS)] == []
    return list(yaml.safe_load_all(out))


def container(objects: list[dict[str, Any]]) -> Any:
    [workload] = [item for item in objects if item["kind"] == "Deployment"]
    return workload["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_changes_only_the_arguments_of_the_daemon(preset: str, capsys: pytest.CaptureFixture[str]) -> None:
    objects = printed(capsys, f"--preset={preset}")
    ends = [f"--cloud-provider={SELECTED[preset]}"] if preset in SELECTED else []
    ours, base = container(objects), container(SHIPPED)
    kept = [arg for arg in base["args"] if "node-label" not in arg]
    labels = [f"--on-demand-node-label={PRESETS[preset][0]}", f"--spot-node-label={PRESETS[preset][1]}"]
    assert ours["args"] == [*kept, *labels, "--dry-run", *ends]
    ours["args"] = base["args"]
    shipped = copy.deepcopy(SHIPPED)
    if preset == "openshift":  # the SCC restricted-v2 refuses a fixed user
        context = next(each for each in shipped if each["kind"] == "Deployment")["spec"]["template"]["spec"][
            "securityContext"
        ]
        assert (context.pop("runAsUser"), context.pop("runAsGroup")) == (65532, 65532)
        assert context["runAsNonRoot"]
    assert objects == [*shipped, *(OF_PROVIDERS[SELECTED[preset]] if ends else ())]
    assert objects[0]["kind"] == "Namespace"


@pytest.mark.parametrize(
    ("flags", "ours"),
    [
        (("--preset=karpenter",), True),
        (("--preset=karpenter", "--", "--cloud-provider=none"), False),
        (("--preset=karpenter", "--", "--cloud-provider", "liqo", "--cloud-config=/c.yaml"), False),
        (("--preset=gke",), False),
        (("--preset=eks", "--", "--cloud-provider", "karpenter"), True),
        (("--preset=karpenter", "-n", "ops", "--", "--cloud-provider=karpenter"), True),
    ],
)
def test_node_claims_may_be_deleted_only_with_the_provider_for_them(
    flags: tuple[str, ...], ours: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = printed(capsys, *flags)
    rules = [rule for item in objects if item["kind"] == "ClusterRole" for rule in item["rules"]]
    verbs = {verb for rule in rules if "nodeclaims" in rule["resources"] for verb in rule["verbs"]}
    assert verbs == ({"list", "delete"} if ours else set())
    args = [arg for arg in container(objects)["args"] if "cloud-provider" in arg]
    assert len(args) == (1 if "--cloud-provider" in " ".join(flags) or ours else 0)
    policies = [item for item in objects if item["kind"] == "ValidatingAdmissionPolicy"]
    named = [each for each in policies if each["metadata"]["name"] == "spot-rescheduler-karpenter"]
    assert len(named) == ours


@pytest.mark.parametrize(
    ("flags", "ours"),
    [
        (("--preset=clusterapi",), True),
        (("--preset=openshift", "-n", "ops"), True),
        (("--preset=openshift", "--", "--cloud-provider=none"), False),
        (("--preset=eks", "--", "--cloud-provider=clusterapi"), True),
        (("--preset=karpenter",), False),
    ],
)
def test_machines_may_be_changed_only_with_the_provider_for_them(
    flags: tuple[str, ...], ours: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = printed(capsys, *flags)
    rules = [rule for item in objects if item["kind"] == "ClusterRole" for rule in item["rules"]]
    verbs = {(resource, *rule["verbs"]) for rule in rules for resource in rule["resources"] if "machine" in resource}
    patched = {(resource, "list", "patch") for resource in ("machinedeployments", "machinesets", "machines")}
    assert verbs == (patched if ours else set())
    names = [item["metadata"]["name"] for item in objects if item["kind"] == "ValidatingAdmissionPolicy"]
    assert ("spot-rescheduler-clusterapi" in names) == ours


def test_the_provider_for_aws_comes_with_the_rights_of_a_provider(capsys: pytest.CaptureFixture[str]) -> None:
    """IAM has the others."""
    for flags, ours in (
        (("--preset=eks", "-n", "ops"), True),
        (("--preset=gke", "-n", "ops", "--", "--cloud-provider=aws"), True),
        (("--preset=eks", "-n", "ops", "--", "--cloud-provider=none"), False),
        (("--preset=eks", "-n", "ops", "--", "--cloud-provider=liqo", "--cloud-config=/c.yaml"), False),
    ):
        objects = printed(capsys, *flags)
        rules = [rule for item in objects if item["kind"] == "ClusterRole" for rule in item["rules"]]
        assert any("nodes" in rule["resources"] and "delete" in rule["verbs"] for rule in rules) == ours
        metas = [item["metadata"] for item in objects if item["kind"] == "Lease"]
        assert (("spot-rescheduler-pool", "ops") in [(meta["name"], meta["namespace"]) for meta in metas]) == ours
        assert ("--cloud-provider=aws" in container(objects)["args"]) == ours


def test_a_daemon_drains_only_if_told(capsys: pytest.CaptureFixture[str]) -> None:
    for flags, dry in (((), True), (("--dry-run",), True), (("--dry-run=false",), False)):
        assert ("--dry-run" in container(printed(capsys, "--preset=eks", *flags))["args"]) == dry


@pytest.mark.parametrize(
    ("flags", "kinds"),
    [
        ((), {"Namespace", "ResourceQuota"}),
        (("--create-namespace=false",), set[str]()),
        (("--create-namespace", "-n", "kube-system"), set[str]()),
    ],
)
def test_all_objects_are_in_the_namespace(
    flags: tuple[str, ...], kinds: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    objects = printed(capsys, "--preset=gke", "--namespace=ops", *flags)
    name = flags[-1] if "-n" in flags else "ops"
    assert "namespace: spot-rescheduler" not in yaml.safe_dump(objects)
    namespaces = {item["metadata"]["namespace"] for item in objects if "namespace" in item["metadata"]}
    assert namespaces == {name}
    subjects = [each for item in objects for each in item.get("subjects", ())]
    parameters = [item["spec"]["paramRef"] for item in objects if "paramRef" in item.get("spec", {})]
    assert {each["namespace"] for each in (*subjects, *parameters)} == {name}
    assert {item["kind"] for item in objects} & {"Namespace", "ResourceQuota"} == kinds
    assert [item["metadata"]["name"] for item in objects if item["kind"] == "Namespace"] == (["ops"] if kinds else [])


def test_labels_image_and_flags_of_run_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    own = ("--preset=gke", "--spot-node-label=a=b,!c", "--image=registry.example/mover:1")
    ours = container(printed(capsys, *own, "--", "-v=4", "--node-drain-delay", "30m", "--pod-name", "run"))
    assert ours["image"] == "registry.example/mover:1"
    assert ours["args"] == [
        "run",
        "--leader-elect",
        "--listen-address=0.0.0.0:9235",
        "--log-format=json",
        f"--on-demand-node-label={PRESETS['gke'][0]}",
        "--spot-node-label=a=b,!c",
        "--dry-run",
        *("-v=4", "--node-drain-delay", "30m", "--pod-name", "run"),
    ]


def test_several_labels_become_several_flags(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--on-demand-node-label=a=b", "--on-demand-node-label=c in (d, e)", "--preset=karpenter")
    args = container(printed(capsys, *flags))["args"]
    assert [arg for arg in args if "node-label" in arg] == [
        "--on-demand-node-label=a=b",
        "--on-demand-node-label=c in (d,e)",
        f"--spot-node-label={PRESETS['karpenter'][1]}",
    ]


WRONG = {
    "no labels": (
        (),
        "expected --preset, one of eks, karpenter, gke, aks, openshift, clusterapi, or --on-demand-node-label",
    ),
    "one label": (
        ("--spot-node-label=a",),
        "expected --preset, one of eks, karpenter, gke, aks, openshift, clusterapi, or",
    ),
    "an unknown preset": (
        ("--preset=rancher",),
        "'rancher' is not one of 'eks', 'karpenter', 'gke', 'aks'",
    ),
    "equal labels": (("--on-demand-node-label=a=b", "--spot-node-label=a==b"), "are both a=b: expected two labels"),
    "the label of the preset twice": (
        ("--preset=karpenter", "--spot-node-label=karpenter.sh/capacity-type=on-demand"),
        "are both karpenter.sh/capacity-type=on-demand: expected two labels",
    ),
    "a namespace": (("--preset=eks", "--namespace=Ops"), "name 'Ops': expected lower-case letters"),
    "a flag that run does not have": (("--preset=eks", "--", "--drain-delay=1m"), "No such option '--drain-delay'"),
    "a bad value of a flag": (("--preset=eks", "--", "--node-drain-delay=soon"), "'soon': expected a duration"),
    "a word": (("--preset=eks", "live"), "unexpected extra argument (live)"),
}

#: Labels of nodes, and flags that the daemon rejects whatever its files contain.
REJECTED = {
    "a file of a provider without one": ("--preset=karpenter", "--cloud-config=x"),
    "a file without a provider": ("--preset=gke", "--cloud-config=/x"),
    "no file of cloudpools": ("--preset=gke", "--cloud-provider=cloudpool"),
    "no file of a gRPC service": ("--preset=gke", "--cloud-provider=externalgrpc"),
    "no file of Liqo": ("--preset=karpenter", "--cloud-provider=liqo"),
    "no file of Cherry Servers": ("--preset=gke", "--cloud-provider=cherryservers", "--nodes=0:1:p"),
    "no pool of Cherry Servers": ("--preset=gke", "--cloud-provider=cherryservers", "--cloud-config=/x"),
    "a bad pool of Cherry Servers": (
        *("--preset=gke", "--cloud-provider=cherryservers", "--cloud-config=/x", "--nodes=2:1:p"),
    ),
    "a bad group of StackPointCloud": ("--preset=gke", "--cloud-provider=spc", "--nodes=1:2"),
    "groups of a provider that lists them": ("--preset=eks", "--nodes=0:1:asg"),
    "a cluster's name without a provider": ("--preset=gke", "--cluster-name=prod"),
    "a cluster's name for AWS": ("--preset=eks", "--cluster-name=prod"),
    "room without a provider": ("--preset=aks", "--make-room=provider"),
    "room in a single round": ("--preset=karpenter", "--make-room=placeholders", "--once"),
    "a maximum below the first value": ("--preset=gke", "--failure-pause-max=1m"),
    "plugins without a configuration": ("--preset=gke", "--assume-plugins=Mine"),
    "an empty name of a scheduler": ("--preset=gke", "--scheduler-name="),
}


@pytest.mark.parametrize("case", REJECTED)
def test_what_the_daemon_rejects_at_its_start_is_not_printed(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the message of the daemon."""
    preset, *flags = REJECTED[case]
    selected = [f"--cloud-provider={SELECTED[preset[9:]]}"] if preset[9:] in SELECTED else []
    messages = []
    for argv in (["install", preset, "--", *flags], ["run", "--kubeconfig=/no/such/file", *selected, *flags]):
        with pytest.raises(SystemExit) as exited:
            cli.main(argv)
        out, err = capsys.readouterr()
        assert (exited.value.code, out, len(err.splitlines())) == (2, "", 1)
        messages.append(err)
    assert messages[0] == messages[1]
    assert "/no/such/file" not in messages[0]


def test_files_of_the_daemon_are_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    files = ("cloud-config", "prices", "commitments", "scheduler-config", "kubeconfig")
    flags = [*(f"--{each}=/etc/no/such/file" for each in files), "--assume-plugins=Mine"]
    assert container(printed(capsys, "--preset=eks", "--", *flags))["args"][-len(flags) :] == flags


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_prints_no_manifests(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags, says = WRONG[case]
    with pytest.raises(SystemExit) as exited:
        cli.main(["install", *flags])
    out, err = capsys.readouterr()
    assert (exited.value.code, out, len(err.splitlines())) == (2, "", 1)
    assert says in err


@pytest.mark.parametrize("shipped", ["spot-rescheduler:0.1.0", "registry.example/team/spot-rescheduler:0.1.0"])
@pytest.mark.parametrize("given", [(), ("--image=spot-rescheduler:mine",), ("--image=registry.example/mover:1",)])
def test_an_image_that_no_registry_has_is_named(
    shipped: str,
    given: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A release has the registry of its image in the manifests."""
    text = MANIFESTS.read_text(encoding="utf-8")
    own = container(SHIPPED)["image"]
    (tmp_path / "manifests.yaml").write_text(text.replace(f"image: {own}", f"image: {shipped}"), encoding="utf-8")
    monkeypatch.setattr(install, "MANIFESTS", tmp_path / "manifests.yaml")
    with pytest.raises(SystemExit):
        cli.main(["install", "--preset=gke", *given])
    out, err = capsys.readouterr()
    assert container(list(yaml.safe_load_all(out)))["image"] == (given[0].partition("=")[2] if given else shipped)
    if given or "/" in shipped:
        assert err == ""
    else:
        pushed = f"registry.example.com/{shipped}"
        assert err == (
            f"rescheduler: The image {shipped} is in no registry. To build and push it, in a checkout: "
            f"docker build -t {pushed} . && docker push {pushed}. Then repeat this command with --image={pushed}\n"
        )


@pytest.mark.parametrize(
    ("flags", "hints"),
    [
        (("--preset=eks",), True),
        (("--preset=gke", "--", "--cloud-provider=aws"), True),
        (("--preset=eks", "--", "--cloud-provider=none"), False),
        (("--preset=gke",), False),
        (("--preset=karpenter",), False),
    ],
)
def test_the_role_that_aws_must_give_is_named(
    flags: tuple[str, ...], hints: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["install", *flags])
    assert ("a role with the policy in docs/aws.md" in capsys.readouterr().err) == hints


@pytest.mark.parametrize(
    ("variables", "flags", "fails"),
    [
        ({"RESCHEDULER_CLOUD_CONFIG": "/x"}, ("--preset=karpenter",), False),
        ({"RESCHEDULER_NODES": "1:2:x"}, ("--preset=karpenter",), False),
        ({"RESCHEDULER_CLOUD_PROVIDER": "cherryservers"}, ("--preset=gke",), False),
        ({"RESCHEDULER_CLOUD_CONFIG": "/x"}, ("--preset=gke", "--", "--cloud-provider=cherryservers"), True),
    ],
)
def test_variables_of_this_machine_are_not_those_of_the_daemon(
    variables: dict[str, str],
    flags: tuple[str, ...],
    fails: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as exited:
        cli.main(["install", *flags])
    assert exited.value.code == (2 if fails else 0), capsys.readouterr().err
