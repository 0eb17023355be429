"""The scheduler's NodeInfo: a node, its pods, their requests and the free resources.

The daemon uses the maps of on-demand and spot nodes for reports and for requests to the provider. The planner works
on the same data as columns, in ``predicates.nodes`` and ``predicates.snapshot``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from predicates.nodes import NodeTable
from predicates.objects import Node, Pod
from predicates.snapshot import Snapshot
from predicates.texts import did_you_mean
from rescheduler.errors import UsageError
from rescheduler.planning.node_labels import NodeLabels, suggest_labels
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.pod_traits import belongs_to_node


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node with its pods and resources. Valid until the snapshot changes."""

    node: Node
    pods: Collection[Pod]  #: bound to the node and not finished
    table: NodeTable
    row: int  #: of the node in *table*

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def ready(self) -> bool:
        return self.node.condition("Ready") == "True"

    @property
    def allocatable(self) -> dict[str, int]:
        """Return the allocatable amounts by resource: milli-CPU, bytes, pods or plain numbers."""
        return self._amounts(self.table.allocatable[self.row])

    @property
    def requested(self) -> dict[str, int]:
        """Return the sum of the pods' requests, in the units of :attr:`allocatable`."""
        return self._amounts(self.table.allocatable[self.row] - self.table.free[self.row])

    @property
    def free(self) -> dict[str, int]:
        """Return allocatable minus requested; negative if the node shrank while it ran pods."""
        return self._amounts(self.table.free[self.row])

    def _amounts(self, numbers: Iterable[int]) -> dict[str, int]:
        return {name: int(amount) for name, amount in zip(self.table.resources, numbers, strict=True)}


@dataclass(frozen=True, slots=True)
class NodeInfos:
    """The labeled nodes by name. A node that matches both labels is a spot node."""

    on_demand: Mapping[str, NodeInfo]
    spot: Mapping[str, NodeInfo]


def full_name(name: str, known: Collection[str]) -> str:
    """Return the one of the node names *known* that *name* means: itself, or the only one with more after a dot.

    Pages print names without the suffix that all of them share. Without such a name, return *name*.
    """
    if name in known:
        return name
    longer = [each for each in known if each.startswith(f"{name}.")] if name else []
    return longer[0] if len(longer) == 1 else name


def similar_node(name: str, known: Collection[str]) -> str:
    """Return a question for the end of a message that *name* is none of the node names *known*, also without suffix."""
    short = (each.partition(".")[0] for each in known)
    return did_you_mean(name, [*(each for each in short if full_name(each, known) in known), *known])


def node_named(snapshot: Snapshot, name: str, change: str) -> Node:
    """Return the node that *name* means. Raises UsageError, for the word of a *change*, if there is none."""
    table = snapshot.nodes
    row = table.row.get(full_name(name, table.row))
    node = None if row is None else table.nodes[row]
    if node is None:
        raise UsageError(f"{change}: there is no node {name}{similar_node(name, table.row)}")
    return node


class OwnPods:
    """Counts the pods of nodes, except DaemonSet and mirror pods. A count is updated when the node's pods change."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._counts: dict[str, tuple[int, int]] = {}  #: node → its last change of placed pods, number of own pods

    def on(self, info: NodeInfo, snapshot: Snapshot) -> int:
        """Return the number of own pods on a node of *snapshot*."""
        if self._snapshot is not snapshot:
            self._snapshot = snapshot
            self._counts.clear()
        change = snapshot.placed_on.get(info.name, 0)
        known = self._counts.get(info.name)
        if known is None or known[0] != change:
            known = self._counts[info.name] = change, sum(not belongs_to_node(pod) for pod in info.pods)
        return known[1]


def label_of(node: Node, policy: Policy) -> NodeLabels | None:
    """Return the labels that make *node* spot or on-demand, or None if it matches neither."""
    labels = (policy.spot_label, policy.on_demand_label)
    return next((label for label in labels if label.matches(node.metadata.labels)), None)


def is_on_demand(node: Node, policy: Policy) -> bool:
    return label_of(node, policy) == policy.on_demand_label


def node_infos(snapshot: Snapshot, policy: Policy) -> NodeInfos:
    """Return the on-demand and the spot nodes of *snapshot*."""
    table = snapshot.nodes
    infos_by_label: dict[NodeLabels, dict[str, NodeInfo]] = {policy.on_demand_label: {}, policy.spot_label: {}}
    for node in sorted(table, key=lambda node: node.name):
        if (label := label_of(node, policy)) is not None:
            pods = snapshot.pods_on[node.name].values()
            infos_by_label[label][node.name] = NodeInfo(node, pods, table, table.row[node.name])
    return NodeInfos(infos_by_label[policy.on_demand_label], infos_by_label[policy.spot_label])


@dataclass(frozen=True, slots=True)
class LabelFindings:
    """Problems with the labels of the policy on the nodes of a snapshot."""

    unmatched: tuple[str, ...] = ()  #: labels, as in the flags, that no node matches
    flags: tuple[str, ...] = ()  #: the flag of each of *unmatched*
    suggestion: str = ""  #: flags with labels that match nodes, if they have another for one that is unmatched
    overlapping: tuple[str, ...] = ()  #: nodes that match both labels, by name

    @property
    def no_nodes(self) -> str:
        """A message that names the labels that no node matches and suggests others; "" if all labels match."""
        if not self.unmatched:
            return ""
        labels = (f"the label {label} ({flag})" for label, flag in zip(self.unmatched, self.flags, strict=True))
        text = f"no node matches {' or '.join(labels)}"
        return f"{text}; these flags match nodes: {self.suggestion}" if self.suggestion else text

    @property
    def both(self) -> str:
        """A message about the nodes that match both labels, or "" if there are none."""
        return both_labels(self.overlapping)


def both_labels(nodes: Sequence[str]) -> str:
    """Return a message about *nodes*, which match both labels, or "" if there are none."""
    if not nodes:
        return ""
    text = f"node {nodes[0]} matches" if len(nodes) == 1 else f"{len(nodes)} nodes, for example {nodes[0]}, match"
    return f"{text} both --on-demand-node-label and --spot-node-label: treated as spot"


def label_findings(snapshot: Snapshot, policy: Policy, infos: NodeInfos) -> LabelFindings:
    """Compare the labels of *policy* with the nodes of *snapshot*. *infos* must be derived from *snapshot*."""
    groups = (
        ("--on-demand-node-label", policy.on_demand_label, infos.on_demand),
        ("--spot-node-label", policy.spot_label, infos.spot),
    )
    unmatched = tuple(str(label) for _, label, nodes in groups if not nodes)
    flags = tuple(flag for flag, _, nodes in groups if not nodes)
    found = suggest_labels(node.metadata.labels for node in snapshot.nodes) if unmatched else None
    suggested = (found.on_demand_label, found.spot_label) if found else ()
    lacking = ((label, new) for (_, label, nodes), new in zip(groups, suggested, strict=False) if not nodes)
    suggestion = found if any(not NodeLabels.any_of(pair).same_as(pair[0]) for pair in lacking) else None
    overlapping = tuple(
        name for name, info in infos.spot.items() if policy.on_demand_label.matches(info.node.metadata.labels)
    )
    return LabelFindings(unmatched, flags, str(suggestion or ""), overlapping)
