"""Tests of ResourceQuotas: a quota that would refuse a replacement pod is found before the first eviction."""

from typing import Any

import pytest

from rescheduler.planning.outcome import Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, SPOT, Manifest, node, pod, short, snapshot

NODES = [node("od", ON_DEMAND, cpu="16"), node("s", SPOT, cpu="16")]
LIMITED: Manifest = {
    "containers": [{"name": "main", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}}]
}
BEST_EFFORT: Manifest = {"containers": [{"name": "main"}]}
SCRATCH: Manifest = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}


def quota(
    hard: Manifest, used: Manifest | None = None, *, name: str = "compute", namespace: str = "default", **spec: Any
) -> Manifest:
    meta = {"name": name, "namespace": namespace}
    status = {"hard": hard, "used": used} if used is not None else {}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": meta,
        "spec": {"hard": hard, **spec},
        "status": status,
    }


def claim(name: str, storage: str) -> Manifest:
    spec = {"resources": {"requests": {"storage": storage}}, "storageClassName": "fast"}
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def replicas(app: str, number: int, **fields: Any) -> list[Manifest]:
    return [pod(f"{app}-{index}", "od", **fields) for index in range(number)]


def judged(objects: list[Manifest]) -> Any:
    """Return the placements of the pods of the on-demand node, or the reasons why it stays."""
    return short(Planner(snapshot([*NODES, *objects]), Policy()).plan_node("od", CIRCUMSTANCES))


def scoped(operator: str, *values: str, scope: str = "PriorityClass") -> Manifest:
    term = {"scopeName": scope, "operator": operator, "values": list(values)}
    return {"scopeSelector": {"matchExpressions": [term]}}


