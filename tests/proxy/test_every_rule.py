"""Every rule about nodes and pods applies in the daemon's planner and in the proxy."""

from collections.abc import Mapping
from typing import Any

import pytest

from predicates.objects.pods import DO_NOT_DISRUPT
from predicates.snapshot import DRAIN_TAINT
from rescheduler.planning.answers.node import RULES
from rescheduler.planning.outcome import Blocker, Plan, Reason, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.rules import candidates, pod_rules
from tests.planning.builders import NOW, ON_DEMAND, SPOT, Manifest, budget, node, pod, seeks, snapshot
from tests.planning.rules.test_volumes import SHARED, claim
from tests.planning.test_quotas import quota
from tests.planning.test_replacements import container, replica_set
from tests.proxy.planning import judge

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
CAST_AI = "autoscaling.cast.ai/removal-disabled"
GANG = {"scheduling.x-k8s.io/pod-group": "g"}
VOLCANO = {"scheduling.k8s.io/group-name": "g"}
CREATED = {"created": "2026-01-01T11:00:00Z"}


def drained(**fields: Any) -> Manifest:
    return node("v", ON_DEMAND, **fields)


def with_pod(**fields: Any) -> list[Manifest]:
    return [drained(), pod(fields.pop("name", "a-1"), "v", **fields)]


#: Rule, and the case of the rule → the objects in addition to the spot node "w", and the reason.
NODES: dict[tuple[str, str], tuple[Manifest, Reason]] = {
    ("_annotated", "Cluster Autoscaler"): (
        drained(annotations={candidates.SCALE_DOWN_DISABLED: "true"}),
        Reason.SCALE_DOWN_DISABLED,
    ),
    ("_annotated", "Karpenter"): (drained(annotations={DO_NOT_DISRUPT: "true"}), Reason.DO_NOT_DISRUPT_NODE),
    ("_opted_out", "ours"): (drained(annotations={"spot-rescheduler/do-not-drain": "true"}), Reason.DO_NOT_DRAIN),
    ("_opted_out", "ours, not over yet"): (
        drained(annotations={"spot-rescheduler/do-not-drain": "4h"}, **CREATED),
        Reason.DO_NOT_DRAIN,
    ),
    ("_opted_out", "ours, not readable"): (
        drained(annotations={"spot-rescheduler/do-not-drain": "maybe"}),
        Reason.DO_NOT_DRAIN,
    ),
    ("_opted_out", "CAST AI's annotation"): (drained(annotations={CAST_AI: "true"}), Reason.REMOVAL_DISABLED),
    ("_opted_out", "CAST AI's label"): (drained(labels={CAST_AI: "true"}), Reason.REMOVAL_DISABLED),
    ("_control_plane", ""): (drained(labels={"node-role.kubernetes.io/control-plane": ""}), Reason.CONTROL_PLANE),
    ("_leaving", "interrupted"): (
        drained(taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]),
        Reason.BEING_DRAINED,
    ),
    ("_leaving", "another proxy"): (
        drained(taints=[{"key": DRAIN_TAINT.key, "value": f"{candidates.PROXIES}1", "effect": "NoSchedule"}]),
        Reason.BEING_DRAINED,
    ),
    ("_not_ready", "kubelet"): (drained(ready="False"), Reason.NODE_NOT_READY),
    ("_not_ready", "unfinished"): (drained(annotations={candidates.UNFINISHED: "x"}), Reason.NODE_NOT_READY),
}

