"""Spot nodes that do not exist yet: what is known about them, and their addition to a copy of a snapshot.

A new node has the labels, taints and size of a known node, of a type whose size is known, or of a size that is given.
It runs copies of the DaemonSet pods of the node that it resembles.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from itertools import count as numbers_from
from typing import Final

from msgspec.structs import replace as replaced

from predicates.csi import ZONE
from predicates.indexes.domains import HOSTNAME
from predicates.objects import CSINode, Node, NodeSpec, NodeStatus, ObjectMeta, QuantityText, Taint
from predicates.snapshot import Snapshot
from predicates.texts import did_you_mean
from rescheduler.errors import UsageError
from rescheduler.planning.forms import shortened
from rescheduler.planning.money.prices import INSTANCE_TYPE_LABELS, instance_type, zone_of
from rescheduler.planning.node_info import full_name, similar_node
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.candidates import groups, starting_taints, why_not_target
from rescheduler.planning.rules.interruptions import is_start_up_taint
from rescheduler.planning.rules.pod_traits import belongs_to_node
from rescheduler.planning.what_if.spot_sources import (
    SpotSource,
    common_labels,
    in_zone,
    nodes_of_machine_sets,
    spot_sources,
)

#: Labels that new spot nodes have in common with on-demand nodes, if there are no spot nodes yet.
_OF_MACHINES: Final = ("kubernetes.io/os", "kubernetes.io/arch", "topology.kubernetes.io/region")


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


def add_spot(snapshot: Snapshot, policy: Policy, *changes: AddSpot) -> list[list[str]]:
    """Add the nodes of *changes* to *snapshot*, each with copies of the DaemonSet pods of the node that it resembles.

    Return their names, change by change. Raises UsageError if there is no node with that name or of that type, or if
    the labels of spot nodes cannot be determined.
    """
    known = _KnownNodes.of(snapshot, policy)
    sources = spot_sources(snapshot, policy) if any(change.group for change in changes) else []
    templates = [
        _created(known, sources, change) if change.group else _template(snapshot, policy, known, change)
        for change in changes
    ]
    return [_added(snapshot, change.count, *template) for change, template in zip(changes, templates, strict=True)]


def _added(snapshot: Snapshot, number: int, model: str, template: Node, zones: Sequence[str]) -> list[str]:
    names = _free_names(snapshot, number)
    for index, name in enumerate(names):
        zone = {ZONE: zones[index % len(zones)]} if zones else {}
        labels = {**template.metadata.labels, **zone, HOSTNAME: name}
        spec = NodeSpec(taints=template.spec.taints)
        snapshot.upsert("Node", Node(metadata=ObjectMeta(name=name, labels=labels), spec=spec, status=template.status))
        _copy_node_pods(snapshot, model, name)
    return names


def known_types(snapshot: Snapshot) -> frozenset[str]:
    """Return the instance types whose size is known: of a node, or of those that a MachineSet would add."""
    return frozenset(map(instance_type, chain(snapshot.nodes, nodes_of_machine_sets(snapshot)))) - {""}


@dataclass(frozen=True, slots=True)
class _KnownNodes:
    """The spot nodes that new ones may resemble, or the on-demand nodes if there are none; and what they share."""

    spot: Sequence[Node]
    others: Sequence[Node]
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    starting: Collection[str]  #: keys of taints that nodes have while they start
    zones: Sequence[str]

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy) -> "_KnownNodes":
        table = snapshot.nodes
        nodes = (node for row in groups(snapshot, policy).spot_rows if (node := table.nodes[row]) is not None)
        spot = [node for node in nodes if why_not_target(node) is None]
        others = [] if spot else _on_demand(snapshot, policy)
        of_others = {key: value for key, value in common_labels(others).items() if key in _OF_MACHINES}
        starting = starting_taints(snapshot, policy)
        zones = sorted({zone for node in spot or others if (zone := node.metadata.labels.get(ZONE))})
        return cls(spot, others, common_labels(spot) | of_others, _common_taints(spot, starting), starting, zones)


def _template(
    snapshot: Snapshot, policy: Policy, known: _KnownNodes, change: AddSpot
) -> tuple[str, Node, Sequence[str]]:
    """Return the node with the DaemonSet pods, what new nodes are like, and the zones that they are in in turn."""
    if change.template is not None:
        return change.like, change.template, ()
    model = _model(snapshot, change, known.spot or known.others)
    resembles = bool(change.like or change.needs_size)
    labels, taints = dict(known.labels), known.taints
    if resembles:
        there = next((node.metadata.labels for node in snapshot.nodes if zone_of(node) == change.zone), {})
        labels |= in_zone(model.metadata.labels, zone_of(model), change.zone, there)
        taints = _lasting_taints(model, known.starting) if model in known.spot else taints
    elif change.type:
        labels[INSTANCE_TYPE_LABELS[0]] = change.type
    if not policy.spot_label.matches(labels):
        labels |= _required_labels(policy.spot_label, labels)
    if not policy.spot_label.matches(labels):
        raise UsageError(
            f"add-spot: expected a spot node in the cluster, from which to copy the labels for {policy.spot_label}"
        )
    zones = [change.zone] if change.zone else [] if resembles else known.zones
    allocatable = model.status.allocatable if resembles else _allocatable(change)
    status = NodeStatus(allocatable=allocatable, images=model.status.images)
    node = Node(metadata=ObjectMeta(labels=labels), spec=NodeSpec(taints=taints), status=status)
    with_daemons = model.name or next((node.name for node in known.spot or known.others), "")
    return with_daemons, node, zones


def _created(known: _KnownNodes, sources: Iterable[SpotSource], change: AddSpot) -> tuple[str, Node, Sequence[str]]:
    """Return the same for what the group of *change* creates of its type in its zone. Raises UsageError."""
    by_name = {each.name: each for each in sources if each.templates}
    if (source := by_name.get(change.group)) is None:
        near = did_you_mean(change.group, by_name)
        raise UsageError(f"add-spot: no NodePool or MachineSet {change.group} creates spot nodes of a known size{near}")
    for node in source.templates:
        if (instance_type(node), zone_of(node)) == (change.type, change.zone):
            with_daemons = next(iter((*source.members, *known.spot, *known.others)), None)
            return with_daemons.name if with_daemons else "", node, ()
    kinds = sorted({f"type={instance_type(node)},zone={zone_of(node)}" for node in source.templates})
    raise UsageError(f"add-spot: group {change.group} creates no such nodes: expected {shortened(kinds, _SHOWN)}")


def _on_demand(snapshot: Snapshot, policy: Policy) -> list[Node]:
    """Return the on-demand nodes by name. A cluster without spot nodes gets its first ones in the same zones."""
    nodes = sorted(snapshot.nodes, key=lambda node: node.name)
    return [node for node in nodes if policy.on_demand_label.matches(node.metadata.labels)]


def _model(snapshot: Snapshot, change: AddSpot, spot: Sequence[Node]) -> Node:
    """Return the node that new nodes resemble, or an empty node if there is none."""
    if change.needs_size:
        return _of_type(snapshot, change, spot)
    if not change.like:
        return spot[0] if spot else Node(metadata=ObjectMeta())
    row = snapshot.nodes.row.get(full_name(change.like, snapshot.nodes.row))
    node = None if row is None else snapshot.nodes.nodes[row]
    if node is None:
        raise UsageError(f"add-spot: there is no node {change.like}{similar_node(change.like, snapshot.nodes.row)}")
    return node


def _of_type(snapshot: Snapshot, change: AddSpot, spot: Sequence[Node]) -> Node:
    """Return a node of the type: a spot node if there is one, and one in the zone if there is one of those."""
    nodes = [node for node in snapshot.nodes if instance_type(node) == change.type]
    nodes = nodes or [node for node in nodes_of_machine_sets(snapshot) if instance_type(node) == change.type]
    if not nodes:
        near = did_you_mean(change.type, known_types(snapshot))
        raise UsageError(
            f"add-spot: no node or MachineSet tells the size of type {change.type}{near}: expected also its "
            f"allocatable size, such as type={change.type},cpu=3920m,memory=14Gi"
        )
    names = {node.name for node in spot}
    return min(nodes, key=lambda node: (node.name not in names, zone_of(node) != change.zone, node.name))


def _allocatable(change: AddSpot) -> dict[str, QuantityText]:
    return {"cpu": change.cpu, "memory": change.memory, "pods": str(change.pods)}


def _lasting_taints(node: Node, starting: Collection[str]) -> tuple[Taint, ...]:
    """Return the taints of *node* that it keeps once its agents have started."""
    return tuple(taint for taint in node.spec.taints if not is_start_up_taint(taint.key, starting))


def _common_taints(nodes: Iterable[Node], starting: Collection[str]) -> tuple[Taint, ...]:
    """Return the taints that all *nodes* have, without those of nodes that are still starting."""
    shared = [{replaced(taint, time_added=None) for taint in _lasting_taints(node, starting)} for node in nodes]
    return tuple(sorted(set.intersection(*shared), key=lambda taint: taint.key)) if shared else ()


def _required_labels(selector: NodeLabels, present: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that *selector* requires; "" stands for any value.

    Of its alternatives, the one that uses most keys of the labels *present* counts.
    """
    nearest = max(selector.alternatives, key=lambda group: sum(label.key in present for label in group))
    return {label.key: next(iter(label.values), "") for label in nearest if not label.negated}


def _free_names(snapshot: Snapshot, count: int) -> list[str]:
    names = (f"added-spot-{number}" for number in numbers_from(1))
    return list(islice((name for name in names if name not in snapshot.nodes.row), count))


def _copy_node_pods(snapshot: Snapshot, model: str, name: str) -> None:
    """Copy the volume limits of the node *model*, and its DaemonSet and mirror pods, to the node *name*."""
    if isinstance(drivers := snapshot.of("CSINode").get(model), CSINode):
        snapshot.upsert("CSINode", replaced(drivers, metadata=ObjectMeta(name=name)))
    for pod in [pod for pod in snapshot.pods_on[model].values() if belongs_to_node(pod)] if model else []:
        copy = f"{pod.name}-{name}"
        snapshot.upsert("Pod", replaced(snapshot.bound_to(pod, name), name=copy, uid=f"{pod.uid}-{name}"))
