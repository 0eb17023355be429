"""Tests of the names of controllers."""

from typing import Any

import pytest

from rescheduler.planning.controllers import controller_of
from tests.planning.builders import pod, snapshot

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "a Deployment's ReplicaSet": (
        {"labels": {"pod-template-hash": "6d8f"}, "owned_by": "api-6d8f"},
        "Deployment data/api",
    ),
    "a ReplicaSet with another name": (
        {"labels": {"pod-template-hash": "6d8f"}, "owned_by": "api"},
        "ReplicaSet data/api",
    ),
    "a ReplicaSet named like the hash": (
        {"labels": {"pod-template-hash": "6d8f"}, "owned_by": "-6d8f"},
        "Pod data/p",
    ),
    "a ReplicaSet without a hash": ({"labels": {}, "owned_by": "api-6d8f"}, "ReplicaSet data/api-6d8f"),
    "an empty hash": ({"labels": {"pod-template-hash": ""}, "owned_by": "api-"}, "Pod data/p"),
    "another kind with a hash": (
        {"labels": {"pod-template-hash": "6d8f"}, "owned_by": "api-6d8f", "owner": "Rollout"},
        "Rollout data/api-6d8f",
    ),
    "a Rollout's ReplicaSet": (
        {
            "labels": {"rollouts-pod-template-hash": "6d8f", "pod-template-hash": "77"},
            "owned_by": "api-6d8f",
            "owner": "apps/v1/ReplicaSet",
        },
        "Rollout data/api",
    ),
    "a Spark executor": ({"owner": "v1/Pod", "owned_by": "driver"}, "Pod data/p"),
    "a CloneSet": ({"owner": "apps.kruise.io/v1alpha1/CloneSet", "owned_by": "api"}, "CloneSet data/api"),
    "a StatefulSet": ({"owner": "apps/v1/StatefulSet", "owned_by": "db"}, "StatefulSet data/db"),
    "no controller": ({"owner": None}, "Pod data/p"),
}


@pytest.mark.parametrize(("fields", "name"), CASES.values(), ids=CASES)
def test_the_controller_of_a_pod_is_derived_from_its_owner(fields: dict[str, Any], name: str) -> None:
    owned_by = fields.pop("owned_by", "") if (fields := dict(fields)) else ""
    manifest = pod("data/p", "n", **fields)
    for reference in manifest["metadata"].get("ownerReferences", []):
        reference["name"] = owned_by
    assert str(controller_of(snapshot([manifest]).pods["data/p"])) == name
