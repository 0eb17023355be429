"""Tests of each drainability rule, as the only blocker."""

from typing import Any

import pytest

from rescheduler.planning.outcome import Plan, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import MoveJobs, Policy, namespace_scope
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, budget, node, pod, short, snapshot

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
LOCAL = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
QUIET = "karpenter.sh/do-not-disrupt"
QUIET_BEFORE = "karpenter.sh/do-not-evict"
STAY = "spot-rescheduler/do-not-evict"
DESCHEDULER = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
OCEAN = "spotinst.io/restrict-scale-down"
CAST_AI = "autoscaling.cast.ai/removal-disabled"
KUBELET = {"offloading.liqo.io/component": "virtual-kubelet"}
SCRATCH = [{"name": "scratch", "emptyDir": {}}]

PODS: dict[str, tuple[dict[str, Any], Policy, Any]] = {
    "an ordinary pod moves": ({}, Policy(), {"p": "s"}),
    "a DaemonSet pod is ignored": ({"owner": "DaemonSet"}, Policy(), {}),
    "a mirror pod is ignored": ({"annotations": {"kubernetes.io/config.mirror": "x"}}, Policy(), {}),
    "a finished pod does not count": ({"owner": None, "status": {"phase": "Succeeded"}}, Policy(), {}),
    "a DaemonSet's pod that is being deleted": ({"owner": "DaemonSet", "deleted": True}, Policy(), {}),
    "a mirror pod that is being deleted": (
        {"annotations": {"kubernetes.io/config.mirror": "x"}, "deleted": True},
        Policy(),
        {},
    ),
    "a pod being deleted": ({"deleted": True, "owner": None}, Policy(), ["pod-terminating"]),
    "a terminating pod that may be evicted": (
        {"deleted": True, "annotations": {SAFE: "true"}},
        Policy(),
        ["pod-terminating"],
    ),
    "a pod being deleted, half a minute late": ({"deleted": "2026-01-01T11:59:30Z"}, Policy(), ["pod-terminating"]),
    "a pod being deleted, later still": ({"deleted": "2026-01-01T11:59:29Z"}, Policy(), ["pod-stuck-terminating"]),
    "a pod being deleted, at a time without a zone": (
        {"deleted": "2026-01-01T11:59:29"},
        Policy(),
        ["pod-stuck-terminating"],
    ),
    "a terminating pod with an unknown deletion time": ({"deleted": "soon"}, Policy(), ["pod-terminating"]),
    "another scheduler": ({"schedulerName": "volcano"}, Policy(), ["other-scheduler"]),
    "another scheduler, annotated as safe to evict": (
        {"schedulerName": "volcano", "annotations": {SAFE: "true"}},
        Policy(),
        ["other-scheduler"],
    ),
    "another scheduler that is configured": (
        {"schedulerName": "volcano"},
        Policy(scheduler_names=("default-scheduler", "volcano")),
        {"p": "s"},
    ),
    "the default scheduler by its name": ({"schedulerName": "default-scheduler"}, Policy(), {"p": "s"}),
    "the default scheduler, but only another is configured": (
        {},
        Policy(scheduler_names=("volcano",)),
        ["other-scheduler"],
    ),
    "any scheduler": ({"schedulerName": "volcano"}, Policy(scheduler_names=()), {"p": "s"}),
    "a DaemonSet pod of another scheduler": ({"owner": "DaemonSet", "schedulerName": "volcano"}, Policy(), {}),
    "local volumes whose names never matter": (
        {"volumes": SCRATCH},
        Policy(ignore_local_volumes=("scratch", "istio-data")),
        {"p": "s"},
    ),
    "a local volume whose name never matters, and another one": (
        {"volumes": [*SCRATCH, {"name": "data", "hostPath": {"path": "/data"}}]},
        Policy(ignore_local_volumes=("scratch",)),
        ["local-storage"],
    ),
    "an expendable pod": ({"priority": -11}, Policy(), {}),
    "a pod whose priority is the cutoff": ({"priority": -10}, Policy(), {"p": "s"}),
    "a pod without a priority, if most are expendable": (
        {},
        Policy(expendable_pods_priority_cutoff=1000),
        {"p": "s"},
    ),
    "a priority below a cutoff of the user": ({"priority": 999}, Policy(expendable_pods_priority_cutoff=1000), {}),
    "no pod is expendable": (
        {"priority": -100},
        Policy(expendable_pods_priority_cutoff=-(2**31)),
        {"p": "s"},
    ),
    "an expendable pod of a StatefulSet that is not safe to evict, with a local volume": (
        {"priority": -11, "owner": "apps/v1/StatefulSet", "annotations": {SAFE: "false"}, "volumes": SCRATCH},
        Policy(),
        {},
    ),
    "an expendable pod without a controller": ({"priority": -11, "owner": None}, Policy(), {}),
    "an expendable pod of a workflow": (
        {"priority": -11, "owner": "argoproj.io/v1alpha1/Workflow", "restartPolicy": "Never"},
        Policy(),
        {},
    ),
    "an expendable pod that is being deleted": ({"priority": -11, "deleted": True}, Policy(), {}),
    "an expendable pod that should be gone": (
        {"priority": -11, "deleted": "2026-01-01T11:00:00Z"},
        Policy(),
        {},
    ),
    "an expendable pod of an excluded namespace": (
        {"priority": -11},
        Policy(namespaces=namespace_scope((), ["default"])),
        ["namespace-excluded"],
    ),
    "another component handles its eviction": (
        {"evictionResponders": [{"name": "acme.io/migrator", "priority": 10000}]},
        Policy(),
        ["eviction-responder"],
    ),
    "several components handle its eviction, the default one too": (
        {
            "evictionResponders": [
                {"name": "imperative-eviction.k8s.io/evictor", "priority": 100},
                {"name": "acme.io/migrator", "priority": 10000},
            ],
            "owner": "apps/v1/StatefulSet",
        },
        Policy(),
        ["eviction-responder"],
    ),
    "the eviction API is its only responder": (
        {"evictionResponders": [{"name": "imperative-eviction.k8s.io/evictor", "priority": 100}]},
        Policy(),
        {"p": "s"},
    ),
    "another component handles its eviction, annotated as safe to evict": (
        {"evictionResponders": [{"name": "acme.io/migrator"}], "annotations": {SAFE: "true"}},
        Policy(),
        {"p": "s"},
    ),
    "a DaemonSet pod with a responder": (
        {"owner": "DaemonSet", "evictionResponders": [{"name": "acme.io/migrator"}]},
        Policy(),
        {},
    ),
    "a Job's pod": ({"owner": "batch/v1/Job"}, Policy(), {"p": "s"}),
    "a Job's pod, if none may move": (
        {"owner": "batch/v1/Job"},
        Policy(move_jobs=MoveJobs.NEVER),
        ["job-would-fail"],
    ),
    "a Job's pod that is annotated as safe to evict, if none may move": (
        {"owner": "batch/v1/Job", "annotations": {SAFE: "true"}},
        Policy(move_jobs=MoveJobs.NEVER),
        ["job-would-fail"],
    ),
    "a pod of a custom resource named Job": (
        {"owner": "batch.volcano.sh/v1alpha1/Job"},
        Policy(move_jobs=MoveJobs.NEVER),
        {"p": "s"},
    ),
    "a pod of a workflow": (
        {"owner": "argoproj.io/v1alpha1/Workflow", "restartPolicy": "Never"},
        Policy(),
        ["runs-to-completion"],
    ),
    "a CI runner with local storage": (
        {"owner": "actions.github.com/v1alpha1/EphemeralRunner", "restartPolicy": "Never", "volumes": SCRATCH},
        Policy(),
        ["runs-to-completion"],
    ),
    "a pod of a TaskRun that is restarted on failure": (
        {"owner": "tekton.dev/v1/TaskRun", "restartPolicy": "OnFailure"},
        Policy(),
        ["runs-to-completion"],
    ),
    "a Spark executor, which its driver owns": (
        {"owner": "v1/Pod", "restartPolicy": "Never"},
        Policy(),
        ["runs-to-completion"],
    ),
    "a pod of a custom Job": (
        {"owner": "batch.volcano.sh/v1alpha1/Job", "restartPolicy": "Never"},
        Policy(),
        ["runs-to-completion"],
    ),
    "a pod of a Job": ({"owner": "batch/v1/Job", "restartPolicy": "Never"}, Policy(), {"p": "s"}),
    "a pod of a workflow, annotated as safe to evict": (
        {"owner": "argoproj.io/v1alpha1/Workflow", "restartPolicy": "Never", "annotations": {SAFE: "true"}},
        Policy(),
        {"p": "s"},
    ),
    "a pod of a workflow with other annotations": (
        {"owner": "argoproj.io/v1alpha1/Workflow", "restartPolicy": "Never", "annotations": {"team": "ci"}},
        Policy(),
        ["runs-to-completion"],
    ),
    "a pod of a custom owner that is restarted": (
        {"owner": "apps.kruise.io/v1alpha1/CloneSet", "restartPolicy": "Always"},
        Policy(),
        {"p": "s"},
    ),
    "a custom owner, if these are skipped": (
        {"owner": "apps.kruise.io/v1alpha1/CloneSet"},
        Policy(skip_nodes_with_custom_controller_pods=True),
        ["custom-controller"],
    ),
    "a built-in owner, if custom ones are skipped": (
        {"owner": "apps/v1/StatefulSet"},
        Policy(skip_nodes_with_custom_controller_pods=True),
        {"p": "s"},
    ),
    "a custom StatefulSet, if custom owners are skipped": (
        {"owner": "apps.kruise.io/v1beta1/StatefulSet"},
        Policy(skip_nodes_with_custom_controller_pods=True),
        ["custom-controller"],
    ),
    "a custom owner that is annotated as safe to evict, if these are skipped": (
        {"owner": "apps.kruise.io/v1alpha1/CloneSet", "annotations": {SAFE: "true"}},
        Policy(skip_nodes_with_custom_controller_pods=True),
        {"p": "s"},
    ),
    "a pod of OpenKruise's DaemonSet": ({"owner": "apps.kruise.io/v1alpha1/DaemonSet"}, Policy(), {}),
    "a pod of an ExtendedDaemonSet": (
        {"owner": "datadoghq.com/v1alpha1/ExtendedDaemonSetReplicaSet"},
        Policy(),
        {},
    ),
    "a pod that says it is like a DaemonSet's": (
        {"owner": None, "annotations": {"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"}},
        Policy(),
        {},
    ),
    "a pod that says it is not like a DaemonSet's": (
        {"annotations": {"cluster-autoscaler.kubernetes.io/daemonset-pod": "false"}},
        Policy(),
        {"p": "s"},
    ),
    "an instance manager that its operator created for the node": (
        {"owner": "longhorn.io/v1beta2/InstanceManager", "restartPolicy": "Never", "assigned": True},
        Policy(),
        {},
    ),
    "a pod that was created for the node, of an object that is no custom resource": (
        {"owner": "v1/ConfigMap", "assigned": True},
        Policy(),
        {"p": "s"},
    ),
    "a Deployment's pod with a node name in its template": (
        {"owner": "apps/v1/ReplicaSet", "assigned": True},
        Policy(),
        {"p": "s"},
    ),
    "Karpenter's former opt-out": ({"annotations": {QUIET_BEFORE: "true"}}, Policy(), ["do-not-disrupt"]),
    "Karpenter's former opt-out, off": ({"annotations": {QUIET_BEFORE: "false"}}, Policy(), {"p": "s"}),
    "safe-to-evict false": ({"annotations": {SAFE: "false"}}, Policy(), ["not-safe-to-evict"]),
    "safe-to-evict on-completion": ({"annotations": {SAFE: "on-completion"}}, Policy(), ["not-safe-to-evict"]),
    "do-not-disrupt": ({"annotations": {QUIET: "true"}}, Policy(), ["do-not-disrupt"]),
    "do-not-disrupt for a duration that has not ended": (
        {"annotations": {QUIET: "4h"}, "status": {"startTime": "2026-01-01T09:00:00Z"}},
        Policy(),
        ["do-not-disrupt"],
    ),
    "do-not-disrupt for a duration that has ended": (
        {"annotations": {QUIET: "2h30m"}, "status": {"startTime": "2026-01-01T09:00:00Z"}},
        Policy(),
        {"p": "s"},
    ),
    "do-not-disrupt for a duration in a small unit that has not ended": (
        {"annotations": {QUIET: "7200000ms"}, "status": {"startTime": "2026-01-01T11:00:00Z"}},
        Policy(),
        ["do-not-disrupt"],
    ),
    "do-not-disrupt for a duration of a pod that no kubelet has started": (
        {"annotations": {QUIET: "1s"}, "created": "2026-01-01T09:00:00Z"},
        Policy(),
        ["do-not-disrupt"],
    ),
    "do-not-disrupt for half a second that has ended": (
        {"annotations": {QUIET: "500ms"}, "status": {"startTime": "2026-01-01T11:00:00Z"}},
        Policy(),
        {"p": "s"},
    ),
    "do-not-disrupt since a start before the year 1, which the API server accepts": (
        {"annotations": {QUIET: "4h"}, "status": {"startTime": "0000-06-01T00:00:00Z"}},
        Policy(),
        {"p": "s"},
    ),
    "do-not-disrupt for the sum of fractions": (
        {"annotations": {QUIET: "+.5h1.5h"}, "status": {"startTime": "2026-01-01T11:00:00Z"}},
        Policy(),
        ["do-not-disrupt"],
    ),
    "do-not-disrupt for a negative duration": ({"annotations": {QUIET: "-1h"}}, Policy(), {"p": "s"}),
    "do-not-disrupt for longer than Go can count": ({"annotations": {QUIET: "99999999h"}}, Policy(), {"p": "s"}),
    "do-not-disrupt for a duration of zero is ignored": ({"annotations": {QUIET: "soon"}}, Policy(), {"p": "s"}),
    "our own opt-out": ({"annotations": {STAY: "true"}}, Policy(), ["do-not-evict"]),
    "our own opt-out, and annotated as safe to evict": (
        {"annotations": {STAY: "true", SAFE: "true"}},
        Policy(),
        ["do-not-evict"],
    ),
    "our own opt-out, off": ({"annotations": {STAY: "false"}}, Policy(), {"p": "s"}),
    "our own opt-out for a duration that has not ended": (
        {"annotations": {STAY: "3h500ms"}, "status": {"startTime": "2026-01-01T09:00:00Z"}},
        Policy(),
        ["do-not-evict"],
    ),
    "our own opt-out for a duration that has ended": (
        {"annotations": {STAY: "3h"}, "status": {"startTime": "2026-01-01T09:00:00Z"}},
        Policy(),
        {"p": "s"},
    ),
    "our own opt-out for a duration with an unknown start": ({"annotations": {STAY: "3h"}}, Policy(), ["do-not-evict"]),
    "our own opt-out, unreadable": ({"annotations": {STAY: "yes"}}, Policy(), ["do-not-evict"]),
    "Descheduler's opt-out": ({"annotations": {DESCHEDULER: "true"}}, Policy(), ["prefer-no-eviction"]),
    "Descheduler's opt-out without a value": ({"annotations": {DESCHEDULER: ""}}, Policy(), ["prefer-no-eviction"]),
    "Descheduler's opt-out, off": ({"annotations": {DESCHEDULER: "false"}}, Policy(), {"p": "s"}),
    "Spot Ocean's opt-out": ({"labels": {OCEAN: "true"}}, Policy(), ["restrict-scale-down"]),
    "Spot Ocean's opt-out, off": ({"labels": {OCEAN: "false"}}, Policy(), {"p": "s"}),
    "Spot Ocean's opt-out on a pod with annotations": (
        {"labels": {OCEAN: "true"}, "annotations": {"team": "web"}},
        Policy(),
        ["restrict-scale-down"],
    ),
    "CAST AI's opt-out": ({"annotations": {CAST_AI: "true"}}, Policy(), ["removal-disabled"]),
    "CAST AI's opt-out as a label": ({"labels": {CAST_AI: "true"}}, Policy(), ["removal-disabled"]),
    "CAST AI's opt-out, off": ({"annotations": {CAST_AI: "false"}}, Policy(), {"p": "s"}),
    "a DaemonSet pod with an opt-out": ({"owner": "DaemonSet", "annotations": {STAY: "true"}}, Policy(), {}),
    "a namespace that is not named": ({}, Policy(namespaces=namespace_scope(["web"], ())), ["namespace-excluded"]),
    "a namespace that is named": ({}, Policy(namespaces=namespace_scope(["default"], ())), {"p": "s"}),
    "an excluded namespace": ({}, Policy(namespaces=namespace_scope((), ["default"])), ["namespace-excluded"]),
    "an excluded namespace, and annotated as safe to evict": (
        {"annotations": {SAFE: "true"}},
        Policy(namespaces=namespace_scope((), ["default"])),
        ["namespace-excluded"],
    ),
    "another namespace is excluded": ({}, Policy(namespaces=namespace_scope((), ["web"])), {"p": "s"}),
    "a DaemonSet pod of an excluded namespace": (
        {"owner": "DaemonSet"},
        Policy(namespaces=namespace_scope((), ["default"])),
        {},
    ),
    "a namespace without labels of its own has its name as a label": (
        {},
        Policy(namespaces=namespace_scope((), (), "kubernetes.io/metadata.name!=default")),
        ["namespace-excluded"],
    ),
    "a longer grace period": ({"terminationGracePeriodSeconds": 121}, Policy(), ["grace-period"]),
    "a longer grace period, and annotated as safe to evict": (
        {"terminationGracePeriodSeconds": 604800, "annotations": {SAFE: "true"}},
        Policy(),
        ["grace-period"],
    ),
    "a longer grace period, of an expendable pod": (
        {"terminationGracePeriodSeconds": 3600, "priority": -11},
        Policy(),
        {},
    ),
    "a grace period of the maximum": ({"terminationGracePeriodSeconds": 120}, Policy(), {"p": "s"}),
    "a longer maximum": (
        {"terminationGracePeriodSeconds": 3600},
        Policy(max_graceful_termination=3600),
        {"p": "s"},
    ),
    "a shorter maximum": ({"terminationGracePeriodSeconds": 30}, Policy(max_graceful_termination=10), ["grace-period"]),
    "grace periods are shortened": (
        {"terminationGracePeriodSeconds": 3600},
        Policy(shorten_grace_periods=True),
        {"p": "s"},
    ),
    "a single replica": ({}, Policy(skip_single_replicas=True), ["single-replica"]),
    "a single replica, guard off": ({}, Policy(), {"p": "s"}),
    "a single replica that is annotated as safe to evict": (
        {"annotations": {SAFE: "true"}},
        Policy(skip_single_replicas=True),
        {"p": "s"},
    ),
    "no controller": ({"owner": None}, Policy(), ["no-controller"]),
    "no controller, but --delete-non-replicated-pods": (
        {"owner": None},
        Policy(delete_non_replicated_pods=True),
        {"p": "s"},
    ),
    "no controller, but annotated as safe to evict": (
        {"owner": None, "annotations": {SAFE: "true"}},
        Policy(),
        {"p": "s"},
    ),
    "any kind of controller counts": ({"owner": "Rollout"}, Policy(), {"p": "s"}),
    "a virtual kubelet of Liqo": ({"labels": KUBELET}, Policy(), ["liqo-component"]),
    "a Liqo virtual kubelet annotated as safe to evict": (
        {"labels": KUBELET, "annotations": {SAFE: "true"}},
        Policy(),
        {"p": "s"},
    ),
    "another component of Liqo": ({"labels": {"offloading.liqo.io/component": "webhook"}}, Policy(), {"p": "s"}),
    "local storage": ({"volumes": SCRATCH}, Policy(), ["local-storage"]),
    "local storage in memory": ({"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]}, Policy(), {"p": "s"}),
    "a host path": ({"volumes": [{"name": "h", "hostPath": {"path": "/x"}}]}, Policy(), ["local-storage"]),
    "local storage that may be lost by annotation": (
        {"volumes": SCRATCH, "annotations": {LOCAL: "other,scratch"}},
        Policy(),
        {"p": "s"},
    ),
    "local storage, guard off": ({"volumes": SCRATCH}, Policy(skip_nodes_with_local_storage=False), {"p": "s"}),
    "resource claims": ({"resourceClaims": [{"name": "gpu"}]}, Policy(), ["resource-claim"]),
}


@pytest.mark.parametrize(("fields", "policy", "expected"), PODS.values(), ids=PODS)
def test_a_pod_moves_or_blocks_its_node(fields: dict[str, Any], policy: Policy, expected: Any) -> None:
    cluster = snapshot([node("od", ON_DEMAND), node("s"), pod("p", "od", **fields)])
    assert short(Planner(cluster, policy).plan_node("od", CIRCUMSTANCES)) == expected


#: deletionTimestamp of pod "p", pods that the drain has evicted → pods that the plan waits for, or the reason
TERMINATING: dict[str, tuple[Any, tuple[str, ...], Any]] = {
    "evicted by this drain": (True, ("uid-p",), ["default/p"]),
    "evicted by this drain, and late": ("2026-01-01T10:00:00Z", ("uid-p",), ["default/p"]),
    "deleted by others after the first eviction": (True, ("uid-q",), ["default/p"]),
    "deleted by others before the first eviction": (True, (), ["pod-terminating"]),
    "deleted by others and overdue": ("2026-01-01T10:00:00Z", ("uid-q",), ["pod-stuck-terminating"]),
    "the first plan": ("2026-01-01T10:00:00Z", (), ["pod-stuck-terminating"]),
}


@pytest.mark.parametrize(("deleted", "evicted", "expected"), TERMINATING.values(), ids=TERMINATING)
def test_a_drain_waits_for_the_pods_that_it_has_evicted(deleted: Any, evicted: tuple[str, ...], expected: Any) -> None:
    pods = [pod("p", "od", deleted=deleted), pod("d", "od", owner="DaemonSet", deleted=True), pod("q", "od")]
    planner = Planner(snapshot([node("od", ON_DEMAND), node("s"), *pods]), Policy())
    verdict = planner.look_again("od", CIRCUMSTANCES, evicted)
    result = [str(pod) for pod in verdict.leaving] if isinstance(verdict, Plan) else short(verdict)
    assert result == expected


def test_a_terminating_pod_does_not_have_to_move() -> None:
    planner = Planner(snapshot([node("od", ON_DEMAND), pod("p", "od", deleted=True), pod("q", "od")]), Policy())
    assert [pod.name for pod in planner.must_move("od", CIRCUMSTANCES)] == ["q"]


def test_details_state_a_remedy() -> None:
    pods = [
        pod("a", "od", deleted="2026-01-01T12:01:00Z"),
        pod("b", "od", deleted="2026-01-01T11:00:00Z"),
        pod("c", "od", schedulerName="volcano"),
    ]
    verdict = Planner(snapshot([node("od", ON_DEMAND), node("s"), *pods]), Policy()).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    assert {blocker.pod: blocker.detail for blocker in verdict.blockers} == {
        "default/a": "it is being deleted (grace period until 2026-01-01T12:01:00Z); the drain waits until it is gone",
        "default/b": "it should have terminated by 2026-01-01T11:00:00Z; check its finalizers and the node's kubelet",
        "default/c": "its scheduler is volcano; --scheduler-name=volcano allows eviction if it uses the default rules",
    }


def test_pods_that_differ_only_in_their_owner_are_evaluated_separately() -> None:
    pods = [pod(f"p-{n}", "od", owner=owner) for n, owner in enumerate(("batch/v1/Job", "x/v1/Job", "batch/v1/Job"))]
    policy = Policy(move_jobs=MoveJobs.NEVER)
    verdict = Planner(snapshot([node("od", ON_DEMAND), node("s"), *pods]), policy).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    assert [blocker.pod for blocker in verdict.blockers] == ["default/p-0", "default/p-2"]


SYSTEM: dict[str, tuple[Policy, list[dict[str, Any]], Any]] = {
    "without a budget": (Policy(), [], ["kube-system-pod"]),
    "with a budget": (Policy(), [budget("b", "p", allowed=1, namespace="kube-system")], {"p": "s"}),
    "guard off": (Policy(skip_nodes_with_system_pods=False), [], {"p": "s"}),
}


@pytest.mark.parametrize(("policy", "budgets", "expected"), SYSTEM.values(), ids=SYSTEM)
def test_pods_of_kube_system_need_a_budget_or_the_flag(
    policy: Policy, budgets: list[dict[str, Any]], expected: Any
) -> None:
    cluster = snapshot([node("od", ON_DEMAND), node("s"), pod("kube-system/p", "od"), *budgets])
    assert short(Planner(cluster, policy).plan_node("od", CIRCUMSTANCES)) == expected


def test_pods_in_a_liqo_tenant_namespace_block_the_node() -> None:
    pods = [pod("liqo-tenant-rome/gw-rome", "od"), pod("liqo/liqo-webhook", "od")]
    verdict = Planner(snapshot([node("od", ON_DEMAND), node("s"), *pods]), Policy()).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    detail = 'Liqo virtual nodes depend on it; cluster-autoscaler.kubernetes.io/safe-to-evict: "true" allows eviction'
    assert [(blocker.pod, str(blocker.reason), blocker.detail) for blocker in verdict.blockers] == [
        ("liqo-tenant-rome/gw-rome", "liqo-component", detail)
    ]


def test_every_blocking_pod_is_named() -> None:
    pods = [pod("a", "od", owner=None), pod("b", "od", annotations={SAFE: "false"}), pod("c", "od")]
    verdict = Planner(snapshot([node("od", ON_DEMAND), node("s"), *pods]), Policy()).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    assert {(blocker.pod, str(blocker.reason)) for blocker in verdict.blockers} == {
        ("default/a", "no-controller"),
        ("default/b", "not-safe-to-evict"),
    }


NODES: dict[str, tuple[dict[str, Any], Any]] = {
    "scale-down disabled": (
        {"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}},
        ["scale-down-disabled"],
    ),
    "do-not-disrupt": ({"annotations": {QUIET: "true"}}, ["node-do-not-disrupt"]),
    "our own opt-out": ({"annotations": {"spot-rescheduler/do-not-drain": "true"}}, ["do-not-drain"]),
    "our own opt-out, off": ({"annotations": {"spot-rescheduler/do-not-drain": "false"}}, {"p": "s"}),
    "our own opt-out, unreadable": ({"annotations": {"spot-rescheduler/do-not-drain": "soon"}}, ["do-not-drain"]),
    "our own opt-out for a duration that has not ended": (
        {"annotations": {"spot-rescheduler/do-not-drain": "4h"}, "created": "2026-01-01T09:00:00Z"},
        ["do-not-drain"],
    ),
    "our own opt-out for a duration that has ended": (
        {"annotations": {"spot-rescheduler/do-not-drain": "3h"}, "created": "2026-01-01T09:00:00Z"},
        {"p": "s"},
    ),
    "CAST AI's opt-out": ({"annotations": {CAST_AI: "true"}}, ["removal-disabled"]),
    "CAST AI's opt-out as a label": ({"labels": {CAST_AI: "true"}}, ["removal-disabled"]),
    "control plane": ({"labels": {"node-role.kubernetes.io/control-plane": ""}}, ["control-plane"]),
    "not Ready": ({"ready": "Unknown"}, ["node-not-ready"]),
    "being removed by the autoscaler": (
        {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
        ["being-drained-by-another"],
    ),
    "cordoned nodes may be emptied": ({"unschedulable": True}, {"p": "s"}),
}


@pytest.mark.parametrize(("fields", "expected"), NODES.values(), ids=NODES)
def test_a_node_is_drained_or_blocked(fields: dict[str, Any], expected: Any) -> None:
    cluster = snapshot([node("od", ON_DEMAND, **fields), node("s"), pod("p", "od")])
    assert short(Planner(cluster, Policy()).plan_node("od", CIRCUMSTANCES)) == expected
