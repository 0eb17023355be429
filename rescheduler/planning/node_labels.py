"""Label selectors for nodes, in the syntax of kubectl, and suggestions for selectors that match no node."""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rescheduler.errors import UsageError

#: The API server's rules for labels, so that a typo is reported instead of matching no node.
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

_REQUIREMENT: Final = re.compile(r"(?P<absent>!?)(?P<key>[^=!,]*)(?:(?P<operator>==?|!=)(?P<value>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """One requirement: ``key``, ``key=value``, or the opposite (``!key``, ``key!=value``)."""

    key: str
    value: str | None = None  #: None means any value
    negated: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether *labels* satisfy the requirement."""
        value = labels.get(self.key)
        return (value is not None if self.value is None else value == self.value) != self.negated

    def __str__(self) -> str:
        if self.value is None:
            return f"!{self.key}" if self.negated else self.key
        return f"{self.key}{'!=' if self.negated else '='}{self.value}"


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """A group of nodes, which satisfy all requirements. As in kubectl, ``key!=value`` includes nodes without it.

    The order of the requirements matters only for the text.
    """

    requirements: tuple[NodeLabel, ...]

    @classmethod
    def parse(cls, text: str) -> "NodeLabels":
        """Parse requirements that are separated by commas.

        Raises UsageError if *text* is not valid.
        """
        requirements = (_requirement(part.strip(), text) for part in text.split(","))
        return cls(tuple(dict.fromkeys(requirements)))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these *labels* belongs to the group."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def same_as(self, other: "NodeLabels") -> bool:
        """Return whether *other* has the same requirements, in any order."""
        return set(self.requirements) == set(other.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def label_key(text: str) -> str:
    """Return *text* if it is the key of a label. Raises UsageError."""
    if _KEY.fullmatch(text) is None:
        raise UsageError(f"label {text!r}: expected a key in label syntax, such as topology.kubernetes.io/zone")
    return text


def _requirement(part: str, text: str) -> NodeLabel:
    match = _REQUIREMENT.fullmatch(part)
    if match is not None:
        key, operator, value = match["key"].strip(), match["operator"], match["value"]
        value = None if value is None else value.strip()
        if _KEY.fullmatch(key) and _VALUE.fullmatch(value or "") and not (match["absent"] and operator):
            return NodeLabel(key, value, negated=bool(match["absent"]) or operator == "!=")
    raise UsageError(
        f"node label {text!r}: expected key, key=value, key!=value or !key in label syntax, "
        "or several of them separated by commas"
    )


@dataclass(frozen=True, slots=True)
class LabelSuggestion:
    """The labels of on-demand and spot nodes in one environment, and the number of nodes that match each."""

    environment: str
    on_demand_label: NodeLabels
    spot_label: NodeLabels
    on_demand: int = 0
    spot: int = 0

    def __str__(self) -> str:
        return (
            f"--on-demand-node-label={shlex.quote(str(self.on_demand_label))} "
            f"--spot-node-label={shlex.quote(str(self.spot_label))} "
            f"({self.environment}: {self.on_demand} on-demand, {self.spot} spot nodes)"
        )


#: By environment: the labels of its on-demand and of its spot nodes.
_KNOWN: Final = tuple(
    (environment, NodeLabels.parse(on_demand), NodeLabels.parse(spot))
    for environment, on_demand, spot in (
        ("Karpenter", "karpenter.sh/capacity-type=on-demand", "karpenter.sh/capacity-type=spot"),
        ("EKS", "eks.amazonaws.com/capacityType=ON_DEMAND", "eks.amazonaws.com/capacityType=SPOT"),
        ("EKS and Karpenter", "eks.amazonaws.com/capacityType=ON_DEMAND", "karpenter.sh/capacity-type=spot"),
        ("eksctl", "node-lifecycle=on-demand", "node-lifecycle=spot"),
        ("GKE", "cloud.google.com/gke-provisioning=standard", "cloud.google.com/gke-provisioning=spot"),
        ("GKE", "cloud.google.com/gke-nodepool,!cloud.google.com/gke-spot", "cloud.google.com/gke-spot=true"),
        (
            "GKE",
            "cloud.google.com/gke-nodepool,!cloud.google.com/gke-preemptible",
            "cloud.google.com/gke-preemptible=true",
        ),
        (
            "AKS",
            "kubernetes.azure.com/agentpool,kubernetes.azure.com/scalesetpriority!=spot",
            "kubernetes.azure.com/scalesetpriority=spot",
        ),
        (
            "OpenShift",
            "node-role.kubernetes.io/worker,!machine.openshift.io/interruptible-instance",
            "machine.openshift.io/interruptible-instance",
        ),
        ("Spot Ocean", "spotinst.io/node-lifecycle=od", "spotinst.io/node-lifecycle=spot"),
        (
            "CAST AI",
            "provisioner.cast.ai/managed-by=cast.ai,!scheduling.cast.ai/spot",
            "scheduling.cast.ai/spot=true",
        ),
        (
            "kOps",
            "node-role.kubernetes.io/node,!node-role.kubernetes.io/spot-worker",
            "node-role.kubernetes.io/spot-worker",
        ),
        ("self-managed nodes", "node.kubernetes.io/lifecycle=normal", "node.kubernetes.io/lifecycle=spot"),
        ("self-managed nodes", "node.kubernetes.io/lifecycle=on-demand", "node.kubernetes.io/lifecycle=spot"),
        ("self-managed nodes", "lifecycle=OnDemand", "lifecycle=Ec2Spot"),
    )
)

#: Of ``install --preset`` and of the chart: the labels of the on-demand nodes and of the spot nodes.
PRESETS: Final = {
    preset: next((on_demand, spot) for name, on_demand, spot in _KNOWN if name == environment)
    for preset, environment in (("eks", "EKS"), ("karpenter", "Karpenter"), ("gke", "GKE"), ("aks", "AKS"))
}

_KOPS_GROUP: Final = "kops.k8s.io/instancegroup"
_KOPS_NODE: Final = "node-role.kubernetes.io/node"


def suggest_labels(nodes: Iterable[Mapping[str, str]]) -> LabelSuggestion | None:
    """Return the labels that divide *nodes*, given as their labels, into on-demand and spot nodes, or None.

    Both groups must have nodes. Among several suggestions the one for the most nodes is returned.
    """
    listed = list(nodes)
    known = (*_KNOWN, *_kops_groups(listed))
    suggestions = [
        LabelSuggestion(
            environment,
            on_demand_label,
            spot_label,
            sum(on_demand_label.matches(labels) and not spot_label.matches(labels) for labels in listed),
            sum(spot_label.matches(labels) for labels in listed),
        )
        for environment, on_demand_label, spot_label in known
    ]
    usable = [suggestion for suggestion in suggestions if suggestion.on_demand and suggestion.spot]
    return max(usable, key=lambda suggestion: suggestion.on_demand + suggestion.spot, default=None)


def _kops_groups(nodes: Iterable[Mapping[str, str]]) -> Iterable[tuple[str, NodeLabels, NodeLabels]]:
    """Yield the labels for each instance group of kOps whose name contains ``spot``."""
    groups = sorted({labels[_KOPS_GROUP] for labels in nodes if _KOPS_GROUP in labels and _KOPS_NODE in labels})
    for group in groups:
        if "spot" in group.lower():
            others = ",".join(f"{_KOPS_GROUP}!={name}" for name in groups if "spot" in name.lower())
            yield "kOps", NodeLabels.parse(f"{_KOPS_NODE},{others}"), NodeLabels.parse(f"{_KOPS_GROUP}={group}")
