"""Tests of which on-demand nodes count towards --min-on-demand-nodes, and that every verdict respects it."""

from typing import Any

import pytest

from predicates.snapshot import DRAIN_TAINT
from rescheduler.planning.outcome import Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.rules.candidates import static_capacity
from tests.planning.builders import CIRCUMSTANCES, NOW, ON_DEMAND, Manifest, node, pod, short, snapshot, summary

FEW = ["min-on-demand-nodes"]
MARK = {"key": DRAIN_TAINT.key, "value": "somebody", "effect": DRAIN_TAINT.effect}
ORDERED = Circumstances(NOW, ordered=frozenset({"od2"}))


def od(name: str, **fields: Any) -> Manifest:
    return node(name, ON_DEMAND, **fields)


#: With a minimum of 1: other objects than node "od1" and its pod → whether od1 may be drained because of them.
OTHERS: dict[str, tuple[list[Manifest], Circumstances, bool]] = {
    "a node with a pod": ([od("od2"), pod("b", "od2")], CIRCUMSTANCES, True),
    "a node with a pod that may not be evicted": ([od("od2"), pod("b", "od2", owner=None)], CIRCUMSTANCES, True),
    "a cordoned node with a pod": ([od("od2", unschedulable=True), pod("b", "od2")], CIRCUMSTANCES, True),
    "a node that Cluster Autoscaler may remove some day": (
        [
            od("od2", taints=[{"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}]),
            pod("b", "od2"),
        ],
        CIRCUMSTANCES,
        True,
    ),
    "nothing": ([], CIRCUMSTANCES, False),
    "an empty node": ([od("od2")], CIRCUMSTANCES, False),
    "a DaemonSet's pod": ([od("od2"), pod("b", "od2", owner="DaemonSet")], CIRCUMSTANCES, False),
    "a mirror pod": (
        [od("od2"), pod("b", "od2", annotations={"kubernetes.io/config.mirror": "x"})],
        CIRCUMSTANCES,
        False,
    ),
    "a terminating pod": ([od("od2"), pod("b", "od2", deleted=True)], CIRCUMSTANCES, False),
    "a finished pod": ([od("od2"), pod("b", "od2", status={"phase": "Succeeded"})], CIRCUMSTANCES, False),
    "a node that is not Ready": ([od("od2", ready="False"), pod("b", "od2")], CIRCUMSTANCES, False),
    "a node with an unknown Ready condition": ([od("od2", ready="Unknown"), pod("b", "od2")], CIRCUMSTANCES, False),
    "a node with the drain taint": ([od("od2", taints=[MARK]), pod("b", "od2")], CIRCUMSTANCES, False),
    "a node with the drain annotation": (
        [od("od2", annotations={"spot-rescheduler/drain": "{}"}), pod("b", "od2")],
        CIRCUMSTANCES,
        False,
    ),
    "a node whose machine termination was requested": ([od("od2"), pod("b", "od2")], ORDERED, False),
    "a node that Cluster Autoscaler removes": (
        [od("od2", taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]), pod("b", "od2")],
        CIRCUMSTANCES,
        False,
    ),
    "a node that its cloud shuts down": (
        [
            od("od2", taints=[{"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}]),
            pod("b", "od2"),
        ],
        CIRCUMSTANCES,
        False,
    ),
    "a spot node with a pod": ([node("s2"), pod("b", "s2")], CIRCUMSTANCES, False),
}


@pytest.mark.parametrize(("objects", "circumstances", "counts"), OTHERS.values(), ids=OTHERS)
def test_only_usable_nodes_with_pods_count_towards_the_minimum(
    objects: list[Manifest], circumstances: Circumstances, counts: bool
) -> None:
    cluster = snapshot([od("od1"), pod("a", "od1"), node("s", cpu="32"), *objects])
    planner = Planner(cluster, Policy(min_on_demand_nodes=1))
    expected = {"a": "s"} if counts else FEW
    verdicts = {
        "alone": short(planner.plan_node("od1", circumstances)),
        "each": summary(planner.plan_each(circumstances))["od1"],
        "with the taint on": short(planner.look_again("od1", circumstances)),
    }
    assert verdicts == dict.fromkeys(verdicts, expected)


def test_the_node_that_is_drained_does_not_count_for_itself() -> None:
    """The node has our taint. A minimum of two holds if there are two others, but not if there is one."""
    drained = od("od1", taints=[MARK])
    objects = [drained, pod("a", "od1"), od("od2"), pod("b", "od2"), od("od3"), pod("c", "od3"), node("s", cpu="32")]
    results = [
        short(Planner(snapshot(objects), Policy(min_on_demand_nodes=least)).look_again("od1", CIRCUMSTANCES))
        for least in (2, 3)
    ]
    assert results == [{"a": "s"}, FEW]


def test_a_node_without_pods_may_always_be_drained() -> None:
    objects = [od("empty"), od("daemons"), pod("d", "daemons", owner="DaemonSet"), od("od"), pod("a", "od"), node("s")]
    planner = Planner(snapshot(objects), Policy(min_on_demand_nodes=1))
    expected = {"empty": {}, "daemons": {}, "od": FEW}
    assert summary(planner.plan_each(CIRCUMSTANCES)) == expected
    assert summary(planner.plan_all(CIRCUMSTANCES)) == expected
    assert short(planner.look_again("empty", CIRCUMSTANCES)) == {}


def test_the_daemon_skips_nodes_that_are_needed_for_the_minimum() -> None:
    objects = [od("full"), pod("a", "full", cpu="10m"), od("empty"), pod("d", "empty", owner="DaemonSet"), node("s")]
    planner = Planner(snapshot(objects), Policy(min_on_demand_nodes=1))
    planning = planner.first_plan(CIRCUMSTANCES, take_empty=lambda _: True)
    assert summary(planning) == {"full": FEW, "empty": {}}


@pytest.mark.parametrize(("least", "emptied"), [(0, 6), (1, 5), (2, 4), (3, 3), (4, 2), (5, 2), (9, 0)])
def test_drains_in_sequence_keep_the_minimum(least: int, emptied: int) -> None:
    """Four nodes count; one does not because it is not Ready, so it is not drained; two have no pods."""
    nodes = [od(f"od{n}") for n in range(4)] + [od("empty1"), od("empty2"), od("gone", ready="False")]
    pods = [pod(f"p{n}", f"od{n}") for n in range(4)] + [pod("q", "gone")]
    for effort in (0.0, 0.5):
        planner = Planner(
            snapshot([*nodes, *pods, node("s", cpu="32")]), Policy(min_on_demand_nodes=least, planning_timeout=effort)
        )
        planning = planner.plan_all(CIRCUMSTANCES)
        assert (len(planning.plans), planning.upper_bound) == (emptied, emptied), effort


def test_drains_of_many_nodes_keep_the_minimum() -> None:
    """There are too many candidates to try every subset."""
    nodes = [od(f"od{n:02}") for n in range(30)] + [od(f"empty{n}") for n in range(5)]
    objects = [*nodes, *(pod(f"p{n}", f"od{n:02}", cpu="100m") for n in range(30)), node("s", cpu="32")]
    planning = Planner(snapshot(objects), Policy(min_on_demand_nodes=20, planning_timeout=0.2)).plan_all(CIRCUMSTANCES)
    kept = [plan for plan in planning.plans if plan.placements]
    assert (len(kept), len(planning.plans)) == (10, 15)
    assert {tuple(short(verdict)) for verdict in planning.rejected} == {tuple(FEW)}


def test_the_minimum_is_reported_with_all_other_blockers() -> None:
    cluster = snapshot([od("od"), pod("a", "od", owner=None), node("s")])
    verdict = Planner(cluster, Policy(min_on_demand_nodes=2)).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    assert [(blocker.reason, blocker.pod) for blocker in verdict.blockers] == [
        ("no-controller", "default/a"),
        ("min-on-demand-nodes", None),
    ]
    assert verdict.blockers[1].detail == (
        "--min-on-demand-nodes=2: the drain would leave 0 on-demand nodes in use "
        "(Ready, with pods, neither drained nor removed)"
    )


#: The group of a node of each cloud: the name of the node, its labels, and the name of the group at Cluster Autoscaler.
GROUPS: dict[str, tuple[str, dict[str, str], str]] = {
    "EKS": ("od", {"eks.amazonaws.com/nodegroup": "base"}, "eks-base-0ac3b1f2-1234-5678-9abc-def012345678"),
    "eksctl": ("od", {"alpha.eksctl.io/nodegroup-name": "base"}, "eksctl-c-nodegroup-base-NodeGroup-1ABC"),
    "kops": ("od", {"kops.k8s.io/instancegroup": "base"}, "base.c.example.com"),
    "GKE": (
        "gke-c-base-1f2e-x7ab", {},
        "https://www.googleapis.com/compute/v1/projects/p/zones/z/instanceGroups/gke-c-base-1f2e-grp",
    ),
    "AKS": ("aks-base-123-vmss000001", {}, "aks-base-123-vmss"),
    "a label with the name": ("od", {"autoscaling.k8s.io/nodegroup": "base"}, "base"),
}  # fmt: skip
OTHER_GROUPS: dict[str, tuple[str, dict[str, str], str]] = {
    "another group of EKS": (
        "od",
        {"eks.amazonaws.com/nodegroup": "base"},
        "eks-base-2-0ac3b1f2-1234-5678-9abc-def012345678",
    ),
    "another pool of GKE": ("gke-c-base-2-1f2e-x7ab", {}, "https://z/instanceGroups/gke-c-base-1f2e-grp"),
    "no label": ("od", {}, "base"),
}


def grouped(name: str, labels: dict[str, str], group: str, target: int, minimum: int) -> list[Manifest]:
    groups = [{"name": group, "target": target, "minimum": minimum}, {"name": "none", "target": 3, "minimum": 0}]
    known = {"kind": "AutoscalerGroups", "metadata": {"name": "cluster-autoscaler-status"}, "groups": groups}
    return [node(name, ON_DEMAND, labels=labels), node("s", cpu="64"), pod("web-1", name), known]


def drainable(*objects: Manifest) -> list[str]:
    return [plan.node for plan in Planner(snapshot(objects), Policy()).plan_all(CIRCUMSTANCES).plans]


@pytest.mark.parametrize("case", GROUPS.values(), ids=GROUPS)
def test_the_nodes_of_a_group_at_its_minimum_would_be_bought_again(case: tuple[str, dict[str, str], str]) -> None:
    """Cluster Autoscaler removes no node of it."""
    [blocker] = static_capacity(snapshot(grouped(*case, target=1, minimum=1)))[case[0]]
    assert blocker.reason == "static-capacity"
    kept = f"group '{case[2]}' of Cluster Autoscaler keeps 1 node, its minimum"
    assert blocker.detail == f"it would be bought again: {kept}"
    assert drainable(*grouped(*case, target=1, minimum=1)) == []
    assert drainable(*grouped(*case, target=2, minimum=1)) == [case[0]]
    assert drainable(*grouped(*case, target=1, minimum=0)) == [case[0]]


@pytest.mark.parametrize("case", OTHER_GROUPS.values(), ids=OTHER_GROUPS)
def test_the_nodes_of_other_groups_are_not_kept(case: tuple[str, dict[str, str], str]) -> None:
    assert drainable(*grouped(*case, target=1, minimum=1)) == [case[0]]


def test_a_plan_frees_no_more_nodes_of_a_group_than_its_minimum_allows() -> None:
    label = {"autoscaling.k8s.io/nodegroup": "base"}
    group = grouped("od", label, "base", target=4, minimum=2)
    more = [node(f"od-{number}", ON_DEMAND, labels=label) for number in (2, 3, 4)]
    others = [node("other", ON_DEMAND), pod("api-1", "other")]
    pods = [pod(f"web-{number}", f"od-{number}") for number in (2, 3, 4)]
    assert drainable(*group, *more, *pods, *others) == ["od", "od-2", "other"]