PODS: dict[tuple[str, str], tuple[list[Manifest], Reason]] = {
    ("_terminating", ""): (with_pod(deleted="2026-01-01T11:00:00Z"), Reason.POD_STUCK_TERMINATING),
    ("_not_safe_to_evict", ""): (with_pod(annotations={SAFE: "false"}), Reason.NOT_SAFE_TO_EVICT),
    ("_not_safe_to_evict", "until complete"): (
        with_pod(annotations={SAFE: "on-completion"}),
        Reason.NOT_SAFE_TO_EVICT,
    ),
    ("_do_not_disrupt", ""): (with_pod(annotations={DO_NOT_DISRUPT: "true"}), Reason.DO_NOT_DISRUPT),
    ("_do_not_disrupt", "not over yet"): (
        with_pod(annotations={DO_NOT_DISRUPT: "4h"}, status={"startTime": "2026-01-01T11:00:00Z"}),
        Reason.DO_NOT_DISRUPT,
    ),
    ("_annotated", "ours"): (with_pod(annotations={"spot-rescheduler/do-not-evict": "true"}), Reason.DO_NOT_EVICT),
    ("_annotated", "ours, not over yet"): (
        with_pod(annotations={"spot-rescheduler/do-not-evict": "4h"}, **CREATED),
        Reason.DO_NOT_EVICT,
    ),
    ("_annotated", "Descheduler"): (
        with_pod(annotations={"descheduler.alpha.kubernetes.io/prefer-no-eviction": "true"}),
        Reason.PREFER_NO_EVICTION,
    ),
    ("_annotated", "CAST AI"): (with_pod(annotations={CAST_AI: "true"}), Reason.REMOVAL_DISABLED),
    ("_labeled", "CAST AI"): (with_pod(labels={CAST_AI: "true"}), Reason.REMOVAL_DISABLED),
    ("_labeled", "Spot Ocean"): (
        with_pod(labels={"spotinst.io/restrict-scale-down": "true"}),
        Reason.RESTRICT_SCALE_DOWN,
    ),
    ("_eviction_responder", ""): (
        with_pod(evictionResponders=[{"name": "acme.io/migrator", "priority": 10000}]),
        Reason.EVICTION_RESPONDER,
    ),
    ("_gang_member", ""): (
        [*with_pod(labels=GANG), pod("a-2", "w", labels=GANG)],
        Reason.GANG_MEMBER,
    ),
    ("_annotated_gang_member", ""): (
        [*with_pod(annotations=VOLCANO), pod("a-2", "w", annotations=VOLCANO)],
        Reason.GANG_MEMBER,
    ),
    ("_unreadable_owner", ""): (with_pod(owner="no kind"), Reason.UNREADABLE_OBJECT),
    ("_no_controller", ""): (with_pod(owner=None), Reason.NO_CONTROLLER),
    ("_runs_to_completion", ""): (
        with_pod(owner="argoproj.io/v1alpha1/Workflow", restartPolicy="Never"),
        Reason.RUNS_TO_COMPLETION,
    ),
    ("_liqo_component", ""): (with_pod(labels={pod_rules.LIQO_COMPONENT: "virtual-kubelet"}), Reason.LIQO_COMPONENT),
    ("_local_storage", ""): (with_pod(volumes=[{"name": "data", "emptyDir": {}}]), Reason.LOCAL_STORAGE),
}

ONLY_V: dict[str, Any] = {"nodeSelector": {"only": "v"}}
ZONE = "topology.kubernetes.io/zone"

#: Rules of the verdict that are neither about the node alone nor about a pod alone, budgets, and the steps of a drain.
OTHERS: dict[tuple[str, str], tuple[list[Manifest], Reason]] = {
    ("_bound_by_template", ""): (
        [*with_pod(), replica_set(container(cpu="1"), template={"nodeName": "v"})],
        Reason.NODE_NAME_IN_TEMPLATE,
    ),
    ("_quotas", ""): ([*with_pod(), quota({"pods": "1"}, {"pods": "1"})], Reason.QUOTA_EXCEEDED),
    ("_volumes", "shared"): (
        [*with_pod(**SHARED), pod("b-1", "x", **SHARED), node("x"), *claim("ReadWriteOnce")],
        Reason.SHARED_VOLUME,
    ),
    ("_pending", "no other node accepts it"): (
        [drained(labels={"only": "v"}), pod("a-1", "v"), pod("p-1", **ONLY_V)],
        Reason.PENDING_POD,
    ),
    ("_pending", "it takes the room"): ([*with_pod(cpu="2"), pod("p-1", cpu="63")], Reason.NO_ROOM),
    ("_pending", "room is being made for it"): (
        [*with_pod(cpu="2"), pod("p-1", cpu="63", status={"nominatedNodeName": "w"})],
        Reason.NO_ROOM,
    ),
    ("replacement", "the template asks for more"): (
        [*with_pod(), replica_set(container(cpu="100"))],
        Reason.NO_ROOM,
    ),
    ("steps", "a pod must run beside one that has not moved"): (
        [
            drained(zone="a"),
            *(pod(f"a-{number}", "v", labels={"app": "a"}, affinity=seeks("a")) for number in (1, 2)),
        ],
        Reason.CANNOT_MOVE_IN_STEPS,
    ),
    ("steps", "a pod could be bound to the node again"): (
        [*with_pod(tolerations=[{"operator": "Exists"}]), pod("b-1", "w", cpu="48")],
        Reason.RETURNS_TO_DRAINED,
    ),
    ("_of_replacements", ""): (with_pod(resourceClaims=[{"name": "gpu"}]), Reason.RESOURCE_CLAIM),
    ("_budgets", "disruptions"): ([*with_pod(), budget("a", "a", allowed=0)], Reason.BUDGET),
    ("_budgets", "replicas"): (
        with_pod(annotations={"spot-rescheduler/min-on-demand-replicas": "1"}),
        Reason.MIN_ON_DEMAND_REPLICAS,
    ),
}

