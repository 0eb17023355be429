"""The plugins that read only the node. The expected results are those of the scheduler."""

from typing import Any

import numpy as np
import pytest

from predicates.filters import Filters
from predicates.objects import PodClass
from predicates.plugins import DEFAULT, nodes, resources
from tests.conformance.builders import node, pod
from tests.conformance.generate.world import Json
from tests.predicates.asking import load, reasons


def _class(obj: Json) -> PodClass:
    return load(obj).pods["default/p"].cls


def _p(**spec: Any) -> PodClass:
    return _class(pod("p", **spec))


# NodeUnschedulable

CORDON = "node.kubernetes.io/unschedulable"
CORDONED = "node(s) were unschedulable"

TOLERATING_CORDONS: dict[str, tuple[list[Json], str]] = {
    "nothing": ([], CORDONED),
    "the taint": ([{"key": CORDON, "operator": "Exists", "effect": "NoSchedule"}], ""),
    "any effect": ([{"key": CORDON, "operator": "Exists"}], ""),
    "everything": ([{"operator": "Exists"}], ""),
    "empty value": ([{"key": CORDON, "value": ""}], ""),
    "different value": ([{"key": CORDON, "value": "x"}], CORDONED),
    "different effect": ([{"key": CORDON, "operator": "Exists", "effect": "NoExecute"}], CORDONED),
    "different key": ([{"key": "x", "operator": "Exists"}], CORDONED),
}


@pytest.mark.parametrize(("tolerations", "expected"), TOLERATING_CORDONS.values(), ids=TOLERATING_CORDONS)
def test_a_cordoned_node_accepts_only_pods_that_tolerate_it(tolerations: list[Json], expected: str) -> None:
    table = load(node("uncordoned"), node("cordoned", unschedulable=True))
    actual = reasons(nodes.NODE_UNSCHEDULABLE, _p(tolerations=tolerations), table)
    assert actual == {"uncordoned": "", "cordoned": expected}


# TaintToleration

TAINTED = "node(s) had untolerated taint(s)"

TAINTS: dict[str, tuple[list[Json], list[Json], str]] = {
    "no taints": ([], [], ""),
    "NoSchedule": ([{"key": "a", "effect": "NoSchedule"}], [], TAINTED),
    "NoExecute": ([{"key": "a", "effect": "NoExecute"}], [], TAINTED),
    "PreferNoSchedule": ([{"key": "a", "effect": "PreferNoSchedule"}], [], ""),
    "unknown effect": ([{"key": "a", "effect": "Never"}], [], ""),
    "same key and value": (
        [{"key": "a", "value": "1", "effect": "NoSchedule"}],
        [{"key": "a", "value": "1"}],
        "",
    ),
    "different value": ([{"key": "a", "value": "1", "effect": "NoSchedule"}], [{"key": "a", "value": "2"}], TAINTED),
    "Exists matches any value": (
        [{"key": "a", "value": "1", "effect": "NoSchedule"}],
        [{"key": "a", "operator": "Exists", "value": "2"}],
        "",
    ),
    "an empty key matches any key with the same value": (
        [{"key": "a", "value": "1", "effect": "NoSchedule"}],
        [{"operator": "Equal", "value": "1"}],
        "",
    ),
    "comparison operators are disabled": (
        [{"key": "a", "value": "5", "effect": "NoSchedule"}],
        [{"key": "a", "operator": "Gt", "value": "1"}],
        TAINTED,
    ),
    "different effect": (
        [{"key": "a", "effect": "NoSchedule"}],
        [{"key": "a", "operator": "Exists", "effect": "NoExecute"}],
        TAINTED,
    ),
    "every taint must be tolerated": (
        [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}],
        [{"key": "a", "operator": "Exists"}],
        TAINTED,
    ),
}


@pytest.mark.parametrize(("taints", "tolerations", "expected"), TAINTS.values(), ids=TAINTS)
def test_a_tainted_node_accepts_only_pods_that_tolerate_the_taints(
    taints: list[Json], tolerations: list[Json], expected: str
) -> None:
    table = load(node("plain"), node("tainted", taints=taints))
    actual = reasons(nodes.TAINT_TOLERATION, _p(tolerations=tolerations), table)
    assert actual == {"plain": "", "tainted": expected}


# NodeAffinity

MISMATCH = "node(s) didn't match Pod's node affinity/selector"
CONFLICT = "pod affinity terms conflict"


def _required(*terms: Json) -> Json:
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _named(*values: str, operator: str = "In") -> Json:
    return {"key": "metadata.name", "operator": operator, "values": list(values)}


def _zone(*values: str) -> Json:
    return {"key": "zone", "operator": "In", "values": list(values)}


