"""Tests of taints and conditions that announce the removal of a machine, and of their effect."""

from typing import Any

import pytest

from predicates.objects import Node
from rescheduler.planning.rules.candidates import removal, why_not_target
from rescheduler.planning.rules.interruptions import signals_on
from tests.planning.builders import node, snapshot


def spot(**fields: Any) -> Node:
    [spot_node] = snapshot([node("s", **fields)]).nodes
    return spot_node


def tainted(*keys: str) -> dict[str, Any]:
    return {"taints": [{"key": key, "value": "x", "effect": "NoSchedule"} for key in keys]}


def conditioned(name: str, status: str = "True") -> dict[str, Any]:
    return {"conditions": [{"type": name, "status": status}]}


#: By taint: its description.
TAINTS: dict[str, str] = {
    **dict.fromkeys(
        (
            "aws-node-termination-handler/spot-itn",
            "aws-node-termination-handler/scheduled-maintenance",
            "aws-node-termination-handler/asg-lifecycle-termination",
            "aws-node-termination-handler/rebalance-recommendation",
        ),
        "aws-node-termination-handler of AWS Node Termination Handler",
    ),
    "aks-node-termination-handler/preempt": "aks-node-termination-handler of AKS Node Termination Handler",
    "cloud.google.com/impending-node-termination": (
        "cloud.google.com/impending-node-termination of GKE's termination handler"
    ),
    "remediator.kubernetes.azure.com/unschedulable": (
        "remediator.kubernetes.azure.com/unschedulable of AKS node auto-drain"
    ),
    "remediator.aks.microsoft.com/unschedulable": "remediator.aks.microsoft.com/unschedulable of AKS node auto-drain",
    "cloudprovider.azure.microsoft.com/draining": (
        "cloudprovider.azure.microsoft.com/draining of the Azure cloud provider"
    ),
    "node.cloudprovider.kubernetes.io/shutdown": "node.cloudprovider.kubernetes.io/shutdown of the cloud provider",
    "node.kubernetes.io/out-of-service": "node.kubernetes.io/out-of-service of an operator or the cloud provider",
    "karpenter.sh/disrupted": "karpenter.sh/disrupted of Karpenter",
    "karpenter.sh/disruption": "karpenter.sh/disruption of Karpenter",
    "ToBeDeletedByClusterAutoscaler": "ToBeDeletedByClusterAutoscaler of Cluster Autoscaler",
    "node-about-to-be-drained": "node-about-to-be-drained of kubeaware-cloudpool-proxy",
}


@pytest.mark.parametrize("key", TAINTS)
def test_taints_are_signals(key: str) -> None:
    spot_node, signal_text = spot(**tainted(key)), f"taint {TAINTS[key]}"
    assert ([str(signal) for signal in signals_on(spot_node)], why_not_target(spot_node)) == (
        [signal_text],
        f"it will be removed soon ({signal_text})",
    )


@pytest.mark.parametrize(
    "name", ["VMEventScheduled", "PreemptScheduled", "TerminateScheduled", "RedeployScheduled", "RebootScheduled"]
)
def test_conditions_are_signals(name: str) -> None:
    spot_node, signal_text = spot(**conditioned(name)), f"condition {name} of AKS"
    assert ([str(signal) for signal in signals_on(spot_node)], why_not_target(spot_node)) == (
        [signal_text],
        f"it will be removed soon ({signal_text})",
    )


#: By condition of the node's lifecycle: who sets it, and whether an on-demand node with it is not drained.
LIFECYCLE: dict[str, tuple[str, bool]] = {
    "DrainInProgress": ("an administrator", True),
    "Drained": ("an administrator", True),
    "MaintenanceInProgress": ("an administrator", True),
    "MaintenancePlanned": ("an administrator", False),
    "GracefulNodeShutdownInProgress": ("the kubelet", False),
}


@pytest.mark.parametrize(("name", "source", "blocks"), [(name, *facts) for name, facts in LIFECYCLE.items()])
def test_nodes_with_lifecycle_conditions_are_no_targets(name: str, source: str, blocks: bool) -> None:
    spot_node = spot(**conditioned(name))
    assert why_not_target(spot_node) == f"it will be removed soon (condition {name} of {source})"
    assert [why_not_target(spot(**conditioned(name, status))) for status in ("False", "Unknown")] == [None, None]
    assert (removal(spot_node) is not None) is blocks


#: case: node → its signals, and why it is not a target
NODES: dict[str, tuple[dict[str, Any], list[str], str | None]] = {
    "a healthy node": ({}, [], None),
    "Azure's taint of all spot nodes": (tainted("kubernetes.azure.com/scalesetpriority"), [], None),
    "a taint with a similar key": (tainted("karpenter.sh/disrupted-by-nobody"), [], None),
    "no scheduled event": (conditioned("VMEventScheduled", "False"), [], None),
    "a scheduled event with status Unknown": (conditioned("VMEventScheduled", "Unknown"), [], None),
    "another condition": (conditioned("MemoryPressure"), [], None),
    "several": (
        {**tainted("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"), **conditioned("PreemptScheduled")},
        [
            "taint ToBeDeletedByClusterAutoscaler of Cluster Autoscaler",
            "taint karpenter.sh/disrupted of Karpenter",
            "condition PreemptScheduled of AKS",
        ],
        "it will be removed soon (taint ToBeDeletedByClusterAutoscaler of Cluster Autoscaler)",
    ),
    "underused, by Cluster Autoscaler": (
        {"taints": [{"key": "DeletionCandidateOfClusterAutoscaler", "value": "1", "effect": "PreferNoSchedule"}]},
        [],
        None,
    ),
    "not registered with Karpenter yet": (
        tainted("karpenter.sh/unregistered"),
        [],
        "it may be removed soon (taint karpenter.sh/unregistered)",
    ),
    "cordoned": ({"unschedulable": True}, [], "it is cordoned"),
    "not Ready": ({"ready": "False"}, [], "it is not Ready"),
}


@pytest.mark.parametrize(("fields", "signals", "why"), NODES.values(), ids=NODES)
def test_signals_determine_whether_a_spot_node_is_a_target(
    fields: dict[str, Any], signals: list[str], why: str | None
) -> None:
    spot_node = spot(**fields)
    assert ([str(signal) for signal in signals_on(spot_node)], why_not_target(spot_node)) == (signals, why)