FULL = {"pods": "2"}, {"pods": "2"}
#: case: objects → whether a quota would refuse a replacement pod
CASES: dict[str, tuple[list[Manifest], bool]] = {
    "no room for one more pod": ([*replicas("a", 2), quota(*FULL)], True),
    "room for one more pod, one after the other": ([*replicas("a", 2), quota({"pods": "3"}, {"pods": "2"})], False),
    "the steps of a drain grow: two pods at a time": (
        [*replicas("a", 4), quota({"pods": "5"}, {"pods": "4"})],
        True,
    ),
    "room for two pods at a time": ([*replicas("a", 4), quota({"pods": "6"}, {"pods": "4"})], False),
    "a StatefulSet creates its pod when the old one is gone": (
        [*replicas("a", 2, owner="apps/v1/StatefulSet"), quota(*FULL)],
        False,
    ),
    "a StatefulSet, but the quota was lowered": (
        [*replicas("a", 2, owner="apps/v1/StatefulSet"), quota({"pods": "1"}, {"pods": "2"})],
        True,
    ),
    "a custom owner": ([*replicas("a", 2, owner="apps.kruise.io/v1alpha1/CloneSet"), quota(*FULL)], True),
    "a ReplicationController": ([*replicas("a", 2, owner="v1/ReplicationController"), quota(*FULL)], True),
    "requests.cpu": ([*replicas("a", 1), quota({"requests.cpu": "1500m"}, {"requests.cpu": "1"})], True),
    "requests.cpu, exactly enough": ([*replicas("a", 1), quota({"requests.cpu": "2"}, {"requests.cpu": "1"})], False),
    "cpu, its short name": ([*replicas("a", 1), quota({"cpu": "1999m"}, {"cpu": "1"})], True),
    "limits.cpu": ([pod("a", "od", **LIMITED), quota({"limits.cpu": "1500m"}, {"limits.cpu": "1"})], True),
    "limits.cpu, exactly enough": ([pod("a", "od", **LIMITED), quota({"limits.cpu": "2"}, {"limits.cpu": "1"})], False),
    "an extended resource": (
        [
            *replicas("a", 1, containers=[{"name": "m", "resources": {"requests": {"example.com/dongle": "1"}}}]),
            quota({"requests.example.com/dongle": "1"}, {"requests.example.com/dongle": "1"}),
        ],
        True,
    ),
    "count/pods": ([*replicas("a", 2), quota({"count/pods": "2"}, {"count/pods": "2"})], True),
    "objects that a drain does not create": (
        [*replicas("a", 2), quota({"count/deployments.apps": "1"}, {"count/deployments.apps": "1"})],
        False,
    ),
    "over the limit in a resource that no pod uses": (
        [*replicas("a", 1), quota({"requests.nvidia.com/gpu": "1"}, {"requests.nvidia.com/gpu": "2"})],
        False,
    ),
    "another namespace": ([*replicas("a", 2), quota(*FULL, namespace="other")], False),
    "two namespaces": ([*replicas("other/a", 1), *replicas("b", 1), quota(*FULL, namespace="other")], True),
    "not counted by its controller yet: terminating pods count": (
        [*replicas("a", 1), pod("b", "s", deleted=True), quota({"pods": "2"})],
        True,
    ),
    "not counted by its controller yet, with room": ([*replicas("a", 1), pod("b", "s"), quota({"pods": "3"})], False),
    "not counted by its controller yet, two with different scopes: each counts the pods that it selects": (
        [
            *replicas("a", 1, priorityClassName="high"),
            *(pod(f"b-{number}", "s") for number in range(3)),
            quota({"pods": "2"}, **scoped("In", "high")),
            quota({"pods": "2"}, name="other", **scoped("In", "low")),
        ],
        False,
    ),
    "not counted by its controller yet, the second of two with different scopes": (
        [
            *replicas("a", 1, priorityClassName="high"),
            quota({"pods": "1"}, **scoped("In", "low")),
            quota({"pods": "1"}, name="other", **scoped("In", "high")),
        ],
        True,
    ),
    "not counted by its controller yet, of two the second has no room": (
        [*replicas("a", 1), quota({"pods": "2"}), quota({"requests.cpu": "1"}, name="other")],
        True,
    ),
    "a resource that Kubernetes does not count for pods": (
        [
            *replicas("a", 1, containers=[{"name": "m", "resources": {"requests": {"example.com/dongle": "1"}}}]),
            quota({"pods": "2", "example.com/dongle": "0", "limits.example.com/dongle": "0"}, {"pods": "1"}),
        ],
        False,
    ),
    "a counted resource that its controller has left out": (
        [
            *replicas("a", 1, containers=[{"name": "m", "resources": {"requests": {"example.com/dongle": "1"}}}]),
            quota({"pods": "2", "requests.example.com/dongle": "1"}, {"pods": "1"}),
        ],
        True,
    ),
    "limits.memory is required of each container": (
        [pod("a", "od", **LIMITED), quota({"limits.memory": "9Gi"}, {"limits.memory": "0"})],
        True,
    ),
    "a scope that selects the pod": (
        [*replicas("a", 2), quota(*FULL, scopes=["NotTerminating", "NotBestEffort"])],
        True,
    ),
    "one of several scopes that does not": (
        [*replicas("a", 2), quota(*FULL, scopes=["NotTerminating", "BestEffort"])],
        False,
    ),
    "best effort": ([*replicas("a", 2, **BEST_EFFORT), quota(*FULL, scopes=["BestEffort"])], True),
    "pods that end by a deadline": (
        [*replicas("a", 2, activeDeadlineSeconds=60), quota(*FULL, scopes=["Terminating"])],
        True,
    ),
    "pods that end by no deadline": ([*replicas("a", 2), quota(*FULL, scopes=["Terminating"])], False),
    "its priority class": ([*replicas("a", 2, priorityClassName="high"), quota(*FULL, **scoped("In", "high"))], True),
    "another priority class": (
        [*replicas("a", 2, priorityClassName="low"), quota(*FULL, **scoped("In", "high"))],
        False,
    ),
    "any class but one": ([*replicas("a", 2, priorityClassName="low"), quota(*FULL, **scoped("NotIn", "high"))], True),
    "no priority class": ([*replicas("a", 2), quota(*FULL, **scoped("Exists"))], False),
    "without a priority class": ([*replicas("a", 2), quota(*FULL, **scoped("DoesNotExist"))], True),
    "affinity across namespaces": (
        [
            *replicas(
                "a",
                2,
                affinity={
                    "podAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "namespaces": ["b"]}}
                        ]
                    }
                },
            ),
            quota(*FULL, **scoped("Exists", scope="CrossNamespacePodAffinity")),
        ],
        True,
    ),
    "the claim of an ephemeral volume": (
        [
            *replicas("a", 1, **SCRATCH),
            claim("a-0-scratch", "10Gi"),
            quota({"requests.storage": "15Gi"}, {"requests.storage": "10Gi"}),
        ],
        True,
    ),
    "the claim of an ephemeral volume, of its class": (
        [
            *replicas("a", 1, **SCRATCH),
            claim("a-0-scratch", "10Gi"),
            quota(*({"fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1"},) * 2),
        ],
        True,
    ),
    "a DaemonSet's pod is not evicted": ([*replicas("a", 2, owner="apps/v1/DaemonSet"), quota(*FULL)], False),
}