#: Rules that block nothing here, and why.
WITHOUT_A_CASE = {
    "_unreadable_objects": "see test_victims.py",
    "_surges": "the proxy evicts all pods",
    "_not_together": "the proxy evicts all pods in one step",
    "_last_node": "see test_victims.py; the daemon has no such rule",
    "_not_worth_it": "the proxy has no such setting; see test_min_worth.py",
    "_system_pod": "it blocks nothing",
    "_any_local_volume": "a rule of the proxy; the daemon's is _local_storage",
    "_minimum": "a flag of the daemon",
    "_minimum_after_plans": "a flag of the daemon",
    "_pinned": "the proxy moves pods to any node",
    "_annotated_as_of_node": "it blocks nothing",
    "_node_owned": "it blocks nothing",
    "_mount_pod": "it blocks nothing",
    "_expendable": "no pod is expendable there",
    "_safe_to_evict": "it blocks nothing",
    "_namespace_excluded": "a flag of the daemon",
    "_controllers": "a rule of commands; the drain itself reads the controllers",
    "_single_replica": "a flag of the daemon",
    "_custom_controller": "a flag of the daemon",
    "_job": "a flag of the daemon",
    "_other_scheduler": "a flag of the daemon",
    "_grace_period": "a flag of the daemon; the limits of the proxy are those of its drains",
    "_kube_system": "the proxy does not move pods of kube-system",
    "_hosts_this_process": "see below",
    "_cooling": "the proxy remembers no failed drains of nodes, but see test_nodes.py about their owners",
}


def reasons(verdict: Verdict) -> set[Reason]:
    return set() if isinstance(verdict, Plan) else {blocker.reason for blocker in verdict.blockers}


def both(objects: list[Manifest], *, vetoes: Mapping[str, tuple[Blocker, ...]] | None = None) -> list[set[Reason]]:
    """Return the reasons of the daemon and those of the proxy against draining the node "v"."""
    cluster = snapshot([*objects, node("w", SPOT, cpu="64")])
    circumstances = Circumstances(NOW, own="own", vetoes=vetoes or {})
    daemon = Planner(cluster, Policy()).plan_node("v", circumstances)
    return [reasons(daemon), reasons(judge(cluster, "v", own="own", vetoes=vetoes or {}))]


@pytest.mark.parametrize("case", NODES)
def test_a_rule_about_nodes_applies_in_both(case: tuple[str, str]) -> None:
    manifest, reason = NODES[case]
    assert both([manifest, pod("a-1", "v")]) == [{reason}, {reason}]


@pytest.mark.parametrize("case", [*PODS, *OTHERS])
def test_a_rule_about_pods_applies_in_both(case: tuple[str, str]) -> None:
    objects, reason = (PODS | OTHERS)[case]
    assert all(reason in found for found in both(objects))


def test_a_veto_applies_in_both() -> None:
    vetoes = {"v": (Blocker(Reason.OTHER_INSTALLATION, "it drains it"),)}
    assert both([drained()], vetoes=vetoes) == [{Reason.OTHER_INSTALLATION}] * 2


def test_without_a_blocker_both_have_a_plan() -> None:
    assert both(with_pod()) == [set(), set()]


def test_an_annotation_for_four_hours_ends_in_both() -> None:
    old = {"created": "2026-01-01T07:59:00Z"}
    assert both([drained(annotations={"spot-rescheduler/do-not-drain": "4h"}, **old)]) == [set(), set()]


def test_each_rule_has_a_case() -> None:
    names = {rule.name for rule in RULES if rule.of_node}
    cases = {name for name, _ in NODES | PODS | OTHERS} - {"steps", "replacement"}
    assert cases | WITHOUT_A_CASE.keys() == names


#: Where pods fit, and the steps of a drain, are no rules: their cases are named "replacement" and "steps".
FOUND = {
    case: reason
    for case, reason in (
        *((case, reason) for case, (_, reason) in NODES.items()),
        *((case, reason) for case, (_, reason) in (PODS | OTHERS).items()),
    )
    if case[0] not in ("replacement", "steps") and reason is not Reason.NO_ROOM
}


@pytest.mark.parametrize("case", FOUND)
def test_a_rule_declares_the_reason_that_it_finds_by_another_function(case: tuple[str, str]) -> None:
    assert FOUND[case] in {reason for rule in RULES if rule.name == case[0] for reason in rule.reasons}
