"""Tests of the chart with Helm's engine: same objects as the kustomization, accepted by the API server, validation."""

import json
import re
import shlex
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from devcluster.api import Json
from devcluster.plane import ControlPlane
from rescheduler.cli.run import command
from rescheduler.errors import InputError
from rescheduler.planning.money import prices
from rescheduler.planning.node_labels import PRESETS
from rescheduler.planning.policy import Policy
from rescheduler.settings import LEASE, MEMORY_NAME, PAUSE_IMAGE, POOL_LEASE, SAVINGS_NAME
from tests.cluster.rendering import CHART, DEPLOY, RenderingError, chart, composed, kustomization, notes, only_of_kind

#: Environment variables with the names of ConfigMaps, which depend on the release.
NAMES = ("RESCHEDULER_MEMORY_NAME", "RESCHEDULER_SAVINGS_NAME")
#: The chart sets the labels in any case; deploy/base does not, so that a patch can add them.
LABELS = {"on-demand-node-label": Policy().on_demand_label, "spot-node-label": Policy().spot_label}
STORED = {("Lease", LEASE), ("ConfigMap", MEMORY_NAME), ("ConfigMap", SAVINGS_NAME)}

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
PRICES = "instance_type,capacity_type,price\nm5.large,on-demand,0.107\n"
EVERYTHING: Json = {
    "prices": PRICES,
    "cloudProvider": {"name": "cloudpool", "config": "pools: []\n", "secretName": "cloudpool"},
    "options": {"nodes": ["1:3:a", "0:2:b"], "node-drain-delay": "5m"},
    "image": {"repository": "registry.example/rescheduler", "digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccount": {"name": "mover", "annotations": {"example.org/role": "mover"}},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
            }
        }
    },
    "podLabels": {"team": "platform"},
    "commonLabels": {"example.org/part": "cost"},
    "grafanaDashboard": {"enabled": True},
    "makeRoom": {"mode": "placeholders", "maxPlaceholders": 20},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "extraObjects": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}, "data": {"a": "b"}}
    ],
}


def container(objects: list[Json]) -> Json:
    [spec] = only_of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(spec)


def without_names(pod: Json) -> Json:
    """Return a pod's spec without release names, and with normalized flags."""
    [only] = pod["containers"]
    args = sorted(arg if "=" in arg or arg == "run" else f"{arg}=true" for arg in only["args"])
    spread = [
        {key: value for key, value in each.items() if key != "labelSelector"}
        for each in pod["topologySpreadConstraints"]
    ]
    plain = {key: value for key, value in only.items() if key not in {"args", "imagePullPolicy"}}
    return {**pod, "containers": [{**plain, "args": args}], "topologySpreadConstraints": spread}


def test_the_permission_to_read_owners_is_that_of_the_component() -> None:
    [component, _] = yaml.safe_load_all((DEPLOY / "components" / "owners" / "rbac.yaml").read_text())
    rules = [only_of_kind(objects, "ClusterRole")["rules"] for objects in (chart(), chart({"rbac": {"owners": True}}))]
    assert rules[1] == rules[0] + component["rules"]
    assert {verb for rule in component["rules"] for verb in rule["verbs"]} == {"get"}


@pytest.mark.parametrize("component_name", ["predict", "surge"])
def test_a_permission_and_its_policy_are_those_of_the_component(component_name: str) -> None:
    folder = DEPLOY / "components" / component_name
    [component, _] = yaml.safe_load_all((folder / "rbac.yaml").read_text())
    plain, ours = chart(), chart({"rbac": {component_name: True}})
    rules = [only_of_kind(objects, "ClusterRole")["rules"] for objects in (plain, ours)]
    assert rules[1] == rules[0] + component["rules"]
    binding, policy = yaml.safe_load_all((folder / "policy.yaml").read_text())
    name = f"spot-rescheduler-{component_name}.spot-rescheduler.spot-rescheduler"
    rendered = {each["kind"]: each["spec"] for each in ours if each["metadata"]["name"] == name}
    assert rendered["ValidatingAdmissionPolicy"] == policy["spec"]
    assert rendered["ValidatingAdmissionPolicyBinding"] == binding["spec"] | {"policyName": name}


