"""NodeInfo, as the scheduler has it: a node, its pods, what they request and what is free.

The maps of on-demand and spot nodes are what the daemon reports on and asks the provider about. The planner decides
over the same facts as columns, in ``predicates.nodes`` and ``predicates.snapshot``.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from predicates.nodes import NodeTable
from predicates.objects import Node, Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.drainability import belongs_to_node
from rescheduler.planning.policy import NodeLabel, Policy

#: Of a node: only Ready ones count in the metric ``nodes_count``, as in k8s-spot-rescheduler.
READY: Final = "Ready"


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One node at this moment; holds until the snapshot changes."""

    node: Node
    pods: Collection[Pod]  #: that are bound to it and have not ended
    table: NodeTable
    row: int  #: of the node in *table*

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def ready(self) -> bool:
        return self.node.condition(READY) == "True"

    @property
    def allocatable(self) -> dict[str, int]:
        """By resource: milli-CPU, bytes, pods or plain numbers."""
        return self._amounts(self.table.allocatable[self.row])

    @property
    def requested(self) -> dict[str, int]:
        """What the pods request in all, as :attr:`allocatable`."""
        return self._amounts(self.table.allocatable[self.row] - self.table.free[self.row])

    @property
    def free(self) -> dict[str, int]:
        """Allocatable less requested; below zero where a node shrank under its pods."""
        return self._amounts(self.table.free[self.row])

    @property
    def own_pods(self) -> int:
        """How many pods count: neither DaemonSet nor mirror pods."""
        return sum(not belongs_to_node(pod) for pod in self.pods)

    def _amounts(self, numbers: "Collection[int]") -> dict[str, int]:
        return {name: int(amount) for name, amount in zip(self.table.resources, numbers, strict=True)}


@dataclass(frozen=True, slots=True)
class NodeInfos:
    """The labelled nodes by name; one with both labels is spot."""

    on_demand: Mapping[str, NodeInfo]
    spot: Mapping[str, NodeInfo]


def label_of(node: Node, policy: Policy) -> NodeLabel | None:
    """The label that makes *node* spot or on-demand; None: it is neither."""
    labels = (policy.spot_label, policy.on_demand_label)
    return next((label for label in labels if label.matches(node.metadata.labels)), None)


def node_infos(snapshot: Snapshot, policy: Policy) -> NodeInfos:
    """The on-demand and the spot nodes of *snapshot*."""
    table = snapshot.nodes
    maps: dict[NodeLabel, dict[str, NodeInfo]] = {policy.on_demand_label: {}, policy.spot_label: {}}
    for name, row in sorted(table.row.items()):
        node = table.nodes[row]
        label = label_of(node, policy) if node is not None else None
        if node is not None and label is not None:
            maps[label][name] = NodeInfo(node, snapshot.pods_on[name].values(), table, row)
    return NodeInfos(maps[policy.on_demand_label], maps[policy.spot_label])
