"""Each shipped workload has a NetworkPolicy that opens the ports it listens on, and listeners that ask who is there."""

from typing import Any

import pytest
import yaml

from deploy.local.api import Json
from deploy.local.plane import ControlPlane
from rescheduler.proxy import config
from tests.cluster.rendering import DEPLOY, Refused, chart, kustomization, one

#: kustomization: the ports of each workload in it that are open, by name
OPEN = {
    "base": {"spot-rescheduler": {"http-metrics"}},
    "proxy": {"cloudpool-proxy": {"https", "http-metrics"}},
    "provider": {"provider-service": {"grpc"}},
    "liqo": {"discovery-server": {"https", "http-metrics"}, "node-manager": {"https", "http-metrics"}},
}


def policies(objects: list[Json]) -> dict[str, Json]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == "NetworkPolicy"}


def opened(policy: Json) -> set[str]:
    return {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}


def check(policy: Json, workload: Json) -> None:
    """It is about the pods of *workload*, says nothing of egress, and opens all their ports but no others."""
    spec, template = policy["spec"], workload["spec"]["template"]
    assert spec["policyTypes"] == ["Ingress"]
    assert "egress" not in spec
    assert spec["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert spec["podSelector"]["matchLabels"] == workload["spec"]["selector"]["matchLabels"]
    assert policy["metadata"].get("namespace") == workload["metadata"].get("namespace")
    [container] = template["spec"]["containers"]
    assert opened(policy) == {port["name"] for port in container["ports"]}


@pytest.mark.parametrize("folder", OPEN)
def test_each_workload_of_a_kustomization_has_one(folder: str) -> None:
    objects = kustomization(folder)
    found = policies(objects)
    assert {name: opened(policy) for name, policy in found.items()} == OPEN[folder]
    for workload in objects:
        if workload["kind"] == "Deployment":
            check(found[workload["metadata"]["name"]], workload)


def test_that_of_the_chart_is_that_of_the_kustomization() -> None:
    ours, base = chart(), kustomization("base")
    check(one(ours, "NetworkPolicy"), one(ours, "Deployment"))
    assert one(ours, "NetworkPolicy")["spec"]["ingress"] == one(base, "NetworkPolicy")["spec"]["ingress"]


def test_those_of_two_releases_are_about_their_own_pods() -> None:
    blue, green = (one(chart(release=name), "NetworkPolicy")["spec"]["podSelector"] for name in ("blue", "green"))
    assert blue != green


#: values of the chart: the rules for what comes in; None: there is no policy
VALUES: dict[str, tuple[Json, Any]] = {
    "off": ({"enabled": False}, None),
    "from a namespace": (
        {"from": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]},
        [
            {
                "ports": [{"protocol": "TCP", "port": "http-metrics"}],
                "from": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}],
            }
        ],
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_the_values_of_the_chart(name: str) -> None:
    values, expected = VALUES[name]
    found = policies(chart({"networkPolicy": values}))
    assert [policy["spec"]["ingress"] for policy in found.values()] == ([] if expected is None else [expected])


def test_a_value_that_nobody_knows_is_refused() -> None:
    with pytest.raises(Refused, match="egress"):
        chart({"networkPolicy": {"egress": []}})


@pytest.mark.parametrize("folder", OPEN)
def test_the_api_server_takes_them(folder: str, cluster: ControlPlane) -> None:
    """As far as it knows the kinds: the namespaces of deploy/liqo come first."""
    wanted = [each for each in kustomization(folder) if each["kind"] in {"Namespace", "NetworkPolicy"}]
    made = cluster.apply(wanted)
    assert len(policies(made)) == len(OPEN[folder])
    for each in reversed(made):
        cluster.api.delete(cluster.api.path(each))


def container(folder: str, name: str) -> Json:
    [found] = [
        each for each in kustomization(folder) if each["kind"] == "Deployment" and each["metadata"]["name"] == name
    ]
    [only] = found["spec"]["template"]["spec"]["containers"]
    return dict(only)


def mounted(folder: str, name: str, path: str) -> bool:
    """Whether a volume of the container *name* has *path*; none is mounted in another one, which may be read-only."""
    mounts = [each["mountPath"] for each in container(folder, name)["volumeMounts"]]
    assert not [one for one in mounts for other in mounts if one != other and one.startswith(f"{other}/")]
    return any(path.startswith(f"{mount}/") for mount in mounts)


def test_the_shipped_proxy_asks_for_tls_and_a_certificate() -> None:
    server = config.read(DEPLOY / "proxy" / "proxy.json").server
    assert server.tls is not None
    files = (server.tls.cert_path, server.tls.key_path, server.tls.client_ca_path)
    assert all(path and mounted("proxy", "cloudpool-proxy", path) for path in files)


def test_the_shipped_provider_service_asks_for_tls_and_a_certificate() -> None:
    args = container("provider", "provider-service")["args"]
    files = dict(arg.split("=", 1) for arg in args if arg.startswith(("--cert=", "--key-cert=", "--ca-cert=")))
    assert set(files) == {"--cert", "--key-cert", "--ca-cert"}
    assert all(mounted("provider", "provider-service", path) for path in files.values())
    assert "--insecure-plaintext" not in " ".join(args)
    assert yaml.safe_load((DEPLOY / "provider" / "cloud-config").read_text())["pools"]


def test_the_provider_service_gets_no_token_of_the_api_server() -> None:
    objects = kustomization("provider")
    assert one(objects, "ServiceAccount")["automountServiceAccountToken"] is False
    assert not [each for each in objects if "Role" in each["kind"]]
