"""The plugins that look at the node alone; the verdicts are the scheduler's."""

from typing import Any

import numpy as np
import pytest

from predicates.filters import Filters
from predicates.objects import PodClass
from predicates.plugins import (
    DEFAULT,
    node_affinity,
    node_declared_features,
    node_resources_fit,
    node_unschedulable,
    scheduling_gates,
    taint_toleration,
)
from tests.conformance.builders import node, pod
from tests.conformance.generate.world import Json
from tests.predicates.asking import load, reasons


def _class(one: Json) -> PodClass:
    return load(one).pods["default/p"].cls


def _p(**spec: Any) -> PodClass:
    return _class(pod("p", **spec))


# NodeUnschedulable

CORDON = "node.kubernetes.io/unschedulable"
CORDONED = "node(s) were unschedulable"

TOLERATING_CORDONS: dict[str, tuple[list[Json], str]] = {
    "nothing": ([], CORDONED),
    "the taint": ([{"key": CORDON, "operator": "Exists", "effect": "NoSchedule"}], ""),
    "the taint with any effect": ([{"key": CORDON, "operator": "Exists"}], ""),
    "everything": ([{"operator": "Exists"}], ""),
    "the taint with an empty value": ([{"key": CORDON, "value": ""}], ""),
    "the taint with another value": ([{"key": CORDON, "value": "x"}], CORDONED),
    "the taint's other effect": ([{"key": CORDON, "operator": "Exists", "effect": "NoExecute"}], CORDONED),
    "another taint": ([{"key": "x", "operator": "Exists"}], CORDONED),
}


@pytest.mark.parametrize(("tolerations", "expected"), TOLERATING_CORDONS.values(), ids=TOLERATING_CORDONS)
def test_a_cordoned_node_takes_pods_that_tolerate(tolerations: list[Json], expected: str) -> None:
    table = load(node("open"), node("shut", unschedulable=True))
    found = reasons(node_unschedulable.PLUGIN, _p(tolerations=tolerations), table)
    assert found == {"open": "", "shut": expected}


# TaintToleration

TAINTED = "node(s) had untolerated taint(s)"

TAINTS: dict[str, tuple[list[Json], list[Json], str]] = {
    "no taints": ([], [], ""),
    "NoSchedule": ([{"key": "a", "effect": "NoSchedule"}], [], TAINTED),
    "NoExecute": ([{"key": "a", "effect": "NoExecute"}], [], TAINTED),
    "PreferNoSchedule": ([{"key": "a", "effect": "PreferNoSchedule"}], [], ""),
    "an effect that nobody knows": ([{"key": "a", "effect": "Never"}], [], ""),
    "the same key and value": (
        [{"key": "a", "value": "1", "effect": "NoSchedule"}],
        [{"key": "a", "value": "1"}],
        "",
    ),
    "another value": ([{"key": "a", "value": "1", "effect": "NoSchedule"}], [{"key": "a", "value": "2"}], TAINTED),
    "Exists takes any value": (
        [{"key": "a", "value": "1", "effect": "NoSchedule"}],
        [{"key": "a", "operator": "Exists", "value": "2"}],
        "",
    ),
    "no key takes any key, with its value": (
        [{"key": "a", "value": "1", "effect": "NoSchedule"}],
        [{"operator": "Equal", "value": "1"}],
        "",
    ),
    "comparison is off": (
        [{"key": "a", "value": "5", "effect": "NoSchedule"}],
        [{"key": "a", "operator": "Gt", "value": "1"}],
        TAINTED,
    ),
    "another effect": (
        [{"key": "a", "effect": "NoSchedule"}],
        [{"key": "a", "operator": "Exists", "effect": "NoExecute"}],
        TAINTED,
    ),
    "each taint must be tolerated": (
        [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}],
        [{"key": "a", "operator": "Exists"}],
        TAINTED,
    ),
}


