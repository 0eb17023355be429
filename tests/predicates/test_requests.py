"""Requests and load of pods, as in ``resource.PodRequests`` and ``PodInfo.CalculateResource`` of 1.36.3."""

from typing import Any

import msgspec
import pytest

from predicates.objects import PodObject, PodSpec
from predicates.requests import allocatable, counted, is_extended, loads, new_load
from tests.conformance.generate.world import Json

MI = 2**20


def _c(
    cpu: str | None = None, memory: str | None = None, *, also: Json | None = None, name: str = "c", policy: str = ""
) -> Json:
    amounts = {key: amount for key, amount in (("cpu", cpu), ("memory", memory)) if amount is not None}
    restart = {"restartPolicy": policy} if policy else {}
    return {"name": name, "resources": {"requests": amounts | (also or {})}, **restart}


def _sidecar(*amounts: str) -> Json:
    return _c(*amounts, name="side", policy="Always")


def _spec(*containers: Json, init: tuple[Json, ...] = (), **fields: Any) -> PodSpec:
    return msgspec.convert({"containers": containers, "initContainers": init, **fields}, PodSpec)


REQUESTS: dict[str, tuple[PodSpec, dict[str, int]]] = {
    "nothing": (_spec(_c()), {}),
    "sum of containers": (_spec(_c("100m", "1Mi"), _c("200m")), {"cpu": 300, "memory": MI}),
    "the sum is rounded once": (_spec(_c("100400u"), _c("100400u")), {"cpu": 201}),
    "the largest init container": (_spec(_c("100m"), init=(_c("1"), _c("500m", "1Mi"))), {"cpu": 1000, "memory": MI}),
    "init containers below the sum do not count": (_spec(_c("2"), init=(_c("1"),)), {"cpu": 2000}),
    "a sidecar adds to the sum": (_spec(_c("1"), init=(_sidecar("1"),)), {"cpu": 2000}),
    "a sidecar adds to what starts after it": (_spec(_c("1"), init=(_sidecar("1"), _c("5"))), {"cpu": 6000}),
    "a sidecar does not add to what starts before it": (_spec(_c("1"), init=(_c("5"), _sidecar("1"))), {"cpu": 5000}),
    "other restart policies make no sidecar": (
        _spec(_c("1"), init=(_c("1", policy="OnFailure"),)),
        {"cpu": 1000},
    ),
    "overhead is added": (_spec(_c("1"), init=(_c("5"),), overhead={"cpu": "250m"}), {"cpu": 5250}),
    "pod-level request replaces the sum": (
        _spec(_c("1", "1Mi"), resources={"requests": {"cpu": "500m"}}),
        {"cpu": 500, "memory": MI},
    ),
    "overhead is added to pod-level requests": (
        _spec(_c("1"), resources={"requests": {"cpu": "500m"}}, overhead={"cpu": "1m"}),
        {"cpu": 501},
    ),
    "pod-level extended resources are ignored": (
        _spec(_c(also={"a.b/c": "1"}), resources={"requests": {"a.b/c": "5", "hugepages-2Mi": "2Mi"}}),
        {"a.b/c": 1, "hugepages-2Mi": 2 * MI},
    ),
    "pod-level limits without requests are ignored": (
        _spec(_c("1"), resources={"limits": {"cpu": "5"}}),
        {"cpu": 1000},
    ),
    "storage, huge pages and extended resources": (
        _spec(_c(also={"ephemeral-storage": "1Ki", "hugepages-2Mi": "2Mi", "nvidia.com/gpu": "2"})),
        {"ephemeral-storage": 1024, "hugepages-2Mi": 2 * MI, "nvidia.com/gpu": 2},
    ),
    "resources that are not counted": (_spec(_c(also={"storage": "1", "pods": "3", "requests.a/b": "1"})), {}),
}


@pytest.mark.parametrize(("spec", "expected"), REQUESTS.values(), ids=REQUESTS)
def test_the_requests_of_an_unbound_pod_are_computed_like_the_scheduler(
    spec: PodSpec, expected: dict[str, int]
) -> None:
    assert dict(new_load(spec).amounts) == expected


def _status(spec: Json, actual: Json | None, allocated: Json | None = None, **fields: Any) -> PodObject:
    status: Json = {"name": "c"}
    if actual is not None:
        status["resources"] = {"requests": actual}
    if allocated is not None:
        status["allocatedResources"] = allocated
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [_c(**spec)]},
        "status": {"containerStatuses": [status], **fields},
    }
    return msgspec.convert(pod, PodObject)


