"""Label selectors for nodes, in the syntax of kubectl, and suggestions for selectors that match no node."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rescheduler.errors import UsageError

#: The API server's rules for labels, so that a typo is reported instead of matching no node.
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
LABEL_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

_REQUIREMENT: Final = re.compile(r"(?P<absent>!?)(?P<key>[^=!,]*)(?:(?P<operator>==?|!=)(?P<value>.*))?", re.DOTALL)
_SET: Final = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_PART: Final = re.compile(r"(?:[^,(]|\([^()]*+\)?)*+")  #: up to a comma that is not within parentheses


def parts(text: str) -> Iterator[str]:
    """Yield the parts of the selector *text* between commas that are not within parentheses."""
    position = 0
    while position <= len(text) and (part := _PART.match(text, position)) is not None:
        yield part[0]
        position = part.end() + 1


def named_set(part: str) -> tuple[str, bool, tuple[str, ...]] | None:
    """Return the key, whether it is ``notin``, and the values of ``key in (a,b)``; None for other requirements."""
    if (match := _SET.fullmatch(part)) is None:
        return None
    return match["key"], match["operator"] == "notin", tuple(value.strip() for value in match["values"].split(","))


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """One requirement: ``key``, ``key=value``, ``key in (a,b)``, or the opposite."""

    key: str
    values: tuple[str, ...] = ()  #: empty: any value
    negated: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether *labels* satisfy the requirement."""
        value = labels.get(self.key)
        return (value in self.values if self.values else value is not None) != self.negated

    def __str__(self) -> str:
        match self.values:
            case ():
                return f"!{self.key}" if self.negated else self.key
            case (value,):
                return f"{self.key}{'!=' if self.negated else '='}{value}"
        return f"{self.key} {'notin' if self.negated else 'in'} ({','.join(self.values)})"


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """A group of nodes, which satisfy all requirements of at least one alternative.

    As in kubectl, ``key!=value`` and ``key notin (value)`` include nodes without the label. The order of the
    alternatives and of their requirements matters only for the text.
    """

    alternatives: tuple[tuple[NodeLabel, ...], ...]

    @classmethod
    def parse(cls, text: str) -> "NodeLabels":
        """Parse requirements that are separated by commas.

        Raises UsageError if *text* is not valid.
        """
        requirements = (_requirement(part.strip(), text) for part in parts(text))
        return cls((tuple(dict.fromkeys(requirements)),))

    @classmethod
    def any_of(cls, groups: Iterable["NodeLabels"]) -> "NodeLabels":
        """Return the group of the nodes that belong to at least one of *groups*."""
        return cls(tuple(dict.fromkeys(alternative for group in groups for alternative in group.alternatives)))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these *labels* belongs to the group."""
        return any(all(requirement.matches(labels) for requirement in group) for group in self.alternatives)

    def same_as(self, other: "NodeLabels") -> bool:
        """Return whether *other* has the same alternatives with the same requirements, in any order."""
        return {frozenset(group) for group in self.alternatives} == {frozenset(group) for group in other.alternatives}

    @property
    def selectors(self) -> tuple[str, ...]:
        """The selector of each alternative."""
        return tuple(",".join(map(str, group)) for group in self.alternatives)

    def __str__(self) -> str:
        return " or ".join(self.selectors)


def label_key(text: str) -> str:
    """Return *text* if it is the key of a label. Raises UsageError."""
    if LABEL_KEY.fullmatch(text) is None:
        raise UsageError(f"label {text!r}: expected a key in label syntax, such as topology.kubernetes.io/zone")
    return text


def _requirement(part: str, text: str) -> NodeLabel:
    if (listed := named_set(part)) is not None:
        key, negated, values = listed
        if LABEL_KEY.fullmatch(key) and all(map(_VALUE.fullmatch, values)):
            return NodeLabel(key, tuple(dict.fromkeys(values)), negated)
    elif (match := _REQUIREMENT.fullmatch(part)) is not None:
        key, operator, value = match["key"].strip(), match["operator"], (match["value"] or "").strip()
        if LABEL_KEY.fullmatch(key) and _VALUE.fullmatch(value) and not (match["absent"] and operator):
            return NodeLabel(key, (value,) if operator else (), negated=bool(match["absent"]) or operator == "!=")
    raise UsageError(
        f"node label {text!r}: expected key, key=value, key!=value or !key in label syntax, or several of them "
        "separated by commas; sets are key in (a,b) and key notin (a,b)"
    )


@dataclass(frozen=True, slots=True)
class LabelSuggestion:
    """The labels of on-demand and spot nodes in one environment or several, and the number of nodes that match each."""

    environment: str
    on_demand_label: NodeLabels
    spot_label: NodeLabels
    on_demand: int = 0
    spot: int = 0
    neither: int = 0  #: nodes with neither label

    @property
    def flags(self) -> str:
        """The flags with these labels, for a shell."""
        groups = (("--on-demand-node-label", self.on_demand_label), ("--spot-node-label", self.spot_label))
        return " ".join(f"{flag}={shlex.quote(text)}" for flag, label in groups for text in label.selectors)

    def __str__(self) -> str:
        rest = f"; {self.neither} with neither label" if self.neither else ""
        return f"{self.flags} ({self.environment}: {self.on_demand} on-demand, {self.spot} spot nodes{rest})"


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
        (
            "Cluster API",
            "!cluster.x-k8s.io/interruptible,!node-role.kubernetes.io/control-plane",
            "cluster.x-k8s.io/interruptible",
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
    for preset, environment in (
        ("eks", "EKS"),
        ("karpenter", "Karpenter"),
        ("gke", "GKE"),
        ("aks", "AKS"),
        ("openshift", "OpenShift"),
        ("clusterapi", "Cluster API"),
    )
}

KOPS_GROUP: Final = "kops.k8s.io/instancegroup"
_KOPS_NODE: Final = "node-role.kubernetes.io/node"


#: Environments whose label of on-demand nodes other clusters have too. Without spot nodes, it is not suggested.
_COMMON: Final = frozenset({"OpenShift", "kOps", "Cluster API"})


@dataclass(frozen=True, slots=True)
class _Family:
    """The labels of an environment, and the nodes that match each, by their position."""

    environment: str
    labels: tuple[NodeLabels, NodeLabels]
    nodes: tuple[frozenset[int], frozenset[int]]  #: on-demand and spot nodes

    @property
    def rank(self) -> tuple[bool, int]:
        """Families with nodes of both kinds come first, then those with the most nodes."""
        on_demand, spot = self.nodes
        return not (on_demand and spot), -len(on_demand) - len(spot)


def suggest_labels(nodes: Iterable[Mapping[str, str]]) -> LabelSuggestion | None:
    """Return the labels that divide *nodes*, given as their labels, into on-demand and spot nodes, or None.

    The labels of several environments are combined if each of them covers nodes that the others do not.
    """
    listed = list(nodes)
    known = sorted((_family(each, listed) for each in (*_KNOWN, *_kops_groups(listed))), key=lambda each: each.rank)
    families = [each for each in known if each.rank[1] and (not each.rank[0] or each.environment not in _COMMON)]
    if not families:
        return None
    chosen: tuple[list[NodeLabels], list[NodeLabels]] = ([], [])
    covered: tuple[set[int], set[int]] = (set(), set())
    names = dict[str, None]()
    for family in families:
        for kind, other in ((0, 1), (1, 0)):
            found = family.nodes[kind]
            if found - covered[0] - covered[1] and not found & covered[other]:
                chosen[kind].append(family.labels[kind])
                covered[kind].update(found)
                names.update(dict.fromkeys(family.environment.split(" and ")))
    labels = [NodeLabels.any_of(chosen[kind] or [families[0].labels[kind]]) for kind in (0, 1)]
    rest = len(listed) - len(covered[0] | covered[1])
    return LabelSuggestion(" and ".join(names), labels[0], labels[1], len(covered[0]), len(covered[1]), rest)


def _family(known: tuple[str, NodeLabels, NodeLabels], nodes: Sequence[Mapping[str, str]]) -> _Family:
    environment, *labels = known
    spot = frozenset(number for number, each in enumerate(nodes) if labels[1].matches(each))
    on_demand = frozenset(number for number, each in enumerate(nodes) if labels[0].matches(each)) - spot
    return _Family(environment, (labels[0], labels[1]), (on_demand, spot))


def _kops_groups(nodes: Iterable[Mapping[str, str]]) -> Iterable[tuple[str, NodeLabels, NodeLabels]]:
    """Yield the labels for each instance group of kOps whose name contains ``spot``."""
    groups = sorted({labels[KOPS_GROUP] for labels in nodes if KOPS_GROUP in labels and _KOPS_NODE in labels})
    for group in groups:
        if "spot" in group.lower():
            others = ",".join(f"{KOPS_GROUP}!={name}" for name in groups if "spot" in name.lower())
            yield "kOps", NodeLabels.parse(f"{_KOPS_NODE},{others}"), NodeLabels.parse(f"{KOPS_GROUP}={group}")
