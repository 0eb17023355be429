"""LimitRanges set requests of new pods, and reject pods."""

from typing import Any

import pytest

from rescheduler.planning.limit_ranges import LimitRanges
from tests.planning.builders import Manifest, node, pod, snapshot


def limits(type_: str = "Container", **item: Any) -> Manifest:
    meta = {"name": "limits", "namespace": "default"}
    return {"kind": "LimitRange", "metadata": meta, "spec": {"limits": [{"type": type_, **item}]}}


def container(name: str = "main", request: str = "", limit: str = "", **fields: Any) -> Manifest:
    amounts = {"requests": request, "limits": limit}
    return {"name": name, "resources": {key: {"cpu": amount} for key, amount in amounts.items() if amount}, **fields}


ONE = [container(request="1", limit="2")]
TWO = [*ONE, container("proxy", request="1", limit="2")]

#: A LimitRange, the containers of a new pod, and why it is rejected.
REJECTIONS: dict[str, tuple[Manifest, list[Manifest], str]] = {
    "within": (limits(min={"cpu": "500m"}, max={"cpu": "2"}, maxLimitRequestRatio={"cpu": "2"}), ONE, ""),
    "a request below the minimum": (
        limits(min={"cpu": "1500m"}),
        ONE,
        "the minimum of cpu is 1500m, but container main requests less",
    ),
    "no request": (
        limits(min={"cpu": "1"}),
        [container()],
        "the minimum of cpu is 1, but container main requests less",
    ),
    "the limit is the request": (limits(min={"cpu": "1"}), [container(limit="1")], ""),
    "a limit above the maximum": (
        limits(max={"cpu": "1500m"}),
        ONE,
        "the maximum of cpu is 1500m, but container main asks for more",
    ),
    "no limit: the maximum is the default": (limits(max={"cpu": "1"}), [container(request="1")], ""),
    "no limit, a request above the default": (
        limits(max={"cpu": "1"}),
        [container(request="1001m")],
        "the maximum of cpu is 1, but container main asks for more",
    ),
    "the limit is too many times the request": (
        limits(maxLimitRequestRatio={"cpu": "1.5"}),
        ONE,
        "the limit of cpu may be 1.5 times the request, but that of container main is higher",
    ),
    "a ratio without a limit": (
        limits(maxLimitRequestRatio={"cpu": "2"}),
        [container(request="1")],
        "the limit of cpu may be 2 times the request, but container main has no limit or no request",
    ),
    "the sum of a pod is above its maximum": (
        limits("Pod", max={"cpu": "3"}),
        TWO,
        "the maximum of cpu is 3, but the pod asks for more",
    ),
    "the sum of a pod is within": (limits("Pod", max={"cpu": "4"}, min={"cpu": "2"}), TWO, ""),
    "a pod without limits": (
        limits("Pod", max={"cpu": "4"}),
        [container(request="1")],
        "the maximum of cpu is 4, but the pod has no limit",
    ),
    "limits of claims do not concern pods": (limits("PersistentVolumeClaim", max={"cpu": "1"}), ONE, ""),
    "another resource": (limits(min={"memory": "0"}, max={"memory": "1Gi"}), ONE, ""),
}


@pytest.mark.parametrize(("limit_range", "containers", "why"), REJECTIONS.values(), ids=REJECTIONS)
def test_new_pods_are_rejected_as_by_admission(limit_range: Manifest, containers: list[Manifest], why: str) -> None:
    cluster = snapshot([node("n"), pod("a-1", "n", containers=containers), limit_range])
    spec = cluster.pods["default/a-1"].cls.spec
    rejection = LimitRanges(cluster).rejection("default", spec)
    assert rejection == (f"LimitRange default/limits: {why}" if why else "")
    assert not LimitRanges(cluster).rejection("other", spec)


#: A LimitRange, and the CPU request of a container without any.
DEFAULTS: dict[str, tuple[Manifest, dict[str, str]]] = {
    "a default request": (limits(default={"cpu": "3"}, defaultRequest={"cpu": "1"}), {"cpu": "1"}),
    "only a default limit": (limits(default={"cpu": "3"}), {"cpu": "3"}),
    "only a maximum": (limits(max={"cpu": "3"}), {"cpu": "3"}),
    "only a minimum": (limits(min={"cpu": "2"}), {"cpu": "2"}),
    "a minimum and a maximum": (limits(min={"cpu": "2"}, max={"cpu": "3"}), {"cpu": "3"}),
    "of pods": (limits("Pod", min={"cpu": "2"}), {}),
}


@pytest.mark.parametrize(("limit_range", "requests"), DEFAULTS.values(), ids=DEFAULTS)
def test_default_requests(limit_range: Manifest, requests: dict[str, str]) -> None:
    assert LimitRanges(snapshot([node("n"), limit_range])).default_requests("default") == requests