@pytest.mark.parametrize(("taints", "tolerations", "expected"), TAINTS.values(), ids=TAINTS)
def test_a_tainted_node_takes_pods_that_tolerate(taints: list[Json], tolerations: list[Json], expected: str) -> None:
    table = load(node("plain"), node("tainted", taints=taints))
    found = reasons(taint_toleration.PLUGIN, _p(tolerations=tolerations), table)
    assert found == {"plain": "", "tainted": expected}


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
    "no terms at all": (_required(), MISMATCH, MISMATCH),
    "an empty term": (_required({}), MISMATCH, MISMATCH),
    "a name": (_required({"matchFields": [_named("a")]}), "", MISMATCH),
    "either of two names": (_required({"matchFields": [_named("a")]}, {"matchFields": [_named("b")]}), "", ""),
    "two names at once": (_required({"matchFields": [_named("a"), _named("b")]}), CONFLICT, CONFLICT),
    "two names at once, or one": (
        _required({"matchFields": [_named("a"), _named("b")]}, {"matchFields": [_named("b")]}),
        MISMATCH,
        "",
    ),
    "two names at once, or a label": (
        _required({"matchFields": [_named("a"), _named("b")]}, {"matchExpressions": [_zone("a")]}),
        "",
        MISMATCH,
    ),
    "a name and its opposite do not conflict, nor match": (
        _required({"matchFields": [_named("a"), _named("a", operator="NotIn")]}),
        MISMATCH,
        MISMATCH,
    ),
    "a name out of none conflicts": (_required({"matchFields": [_named()]}), CONFLICT, CONFLICT),
    "preferences do not count": (
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
        "",
        "",
    ),
}


@pytest.mark.parametrize(("spec", "on_a", "on_b"), AFFINITIES.values(), ids=AFFINITIES)
def test_a_pod_goes_where_its_affinity_and_selector_point(spec: Json, on_a: str, on_b: str) -> None:
    table = load(node("a", labels={"zone": "a"}), node("b", labels={"zone": "b"}))
    assert reasons(node_affinity.PLUGIN, _p(**spec), table) == {"a": on_a, "b": on_b}


# SchedulingGates


def test_a_gated_pod_goes_nowhere_and_its_gates_are_named_before_anything_else() -> None:
    table = load(node("a"), node("b", unschedulable=True), pod("p", schedulingGates=[{"name": "x"}, {"name": "y"}]))
    waiting = "waiting for scheduling gates: [x y]"
    cls = table.pods["default/p"].cls
    first, second = Filters(table, DEFAULT).rejections(cls, np.flatnonzero(table.nodes.alive))
    assert reasons(scheduling_gates.PLUGIN, cls, table) == {"a": waiting, "b": waiting}
    assert (first.plugin, first.prefilter, first.reasons(1)) == ("SchedulingGates", True, (waiting,))
    assert (second.plugin, second.prefilter) == ("NodeUnschedulable", False)


# NodeDeclaredFeatures

LACKING = "node(s) didn't match Pod's required features"
RULES = [{"name": "c", "restartPolicyRules": [{"action": "Restart"}, {"action": "RestartAllContainers"}]}]
RESTARTING, USERS = "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"

FEATURES: dict[str, tuple[Json, list[str], str]] = {
    "nothing needed": ({}, [], ""),
    "host network alone": ({"hostNetwork": True}, [], ""),
    "user namespaces alone": ({"hostUsers": False}, [], ""),
    "user namespaces on the host network": ({"hostNetwork": True, "hostUsers": False}, [], LACKING),
    "declared": ({"hostNetwork": True, "hostUsers": False}, [USERS], ""),
    "another declared": ({"hostNetwork": True, "hostUsers": False}, [RESTARTING], LACKING),
    "restart of all containers": ({"containers": RULES}, ["A", USERS], LACKING),
    "restart of all containers, declared": ({"containers": RULES}, ["A", RESTARTING, "Z"], ""),
    "restart of all containers in an init container": ({"initContainers": RULES}, [], LACKING),
    "both needed": ({"containers": RULES, "hostNetwork": True, "hostUsers": False}, [RESTARTING], LACKING),
    "both declared": ({"containers": RULES, "hostNetwork": True, "hostUsers": False}, [RESTARTING, USERS], ""),
    "a list out of order is read as if it were in order": ({"containers": RULES}, [USERS, RESTARTING], LACKING),
}


@pytest.mark.parametrize(("spec", "declared", "expected"), FEATURES.values(), ids=FEATURES)
def test_a_node_must_declare_what_the_pod_needs(spec: Json, declared: list[str], expected: str) -> None:
    one = node("n")
    one["status"]["declaredFeatures"] = declared
    assert reasons(node_declared_features.PLUGIN, _p(**spec), load(one)) == {"n": expected}


