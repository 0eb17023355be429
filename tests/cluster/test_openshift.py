"""OpenShift: no pod of ours asks for what its SCC restricted-v2 refuses.

The SCC is OpenShift's default for all ServiceAccounts (``oc get scc restricted-v2 -o yaml``, 4.11 and later): users and
fsGroups come from the range of the namespace, all capabilities are dropped, nothing of the host is used.
"""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from devcluster.api import Json
from rescheduler import cli
from tests.cluster.rendering import DEPLOY, chart, composed, kustomization

_VOLUMES: Final = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
_OF_THE_HOST: Final = ("hostNetwork", "hostPID", "hostIPC", "hostUsers")


def refused(pod: Json) -> list[str]:
    """Return what the SCC restricted-v2 refuses of the spec of a *pod*."""
    security = pod.get("securityContext", {})
    found = [key for key in ("runAsUser", "runAsGroup", "fsGroup") if key in security]
    found += [key for key in _OF_THE_HOST if key in pod]
    found += [kind for volume in pod.get("volumes", ()) for kind in volume.keys() - {"name"} - _VOLUMES]
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        own = container.get("securityContext", {})
        found += [key for key in ("runAsUser", "runAsGroup") if key in own]
        found += [key for key in ("privileged", "allowPrivilegeEscalation") if own.get(key)]
        found += [] if own.get("capabilities") == {"drop": ["ALL"]} else ["capabilities"]
        profile = own.get("seccompProfile", security.get("seccompProfile", {})).get("type")
        found += [] if profile == "RuntimeDefault" else ["seccompProfile"]
        found += ["hostPort" for port in container.get("ports", ()) if "hostPort" in port]
    return found


def pods(objects: list[Json]) -> dict[str, Json]:
    """Return the specs of the pods that the workloads in *objects* create, by kind and name."""
    found = {}
    for item in objects:
        spec: Any = item.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template is not None:
            found[f"{item['kind']}/{item['metadata']['name']}"] = template["spec"]
    return found


#: The values of the chart, each besides the preset, and how many workloads there are.
CHARTS: dict[str, tuple[Json, int]] = {
    "plain": ({}, 1),
    "own labels": ({"options": {"on-demand-node-label": "pool=base", "spot-node-label": "pool=spot"}}, 1),
    "a secret of the cloud": ({"cloudProvider": {"name": "cloudpool", "config": "pools: []\n", "secretName": "s"}}, 1),
    "a list of prices": ({"priceList": {"cloud": "aws", "region": "eu-west-1"}}, 2),
    "a list of prices with a key": (
        {"priceList": {"cloud": "gcp", "region": "europe-west1", "apiKeySecretName": "k"}},
        2,
    ),
    "placeholders": ({"makeRoom": {"mode": "placeholders"}}, 1),
}


@pytest.mark.parametrize("case", CHARTS)
def test_the_chart_with_the_preset(case: str) -> None:
    values, number = CHARTS[case]
    found = pods(chart({"preset": "openshift", **values}))
    assert [(name, refused(pod)) for name, pod in found.items() if refused(pod)] == []
    assert len(found) == number
    others = pods(chart(values))
    assert all({"runAsUser", "runAsGroup"} <= set(refused(pod)) for pod in others.values())


@pytest.mark.parametrize("flags", [(), ("--namespace=ops",), ("--dry-run=false",), ("--spot-node-label=a=b",)])
def test_install_with_the_preset(flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["install", "--preset=openshift", *flags])
    found = pods(list(yaml.safe_load_all(capsys.readouterr().out)))
    assert {name: refused(pod) for name, pod in found.items()} == {"Deployment/spot-rescheduler": []}


def component(name: str) -> str:
    return f"../components/{name}"


#: By case: what is composed with the component.
KUSTOMIZATIONS: dict[str, tuple[list[str], list[str]]] = {
    "the daemon": (["../base"], []),
    "in its namespace": (["../base"], [component("namespace")]),
    "with a list of prices": (["../base"], [component("price-list")]),
    "with machines and placeholders": (["../base"], [component("machines"), component("make-room")]),
    "the proxy": (["../proxy"], []),
    "the services for Liqo": (["../liqo"], []),
    "the provider as a service": (["../provider"], []),
}


@pytest.mark.parametrize("case", KUSTOMIZATIONS)
def test_kustomizations_with_the_component(case: str, tmp_path: Path) -> None:
    resources, components = KUSTOMIZATIONS[case]
    layer = {"resources": resources, "components": [*components, component("openshift")]}
    found = pods(composed(tmp_path, openshift=layer))
    assert found
    assert [(name, refused(pod)) for name, pod in found.items() if refused(pod)] == []


def test_each_workload_in_deploy_is_in_a_case() -> None:
    files = [path for path in DEPLOY.rglob("*.yaml") if "chart" not in path.parts]
    with_users = {path.parent.relative_to(DEPLOY).parts[0] for path in files if "runAsUser: " in path.read_text()}
    assert with_users == {"base", "components", "liqo", "provider", "proxy"}
    assert [path.name for path in (DEPLOY / "components").iterdir() if pods_in(path)] == ["price-list"]


def pods_in(folder: Path) -> dict[str, Json]:
    return pods([item for path in folder.glob("*.yaml") for item in yaml.safe_load_all(path.read_text()) if item])


def test_without_the_component_there_is_a_fixed_user() -> None:
    assert refused(pods(kustomization("base"))["Deployment/spot-rescheduler"]) == ["runAsUser", "runAsGroup"]