AFFINITIES: dict[str, tuple[Json, str, str]] = {
    "nothing": ({}, "", ""),
    "selector": ({"nodeSelector": {"zone": "a"}}, "", MISMATCH),
    "empty selector": ({"nodeSelector": {}}, "", ""),
    "terms": (_required({"matchExpressions": [_zone("b", "c")]}), MISMATCH, ""),
    "selector and terms": (
        {"nodeSelector": {"zone": "a"}, **_required({"matchExpressions": [_zone("b")]})},
        MISMATCH,
        MISMATCH,
    ),
    "no terms": (_required(), MISMATCH, MISMATCH),
    "an empty term": (_required({}), MISMATCH, MISMATCH),
    "node name": (_required({"matchFields": [_named("a")]}), "", MISMATCH),
    "either of two names": (_required({"matchFields": [_named("a")]}, {"matchFields": [_named("b")]}), "", ""),
    "two different names in one term": (_required({"matchFields": [_named("a"), _named("b")]}), CONFLICT, CONFLICT),
    "contradictory names, or one name": (
        _required({"matchFields": [_named("a"), _named("b")]}, {"matchFields": [_named("b")]}),
        MISMATCH,
        "",
    ),
    "contradictory names, or a label": (
        _required({"matchFields": [_named("a"), _named("b")]}, {"matchExpressions": [_zone("a")]}),
        "",
        MISMATCH,
    ),
    "a name In and NotIn: no conflict, no match": (
        _required({"matchFields": [_named("a"), _named("a", operator="NotIn")]}),
        MISMATCH,
        MISMATCH,
    ),
    "In without values conflicts": (_required({"matchFields": [_named()]}), CONFLICT, CONFLICT),
    "preferred terms do not filter": (
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
        "",
        "",
    ),
}


@pytest.mark.parametrize(("spec", "on_a", "on_b"), AFFINITIES.values(), ids=AFFINITIES)
def test_node_affinity_and_node_selector_must_match(spec: Json, on_a: str, on_b: str) -> None:
    table = load(node("a", labels={"zone": "a"}), node("b", labels={"zone": "b"}))
    assert reasons(nodes.NODE_AFFINITY, _p(**spec), table) == {"a": on_a, "b": on_b}


# SchedulingGates


def test_scheduling_gates_are_reported_first() -> None:
    table = load(node("a"), node("b", unschedulable=True), pod("p", schedulingGates=[{"name": "x"}, {"name": "y"}]))
    waiting = "waiting for scheduling gates: [x y]"
    cls = table.pods["default/p"].cls
    first, second = Filters(table, DEFAULT).rejections(cls, np.flatnonzero(table.nodes.alive))
    assert reasons(nodes.SCHEDULING_GATES, cls, table) == {"a": waiting, "b": waiting}
    assert (first.plugin, first.prefilter, first.reasons(1)) == ("SchedulingGates", True, (waiting,))
    assert (second.plugin, second.prefilter) == ("NodeUnschedulable", False)


# NodeDeclaredFeatures

LACKING = "node(s) didn't match Pod's required features"
RULES = [{"name": "c", "restartPolicyRules": [{"action": "Restart"}, {"action": "RestartAllContainers"}]}]
OPTIONS = [{"name": "c", "volumeMounts": [{"name": "a"}, {"name": "b", "bindMountOptions": ["noexec"]}]}]
MOUNTING = "VolumeBindMountOptions"
RESTARTING, USERS = "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"

FEATURES: dict[str, tuple[Json, list[str], str]] = {
    "nothing required": ({}, [], ""),
    "host network alone": ({"hostNetwork": True}, [], ""),
    "user namespace alone": ({"hostUsers": False}, [], ""),
    "user namespace on the host network": ({"hostNetwork": True, "hostUsers": False}, [], LACKING),
    "declared": ({"hostNetwork": True, "hostUsers": False}, [USERS], ""),
    "other feature declared": ({"hostNetwork": True, "hostUsers": False}, [RESTARTING], LACKING),
    "restart of all containers": ({"containers": RULES}, ["A", USERS], LACKING),
    "restart of all containers, declared": ({"containers": RULES}, ["A", RESTARTING, "Z"], ""),
    "restart of all containers in an init container": ({"initContainers": RULES}, [], LACKING),
    "both required": ({"containers": RULES, "hostNetwork": True, "hostUsers": False}, [RESTARTING], LACKING),
    "both declared": ({"containers": RULES, "hostNetwork": True, "hostUsers": False}, [RESTARTING, USERS], ""),
    "unsorted list misses features": ({"containers": RULES}, [USERS, RESTARTING], LACKING),
    "mount with options": ({"containers": OPTIONS}, ["A", RESTARTING, USERS], LACKING),
    "mount with options, declared": ({"containers": OPTIONS}, [RESTARTING, MOUNTING], ""),
    "mount with options in an init container": ({"initContainers": OPTIONS}, [], LACKING),
    "mounts without options": ({"containers": [{"name": "c", "volumeMounts": [{"name": "a"}]}]}, [], ""),
}


