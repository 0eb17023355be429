"""DynamicResources: the scheduler's reasons for missing objects, and rejections if it is not proved that a pod fits."""

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
    requested = list(requests) or [{"name": "one", "exactly": {"deviceClassName": "gpu"}}]
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default", **meta},
        "spec": {"devices": {"requests": requested}},
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


def _both(reason: str) -> tuple[str, str]:
    return reason, reason


#: The pod's claim, the objects, and the reasons for the nodes a and b in zones a and b.
CASES: dict[str, tuple[Json, list[Json], tuple[str, str]]] = {
    "from a template, not created yet": (
        {"name": "r", "resourceClaimTemplateName": "t"},
        [GPU, _claim()],
        _both('pod "default/p": ResourceClaim not created yet'),
    ),
    "neither name nor template": (
        {"name": "r"},
        [],
        _both('pod "default/p", spec.resourceClaim "r": none of the supported fields are set'),
    ),
    "claim does not exist": (BY_NAME, [], _both('could not find ResourceClaim "default/c"')),
    "claim is being deleted": (
        BY_NAME,
        [GPU, _claim(deletionTimestamp="2024-01-01T00:00:00Z")],
        _both('resourceclaim "c" is being deleted'),
    ),
    "device class does not exist": (BY_NAME, [_claim()], _both("request one: device class gpu does not exist")),
    "device class without a name": (
        BY_NAME,
        [GPU, _claim(None, {"name": "one", "exactly": {}})],
        _both('running PreFilter plugin "DynamicResources": request one: unsupported request type'),
    ),
    "request of unknown type": (
        BY_NAME,
        [GPU, _claim(None, {"name": "one"})],
        _both("resource claim default/c, request one: unknown request type"),
    ),
    "one of several device classes does not exist": (
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
    "devices not allocated yet": (BY_NAME, [GPU, _claim()], _both(UNPROVEN)),
    "allocated, shared with other pods, on some nodes": (BY_NAME, [_claim(_allocated("a"))], ("", UNAVAILABLE)),
    "allocated, shared with other pods, on all nodes": (
        BY_NAME,
        [_claim({**_allocated(), "allocation": {}})],
        ("", ""),
    ),
    "allocated for this pod alone": (BY_NAME, [_claim(_allocated("a", users=1))], _both(UNPROVEN)),
    "allocated, but devices are not ready": (
        BY_NAME,
        [_claim(_allocated("a", conditions=("Attached",)))],
        _both(UNPROVEN),
    ),
    "allocation with an invalid node selector": (
        BY_NAME,
        [_claim(_allocated(operator="Is"))],
        _both('running PreFilter plugin "DynamicResources": the node selector of the allocation is invalid'),
    ),
}


def _reasons_by_node(objects: list[Json], obj: Json) -> dict[str, list[str]]:
    table = load(node("a", labels={"zone": "a"}), node("b", labels={"zone": "b"}), *objects, obj)
    rows = np.array([table.nodes.row["a"], table.nodes.row["b"]])
    rejected = Filters(table, DEFAULT).rejections(table.pods["default/p"].cls, rows)
    return {
        name: [
            ", ".join(rejections.reasons(int(rejections.codes[i])))
            for rejections in rejected
            if rejections.codes[i] and rejections.plugin == "DynamicResources"
        ]
        for i, name in enumerate("ab")
    }


@pytest.mark.parametrize(("requested", "objects", "expected"), CASES.values(), ids=CASES)
def test_resource_claims_reject_nodes_with_the_schedulers_reasons(
    requested: Json, objects: list[Json], expected: tuple[str, str]
) -> None:
    obj = pod("p", resourceClaims=[requested])
    assert _reasons_by_node(objects, obj) == {
        name: [why] if why else [] for name, why in zip("ab", expected, strict=True)
    }


def test_missing_claims_are_reported_first() -> None:
    conflict = [{"key": "metadata.name", "operator": "In", "values": []}]
    required = {"nodeSelectorTerms": [{"matchFields": conflict}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    table = load(node("a"), pod("p", resourceClaims=[BY_NAME], affinity=affinity))
    rejected = Filters(table, DEFAULT).rejections(table.pods["default/p"].cls, np.flatnonzero(table.nodes.alive))
    assert [rejections.plugin for rejections in rejected] == ["DynamicResources", "NodeAffinity"]


RESOURCES: dict[str, tuple[list[Json], Json, Json, list[str]]] = {
    "provided by a device plugin": ([GPU], {"example.com/gpu": "4"}, {"example.com/gpu": "1"}, []),
    "provided by a DeviceClass": ([GPU], {}, {"example.com/gpu": "1"}, [UNPROVEN]),
    "zero requested": ([GPU], {}, {"example.com/gpu": "0"}, []),
    "provided by no DeviceClass": ([], {}, {"example.com/gpu": "1"}, []),
    "another resource is on no node": ([GPU], {}, {"example.com/gpu": "1", "b.c/d": "1"}, ["cannot fit resource"]),
    "another resource is exhausted": ([GPU], {"b.c/d": "0"}, {"example.com/gpu": "1", "b.c/d": "1"}, [UNPROVEN]),
}


@pytest.mark.parametrize(("objects", "offer", "requested", "expected"), RESOURCES.values(), ids=RESOURCES)
def test_extended_resources_provided_by_a_device_class_are_rejected(
    objects: list[Json], offer: Json, requested: Json, expected: list[str]
) -> None:
    table = load(node("n", allocatable=offer), *objects, pod("p", requests=requested))
    rejected = Filters(table, DEFAULT).rejections(table.pods["default/p"].cls, np.flatnonzero(table.nodes.alive))
    actual = [
        reason
        for rejections in rejected
        if rejections.plugin == "DynamicResources"
        for reason in rejections.reasons(int(rejections.codes[0]))
    ]
    assert actual == expected