def test_default_values_give_the_kustomization_as_a_dry_run() -> None:
    assert "--dry-run=true" in container(chart())["args"]
    ours, base = chart(), kustomization("base")
    daemon = only_of_kind(ours, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    for flag in ("--dry-run=true", *(f"--{name}={label}" for name, label in LABELS.items())):
        daemon["args"].remove(flag)
    assert sorted(each["kind"] for each in ours) == sorted(each["kind"] for each in base)
    pods = [only_of_kind(objects, "Deployment")["spec"]["template"]["spec"] for objects in (ours, base)]
    assert without_names(pods[0]) == without_names(pods[1])
    for kind in ("ClusterRole", "Role"):
        assert only_of_kind(ours, kind)["rules"] == only_of_kind(base, kind)["rules"]
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        assert only_of_kind(ours, kind)["subjects"] == only_of_kind(base, kind)["subjects"]


def stored(objects: list[Json]) -> list[Json]:
    """Return the objects in which the daemon stores its state."""
    config_maps = {MEMORY_NAME, SAVINGS_NAME, "mover-memory", "mover-savings"}
    return [each for each in objects if each["kind"] == "Lease" or each["metadata"]["name"] in config_maps]


def content(item: Json) -> Json:
    return {key: value for key, value in item.items() if key not in {"apiVersion", "kind", "metadata"}}


@pytest.mark.parametrize("render", [chart, lambda: kustomization("base")], ids=["chart", "kustomization"])
def test_the_stored_objects_are_shipped_without_content(render: Callable[[], list[Json]]) -> None:
    """So that applying them again changes no content, and the daemon needs no permission to create them."""
    objects = stored(render())
    assert {(each["kind"], each["metadata"]["name"]) for each in objects} == STORED
    assert [content(each) for each in objects] == [{}, {}, {}]
    rules = only_of_kind(render(), "Role")["rules"]
    assert {name for rule in rules for name in rule["resourceNames"]} == {name for _, name in STORED}
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "patch"}


NAMED: dict[str, tuple[Json, dict[str, str]]] = {
    "a suffix": ({"nameSuffix": "-eu"}, {name: f"{name}-eu" for _, name in STORED}),
    "a prefix": ({"namePrefix": "eu-"}, {name: f"eu-{name}" for _, name in STORED}),
    "a patch of the Lease's name": (
        {
            "patches": [
                {
                    "target": {"kind": "Lease"},
                    "patch": '[{"op": "replace", "path": "/metadata/name", "value": "mover"}]',
                    "options": {"allowNameChange": True},
                }
            ]
        },
        {LEASE: "mover"},
    ),
}


@pytest.mark.parametrize("case", NAMED)
def test_role_and_daemon_follow_the_names_of_the_stored_objects(case: str, tmp_path: Path) -> None:
    change, renamed = NAMED[case]
    objects = composed(tmp_path, ours={"resources": ["../base"], **change})
    expected = {renamed.get(name, name) for _, name in STORED}
    env = {each["name"]: each.get("value") for each in container(objects)["env"]}
    assert env["RESCHEDULER_LEASE_NAME"] == renamed[LEASE] == only_of_kind(objects, "Lease")["metadata"]["name"]
    assert {env["RESCHEDULER_LEASE_NAME"], *(env[name] for name in NAMES)} == expected
    assert {name for rule in only_of_kind(objects, "Role")["rules"] for name in rule["resourceNames"]} == expected
    assert {each["metadata"]["name"] for each in objects if each["kind"] in {"Lease", "ConfigMap"}} == expected


def suffixed(folder: Path) -> list[Json]:
    machines = {"resources": ["../base"], "components": ["../components/machines"]}
    return composed(folder, machines=machines, ours={"resources": ["../machines"], "nameSuffix": "-eu"})


POOLS: dict[str, tuple[Callable[[Path], list[Json]], str]] = {
    "chart": (lambda _: chart({"cloudProvider": {"name": "cherryservers"}}), POOL_LEASE),
    "chart, by option": (
        lambda _: chart({"cloudProvider": {"name": "liqo"}, "options": {"pool-lease": "ours"}}),
        "ours",
    ),
    "kustomization": (
        lambda folder: composed(folder, o={"resources": ["../base"], "components": ["../components/machines"]}),
        POOL_LEASE,
    ),
    "kustomization, with a suffix": (suffixed, f"{POOL_LEASE}-eu"),
    "proxy": (lambda _: kustomization("proxy"), POOL_LEASE),
    "provider": (lambda _: kustomization("provider"), POOL_LEASE),
}


@pytest.mark.parametrize("case", POOLS)
def test_programs_that_order_machines_get_the_lease_of_their_pool(case: str, tmp_path: Path) -> None:
    render, name = POOLS[case]
    objects = render(tmp_path)
    env = {each["name"]: each.get("value") for each in container(objects)["env"]}
    assert env["RESCHEDULER_POOL_LEASE"] == name
    assert [content(each) for each in objects if each["kind"] == "Lease" and each["metadata"]["name"] == name] == [{}]
    roles = [rule for each in objects if each["kind"] == "Role" for rule in each["rules"]]
    assert [rule["verbs"] for rule in roles if name in rule["resourceNames"]] == [["get", "patch"]]


