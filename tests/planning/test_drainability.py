"""Each rule of who may be evicted, as the only thing that stands in the way."""

from typing import Any

import pytest

from rescheduler.planning.outcome import Plan, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, budget, node, pod, short, snapshot

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
LOCAL = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
QUIET = "karpenter.sh/do-not-disrupt"
SCRATCH = [{"name": "scratch", "emptyDir": {}}]

PODS: dict[str, tuple[dict[str, Any], Policy, Any]] = {
    "an ordinary pod moves": ({}, Policy(), {"p": "s"}),
    "a DaemonSet's pod stays and does not count": ({"owner": "DaemonSet"}, Policy(), {}),
    "a mirror pod stays and does not count": ({"annotations": {"kubernetes.io/config.mirror": "x"}}, Policy(), {}),
    "a finished pod does not count": ({"owner": None, "status": {"phase": "Succeeded"}}, Policy(), {}),
    "a pod being deleted leaves by itself": ({"deleted": True, "owner": None}, Policy(), {}),
    "safe-to-evict false": ({"annotations": {SAFE: "false"}}, Policy(), ["not-safe-to-evict"]),
    "safe-to-evict on-completion": ({"annotations": {SAFE: "on-completion"}}, Policy(), ["not-safe-to-evict"]),
    "do-not-disrupt": ({"annotations": {QUIET: "true"}}, Policy(), ["do-not-disrupt"]),
    "do-not-disrupt for a time that runs": (
        {"annotations": {QUIET: "4h"}, "status": {"startTime": "2026-01-01T09:00:00Z"}},
        Policy(),
        ["do-not-disrupt"],
    ),
    "do-not-disrupt for a time that is over": (
        {"annotations": {QUIET: "2h30m"}, "status": {"startTime": "2026-01-01T09:00:00Z"}},
        Policy(),
        {"p": "s"},
    ),
    "do-not-disrupt for no time at all is ignored": ({"annotations": {QUIET: "soon"}}, Policy(), {"p": "s"}),
    "no controller": ({"owner": None}, Policy(), ["no-controller"]),
    "no controller, but told to delete such": ({"owner": None}, Policy(delete_non_replicated_pods=True), {"p": "s"}),
    "no controller, but its owner says it is safe": (
        {"owner": None, "annotations": {SAFE: "true"}},
        Policy(),
        {"p": "s"},
    ),
    "any kind of controller counts": ({"owner": "Rollout"}, Policy(), {"p": "s"}),
    "local storage": ({"volumes": SCRATCH}, Policy(), ["local-storage"]),
    "local storage in memory": ({"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]}, Policy(), {"p": "s"}),
    "a host path": ({"volumes": [{"name": "h", "hostPath": {"path": "/x"}}]}, Policy(), ["local-storage"]),
    "local storage that its owner gives up": (
        {"volumes": SCRATCH, "annotations": {LOCAL: "other,scratch"}},
        Policy(),
        {"p": "s"},
    ),
    "local storage, guard off": ({"volumes": SCRATCH}, Policy(skip_nodes_with_local_storage=False), {"p": "s"}),
    "resource claims": ({"resourceClaims": [{"name": "gpu"}]}, Policy(), ["resource-claim"]),
}


@pytest.mark.parametrize(("fields", "policy", "expected"), PODS.values(), ids=PODS)
def test_pod(fields: dict[str, Any], policy: Policy, expected: Any) -> None:
    cluster = snapshot([node("od", ON_DEMAND), node("s"), pod("p", "od", **fields)])
    assert short(Planner(cluster, policy).plan_node("od", CIRCUMSTANCES)) == expected


def test_a_pod_being_deleted_is_waited_for() -> None:
    cluster = snapshot([node("od", ON_DEMAND), node("s"), pod("p", "od", deleted=True)])
    verdict = Planner(cluster, Policy()).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Plan)
    assert [str(one) for one in verdict.leaving] == ["default/p"]


SYSTEM: dict[str, tuple[Policy, list[dict[str, Any]], Any]] = {
    "without a budget": (Policy(), [], ["kube-system-pod"]),
    "with a budget": (Policy(), [budget("b", "p", allowed=1, namespace="kube-system")], {"p": "s"}),
    "guard off": (Policy(skip_nodes_with_system_pods=False), [], {"p": "s"}),
}


@pytest.mark.parametrize(("policy", "budgets", "expected"), SYSTEM.values(), ids=SYSTEM)
def test_kube_system(policy: Policy, budgets: list[dict[str, Any]], expected: Any) -> None:
    cluster = snapshot([node("od", ON_DEMAND), node("s"), pod("kube-system/p", "od"), *budgets])
    assert short(Planner(cluster, policy).plan_node("od", CIRCUMSTANCES)) == expected


def test_every_blocking_pod_is_named() -> None:
    pods = [pod("a", "od", owner=None), pod("b", "od", annotations={SAFE: "false"}), pod("c", "od")]
    verdict = Planner(snapshot([node("od", ON_DEMAND), node("s"), *pods]), Policy()).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    assert {(one.pod, str(one.reason)) for one in verdict.blockers} == {
        ("default/a", "no-controller"),
        ("default/b", "not-safe-to-evict"),
    }


NODES: dict[str, tuple[dict[str, Any], Any]] = {
    "scale-down disabled": (
        {"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}},
        ["scale-down-disabled"],
    ),
    "do-not-disrupt": ({"annotations": {QUIET: "true"}}, ["node-do-not-disrupt"]),
    "control plane": ({"labels": {"node-role.kubernetes.io/control-plane": ""}}, ["control-plane"]),
    "not Ready": ({"ready": "Unknown"}, ["node-not-ready"]),
    "taken by the autoscaler": (
        {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
        ["being-drained-by-another"],
    ),
    "cordoned nodes may be emptied": ({"unschedulable": True}, {"p": "s"}),
}


@pytest.mark.parametrize(("fields", "expected"), NODES.values(), ids=NODES)
def test_node(fields: dict[str, Any], expected: Any) -> None:
    cluster = snapshot([node("od", ON_DEMAND, **fields), node("s"), pod("p", "od")])
    assert short(Planner(cluster, Policy()).plan_node("od", CIRCUMSTANCES)) == expected
