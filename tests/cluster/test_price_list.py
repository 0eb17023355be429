"""The CronJob that writes a cloud's prices into a ConfigMap: rendered, with its permissions, and with the command."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from devcluster.api import Json
from devcluster.manifests import on_demand
from devcluster.plane import ControlPlane
from rescheduler import cli
from rescheduler.cli import prices
from rescheduler.providers.price_lists import Price
from tests.cluster.rendering import RenderingError, chart, composed, notes, only_of_kind
from tests.cluster.rights import ACCESS, is_allowed, user

NAME = "spot-rescheduler-prices"
NAMESPACE = "spot-rescheduler"
COMPONENT = {"resources": ["../base"], "components": ["../components/price-list"]}
LISTED: dict[str, Json] = {
    "azure": {"cloud": "azure", "region": "westeurope"},
    "aws": {"cloud": "aws", "region": "eu-central-1", "instanceTypes": ["m5.large"]},
    "gcp": {"cloud": "gcp", "region": "europe-west3", "apiKeySecretName": "key"},
}


def job_of(objects: list[Json]) -> Json:
    return dict(only_of_kind(objects, "CronJob")["spec"]["jobTemplate"]["spec"]["template"])


def arguments(objects: list[Json]) -> list[str]:
    return list(job_of(objects)["spec"]["containers"][0]["args"])


@contextlib.contextmanager
def applied(cluster: ControlPlane, objects: list[Json]) -> Iterator[None]:
    cluster.apply(objects)
    try:
        yield
    finally:
        for item in objects:
            cluster.api.delete(cluster.api.path(item))


def named(objects: list[Json], kind: str) -> Json:
    [item] = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == NAME]
    return item


@pytest.mark.parametrize("cloud", LISTED)
def test_the_command_accepts_the_arguments(cloud: str) -> None:
    args = arguments(chart({"priceList": LISTED[cloud], "options": {"currency": "USD"}}))
    assert args[:3] == ["prices", cloud, f"--region={LISTED[cloud]['region']}"]
    assert ("--currency=USD" in args) == (cloud != "aws")
    done = subprocess.run(
        [sys.executable, "-m", "rescheduler", *args, "--kubeconfig=/no/such/file"],
        capture_output=True,
        text=True,
        check=False,
        env={"AWS_EC2_METADATA_DISABLED": "true"},
    )
    first = {
        "azure": "/no/such/file",  # to list the nodes
        "aws": "AWS: ",  # no credentials
        "gcp": "--api-key-file /etc/spot-rescheduler/price-list/api-key",
    }
    assert first[cloud] in done.stderr
    assert done.returncode == (2 if cloud == "gcp" else 1) or "/no/such/file" in done.stderr


def test_the_daemon_reads_the_mounted_config_map(tmp_path: Path) -> None:
    for objects, mount in (
        (chart({"priceList": LISTED["azure"]}), "/etc/spot-rescheduler/price-list"),
        (composed(tmp_path, ours=COMPONENT), "/etc/spot-rescheduler/prices"),
    ):
        pod = only_of_kind(objects, "Deployment")["spec"]["template"]["spec"]
        assert f"--prices={mount}" in pod["containers"][0]["args"]
        [mounted] = pod["containers"][0]["volumeMounts"]
        [volume] = pod["volumes"]
        assert mounted == {"name": volume["name"], "mountPath": mount, "readOnly": True}  # a subPath is not updated
        assert volume["configMap"] == {"name": NAME, "optional": True}
        assert "data" not in named(objects, "ConfigMap")  # an upgrade keeps what the CronJob has written
        assert arguments(objects)[-1] == f"--config-map={NAME}"


def test_the_pods_of_the_job_are_not_those_of_the_daemon(tmp_path: Path) -> None:
    for objects in (chart({"priceList": LISTED["azure"]}), composed(tmp_path, ours=COMPONENT)):
        labels = job_of(objects)["metadata"]["labels"]
        selector = only_of_kind(objects, "Deployment")["spec"]["selector"]["matchLabels"]
        assert not selector.items() <= labels.items()


def test_the_permissions_are_one_patch_and_the_list_of_nodes(tmp_path: Path) -> None:
    patch = [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [NAME], "verbs": ["patch"]}]
    for objects in (chart({"priceList": LISTED["azure"]}), composed(tmp_path, ours=COMPONENT)):
        assert named(objects, "Role")["rules"] == patch
        assert named(objects, "ClusterRole")["rules"] == [
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
        ]
        for kind in ("RoleBinding", "ClusterRoleBinding"):
            assert named(objects, kind)["subjects"] == [
                {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
            ]
    types_given = chart({"priceList": LISTED["aws"]})
    assert not [each for each in types_given if each["kind"] == "ClusterRole" and each["metadata"]["name"] == NAME]


def test_a_namespace_of_its_own_and_other_components(tmp_path: Path) -> None:
    """The component works in another namespace, and components that need the daemon's account still find it."""
    others = ["../components/price-list", "../components/machines", "../components/make-room"]
    objects = composed(
        tmp_path,
        ours={"resources": ["../base"], "namespace": "elsewhere"},
        all={"resources": ["../ours"], "components": others},
    )
    namespaces = {
        named(objects, kind)["metadata"]["namespace"] for kind in ("CronJob", "ConfigMap", "Role", "RoleBinding")
    }
    assert namespaces == {"elsewhere"}
    assert named(objects, "ClusterRoleBinding")["subjects"][0]["namespace"] == "elsewhere"
    [room] = [each for each in objects if each["kind"] == "RoleBinding" and "room" in each["metadata"]["name"]]
    assert room["subjects"] == [{"kind": "ServiceAccount", "name": "spot-rescheduler", "namespace": "elsewhere"}]