def test_an_upgrade_keeps_the_content_of_the_stored_objects(cluster: ControlPlane) -> None:
    """Helm finds them on the API server. Those that a daemon has created itself, or of another release, are left."""
    first = stored(chart(plane=cluster))
    assert {(each["kind"], each["metadata"]["name"]) for each in first} == STORED
    assert {each["metadata"]["annotations"]["helm.sh/resource-policy"] for each in first} == {"keep"}
    cluster.apply(first)
    assert stored(chart(plane=cluster)) == []
    written = {"Lease": {"spec": {"holderIdentity": "a_1"}}, "ConfigMap": {"binaryData": {"memory": "YQ=="}}}
    for each in first:
        helm = {"meta.helm.sh/release-name": "spot-rescheduler", "meta.helm.sh/release-namespace": "spot-rescheduler"}
        change = {"metadata": {"annotations": helm}, **written[each["kind"]]}
        cluster.api.patch(cluster.api.path(each), change)
    assert stored(chart(plane=cluster)) == first
    after = cluster.apply(stored(chart(plane=cluster)))
    assert [content(each) for each in after] == [written[each["kind"]] for each in first]
    assert [
        each["kind"] for each in stored(chart({"options": {"memory-name": "mover-memory"}}, "blue", plane=cluster))
    ] == ["ConfigMap"]


def test_the_role_is_for_the_lease_of_the_options() -> None:
    objects = chart({"options": {"lease-name": "mover"}})
    assert ["mover"] in [rule.get("resourceNames") for rule in only_of_kind(objects, "Role")["rules"]]
    assert "--lease-name=mover" in container(objects)["args"]


def test_options_become_flags_with_values() -> None:
    args = container(chart({"options": {"dry-run": False, "min-on-demand-nodes": 10_000_000, "nodes": ["1:2:a", "b"]}}))
    assert {"--dry-run=false", "--min-on-demand-nodes=10000000", "--nodes=1:2:a", "--nodes=b", "-v=2"} <= set(
        args["args"]
    )


@pytest.mark.parametrize(
    ("values", "release", "names"),
    [
        pytest.param({}, "spot-rescheduler", [MEMORY_NAME, SAVINGS_NAME], id="the default"),
        pytest.param(
            {}, "blue", ["blue-spot-rescheduler-memory", "blue-spot-rescheduler-savings"], id="another release"
        ),
        pytest.param({"options": {"memory-name": "a", "savings-name": "b"}}, "blue", ["a", "b"], id="by option"),
    ],
)
def test_the_config_maps_are_named_after_the_release(values: Json, release: str, names: list[str]) -> None:
    objects = chart(values, release)
    env = {each["name"]: each.get("value") for each in container(objects)["env"]}
    [rule] = [
        each
        for each in only_of_kind(objects, "Role")["rules"]
        if each["resources"] == ["configmaps"] and "get" in each["verbs"]
    ]
    assert ([env[name] for name in NAMES], rule["resourceNames"]) == (names, names)


def test_placeholders_get_a_namespace_and_the_daemon_rights_in_it() -> None:
    ours, component = chart({"makeRoom": {"mode": "placeholders"}}), yaml_of("make-room")
    room = [each for each in ours if each["metadata"]["name"].endswith("-room")]
    assert [without_labels(each) for each in room] == [without_labels(each) for each in component]
    assert {"--make-room=placeholders", "--max-placeholders=50"} <= set(container(ours)["args"])


@pytest.mark.parametrize("values", [{}, {"options": {"placeholder-image": "mirror.local/pause:1"}}])
def test_the_policy_permits_the_image_of_placeholders(values: Json) -> None:
    objects = chart(values | {"makeRoom": {"mode": "placeholders"}})
    policy = next(each for each in objects if each["kind"] == "ValidatingAdmissionPolicy")
    [image] = [each["expression"] for each in policy["spec"]["variables"] if each["name"] == "placeholderImage"]
    assert json.loads(image) == values.get("options", {}).get("placeholder-image", PAUSE_IMAGE)


def test_a_second_release_uses_the_namespace_of_the_first() -> None:
    values = {"makeRoom": {"mode": "placeholders", "createNamespace": False}, "serviceAccount": {"name": "mover"}}
    room = [each for each in chart(values, "blue", "ops") if each["metadata"]["name"].endswith("-room")]
    assert [(each["kind"], each["metadata"]["name"]) for each in room] == [
        ("Role", "blue-spot-rescheduler-room"),
        ("RoleBinding", "blue-spot-rescheduler-room"),
    ]
    assert room[1]["roleRef"]["name"] == room[0]["metadata"]["name"]
    assert room[1]["subjects"] == [{"kind": "ServiceAccount", "name": "mover", "namespace": "ops"}]


