"""LimitRanges set amounts of new pods and reject pods, and VerticalPodAutoscalers set amounts."""

from typing import Any

import msgspec
import pytest

from predicates.objects import ResourceRequirements, VerticalPodAutoscaler
from rescheduler.planning.admission import Bounds, LimitRanges, recommended
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
    "no request: the minimum is the default": (limits(min={"cpu": "1"}), [container()], ""),
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
    "an init container asks for more than the others together": (
        limits("Pod", max={"cpu": "3"}),
        [*ONE, container("setup", request="4", limit="4", init=True)],
        "the maximum of cpu is 3, but the pod asks for more",
    ),
    "limits of claims do not concern pods": (limits("PersistentVolumeClaim", max={"cpu": "1"}), ONE, ""),
    "another resource": (limits(min={"memory": "0"}, max={"memory": "1Gi"}), ONE, ""),
}


@pytest.mark.parametrize(("limit_range", "containers", "why"), REJECTIONS.values(), ids=REJECTIONS)
def test_new_pods_are_rejected_as_by_admission(limit_range: Manifest, containers: list[Manifest], why: str) -> None:
    init = [each for each in containers if each.pop("init", False)]
    main = [each for each in containers if each not in init]
    cluster = snapshot([node("n"), pod("a-1", "n", containers=main, initContainers=init), limit_range])
    spec = cluster.pods["default/a-1"].cls.spec
    rejection = LimitRanges(cluster).rejection("default", spec)
    assert rejection == (f"LimitRange default/limits: {why}" if why else "")
    assert not LimitRanges(cluster).rejection("other", spec)


#: A LimitRange, and the CPU request and limit of a container without any.
DEFAULTS: dict[str, tuple[Manifest, str | None, str | None]] = {
    "a default request": (limits(default={"cpu": "3"}, defaultRequest={"cpu": "1"}), "1", "3"),
    "only a default limit": (limits(default={"cpu": "3"}), "3", "3"),
    "only a maximum": (limits(max={"cpu": "3"}), "3", "3"),
    "only a minimum": (limits(min={"cpu": "2"}), "2", None),
    "a minimum and a maximum": (limits(min={"cpu": "2"}, max={"cpu": "3"}), "3", "3"),
    "of pods": (limits("Pod", min={"cpu": "2"}), None, None),
}


@pytest.mark.parametrize(("limit_range", "request_", "limit"), DEFAULTS.values(), ids=DEFAULTS)
def test_default_requests_and_limits(limit_range: Manifest, request_: str | None, limit: str | None) -> None:
    defaults = LimitRanges(snapshot([node("n"), limit_range])).defaults("default")
    assert (defaults.requests.get("cpu"), defaults.limits.get("cpu")) == (request_, limit)


def test_a_maximum_of_pods_counts_what_the_pod_as_a_whole_asks_for() -> None:
    whole = {"requests": {"cpu": "5"}, "limits": {"cpu": "5"}}
    objects = [node("n"), pod("a-1", "n", containers=ONE, resources=whole), limits("Pod", max={"cpu": "4"})]
    cluster = snapshot(objects)
    rejection = LimitRanges(cluster).rejection("default", cluster.pods["default/a-1"].cls.spec)
    assert "the maximum of cpu is 4, but the pod asks for more" in rejection


def autoscaler(cpu: str, **policy: Any) -> VerticalPodAutoscaler:
    policies = [{"containerName": "*", **policy}] if policy else []
    return msgspec.convert(
        {
            "metadata": {"name": "vpa"},
            "spec": {"resourcePolicy": {"containerPolicies": policies}},
            "status": {
                "recommendation": {"containerRecommendations": [{"containerName": "main", "target": {"cpu": cpu}}]}
            },
        },
        VerticalPodAutoscaler,
    )


#: An autoscaler, the request and the limit of CPU without it, the bounds of LimitRanges, and what it sets.
#: The values are those of the functions of the VPA that the module names.
RECOMMENDED: dict[str, tuple[VerticalPodAutoscaler, tuple[str, str], Bounds, tuple[str, str]]] = {
    "only a request": (autoscaler("4"), ("1", ""), Bounds(), ("4", "")),
    "the limit keeps its ratio": (autoscaler("4"), ("1", "2"), Bounds(), ("4", "8000m")),
    "a limit equal to the request": (autoscaler("4"), ("1", "1"), Bounds(), ("4", "4")),
    "a limit without a request": (autoscaler("4"), ("", "1"), Bounds(), ("4", "4")),
    "only requests are controlled": (
        autoscaler("4", controlledValues="RequestsOnly"),
        ("1", "2"),
        Bounds(),
        ("2", "2"),
    ),
    "at most maxAllowed": (autoscaler("4", maxAllowed={"cpu": "3"}), ("1", ""), Bounds(), ("3", "")),
    "at least minAllowed": (autoscaler("100m", minAllowed={"cpu": "250m"}), ("1", ""), Bounds(), ("250m", "")),
    "the maximum of a LimitRange, by the limit": (
        autoscaler("4"),
        ("1", "2"),
        Bounds({}, {"cpu": "3"}),
        ("1500m", "3000m"),
    ),
    "without a limit there is no maximum": (autoscaler("4"), ("1", ""), Bounds({}, {"cpu": "3"}), ("4", "")),
    "the minimum of a LimitRange": (autoscaler("1m"), ("1", ""), Bounds({"cpu": "20m"}, {}), ("20m", "")),
    "maxAllowed wins over the minimum of a LimitRange": (
        autoscaler("1m", maxAllowed={"cpu": "10m"}),
        ("1", ""),
        Bounds({"cpu": "20m"}, {}),
        ("10m", ""),
    ),
    "a container of the mode Off": (autoscaler("4", mode="Off"), ("1", "2"), Bounds(), ("1", "2")),
    "another resource is controlled": (autoscaler("4", controlledResources=["memory"]), ("1", ""), Bounds(), ("1", "")),
}


@pytest.mark.parametrize(("vpa", "before", "bounds", "after"), RECOMMENDED.values(), ids=RECOMMENDED)
def test_recommendations_are_applied_as_by_the_admission_of_the_autoscaler(
    vpa: VerticalPodAutoscaler, before: tuple[str, str], bounds: Bounds, after: tuple[str, str]
) -> None:
    set_ = recommended(vpa, "main", resources(*before), bounds)
    assert set_ == resources(*after)


def resources(request: str, limit: str) -> ResourceRequirements:
    return ResourceRequirements(requests={"cpu": request} if request else {}, limits={"cpu": limit} if limit else {})