@pytest.mark.parametrize(("objects", "refused"), CASES.values(), ids=CASES)
def test_a_refusal_is_found_before_the_first_eviction(objects: list[Manifest], refused: bool) -> None:
    found = judged(objects)
    assert ("quota-exceeded" in found) is refused, found


@pytest.mark.parametrize(
    "name",
    [
        *("pods", "count/pods", "cpu", "memory", "ephemeral-storage", "hugepages-2Mi"),
        *("requests.cpu", "requests.memory", "requests.ephemeral-storage", "requests.hugepages-2Mi"),
        *("limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.example.com/dongle"),
        *("persistentvolumeclaims", "count/persistentvolumeclaims", "requests.storage"),
        *(f"fast.storageclass.storage.k8s.io/{each}" for each in ("requests.storage", "persistentvolumeclaims")),
    ],
)
@pytest.mark.parametrize("counted", [True, False])
def test_all_that_a_pod_takes_is_limited(name: str, *, counted: bool) -> None:
    amounts = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "hugepages-2Mi": "2Mi", "example.com/dongle": 1}
    full = pod(
        "a-0", "od", containers=[{"name": "m", "resources": {"requests": amounts, "limits": amounts}}], **SCRATCH
    )
    refused = quota({name: "0"}, {name: "0"} if counted else None)
    assert "quota-exceeded" in judged([full, claim("a-0-scratch", "10Gi"), refused])


def template(requests: Manifest, limits: Manifest | None = None) -> Manifest:
    container = {"name": "main", "image": "app:1", "resources": {"requests": requests, "limits": limits or {}}}
    return {
        "kind": "ReplicaSet",
        "metadata": {
            "name": "a",
            "namespace": "default",
            "uid": "uid-of-a",
            "ownerReferences": [{"kind": "Deployment", "name": "a", "uid": "d", "controller": True}],
        },
        "spec": {"template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}}},
    }


def test_the_replacement_pod_is_counted_not_the_running_one() -> None:
    """A pod that was resized in place gives back what it has, and its replacement takes what the template says."""
    resized = pod("a-1", "od", cpu="1", status={"phase": "Running"})
    resized["metadata"]["generation"] = 2
    room = quota({"requests.cpu": "3"}, {"requests.cpu": "1"})
    assert "quota-exceeded" in judged([resized, template({"cpu": "3"}), room])
    assert "quota-exceeded" not in judged([resized, template({"cpu": "2"}), room])


def test_the_text_names_the_quota_and_the_amounts() -> None:
    verdict = Planner(
        snapshot([*NODES, *replicas("a", 1), quota({"requests.cpu": "1500m"}, {"requests.cpu": "1"})]), Policy()
    ).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    assert str(verdict.blockers[0]) == (
        "quota-exceeded: pod default/a-0: ResourceQuota default/compute has no room for its replacement pod: "
        "requests.cpu needs 1 more, and 1 of 1500m is used"
    )