@pytest.mark.parametrize(("spec", "declared", "expected"), FEATURES.values(), ids=FEATURES)
def test_required_features_must_be_declared(spec: Json, declared: list[str], expected: str) -> None:
    obj = node("n")
    obj["status"]["declaredFeatures"] = declared
    assert reasons(nodes.NODE_DECLARED_FEATURES, _p(**spec), load(obj)) == {"n": expected}


# NodeResourcesFit

FITS: dict[str, tuple[Json, Json, str]] = {
    "exact fit": ({"cpu": "1"}, {"cpu": "1"}, ""),
    "one milli-CPU too much": ({"cpu": "1"}, {"cpu": "1001m"}, "Insufficient cpu"),
    "one micro-CPU too much is rounded up": ({"cpu": "1"}, {"cpu": "1000001u"}, "Insufficient cpu"),
    "one byte too much": ({"memory": "1Ki"}, {"memory": "1025"}, "Insufficient memory"),
    "no pods allowed": ({"pods": "0"}, {}, "Too many pods"),
    "all insufficient resources, in the scheduler's order": (
        {"pods": "0", "cpu": "0", "memory": "0"},
        {"memory": "1", "cpu": "1", "ephemeral-storage": "1", "b.c/d": "1", "hugepages-2Mi": "2Mi"},
        (
            "Too many pods, Insufficient cpu, Insufficient memory, Insufficient ephemeral-storage, "
            "Insufficient b.c/d, Insufficient hugepages-2Mi"
        ),
    ),
    "resource that no node has": ({}, {"nvidia.com/gpu": "1"}, "Insufficient nvidia.com/gpu"),
    "zero of a resource that no node has": ({}, {"nvidia.com/gpu": "0"}, ""),
    "resource that is not counted": ({}, {"storage": "1"}, ""),
    "a negative request is ignored": ({"cpu": "0"}, {"cpu": "-1"}, ""),
    "negative allocatable without a request": ({"cpu": "-1"}, {}, ""),
    "overflow of 64 bits becomes negative": ({}, {"cpu": "8Ei"}, ""),
}


@pytest.mark.parametrize(("offer", "request_", "expected"), FITS.values(), ids=FITS)
def test_requests_must_fit_free_resources(offer: Json, request_: Json, expected: str) -> None:
    table = load(node("n", allocatable=offer))
    assert reasons(resources.NODE_RESOURCES_FIT, _class(pod("p", requests=request_)), table) == {"n": expected}


def test_requests_of_placed_pods_are_not_free() -> None:
    table = load(node("n", allocatable={"cpu": "2", "pods": "3"}), pod("a", "n", requests={"cpu": "1"}))
    two, obj = (_class(pod("p", requests={"cpu": cpu})) for cpu in ("1001m", "1"))
    assert reasons(resources.NODE_RESOURCES_FIT, two, table) == {"n": "Insufficient cpu"}
    with table.trial() as trial:
        trial.place(obj, table.nodes.row["n"])
        assert reasons(resources.NODE_RESOURCES_FIT, obj, table) == {"n": "Insufficient cpu"}
        trial.place(_class(pod("p")), table.nodes.row["n"])
        assert reasons(resources.NODE_RESOURCES_FIT, obj, table) == {"n": "Too many pods, Insufficient cpu"}
    assert reasons(resources.NODE_RESOURCES_FIT, obj, table) == {"n": ""}


def test_node_without_allocatable_rejects_all_pods() -> None:
    table = load({"kind": "Node", "metadata": {"name": "n"}})
    assert reasons(resources.NODE_RESOURCES_FIT, _class(pod("p")), table) == {"n": "Too many pods"}


def test_more_resources_than_a_code_has_bits_are_reported() -> None:
    requests = {f"example.com/r{number:03}": "1" for number in range(100)}
    offer = dict.fromkeys(list(requests)[:-1], "1")
    actual = reasons(
        resources.NODE_RESOURCES_FIT, _class(pod("p", requests=requests)), load(node("n", allocatable=offer))
    )
    assert "Insufficient example.com/r099" in actual["n"]


@pytest.mark.parametrize(
    ("resource", "given", "expected"),
    [
        ("example.com/gpu", "0", ""),
        ("example.com/gpu", None, ""),
        ("example.com/gpu", "1", "Insufficient example.com/gpu"),
        ("deviceclass.resource.kubernetes.io/gpu", None, ""),
        ("example.com/other", None, "Insufficient example.com/other"),
    ],
)
def test_resources_provided_by_devices_are_left_to_dynamic_resources(
    resource: str, given: str | None, expected: str
) -> None:
    device_class = {
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"extendedResourceName": "example.com/gpu"},
    }
    table = load(device_class, node("n", allocatable={} if given is None else {resource: given}))
    actual = reasons(resources.NODE_RESOURCES_FIT, _class(pod("p", requests={resource: "2"})), table)
    assert actual == {"n": expected}
