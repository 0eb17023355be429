"""The manifests for placeholders: the daemon's rights in their namespace, and the pods that are rejected there."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.api import Json
from devcluster.errors import ApiError
from devcluster.plane import ControlPlane
from rescheduler.settings import PAUSE_IMAGE
from tests.cluster.rendering import DEPLOY, composed, only_of_kind
from tests.cluster.rights import is_allowed, user

ROOM = "spot-rescheduler-room"
COMPONENT = {"resources": ["../base"], "components": ["../components/make-room"]}
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def placeholder(name: str, security: Json | None = None) -> Json:
    container: dict[str, Any] = {"name": "pause", "image": "pause", "securityContext": security or RESTRICTED}
    spec = {"containers": [container], "priorityClassName": ROOM, "nodeSelector": {"none": ""}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": ROOM}, "spec": spec}


@pytest.fixture
def installed(cluster: ControlPlane, tmp_path: Path) -> Iterator[ControlPlane]:
    """The base with the component, without workloads."""
    objects = [item for item in composed(tmp_path, ours=COMPONENT) if item["kind"] != "Deployment"]
    cluster.apply(objects)
    try:
        yield cluster
    finally:
        for item in objects:
            if item["kind"] != "Namespace":  # deleted after each test
                cluster.api.delete(cluster.api.path(item))


def wait_until_usable(cluster: ControlPlane) -> None:
    """Wait until the controllers have created the ServiceAccount of the namespace and counted its pods."""
    folder = f"/api/v1/namespaces/{ROOM}"
    cluster.wait_for(lambda: cluster.api.items(f"{folder}/serviceaccounts"), "the ServiceAccount")
    cluster.wait_for(lambda: counted(cluster) == {"pods": "50"}, "the quota")


def counted(cluster: ControlPlane) -> Json:
    """Return the limits that the quota controller has processed."""
    [quota] = cluster.api.items(f"/api/v1/namespaces/{ROOM}/resourcequotas")
    hard: Json = quota["status"].get("hard", {})
    return hard


def test_names_of_another_installation(tmp_path: Path) -> None:
    """The namespace of placeholders and the PriorityClass have fixed names; the ServiceAccount is that of the base."""
    ours = {"resources": ["../base"], "namespace": "ops", "nameSuffix": "-eu"}
    layers: Json = {"ours": ours, "room": {"resources": ["../ours"], "components": ["../components/make-room"]}}
    objects = composed(tmp_path, **layers)
    assert [each["metadata"]["name"] for each in objects if each["kind"] in {"Namespace", "PriorityClass"}] == [
        ROOM
    ] * 2
    binding = only_of_kind([each for each in objects if each["metadata"].get("namespace") == ROOM], "RoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "spot-rescheduler-eu", "namespace": "ops"}]


def test_another_image_is_named_in_the_policy_as_documented(tmp_path: Path) -> None:
    page = (DEPLOY.parent / "docs" / "make-room.md").read_text(encoding="utf-8")
    patches = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(patches:.*?)```", page, re.DOTALL)]
    [patch] = [each for each in patches if "mirror.example.com/pause" in str(each)]
    specs = []
    for name, layer in (("shipped", COMPONENT), ("patched", COMPONENT | patch)):
        (tmp_path / name).mkdir()
        specs.append(only_of_kind(composed(tmp_path / name, ours=layer), "ValidatingAdmissionPolicy")["spec"])
    variables = [{each["name"]: each["expression"] for each in spec.pop("variables")} for spec in specs]
    assert [each.pop("placeholderImage") for each in variables] == [
        f'"{PAUSE_IMAGE}"',
        '"mirror.example.com/pause:3.10"',
    ]
    assert (specs[0], variables[0]) == (specs[1], variables[1])


@pytest.mark.cluster
def test_the_daemon_may_create_and_delete_pods_in_the_namespace_of_placeholders_only(installed: ControlPlane) -> None:
    account = user("spot-rescheduler", "spot-rescheduler")

    def allowed(verb: str, resource: str, namespace: str) -> bool:
        return is_allowed(installed.api, account, {"verb": verb, "resource": resource, "namespace": namespace})

    for verb in ("create", "delete", "list"):
        installed.wait_for(partial(allowed, verb, "pods", ROOM), f"{verb} pods")
    forbidden = [("create", "secrets"), ("patch", "pods"), ("deletecollection", "pods"), ("create", "configmaps")]
    assert [right for right in forbidden if allowed(*right, ROOM)] == []
    assert [verb for verb in ("create", "delete") if allowed(verb, "pods", "default")] == []


@pytest.mark.cluster
def test_the_namespace_takes_restricted_pods_only(installed: ControlPlane) -> None:
    wait_until_usable(installed)
    with pytest.raises(ApiError, match="violates PodSecurity"):
        installed.api.post(
            f"/api/v1/namespaces/{ROOM}/pods",
            placeholder("escalating", RESTRICTED | {"allowPrivilegeEscalation": True}),
        )
    [accepted] = installed.apply([placeholder("room-1")])
    assert (accepted["spec"]["priority"], accepted["spec"]["preemptionPolicy"]) == (-5, "Never")


@pytest.mark.cluster
def test_the_quota_limits_the_number_of_placeholders(installed: ControlPlane) -> None:
    wait_until_usable(installed)
    installed.api.patch(f"/api/v1/namespaces/{ROOM}/resourcequotas/{ROOM}", {"spec": {"hard": {"pods": "2"}}})
    installed.wait_for(lambda: counted(installed) == {"pods": "2"}, "the new limit")
    installed.apply([placeholder("room-1"), placeholder("room-2")])
    with pytest.raises(ApiError, match="exceeded quota"):
        installed.api.post(f"/api/v1/namespaces/{ROOM}/pods", placeholder("room-3"))
