"""Deployments and their like as the API server has them."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rescheduler.kube.workloads import Workload, digest


def workload(spec: dict[str, Any], *conditions: dict[str, str]) -> Workload:
    made = {"metadata": {}, "spec": spec, "status": {"conditions": conditions}}
    return msgspec.json.decode(msgspec.json.encode(made), type=Workload)


@pytest.mark.parametrize(("spec", "wanted"), [({}, 1), ({"replicas": None}, 1), ({"replicas": 0}, 0)])
def test_pods_wanted(spec: dict[str, Any], wanted: int) -> None:
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
def test_why_it_cannot_create_pods(condition: dict[str, str], refusal: str) -> None:
    assert workload({}, {"type": "Available", "status": "True"}, condition).refusal == refusal


def test_templates_are_equal_however_they_are_written() -> None:
    assert digest(Raw(b'{"a": [1, {"c": null, "b": 2}], "d": "e"}')) == digest(
        Raw(b'{"d":"e","a":[1,{"b":2,"c":null}]}')
    )
    assert digest(Raw(b'{"a": [1, 2]}')) != digest(Raw(b'{"a": [2, 1]}'))