def test_the_limit_of_placeholders_is_also_a_quota() -> None:
    objects = chart({"makeRoom": {"mode": "placeholders", "maxPlaceholders": 1000}})
    assert only_of_kind(objects, "ResourceQuota")["spec"] == {"hard": {"pods": "1000"}}
    assert "--max-placeholders=1000" in container(objects)["args"]


ROOM_VALUES: dict[str, Json] = {
    "not given": {},
    "off": {"makeRoom": {"mode": "off"}},
    "off in YAML without quotation marks": {"makeRoom": {"mode": False}},
    "provider": {"makeRoom": {"mode": "provider"}, "cloudProvider": {"name": "cloudpool"}},
}


@pytest.mark.parametrize("case", ROOM_VALUES)
def test_only_placeholders_add_objects(case: str) -> None:
    objects = chart(ROOM_VALUES[case])
    assert {each["kind"] for each in objects} == {each["kind"] for each in chart()}
    flags = [arg for arg in container(objects)["args"] if "room" in arg or "placeholder" in arg]
    assert flags == (["--make-room=provider"] if case == "provider" else [])


def yaml_of(component: str) -> list[Json]:
    folder = DEPLOY / "components" / component
    files = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [each for file in files for each in yaml.safe_load_all((folder / file).read_text())]


def without_labels(item: Json) -> Json:
    """Return *item* with the labels of PodSecurity only."""
    labels = {key: value for key, value in item["metadata"].get("labels", {}).items() if "pod-security" in key}
    return {**item, "metadata": {**item["metadata"], "labels": labels}}


def test_the_configuration_of_the_scheduler_is_mounted_and_a_change_creates_new_pods() -> None:
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    objects = chart({"schedulerConfig": text})
    folder = "/etc/spot-rescheduler"
    assert f"--scheduler-config={folder}/scheduler-config" in container(objects)["args"]
    [config] = [each for each in objects if each["kind"] == "ConfigMap" and "data" in each]
    assert config["data"] == {"scheduler-config": text}
    pod = only_of_kind(objects, "Deployment")["spec"]["template"]
    assert pod["spec"]["volumes"] == [{"name": "scheduler-config", "configMap": {"name": config["metadata"]["name"]}}]
    others = only_of_kind(chart({"schedulerConfig": text + "profiles: []\n"}), "Deployment")["spec"]["template"]
    sums = [each["metadata"]["annotations"]["checksum/scheduler-config"] for each in (pod, others)]
    assert sums[0] != sums[1]


def test_prices_are_mounted_and_changed_prices_create_new_pods() -> None:
    objects = chart({"prices": PRICES, "options": {"currency": "EUR"}})
    assert {"--prices=/etc/spot-rescheduler/prices", "--currency=EUR"} <= set(container(objects)["args"])
    [config] = [each for each in objects if each["kind"] == "ConfigMap" and "data" in each]
    assert config["data"] == {"prices": PRICES}
    pod = only_of_kind(objects, "Deployment")["spec"]["template"]
    assert pod["spec"]["volumes"] == [{"name": "prices", "configMap": {"name": config["metadata"]["name"]}}]
    assert container(objects)["volumeMounts"] == [
        {"name": "prices", "mountPath": "/etc/spot-rescheduler/prices", "subPath": "prices", "readOnly": True}
    ]
    others = only_of_kind(chart({"prices": PRICES + "m5,spot,2\n"}), "Deployment")["spec"]["template"]
    sums = [each["metadata"]["annotations"]["checksum/prices"] for each in (pod, others)]
    assert sums[0] != sums[1]


def test_options_of_the_old_chart_take_precedence() -> None:
    values = {
        "options": {"on-demand-node-label": "c"},
        "cmdOptions": {"on-demand-node-label": "a=b", "logtostderr": "true"},
    }
    args = container(chart({"preset": "gke", **values}))["args"]
    assert [arg for arg in args if arg.startswith("--on-demand")] == ["--on-demand-node-label=a=b"]


@pytest.mark.parametrize("preset", ["", *PRESETS])
def test_a_preset_sets_the_labels_with_which_the_daemon_starts(preset: str) -> None:
    labels = PRESETS.get(preset) or (Policy().on_demand_label, Policy().spot_label)
    args = container(chart({"preset": preset}))["args"]
    assert [arg for arg in args if "node-label" in arg] == [
        f"--on-demand-node-label={labels[0]}",
        f"--spot-node-label={labels[1]}",
    ]
    policy: Any = command.make_context("run", args[1:], resilient_parsing=True).params
    assert (policy["on_demand_label"], policy["spot_label"]) == tuple((label,) for label in labels)


