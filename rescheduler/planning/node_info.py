"""The scheduler's NodeInfo: a node, its pods, their requests and the free resources.

The daemon uses the maps of on-demand and spot nodes for reports and for questions to the provider. The planner works
on the same data as columns, in ``predicates.nodes`` and ``predicates.snapshot``.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from predicates.nodes import NodeTable
from predicates.objects import Node, Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.drainability import belongs_to_node
from rescheduler.planning.policy import NodeLabel, Policy


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One node at this moment; valid until the snapshot changes."""

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

    @property
    def own_pods(self) -> int:
        """Return the number of pods other than DaemonSet and mirror pods."""
        return sum(not belongs_to_node(pod) for pod in self.pods)

    def _amounts(self, numbers: Iterable[int]) -> dict[str, int]:
        return {name: int(amount) for name, amount in zip(self.table.resources, numbers, strict=True)}


@dataclass(frozen=True, slots=True)
class NodeInfos:
    """The labelled nodes by name. A node with both labels is a spot node."""

    on_demand: Mapping[str, NodeInfo]
    spot: Mapping[str, NodeInfo]


def label_of(node: Node, policy: Policy) -> NodeLabel | None:
    """Return the label that makes *node* spot or on-demand, or None if it has neither."""
    labels = (policy.spot_label, policy.on_demand_label)
    return next((label for label in labels if label.matches(node.metadata.labels)), None)


def node_infos(snapshot: Snapshot, policy: Policy) -> NodeInfos:
    """Return the on-demand and the spot nodes of *snapshot*."""
    table = snapshot.nodes
    maps: dict[NodeLabel, dict[str, NodeInfo]] = {policy.on_demand_label: {}, policy.spot_label: {}}
    for node in sorted(table, key=lambda node: node.name):
        if (label := label_of(node, policy)) is not None:
            pods = snapshot.pods_on[node.name].values()
            maps[label][node.name] = NodeInfo(node, pods, table, table.row[node.name])
    return NodeInfos(maps[policy.on_demand_label], maps[policy.spot_label])
