"""Deployments and other workloads as API objects."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rescheduler.kube.workloads import WorkloadObject, digest


def workload(spec: dict[str, Any], *conditions: dict[str, str]) -> WorkloadObject:
    value = {"metadata": {}, "spec": spec, "status": {"conditions": conditions}}
    return msgspec.json.decode(msgspec.json.encode(value), type=WorkloadObject)


@pytest.mark.parametrize(("spec", "wanted"), [({}, 1), ({"replicas": None}, 1), ({"replicas": 0}, 0)])
def test_the_desired_number_of_pods_of_a_workload_is_computed(spec: dict[str, Any], wanted: int) -> None:
    assert workload(spec).wanted == wanted


FAILURE = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
REFUSALS: dict[str, tuple[dict[str, str], str]] = {
    "cannot create": (FAILURE, "exceeded quota"),
    "without a message": (FAILURE | {"message": ""}, "FailedCreate"),
    "cannot delete": (FAILURE | {"reason": "FailedDelete"}, ""),
    "no more": (FAILURE | {"status": "False"}, ""),
    "another condition": (FAILURE | {"type": "Progressing"}, ""),
}


@pytest.mark.parametrize(("condition", "refusal"), REFUSALS.values(), ids=REFUSALS)
def test_the_reason_for_missing_pods_is_read_from_a_condition(condition: dict[str, str], refusal: str) -> None:
    assert workload({}, {"type": "Available", "status": "True"}, condition).refusal == refusal


def test_the_digest_does_not_depend_on_the_json_format() -> None:
    assert digest(Raw(b'{"a": [1, {"c": null, "b": 2}], "d": "e"}')) == digest(
        Raw(b'{"d":"e","a":[1,{"b":2,"c":null}]}')
    )
    assert digest(Raw(b'{"a": [1, 2]}')) != digest(Raw(b'{"a": [2, 1]}'))


ROLLING = {"replicas": 4, "updatedReplicas": 1}
PARTITIONED = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
REVISIONS = {"currentRevision": "1", "updateRevision": "2"}

#: The spec and the status, and whether the controller is replacing pods by itself.
ROLL_OUTS: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "a Deployment": ({"strategy": {}}, ROLLING, True),
    "a Deployment with Recreate": ({"strategy": {"type": "Recreate"}}, ROLLING, True),
    "a Deployment with only new pods": (
        {"strategy": {}},
        {"replicas": 4, "updatedReplicas": 4},
        False,
    ),
    "a Deployment that lacks a pod": ({"replicas": 4, "strategy": {}}, {"replicas": 3, "updatedReplicas": 3}, False),
    "a paused Deployment": ({"strategy": {}, "paused": True}, ROLLING, False),
    "a ReplicaSet": ({}, ROLLING, False),
    "a StatefulSet": ({"updateStrategy": {}}, REVISIONS | {"currentReplicas": 1}, True),
    "a StatefulSet without pods of the old revision": ({"updateStrategy": {}}, REVISIONS, False),
    "a StatefulSet with one revision": (
        {"updateStrategy": {}},
        {"currentRevision": "1", "updateRevision": "1", "currentReplicas": 2},
        False,
    ),
    "a StatefulSet above its partition": ({"updateStrategy": PARTITIONED}, REVISIONS | {"currentReplicas": 3}, True),
    "a StatefulSet at its partition": ({"updateStrategy": PARTITIONED}, REVISIONS | {"currentReplicas": 2}, False),
    "a StatefulSet with OnDelete": (
        {"updateStrategy": {"type": "OnDelete"}},
        REVISIONS | {"currentReplicas": 2},
        False,
    ),
}


@pytest.mark.parametrize(("spec", "status", "rolls_out"), ROLL_OUTS.values(), ids=ROLL_OUTS)
def test_a_controller_that_replaces_pods_by_itself_rolls_out(
    spec: dict[str, Any], status: dict[str, Any], rolls_out: bool
) -> None:
    value = msgspec.json.encode({"metadata": {}, "spec": spec, "status": status})
    assert msgspec.json.decode(value, type=WorkloadObject).rolling_out is rolls_out


def deployment(replicas: int, **rolling_update: object) -> dict[str, Any]:
    return {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling_update}}


def stateful_set(replicas: int, **strategy: object) -> dict[str, Any]:
    return {"replicas": replicas, "updateStrategy": strategy}


#: The spec, and the pods that a roll-out leaves available, as the controllers compute them.
SPECS: dict[str, tuple[dict[str, Any], int]] = {
    "a Deployment with a number": (deployment(5, maxUnavailable=2, maxSurge=1), 3),
    "a percentage is rounded down": (deployment(5, maxUnavailable="25%", maxSurge="25%"), 4),
    "a small percentage of few pods": (deployment(3, maxUnavailable="25%", maxSurge="25%"), 3),
    "neither surge nor unavailable pods: one is unavailable": (deployment(3, maxUnavailable=0, maxSurge="0%"), 2),
    "only surge": (deployment(3, maxUnavailable=0, maxSurge=1), 3),
    "more unavailable than pods": (deployment(2, maxUnavailable=5), 0),
    "a surge percentage is rounded up": (deployment(3, maxUnavailable="10%", maxSurge="10%"), 3),
    "the defaults of the API server": ({"replicas": 8, "strategy": {"type": "RollingUpdate"}}, 6),
    "Recreate": ({"replicas": 5, "strategy": {"type": "Recreate"}}, 0),
    "a StatefulSet": (stateful_set(3, type="RollingUpdate", rollingUpdate={"partition": 0}), 2),
    "a StatefulSet with a limit": (stateful_set(10, type="RollingUpdate", rollingUpdate={"maxUnavailable": "30%"}), 7),
    "OnDelete replaces no pods": (stateful_set(3, type="OnDelete"), 3),
    "a ReplicaSet has no roll-out": ({"replicas": 4}, 4),
}


@pytest.mark.parametrize(("spec", "available"), SPECS.values(), ids=SPECS)
def test_the_pods_that_a_roll_out_leaves_available_are_computed(spec: dict[str, Any], available: int) -> None:
    assert workload(spec).least_available == available