def test_an_upgrade_with_the_values_of_an_earlier_chart_changes_no_flag(tmp_path: Path) -> None:
    earlier: Json = {"preset": None, "dryRun": None}  # null removes a default, as --reuse-values has none
    args = container(chart(earlier))["args"]
    assert args == [arg for arg in container(chart())["args"] if arg != "--dry-run=true"]
    assert "This is a dry run" not in notes(tmp_path, earlier, "mover", "ops")


DRY: dict[str, tuple[Json, str]] = {
    "untouched": ({}, "true"),
    "live": ({"dryRun": False}, "false"),
    "the option of an older release": ({"options": {"dry-run": False}}, "false"),
    "an option as text": ({"dryRun": False, "cmdOptions": {"dry-run": "true"}}, "true"),
}


@pytest.mark.parametrize("case", DRY)
def test_the_release_is_a_dry_run_unless_told_otherwise_and_the_notes_say_how(case: str, tmp_path: Path) -> None:
    values, dry = DRY[case]
    assert [arg for arg in container(chart(values))["args"] if "dry-run" in arg] == [f"--dry-run={dry}"]
    text = notes(tmp_path, {"preset": "eks", **values}, "mover", "ops")
    assert ("helm upgrade mover CHART --namespace=ops --reuse-values --set dryRun=false" in text) == (dry == "true")
    assert "label eks.amazonaws.com/capacityType=ON_DEMAND onto the nodes with the label" in text


#: Option → values that the command line accepts, and values that it rejects.
FORMS: dict[str, tuple[list[Any], list[Any]]] = {
    "node-drain-delay": (["10m", "1h30m", "0", 0, "2d12h30m", "1d"], ["10 minutes", "-5m", 10, "ten", "1h2d", ""]),
    "pod-eviction-timeout": (["1s", "1500ms", "0.5h", "1m", "1d"], ["0", "5ms", "0.9s", "999ms", "1us"]),
    "housekeeping-interval": (["100ms", "2.5s", "0.5s"], ["99ms", "0s", "10us"]),
    "on-demand-node-label": (
        ["a", "a=b,!c", "example.com/a!=b", "a==b", ["a", "b=c"], "a in (b, c),d notin (e)"],
        ["a b", "=b", "a=b=c", "-a", "", "A/b", "a in b", ["a", "b c"]],
    ),
    "leader-elect": ([True, "true", "T", "1"], ["yes", 2, "on"]),
    "min-on-demand-nodes": ([0, 3, "7"], [-1, "many", 1.5, True]),
    "max-placeholders": ([1, 1000], [0, 1001]),
    "v": ([2, "2", -1], ["high", 1.5]),
    "price-per-vcpu": ([0.04, "0.04", 1], ["4 cents", "-1", -1, "0,04", "1e3"]),
    "min-worth": ([0, 0.9, "2.50"], ["two", -1, "1e3"]),
    "max-moves-per-pod-per-day": ([3, "0.5"], ["three", -1]),
    "drain-order": (["cost"], ["price", "COST"]),
    "drain-window": (["Mon-Fri 09:00-17:00 Europe/Stockholm", ["22:00-06:00"]], ["9-17", ["noon"], "09:00"]),
    "namespaces": (["a,b", ["a"]], ["A", ["a", "b_c"]]),
    "lease-name": (["mover", "a.b"], ["Mover", "a_b", ""]),
    "listen-address": (["0.0.0.0:9235", ":0", "[::1]:80"], ["9235", "host", "::1:80"]),
    "scheduler-version": (["1.36", "v1.36.3"], [1.3, "latest", "36"]),
    "ignore-local-volumes": (["tmp,cache"], ["tmp/x"]),
    "startup-taint": ([["a", "b"], "a"], [{"a": "b"}]),
}


def accepts(option: str, value: Any) -> bool:
    """Return whether the command line accepts *value*, as the chart writes it."""
    given = [
        str(each).lower() if isinstance(each, bool) else str(each) for each in [value] if not isinstance(each, list)
    ]
    flags = [
        f"{'-' if len(option) == 1 else '--'}{option}={each}" for each in (value if isinstance(value, list) else given)
    ]
    try:
        command.make_context("run", flags)
    except click.ClickException:
        return False
    return True


@pytest.mark.parametrize("number", range(max(len(values) for forms in FORMS.values() for values in forms)))
def test_the_schema_knows_the_form_of_each_option(number: int) -> None:
    good, bad = (
        {option: forms[side][number] for option, forms in FORMS.items() if number < len(forms[side])} for side in (0, 1)
    )
    assert [option for option, value in good.items() if not accepts(option, value)] == []
    assert [option for option, value in bad.items() if accepts(option, value) and isinstance(value, str)] == []
    chart({"options": good, "cmdOptions": good})
    with pytest.raises(RenderingError) as caught:
        chart({"options": bad})
    assert set(re.findall(r"- at '/options/([a-z-]+)", str(caught.value))) == set(bad)