# NodeResourcesFit

FITS: dict[str, tuple[Json, Json, str]] = {
    "to the last thousandth": ({"cpu": "1"}, {"cpu": "1"}, ""),
    "a thousandth too much": ({"cpu": "1"}, {"cpu": "1001m"}, "Insufficient cpu"),
    "a millionth too much counts for a thousandth": ({"cpu": "1"}, {"cpu": "1000001u"}, "Insufficient cpu"),
    "a byte too much": ({"memory": "1Ki"}, {"memory": "1025"}, "Insufficient memory"),
    "no pods": ({"pods": "0"}, {}, "Too many pods"),
    "all that is short, in the scheduler's order": (
        {"pods": "0", "cpu": "0", "memory": "0"},
        {"memory": "1", "cpu": "1", "ephemeral-storage": "1", "b.c/d": "1", "hugepages-2Mi": "2Mi"},
        (
            "Too many pods, Insufficient cpu, Insufficient memory, Insufficient ephemeral-storage, "
            "Insufficient b.c/d, Insufficient hugepages-2Mi"
        ),
    ),
    "a resource that no node has": ({}, {"nvidia.com/gpu": "1"}, "Insufficient nvidia.com/gpu"),
    "none of a resource that no node has": ({}, {"nvidia.com/gpu": "0"}, ""),
    "what nobody counts": ({}, {"storage": "1"}, ""),
    "a negative request asks for nothing": ({"cpu": "0"}, {"cpu": "-1"}, ""),
    "a negative offer is short of nothing asked": ({"cpu": "-1"}, {}, ""),
    "more than 64 bits of thousandths read as less than none": ({}, {"cpu": "8Ei"}, ""),
}


@pytest.mark.parametrize(("offer", "request_", "expected"), FITS.values(), ids=FITS)
def test_what_a_pod_requests_must_be_free(offer: Json, request_: Json, expected: str) -> None:
    table = load(node("n", allocatable=offer))
    assert reasons(node_resources_fit.PLUGIN, _class(pod("p", requests=request_)), table) == {"n": expected}


def test_what_pods_on_the_node_take_is_not_free() -> None:
    table = load(node("n", allocatable={"cpu": "2", "pods": "3"}), pod("a", "n", requests={"cpu": "1"}))
    two, one = (_class(pod("p", requests={"cpu": cpu})) for cpu in ("1001m", "1"))
    assert reasons(node_resources_fit.PLUGIN, two, table) == {"n": "Insufficient cpu"}
    with table.trial() as trial:
        trial.place(one, table.nodes.row["n"])
        assert reasons(node_resources_fit.PLUGIN, one, table) == {"n": "Insufficient cpu"}
        trial.place(_class(pod("p")), table.nodes.row["n"])
        assert reasons(node_resources_fit.PLUGIN, one, table) == {"n": "Too many pods, Insufficient cpu"}
    assert reasons(node_resources_fit.PLUGIN, one, table) == {"n": ""}


def test_a_node_without_allocatable_takes_nothing() -> None:
    table = load({"kind": "Node", "metadata": {"name": "n"}})
    assert reasons(node_resources_fit.PLUGIN, _class(pod("p")), table) == {"n": "Too many pods"}


def test_more_resources_than_a_code_has_bits_are_still_all_checked() -> None:
    asked = {f"example.com/r{number:03}": "1" for number in range(100)}
    offer = dict.fromkeys(list(asked)[:-1], "1")
    found = reasons(node_resources_fit.PLUGIN, _class(pod("p", requests=asked)), load(node("n", allocatable=offer)))
    assert "Insufficient example.com/r099" in found["n"]


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
def test_a_resource_that_devices_stand_behind_is_not_this_plugins_to_refuse(
    resource: str, given: str | None, expected: str
) -> None:
    device_class = {
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"extendedResourceName": "example.com/gpu"},
    }
    table = load(device_class, node("n", allocatable={} if given is None else {resource: given}))
    found = reasons(node_resources_fit.PLUGIN, _class(pod("p", requests={resource: "2"})), table)
    assert found == {"n": expected}