WRONG = {
    "no region": ({"priceList": {"cloud": "azure"}}, "priceList.region"),
    "both": (
        {"priceList": LISTED["azure"], "prices": "instance_type,capacity_type,price\nm5,spot,1\n"},
        "prices and priceList.cloud: expected one of them",
    ),
    "gcp without a key": ({"priceList": {"cloud": "gcp", "region": "europe-west3"}}, "apiKeySecretName"),
    "another cloud": ({"priceList": {"cloud": "ibm", "region": "x"}}, "cloud"),
    "a schedule of three fields": ({"priceList": {**LISTED["azure"], "schedule": "1 2 3"}}, "schedule"),
    "a region with a space": ({"priceList": {"cloud": "azure", "region": "west europe"}}, "region"),
}


@pytest.mark.parametrize(("values", "says"), WRONG.values(), ids=WRONG)
def test_wrong_values_are_rejected(values: Json, says: str) -> None:
    with pytest.raises(RenderingError, match=says):
        chart(values)


def test_the_notes_say_how_to_read_the_prices_now(tmp_path: Path) -> None:
    text = notes(tmp_path, {"priceList": LISTED["azure"]}, "spot-rescheduler", NAMESPACE)
    assert f"kubectl -n {NAMESPACE} create job --from=cronjob/{NAME} prices-now" in text


def test_the_account_can_do_what_the_command_does_and_no_more(
    cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    objects = chart({"priceList": LISTED["azure"]})
    granted = [each for each in objects if each["kind"] in {*ACCESS, "CronJob"} and each["metadata"]["name"] == NAME]
    with applied(cluster, granted):
        cluster.api.apply([on_demand("od-priced", labels={"node.kubernetes.io/instance-type": "D4s_v5"})])
        config = cluster.service_account_kubeconfig(NAMESPACE, NAME)
        monkeypatch.setattr(
            prices, "_read", lambda *asked: [Price(name, False, Decimal("0.2")) for name in asked[1].types]
        )
        args = [arg for arg in arguments(objects) if arg != "--currency=USD"]
        with pytest.raises(SystemExit) as ended:
            cli.main([*args, f"-n={NAMESPACE}", f"--kubeconfig={config}"])
        assert ended.value.code == 0, capfd.readouterr()
        stored = cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}")["data"]
        assert "D4s_v5,,on-demand,0.2\n" in stored["prices"]
        account = user(NAMESPACE, NAME)
        for verb, name in (("get", NAME), ("patch", "spot-rescheduler-memory"), ("delete", NAME), ("create", "")):
            asked = {"verb": verb, "resource": "configmaps", "name": name, "namespace": NAMESPACE, "version": "v1"}
            assert not is_allowed(cluster.api, account, asked)
        cluster.api.delete("/api/v1/nodes/od-priced")