#: Values that are right for some options and wrong for others.
ODD_VALUES: list[Any] = [
    *("", " 5", "+5", "-1", "00", "1", "1e3", "1.5", "0x10", "1_000", "NaN", "\u0663", "9" * 10, "9" * 21),
    *(
        "10m",
        "0s",
        "1h2d",
        "3650d",
        "3651d",
        "87601h",
        "99999999999d",
        ".5h",
        "1ns",
        "1.5d",
        "5 %",
        "0%",
        "100%",
        "101%",
    ),
    *("a", "a.b", "a..b", "a-", "-a", "A", "a,b", "a,,b", "a=b", "a=b=c", "a in (b)", "a/b=c", "x" * 64, "x" * 300),
    *("m5.large=4", "=4", "4", "1.36", "v1.37.2", "true", "off", "zone", "largest-pool", "/x", "x y", "x\ty", "x\ny"),
    *(
        ":0",
        ":65535",
        ":65536",
        "[::1]:1",
        "::1:1",
        "host:99999",
        "Mon 24:00-01:00",
        "sat,SUN 23:00-24:00",
        "Foo 09:00-10:00",
    ),
    *(0, 1, -1, 5, 1.5, 10**6, 10**11, True, False, ["a", "b"], ["10m"], ["1", ""]),
]


def test_what_the_schema_accepts_the_command_line_accepts() -> None:
    options = json.loads((CHART / "values.schema.json").read_text())["definitions"]["options"]["properties"]
    wrong = []
    for value in ODD_VALUES:
        try:
            chart({"options": dict.fromkeys(options, value)})
            rejected: set[str] = set()
        except RenderingError as error:
            rejected = set(re.findall(r"- at '/options/([a-z-]+)", str(error)))
        wrong += [(option, value) for option in options.keys() - rejected if not accepts(option, value)]
    assert wrong == []


#: Content of the price file → the error of the chart; "" where it is accepted.
PRICE_FILES = {
    "instance_type,capacity_type,price\nm5.large,ON_DEMAND,0.107\nm5.large,OnDemand,0.107\n": "",
    'price,zone,instance_type,capacity_type\r\n0.1,a,"m5.large",Spot\r\n\r\n': "",
    '[{"instance_type": "m5.large", "capacity_type": "SPOT", "price": 0.04, "zone": null}]': "",
    "m5.large,on-demand,0.107\n": "expected a header and at least one line",
    "type,price\nm5.large,1\n": 'line 2: unknown column "type"',
    "instance_type,capacity_type,price\nm5.large,on-demand,$0.107\n": r'line 2: price "\$0.107"',
    "instance_type,capacity_type,price\nm5.large,on-demand\n": "line 2: 2 columns: expected 3",
    "instance_type,capacity_type,price\nm5.large,reserved,1\n": 'line 2: capacity_type "reserved"',
    "instance_type,capacity_type,price\n,spot,1\n": "line 2: expected an instance_type",
    '[{"instance_type": "m5.large", "capacity_type": "spot"}]': "entry 1: price",
    "[1]": "entry 1: expected an object",
    '{"instance_type": "m5.large"}': "expected a JSON array",
    "[": "unexpected end of JSON",
}


@pytest.mark.parametrize("text", PRICE_FILES)
def test_prices_that_the_daemon_would_reject_are_rejected(text: str) -> None:
    says = PRICE_FILES[text]
    with nullcontext() if not says else pytest.raises(InputError):
        prices.parse(text)
    with nullcontext() if not says else pytest.raises(RenderingError, match=says):
        assert [each["data"] for each in chart({"prices": text}) if "prices" in each.get("data", {})] == [
            {"prices": text}
        ]


def test_a_cloud_provider_gets_its_configuration_its_secrets_and_the_right_to_delete_nodes() -> None:
    objects = chart(EVERYTHING)
    assert only_of_kind(objects, "ClusterRole")["rules"][-1] == {
        "apiGroups": [""],
        "resources": ["nodes"],
        "verbs": ["delete"],
    }
    assert {"--cloud-provider=cloudpool", "--cloud-config=/etc/spot-rescheduler/cloud-config"} <= set(
        container(objects)["args"]
    )
    config = next(each for each in objects if each["kind"] == "ConfigMap" and "cloud-config" in each.get("data", {}))
    assert config["data"]["cloud-config"] == "pools: []\n"
    mounts = {each["mountPath"] for each in container(objects)["volumeMounts"]}
    folder = "/etc/spot-rescheduler"
    assert mounts == {f"{folder}/cloud-config", f"{folder}/prices", f"{folder}/secrets", "/more"}


