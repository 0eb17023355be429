"""``rescheduler install``: the manifests of deploy/base, with the labels, the namespace and the flags of the user.

tests/cluster/test_manifests.py applies them to a control plane.
"""

import copy
from typing import Any

import pytest
import yaml

from rescheduler import cli
from rescheduler.cli.install import MANIFESTS, RIGHTS
from rescheduler.planning.node_labels import PRESETS

SHIPPED: list[dict[str, Any]] = list(yaml.safe_load_all(MANIFESTS.read_text(encoding="utf-8")))
OF_PROVIDERS: dict[str, list[dict[str, Any]]] = {
    name: list(yaml.safe_load_all(file.read_text(encoding="utf-8"))) for name, file in RIGHTS.items()
}
#: The cloud providers that presets select.
SELECTED = {"eks": "aws", "karpenter": "karpenter", "clusterapi": "clusterapi", "openshift": "clusterapi"}


def printed(capsys: pytest.CaptureFixture[str], *flags: str) -> list[dict[str, Any]]:
    with pytest.raises(SystemExit) as exited:
        cli.main(["install", *flags])
    out, err = capsys.readouterr()
    assert (exited.value.code, err) == (0, "")
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
        (("--preset=karpenter", "--", "--cloud-provider", "liqo"), False),
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
        (("--preset=eks", "-n", "ops", "--", "--cloud-provider=cherryservers", "--cloud-config=/c.yaml"), False),
    ):
        objects = printed(capsys, *flags)
        rules = [rule for item in objects if item["kind"] == "ClusterRole" for rule in item["rules"]]
        assert any("nodes" in rule["resources"] and "delete" in rule["verbs"] for rule in rules) == ours
        leases = [item["metadata"] for item in objects if item["kind"] == "Lease"]
        assert ({"name": "spot-rescheduler-pool", "namespace": "ops"} in leases) == ours
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
    ours = container(printed(capsys, *own, "--", "-v=4", "--node-drain-delay", "30m", "--cluster-name", "run"))
    assert ours["image"] == "registry.example/mover:1"
    assert ours["args"] == [
        "run",
        "--leader-elect",
        "--listen-address=0.0.0.0:9235",
        "--log-format=json",
        f"--on-demand-node-label={PRESETS['gke'][0]}",
        "--spot-node-label=a=b,!c",
        "--dry-run",
        *("-v=4", "--node-drain-delay", "30m", "--cluster-name", "run"),
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


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_prints_no_manifests(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags, says = WRONG[case]
    with pytest.raises(SystemExit) as exited:
        cli.main(["install", *flags])
    out, err = capsys.readouterr()
    assert (exited.value.code, out, len(err.splitlines())) == (2, "", 1)
    assert says in err


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
def test_the_role_that_aws_must_give_is_named_above_the_manifests(
    flags: tuple[str, ...], hints: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["install", *flags])
    comments = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
    assert any("a role with the policy in docs/aws.md" in line for line in comments) == hints
