"""Each shipped workload has a NetworkPolicy for exactly its ports, and its listeners require authentication."""

from typing import Any

import pytest
import yaml

from devcluster.api import Json
from devcluster.plane import ControlPlane
from rescheduler.cloudpool.proxy import config
from tests.cluster.rendering import DEPLOY, RenderingError, chart, kustomization, only_of_kind

#: By kustomization: the open ports of each workload.
OPEN = {
    "base": {"spot-rescheduler": {"http-metrics"}},
    "proxy": {"cloudpool-proxy": {"https", "http-metrics"}},
    "provider": {"provider-service": {"grpc", "http-metrics"}},
    "liqo": {"discovery-server": {"https", "http-metrics"}, "node-manager": {"https", "http-metrics"}},
}


def policies(objects: list[Json]) -> dict[str, Json]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == "NetworkPolicy"}


def opened(policy: Json) -> set[str]:
    return {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}


def check(policy: Json, workload: Json) -> None:
    """Assert that *policy* selects the pods of *workload*, allows exactly their ports, and does not restrict egress."""
    spec, template = policy["spec"], workload["spec"]["template"]
    assert spec["policyTypes"] == ["Ingress"]
    assert "egress" not in spec
    assert spec["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert spec["podSelector"]["matchLabels"] == workload["spec"]["selector"]["matchLabels"]
    assert policy["metadata"].get("namespace") == workload["metadata"].get("namespace")
    [container] = template["spec"]["containers"]
    assert opened(policy) == {port["name"] for port in container["ports"]}


@pytest.mark.parametrize("folder", OPEN)
def test_each_workload_of_a_kustomization_has_a_network_policy(folder: str) -> None:
    objects = kustomization(folder)
    actual = policies(objects)
    assert {name: opened(policy) for name, policy in actual.items()} == OPEN[folder]
    for workload in objects:
        if workload["kind"] == "Deployment":
            check(actual[workload["metadata"]["name"]], workload)


def test_chart_and_kustomization_have_the_same_policy() -> None:
    ours, base = chart(), kustomization("base")
    check(only_of_kind(ours, "NetworkPolicy"), only_of_kind(ours, "Deployment"))
    assert (
        only_of_kind(ours, "NetworkPolicy")["spec"]["ingress"] == only_of_kind(base, "NetworkPolicy")["spec"]["ingress"]
    )


def test_the_policies_of_two_releases_select_their_own_pods() -> None:
    blue, green = (
        only_of_kind(chart(release=name), "NetworkPolicy")["spec"]["podSelector"] for name in ("blue", "green")
    )
    assert blue != green


#: Values of the chart, and the ingress rules; None: no policy.
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
def test_chart_values_determine_the_ingress_rules(name: str) -> None:
    values, expected = VALUES[name]
    actual = policies(chart({"networkPolicy": values}))
    assert [policy["spec"]["ingress"] for policy in actual.values()] == ([] if expected is None else [expected])


def test_an_unknown_value_is_rejected() -> None:
    with pytest.raises(RenderingError, match="egress"):
        chart({"networkPolicy": {"egress": []}})


@pytest.mark.parametrize("folder", OPEN)
def test_the_api_server_accepts_the_policies(folder: str, cluster: ControlPlane) -> None:
    """The namespaces of deploy/liqo are created first."""
    wanted = [each for each in kustomization(folder) if each["kind"] in {"Namespace", "NetworkPolicy"}]
    applied = cluster.apply(wanted)
    assert len(policies(applied)) == len(OPEN[folder])
    for each in reversed(applied):
        cluster.api.delete(cluster.api.path(each))


def container(folder: str, name: str) -> Json:
    [actual] = [
        each for each in kustomization(folder) if each["kind"] == "Deployment" and each["metadata"]["name"] == name
    ]
    [only] = actual["spec"]["template"]["spec"]["containers"]
    return dict(only)


def mounted(folder: str, name: str, path: str) -> bool:
    """Return whether *path* is in a volume of the container *name*; assert that no mount is inside another mount."""
    mounts = [each["mountPath"] for each in container(folder, name)["volumeMounts"]]
    assert not [mount for mount in mounts for other in mounts if mount != other and mount.startswith(f"{other}/")]
    return any(path.startswith(f"{mount}/") for mount in mounts)


def test_the_shipped_proxy_requires_tls_and_a_client_certificate() -> None:
    server = config.read(DEPLOY / "proxy" / "proxy.json").server
    assert server.tls is not None
    files = (server.tls.cert_path, server.tls.key_path, server.tls.client_ca_path)
    assert all(path and mounted("proxy", "cloudpool-proxy", path) for path in files)


def test_the_shipped_provider_service_requires_tls_and_a_client_certificate() -> None:
    args = container("provider", "provider-service")["args"]
    files = dict(arg.split("=", 1) for arg in args if arg.startswith(("--cert=", "--key-cert=", "--ca-cert=")))
    assert set(files) == {"--cert", "--key-cert", "--ca-cert"}
    assert all(mounted("provider", "provider-service", path) for path in files.values())
    assert "--insecure-plaintext" not in " ".join(args)
    assert yaml.safe_load((DEPLOY / "provider" / "cloud-config").read_text())["pools"]


def test_the_provider_service_may_only_hold_the_lease_of_its_pool() -> None:
    objects = kustomization("provider")
    [rule] = only_of_kind(objects, "Role")["rules"]
    assert (rule["resources"], rule["verbs"]) == (["leases"], ["get", "patch"])
    assert rule["resourceNames"] == [only_of_kind(objects, "Lease")["metadata"]["name"]]
    assert not [each for each in objects if each["kind"].startswith("ClusterRole")]
