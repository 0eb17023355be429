"""Signals on a Node that its machine is about to go, and who puts them there.

Two handlers have no signal of their own. Spot Ocean cordons the nodes that it drains (on Azure it reads
``PreemptScheduled``). GKE since 1.20 has the kubelet shut the node down, which makes the node not Ready.
"""

from dataclasses import dataclass
from typing import Final, Literal

from predicates.objects import Node


@dataclass(frozen=True, slots=True)
class Signal:
    """A taint by its key, or by the prefix of its key where that ends with a slash; or a condition that is True."""

    source: str
    key: str
    kind: Literal["taint", "condition"] = "taint"
    deliberate: bool = False  #: a tool removes the node on purpose; else the cloud takes it away, or it is failing

    def __str__(self) -> str:
        return f"{self.kind} {self.key.removesuffix('/')} of {self.source}"


#: Taints that all spot machines of a cloud carry, as ``kubernetes.azure.com/scalesetpriority``, are no signals.
TAINTS: Final = (
    # spot-itn, rebalance-recommendation, scheduled-maintenance, asg-lifecycle-termination
    Signal("AWS Node Termination Handler", "aws-node-termination-handler/"),
    Signal("GKE's termination handler", "cloud.google.com/impending-node-termination"),
    Signal("AKS node auto-drain", "remediator.kubernetes.azure.com/unschedulable"),
    Signal("AKS node auto-drain", "remediator.aks.microsoft.com/unschedulable"),  # its older name
    Signal("the Azure cloud provider", "cloudprovider.azure.microsoft.com/draining"),
    Signal("AKS Node Termination Handler", "aks-node-termination-handler/"),  # preempt, terminate, redeploy …
    Signal("the cloud provider", "node.cloudprovider.kubernetes.io/shutdown"),
    Signal("an operator or the cloud provider", "node.kubernetes.io/out-of-service"),
    # Karpenter puts one taint on the nodes that the cloud interrupts and on those that it consolidates.
    Signal("Karpenter", "karpenter.sh/disrupted", deliberate=True),
    Signal("Karpenter", "karpenter.sh/disruption", deliberate=True),  # before 1.0
    Signal("Cluster Autoscaler", "ToBeDeletedByClusterAutoscaler", deliberate=True),
    Signal("kubeaware-cloudpool-proxy", "node-about-to-be-drained", deliberate=True),
)

#: Of AKS's node-problem-detector: scheduled events of the virtual machine. The first one stands for all of them.
CONDITIONS: Final = tuple(
    Signal("AKS", name, "condition")
    for name in ("VMEventScheduled", "PreemptScheduled", "TerminateScheduled", "RedeployScheduled", "RebootScheduled")
)

_EXACT: Final = {signal.key: signal for signal in TAINTS if not signal.key.endswith("/")}
_PREFIXES: Final = tuple(signal for signal in TAINTS if signal.key.endswith("/"))
_CONDITIONS: Final = {signal.key: signal for signal in CONDITIONS}


def signals_on(node: Node) -> list[Signal]:
    """All signals that *node* carries."""
    signals = [signal for taint in node.spec.taints if (signal := _of_taint(taint.key)) is not None]
    # Most conditions are False, which is quickly seen.
    true = [one.type for one in node.status.conditions if one.status == "True"]
    return signals + [_CONDITIONS[name] for name in true if name in _CONDITIONS]


def _of_taint(key: str) -> Signal | None:
    return _EXACT.get(key) or next((signal for signal in _PREFIXES if key.startswith(signal.key)), None)