def test_a_changed_configuration_creates_new_pods() -> None:
    sums = [
        only_of_kind(chart({"cloudProvider": {"name": "cloudpool", "config": text}}), "Deployment")["spec"]["template"][
            "metadata"
        ]["annotations"]["checksum/cloud-config"]
        for text in ("a", "b", "a")
    ]
    assert sums[0] == sums[2] != sums[1]


def test_the_alerts_are_those_of_the_component() -> None:
    objects = chart({"prometheusRule": {"enabled": True, "labels": {"release": "p"}}, "podMonitor": {"enabled": True}})
    shipped = yaml.safe_load((DEPLOY / "components" / "alerts" / "rules.yaml").read_text())
    assert only_of_kind(objects, "PrometheusRule")["spec"] == shipped["spec"]
    selector = only_of_kind(objects, "PodMonitor")["spec"]["selector"]["matchLabels"]
    assert selector.items() <= only_of_kind(objects, "Deployment")["spec"]["template"]["metadata"]["labels"].items()


def test_the_dashboard_is_the_shipped_one() -> None:
    config = chart({"grafanaDashboard": {"enabled": True, "annotations": {"grafana_folder": "Cost"}}})
    [board] = [each for each in config if each["metadata"]["name"] == "spot-rescheduler-dashboard"]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert board["metadata"]["annotations"] == {"grafana_folder": "Cost"}
    assert board["data"] == {
        "spot-rescheduler.json": (DEPLOY / "dashboards" / "spot-rescheduler.json").read_text(encoding="utf-8")
    }


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["untouched", "everything"])
def test_the_api_server_accepts_all_objects(values: Json, cluster: ControlPlane) -> None:
    objects = cluster.apply(chart(values))
    for each in objects:
        cluster.api.delete(cluster.api.path(each))
    assert {each["kind"] for each in objects} >= {"Deployment", "ClusterRole", "PodDisruptionBudget", "ServiceAccount"}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"options": {"leader-elect": False}}, "more than one replica needs options.leader-elect"),
        (
            {"fencing": {"enabled": True}, "replicaCount": 1, "options": {"leader-elect": False}},
            "fencing.enabled needs an election",
        ),
        ({"replicas": 3}, "replicas"),
        ({"cloudProvider": {"name": "gce"}}, "cloudProvider"),
        ({"image": {"digest": "sha256:short"}}, "digest"),
        ({"replicaCount": "two"}, "replicaCount"),
        ({"makeRoom": {"mode": "on"}}, "makeRoom"),
        ({"makeRoom": {"mode": "provider"}}, "needs a cloudProvider.name"),
        ({"cloudProvider": {"name": "karpenter", "config": "region: a\n"}}, "karpenter has nothing to configure"),
        ({"makeRoom": {"maxPlaceholders": 0}}, "maxPlaceholders"),
        ({"options": {"dryrun": True}}, "additional properties 'dryrun' not allowed"),
        ({"cmdOptions": {"on-demand-node-labels": "a"}}, "additional properties 'on-demand-node-labels' not allowed"),
        ({"preset": "rancher"}, "preset"),
        ({"dryRun": "no"}, "dryRun"),
        ({"podMonitor": {"interval": "often"}}, "interval"),
        ({"podDisruptionBudget": {"maxUnavailable": "half"}}, "maxUnavailable"),
        (
            {"options": {"on-demand-node-label": "a=b"}, "cmdOptions": {"spot-node-label": "a==b"}},
            "expected two labels",
        ),
        ({"options": {"on-demand-node-label": "a, b", "spot-node-label": "b,a"}}, "are both a, b: expected two labels"),
        ({"options": {"on-demand-node-label": "node-role.kubernetes.io/spot-worker"}}, "expected two labels"),
        ({"options": {"on-demand-node-label": ["a", "b=c"], "spot-node-label": ["b==c", "a"]}}, "expected two labels"),
        ({"options": {"failure-pause": "25h"}}, "options.failure-pause-max is 24h, which is shorter than"),
        (
            {"options": {"failure-pause": "2d12h", "failure-pause-max": "2d"}},
            "failure-pause-max is 2d, which is shorter",
        ),
        ({"options": {"node-cooldown": "90m", "node-cooldown-max": "1h"}}, "node-cooldown-max is 1h"),
    ],
)
def test_invalid_values_are_rejected(values: Json, says: str) -> None:
    with pytest.raises(RenderingError, match=says):
        chart(values)


def test_one_replica_needs_no_election() -> None:
    assert "--leader-elect=false" in container(chart({"replicaCount": 1, "options": {"leader-elect": False}}))["args"]


def test_every_value_is_in_the_schema() -> None:
    schema: Any = yaml.safe_load((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]) - {"global"} == set(VALUES)