def _pending(reason: str) -> Json:
    return {"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]}


def _pod_level(spec: Json, status: Json) -> PodObject:
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [_c("1")], "resources": {"requests": spec}},
        "status": status,
    }
    return msgspec.convert(pod, PodObject)


LOADS: dict[str, tuple[PodObject, dict[str, int]]] = {
    "no status": (_status({"cpu": "1"}, None), {"cpu": 1000}),
    "increase: the desired amount": (_status({"cpu": "2"}, {"cpu": "1"}, {"cpu": "1"}), {"cpu": 2000}),
    "decrease: the actual amount": (_status({"cpu": "1"}, {"cpu": "2"}, {"cpu": "1"}), {"cpu": 2000}),
    "allocated, not yet actuated": (_status({"cpu": "1"}, {"cpu": "1"}, {"cpu": "3"}), {"cpu": 3000}),
    "allocated without actuated resources does not count": (_status({"cpu": "1"}, None, {"cpu": "3"}), {"cpu": 1000}),
    "infeasible: the desired amount does not count": (
        _status({"cpu": "9"}, {"cpu": "1"}, {"cpu": "2"}, **_pending("Infeasible")),
        {"cpu": 2000},
    ),
    "deferred: the desired amount counts": (
        _status({"cpu": "9"}, {"cpu": "1"}, {"cpu": "2"}, **_pending("Deferred")),
        {"cpu": 9000},
    ),
    "pod-level increase": (
        _pod_level({"cpu": "3"}, {"resources": {"requests": {"cpu": "2"}}}),
        {"cpu": 3000},
    ),
    "pod-level decrease": (
        _pod_level({"cpu": "1"}, {"resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "4"}}),
        {"cpu": 4000},
    ),
    "pod-level request without pod-level status": (
        _pod_level({"cpu": "1"}, {"allocatedResources": {"cpu": "4"}}),
        {"cpu": 1000},
    ),
    "pod-level infeasible increase": (
        _pod_level({"cpu": "1", "memory": "1Mi"}, {"resources": {"requests": {"cpu": "2"}}, **_pending("Infeasible")}),
        {"cpu": 2000},
    ),
}


@pytest.mark.parametrize(("pod", "expected"), LOADS.values(), ids=LOADS)
def test_the_load_of_a_bound_pod_is_computed_like_the_scheduler(pod: PodObject, expected: dict[str, int]) -> None:
    assert dict(loads(pod)[1].amounts) == expected


DEFAULTS: dict[str, tuple[PodSpec, tuple[int, int]]] = {
    "defaults for containers without requests": (_spec(_c(), _c()), (200, 400 * MI)),
    "a request of zero is a request": (_spec(_c("0", "0")), (0, 0)),
    "no defaults with a pod-level request": (_spec(_c(), resources={"requests": {"cpu": "1"}}), (0, 200 * MI)),
    "no defaults for containers of such a pod": (
        _spec(_c(memory="1Mi"), _c(), resources={"requests": {"cpu": "1"}}),
        (0, 0),
    ),
}


@pytest.mark.parametrize(("spec", "expected"), DEFAULTS.values(), ids=DEFAULTS)
def test_containers_without_requests_have_scoring_defaults(spec: PodSpec, expected: tuple[int, int]) -> None:
    assert new_load(spec).defaults == expected


def test_allocatable_is_rounded_up_and_has_only_counted_resources() -> None:
    given = {"cpu": "1500100u", "memory": "1.5", "pods": "110", "storage": "5", "example.com/a": "3", "odd": "1"}
    assert allocatable(given) == {"cpu": 1501, "memory": 2, "pods": 110, "example.com/a": 3}


@pytest.mark.parametrize(
    ("name", "is_counted", "extended"),
    [
        ("cpu", True, False),
        ("memory", True, False),
        ("ephemeral-storage", True, False),
        ("hugepages-1Gi", True, False),
        ("attachable-volumes-aws-ebs", True, False),
        ("kubernetes.io/batch", True, False),
        ("node.kubernetes.io/x", True, False),
        ("nvidia.com/gpu", True, True),
        ("requests.nvidia.com/gpu", False, False),
        ("Example.com/a", False, False),
        ("example.com/a b", False, False),
        (f"example.com/{'a' * 64}", False, False),
        ("storage", False, False),
        ("pods", False, False),
        ("", False, False),
    ],
)
def test_native_and_extended_resources_are_counted(name: str, is_counted: bool, extended: bool) -> None:
    assert (counted(name), is_extended(name)) == (is_counted, extended)
