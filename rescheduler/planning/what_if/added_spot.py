"""Spot nodes that do not exist yet: what is known about them, and their addition to a copy of a snapshot.

A new node has the labels, taints and size of a known node, of a type whose size is known, or of a size that is given.
It runs copies of the DaemonSet pods of the node that it resembles.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count as numbers_from
from itertools import islice
from typing import Final

from msgspec.structs import replace as replaced

from predicates.csi import ZONE
from predicates.indexes.domains import HOSTNAME
from predicates.objects import CSINode, Node, NodeSpec, NodeStatus, ObjectMeta, QuantityText, Taint
from predicates.objects.pods import NODE_POOL
from predicates.snapshot import Snapshot
from predicates.texts import did_you_mean
from rescheduler.errors import UsageError
from rescheduler.planning.forms import shortened
from rescheduler.planning.money.prices import INSTANCE_TYPE_LABELS, NodeKind, instance_type, kind, zone_of
from rescheduler.planning.node_info import node_named
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.planning.placement.added_nodes import GrowthLimits, most_of
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.candidates import groups, starting_taints, why_not_target
from rescheduler.planning.rules.pins import is_temporary_taint
from rescheduler.planning.rules.pod_traits import belongs_to_node
from rescheduler.planning.what_if.spot_sources import (
    OF_MACHINES,
    SpotSource,
    common_labels,
    in_zone,
    is_of_machine,
    nodes_of_machine_sets,
    spot_sources,
)

#: An error message lists so many types of a group.
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class AddSpot:
    """Add *count* spot nodes that resemble *like*, are of an instance *type*, or have the given size.

    Those of a type are like a node of it, in the *zone*, unless their size is given. Those of a size have the labels
    that all spot nodes have. With a *template* of the cloud provider, they are like it, with the DaemonSet pods of the
    node *like*. Those of a *group* are as it creates them.
    """

    count: int
    like: str = ""
    cpu: str = ""  #: allocatable, as a Kubernetes quantity
    memory: str = ""  #: allocatable, as a Kubernetes quantity
    pods: int = 110
    type: str = ""
    zone: str = ""
    group: str = ""  #: name of a NodePool, or ``namespace/name`` of a MachineSet or MachineDeployment
    template: Node | None = None

    @property
    def needs_size(self) -> bool:
        """Return whether a node or a MachineSet has to tell the size of the type."""
        return bool(self.type and not self.cpu)

    def __str__(self) -> str:
        """Return the text of ``--what-if``."""
        if self.like:
            return f"add-spot {self.count} like {self.like}"
        size = {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods)} if self.cpu else {}
        parts = {"type": self.type, "zone": self.zone, "group": self.group, **size}
        return f"add-spot {self.count} {','.join(f'{key}={value}' for key, value in parts.items() if value)}"


def add_spot(snapshot: Snapshot, policy: Policy, change: AddSpot) -> list[str]:
    """Add the nodes of *change* to *snapshot*. Return their names. Raises the errors of :meth:`NewSpot.of`."""
    return NewSpot(snapshot, policy).of(change).add(snapshot, change.count)


@dataclass(frozen=True, slots=True)
class NewNode:
    """What new nodes are like: *node*, without a name, with copies of the DaemonSet pods of the node *model*."""

    node: Node
    model: str = ""
    zones: Sequence[str] = ()  #: those that the new nodes are in in turn; none: that of *node*

    def add(self, snapshot: Snapshot, number: int) -> list[str]:
        """Add *number* of them to *snapshot*, with the volume limits of the model. Return their names."""
        free = (name for name in map("added-spot-{}".format, numbers_from(1)) if name not in snapshot.nodes.row)
        names, (meta, status) = list(islice(free, number)), (self.node.metadata, self.node.status)
        drivers = snapshot.of("CSINode").get(self.model)
        own = [pod for pod in snapshot.pods_on[self.model].values() if belongs_to_node(pod)] if self.model else []
        for index, name in enumerate(names):
            zone = {ZONE: self.zones[index % len(self.zones)]} if self.zones else {}
            labels = {**meta.labels, **zone, HOSTNAME: name}
            spec = NodeSpec(taints=self.node.spec.taints)
            snapshot.upsert("Node", Node(metadata=ObjectMeta(name=name, labels=labels), spec=spec, status=status))
            if isinstance(drivers, CSINode):
                snapshot.upsert("CSINode", replaced(drivers, metadata=ObjectMeta(name=name)))
            for pod in own:
                copy = replaced(snapshot.bound_to(pod, name), name=f"{pod.name}-{name}", uid=f"{pod.uid}-{name}")
                snapshot.upsert("Pod", copy)
        return names


class NewSpot:
    """What new spot nodes of *snapshot* are like. Valid while it does not change."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot = snapshot
        self._policy = policy
        table = snapshot.nodes
        self.existing = [node for row in groups(snapshot, policy).spot_rows if (node := table.nodes[row]) is not None]
        #: Those that new ones may resemble: those that accept pods at present, if there are any.
        self.models = [node for node in self.existing if why_not_target(node) is None] or self.existing
        others = sorted(snapshot.nodes, key=lambda node: node.name)
        self._known = self.models or [node for node in others if policy.on_demand_label.matches(node.metadata.labels)]
        self._first = next((node.name for node in self._known), "")
        self._starting = starting_taints(snapshot, policy)

    @cached_property
    def sources(self) -> list[SpotSource]:
        """What creates spot nodes."""
        return list(spot_sources(self._snapshot, self.existing, self._policy.spot_label))

    @cached_property
    def types(self) -> dict[str, list[Node]]:
        """The nodes that tell the size of each instance type: existing ones, or those that a MachineSet would add."""
        found = defaultdict[str, list[Node]](list)
        for node in (*self._snapshot.nodes, *nodes_of_machine_sets(self._snapshot)):
            found[instance_type(node)].append(node)
        found.pop("", None)
        return dict(found)

    def like_present(self, *, of_pools: bool) -> dict[AddSpot, GrowthLimits]:
        """Return nodes like one spot node of each kind, that of which limits allow most; *of_pools*: also of NodePools.

        Nodes that accept no pods at present are used only if there are no others.
        """
        limits = defaultdict[str, dict[str, tuple[int, int]]](dict)
        for source in self.sources:
            for node in source.members:
                limits[node.name].update(source.takes(node))
        first: dict[NodeKind, Node] = {}
        for node in sorted(self.models, key=lambda node: -most_of(limits[node.name])):
            first.setdefault(kind(node), node)
        pools = {} if of_pools else self._snapshot.of("NodePool")
        likes = (node for node in first.values() if node.metadata.labels.get(NODE_POOL) not in pools)
        return {AddSpot(1, like=node.name): limits[node.name] for node in likes}

    def created(self) -> dict[AddSpot, GrowthLimits]:
        """Return what NodePools create, and MachineSets and groups without nodes.

        Of NodePools that create the same nodes, the first with room in its limits counts.
        """
        found, seen = dict[AddSpot, GrowthLimits](), set[object]()
        for source in self.sources:
            for node in source.templates:
                labels, limits = node.metadata.labels | {NODE_POOL: ""}, source.takes(node)
                alike = *(frozenset(each.items()) for each in (labels, node.status.allocatable)), node.spec.taints
                if alike not in seen and most_of(limits):
                    seen.add(alike)
                    found[AddSpot(1, type=instance_type(node), zone=zone_of(node), group=source.name)] = limits
        return found

    def of_any_type(self) -> list[AddSpot]:
        """Return each type whose size is known in each zone of nodes, but those of spot nodes."""
        zones = sorted({zone_of(node) for node in self._snapshot.nodes} - {""}) or [""]
        present = {(instance_type(node), zone_of(node)) for node in self.models}
        kinds = [(name, zone) for name in sorted(self.types) for zone in zones]
        return [AddSpot(1, type=name, zone=zone) for name, zone in kinds if (name, zone) not in present]

    def of(self, change: AddSpot) -> NewNode:
        """Return what the nodes of *change* are like.

        Raises UsageError if there is no node with that name or of that type, if the group does not create such nodes,
        or if the labels of spot nodes cannot be determined.
        """
        if change.template is not None:
            return NewNode(change.template, change.like or self._first)
        return self._created(change) if change.group else self._resembling(change)

    def _resembling(self, change: AddSpot) -> NewNode:
        model, resembles = self._model(change), bool(change.like or change.needs_size)
        is_spot = resembles and self._policy.spot_label.matches(model.metadata.labels)
        of_model = in_zone(model, change.zone, self._snapshot.nodes) if resembles else {}
        labels = self._labels(of_model, is_spot=is_spot)
        taints = self._lasting_taints(model) if is_spot else self._common_taints()
        if change.type and not resembles:
            labels[INSTANCE_TYPE_LABELS[0]] = change.type
        required = self._policy.spot_label
        if not required.matches(labels):
            labels |= _required_labels(required, {**model.metadata.labels, **labels})
        if not required.matches(labels):
            raise UsageError(
                f"add-spot: expected a spot node in the cluster, from which to copy the labels for {required}"
            )
        all_zones = () if resembles else sorted({node.metadata.labels.get(ZONE, "") for node in self._known} - {""})
        size: dict[str, QuantityText] = {"cpu": change.cpu, "memory": change.memory, "pods": str(change.pods)}
        status = NodeStatus(allocatable=model.status.allocatable if resembles else size, images=model.status.images)
        node = Node(metadata=ObjectMeta(labels=labels), spec=NodeSpec(taints=taints), status=status)
        return NewNode(node, model.name or self._first, [change.zone] if change.zone else all_zones)

    def _labels(self, of_model: dict[str, str], *, is_spot: bool) -> dict[str, str]:
        """Return the labels of new nodes that resemble a node with the labels *of_model*; none if they resemble none.

        All are copied from a spot node. Of any other node, only those that follow from its machine are: the others are
        what spot nodes have in common, so that pods that another label holds on its nodes do not fit.
        """
        common = common_labels(self._known)
        if not is_spot:
            shared = {key: value for key, value in common.items() if not (of_model and is_of_machine(key))}
            of_machine = {key: value for key, value in of_model.items() if is_of_machine(key)}
            of_model = (shared if self.models else {}) | of_machine
        return {key: value for key, value in common.items() if key in OF_MACHINES} | of_model

    def _created(self, change: AddSpot) -> NewNode:
        """Return what the group of *change* creates of its type in its zone."""
        by_name = {each.name: each for each in self.sources if each.templates}
        if (source := by_name.get(change.group)) is None:
            why = f"no NodePool or MachineSet {change.group} creates spot nodes of a known size"
            raise UsageError(f"add-spot: {why}{did_you_mean(change.group, by_name)}")
        for node in source.templates:
            if (instance_type(node), zone_of(node)) == (change.type, change.zone):
                return NewNode(node, next((each.name for each in source.members), self._first))
        kinds = sorted({f"type={instance_type(node)},zone={zone_of(node)}" for node in source.templates})
        raise UsageError(f"add-spot: group {change.group} creates no such nodes: expected {shortened(kinds, _SHOWN)}")

    def _model(self, change: AddSpot) -> Node:
        """Return the node that new nodes resemble, or an empty node if there is none."""
        if change.needs_size:
            return self._of_type(change)
        if not change.like:
            return next(iter(self._known), Node(metadata=ObjectMeta()))
        return node_named(self._snapshot, change.like, "add-spot")

    def _of_type(self, change: AddSpot) -> Node:
        """Return a node of the type: a spot node if there is one, one that exists, and one in the zone, if possible."""
        if change.type not in self.types:
            raise UsageError(
                f"add-spot: no node or MachineSet tells the size of type {change.type}"
                f"{did_you_mean(change.type, self.types)}: expected also its allocatable size, such as "
                f"type={change.type},cpu=3920m,memory=14Gi"
            )
        names = {node.name for node in self._known}
        nodes, zone = self.types[change.type], change.zone
        return min(nodes, key=lambda node: (node.name not in names, not node.name, zone_of(node) != zone, node.name))

    def _common_taints(self) -> tuple[Taint, ...]:
        """Return the lasting taints that all spot nodes have."""
        shared = [{replaced(taint, time_added=None) for taint in self._lasting_taints(node)} for node in self.models]
        return tuple(sorted(set.intersection(*shared), key=lambda taint: taint.key)) if shared else ()

    def _lasting_taints(self, node: Node) -> tuple[Taint, ...]:
        """Return the taints of *node* without those that are about its present state."""
        return tuple(taint for taint in node.spec.taints if not is_temporary_taint(taint.key, self._starting))


def _required_labels(selector: NodeLabels, present: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that *selector* requires; "" stands for any value.

    Of its alternatives, the one that uses most keys of the labels *present* counts.
    """
    nearest = max(selector.alternatives, key=lambda group: sum(label.key in present for label in group))
    return {label.key: next(iter(label.values), "") for label in nearest if not label.negated}