@pytest.mark.parametrize("component", sorted(each.name for each in (DEPLOY / "components").iterdir()))
def test_components_can_be_added_to_the_base(component: str, tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    folder.mkdir()
    for name in ("base", "components"):
        (tmp_path / name).symlink_to(DEPLOY / name)
    ours = {"resources": ["../base"], "components": [f"../components/{component}"]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(ours))
    composed_with, base = kustomization(folder), kustomization("base")
    assert composed_with != base
    assert len(composed_with) >= len(base)


@pytest.mark.parametrize("page", ["karpenter", "clusterapi", "aws"])
def test_the_page_of_a_provider_has_a_kustomization_with_its_labels(page: str, tmp_path: Path) -> None:
    """A dry run of the provider, with the flags of the page's first command."""
    (tmp_path / "deploy").symlink_to(DEPLOY)
    (tmp_path / "ours").mkdir()
    text = (DEPLOY.parent / "docs" / f"{page}.md").read_text(encoding="utf-8")
    [ours] = re.findall(r"```yaml\n(# kustomization.yaml\n.*?)```", text, re.DOTALL)
    local = ours.replace("github.com/YOU/spot-rescheduler/", "../").replace("?ref=main", "")
    (tmp_path / "ours" / "kustomization.yaml").write_text(local)
    objects = kustomization(tmp_path / "ours")
    first = re.findall(r"```bash\n(rescheduler run .*?)```", text, re.DOTALL)[0].replace("\\\n", " ")
    env = {each["name"]: each.get("value") for each in container(objects)["env"]}
    started = [*container(objects)["args"][1:], f"--cloud-provider={env['RESCHEDULER_CLOUD_PROVIDER']}"]
    documented = [*container(kustomization("base"))["args"][1:], *shlex.split(first)[2:], "--dry-run"]
    assert command.make_context("run", started).params == command.make_context("run", documented).params


def test_the_page_of_cloudpools_gives_the_daemon_its_files(tmp_path: Path) -> None:
    (tmp_path / "deploy").symlink_to(DEPLOY)
    folder = tmp_path / "ours"
    folder.mkdir()
    page = (DEPLOY.parent / "docs" / "cloudpool.md").read_text(encoding="utf-8")
    file, ours = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    local = ours.replace("github.com/YOU/spot-rescheduler/", "../").replace("?ref=main", "")
    (folder / "kustomization.yaml").write_text(local)
    for name in ("cloudpool.yaml", "ca.pem", "password"):
        (folder / name).write_text(file)
    objects = kustomization(folder)
    [mount] = container(objects)["volumeMounts"]
    assert f"--cloud-config={mount['mountPath']}/cloudpool.yaml" in container(objects)["args"]
    [volume] = only_of_kind(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    secret = only_of_kind(objects, "Secret")
    assert (volume["name"], volume["secret"]["secretName"]) == (mount["name"], secret["metadata"]["name"])
    assert set(secret["data"]) == {"cloudpool.yaml", "ca.pem", "password"}
    assert "spot-rescheduler-machines" in {each["metadata"]["name"] for each in objects}


@pytest.mark.parametrize(
    ("values", "objects"),
    [
        ({}, "lease/k8s-spot-rescheduler configmap/our-rescheduler-memory configmap/our-rescheduler-savings"),
        (
            {
                "options": {"lease-name": "l", "memory-name": "m", "savings-name": "s", "pool-lease": "p"},
                "cloudProvider": {"name": "karpenter"},
            },
            "lease/l configmap/m configmap/s lease/p",
        ),
    ],
)
def test_the_notes_list_the_objects_that_an_uninstall_leaves_behind(tmp_path: Path, values: Json, objects: str) -> None:
    kept = [
        f"{each['kind'].lower()}/{each['metadata']['name']}"
        for each in chart({**values, "fullnameOverride": "our-rescheduler"}, "mover", "ops")
        if each["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    ]
    assert sorted(kept) == sorted(objects.split())
    text = notes(tmp_path, {**values, "fullnameOverride": "our-rescheduler"}, "mover", "ops")
    assert f"kubectl -n ops delete --ignore-not-found {objects}\n" in text
    for line in text.splitlines():
        if line.startswith("  kubectl -n ops get configmap "):
            assert f"configmap/{line.split()[5]}" in objects
    lease, memory, savings = (name.partition("/")[2] for name in objects.split()[:3])
    for line in (
        f"status --namespace=ops --lease-name={lease} --memory-name={memory}",
        f"pause --namespace=ops --lease-name={lease}",
        f"resume --namespace=ops --lease-name={lease}",
        f"savings --namespace=ops --savings-name={savings}",
    ):
        assert f"  rescheduler {line}\n" in text
