"""DynamicResources: what is missing is named as the scheduler names it, what is unproven is refused."""

from typing import Any

import numpy as np
import pytest

from predicates.filters import Filters
from predicates.plugins import DEFAULT
from tests.conformance.builders import node, pod
from tests.conformance.generate.world import Json
from tests.predicates.asking import load

UNPROVEN = "cannot tell whether the devices of the pod's resource claims will be free"
UNAVAILABLE = "resourceclaim not available on the node"
GPU: Json = {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}


def _claim(status: Json | None = None, *requests: Json, **meta: Any) -> Json:
    asked = list(requests) or [{"name": "one", "exactly": {"deviceClassName": "gpu"}}]
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default", **meta},
        "spec": {"devices": {"requests": asked}},
        "status": status or {},
    }


def _allocated(*zones: str, users: int = 2, operator: str = "In", conditions: tuple[str, ...] = ()) -> Json:
    term = {"matchExpressions": [{"key": "zone", "operator": operator, "values": list(zones)}]}
    allocation = {
        "nodeSelector": {"nodeSelectorTerms": [term]},
        "devices": {"results": [{"device": "d", "bindingConditions": conditions}]},
    }
    return {"allocation": allocation, "reservedFor": [{"resource": "pods", "uid": f"u{i}"} for i in range(users)]}


BY_NAME: Json = {"name": "r", "resourceClaimName": "c"}


def _both(sentence: str) -> tuple[str, str]:
    return sentence, sentence


#: The pod's claim, the objects, and what is said of the nodes a and b of zones a and b.
CASES: dict[str, tuple[Json, list[Json], tuple[str, str]]] = {
    "from a template that nobody has filled": (
        {"name": "r", "resourceClaimTemplateName": "t"},
        [GPU, _claim()],
        _both('pod "default/p": ResourceClaim not created yet'),
    ),
    "neither by name nor from a template": (
        {"name": "r"},
        [],
        _both('pod "default/p", spec.resourceClaim "r": none of the supported fields are set'),
    ),
    "a claim that is not there": (BY_NAME, [], _both('could not find ResourceClaim "default/c"')),
    "a claim that is going": (
        BY_NAME,
        [GPU, _claim(deletionTimestamp="2024-01-01T00:00:00Z")],
        _both('resourceclaim "c" is being deleted'),
    ),
    "a class that is not there": (BY_NAME, [_claim()], _both("request one: device class gpu does not exist")),
    "a class without a name": (
        BY_NAME,
        [GPU, _claim(None, {"name": "one", "exactly": {}})],
        _both('running PreFilter plugin "DynamicResources": request one: unsupported request type'),
    ),
    "a request of no kind": (
        BY_NAME,
        [GPU, _claim(None, {"name": "one"})],
        _both("resource claim default/c, request one: unknown request type"),
    ),
    "one of several classes is not there": (
        BY_NAME,
        [
            GPU,
            _claim(
                None,
                {"name": "one", "firstAvailable": [{"name": n, "deviceClassName": n} for n in ("gpu", "tpu")]},
            ),
        ],
        _both("request one/tpu: device class tpu does not exist"),
    ),
    "devices must be searched for": (BY_NAME, [GPU, _claim()], _both(UNPROVEN)),
    "devices shared with others, on some nodes": (BY_NAME, [_claim(_allocated("a"))], ("", UNAVAILABLE)),
    "devices shared with others, on all nodes": (BY_NAME, [_claim({**_allocated(), "allocation": {}})], ("", "")),
    "devices of this pod alone go with it": (BY_NAME, [_claim(_allocated("a", users=1))], _both(UNPROVEN)),
    "devices that are still to be made ready": (
        BY_NAME,
        [_claim(_allocated("a", conditions=("Attached",)))],
        _both(UNPROVEN),
    ),
    "devices for a broken choice of nodes": (
        BY_NAME,
        [_claim(_allocated(operator="Is"))],
        _both('running PreFilter plugin "DynamicResources": the node selector of the allocation is invalid'),
    ),
}


def _said(objects: list[Json], one: Json) -> dict[str, list[str]]:
    table = load(node("a", labels={"zone": "a"}), node("b", labels={"zone": "b"}), *objects, one)
    rows = np.array([table.nodes.row["a"], table.nodes.row["b"]])
    refused = Filters(table, DEFAULT).rejections(table.pods["default/p"].cls, rows)
    return {
        name: [
            ", ".join(one.reasons(int(one.codes[i])))
            for one in refused
            if one.codes[i] and one.plugin == "DynamicResources"
        ]
        for i, name in enumerate("ab")
    }


@pytest.mark.parametrize(("asked", "objects", "expected"), CASES.values(), ids=CASES)
def test_a_pod_with_a_claim(asked: Json, objects: list[Json], expected: tuple[str, str]) -> None:
    one = pod("p", resourceClaims=[asked])
    assert _said(objects, one) == {name: [why] if why else [] for name, why in zip("ab", expected, strict=True)}


def test_what_is_missing_is_told_before_anything_else() -> None:
    conflict = [{"key": "metadata.name", "operator": "In", "values": []}]
    required = {"nodeSelectorTerms": [{"matchFields": conflict}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    table = load(node("a"), pod("p", resourceClaims=[BY_NAME], affinity=affinity))
    refused = Filters(table, DEFAULT).rejections(table.pods["default/p"].cls, np.flatnonzero(table.nodes.alive))
    assert [one.plugin for one in refused] == ["DynamicResources", "NodeAffinity"]


RESOURCES: dict[str, tuple[list[Json], Json, Json, list[str]]] = {
    "a device plugin gives it": ([GPU], {"example.com/gpu": "4"}, {"example.com/gpu": "1"}, []),
    "devices stand behind it": ([GPU], {}, {"example.com/gpu": "1"}, [UNPROVEN]),
    "none is asked for": ([GPU], {}, {"example.com/gpu": "0"}, []),
    "no class lends its devices": ([], {}, {"example.com/gpu": "1"}, []),
    "something else is on no node": ([GPU], {}, {"example.com/gpu": "1", "b.c/d": "1"}, ["cannot fit resource"]),
    "something else is used up": ([GPU], {"b.c/d": "0"}, {"example.com/gpu": "1", "b.c/d": "1"}, [UNPROVEN]),
}


@pytest.mark.parametrize(("objects", "offer", "asked", "expected"), RESOURCES.values(), ids=RESOURCES)
def test_a_resource_that_devices_stand_behind(
    objects: list[Json], offer: Json, asked: Json, expected: list[str]
) -> None:
    table = load(node("n", allocatable=offer), *objects, pod("p", requests=asked))
    refused = Filters(table, DEFAULT).rejections(table.pods["default/p"].cls, np.flatnonzero(table.nodes.alive))
    found = [
        sentence for one in refused if one.plugin == "DynamicResources" for sentence in one.reasons(int(one.codes[0]))
    ]
    assert found == expected
