"""Hypothetical spot nodes, for plans that show the effect of additional nodes."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from predicates.objects import CSINode, Node, NodeSpec, NodeStatus, ObjectMeta, QuantityText, Taint
from predicates.snapshot import Snapshot
from rescheduler.errors import UsageError
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.candidates import groups, why_not_target
from rescheduler.planning.rules.interruptions import is_start_up_taint
from rescheduler.planning.rules.pod_traits import belongs_to_node

_HOSTNAME: Final = "kubernetes.io/hostname"
_ZONE: Final = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class AddSpot:
    """Add *count* spot nodes that resemble *like*, or that have the given size and the spot nodes' common labels."""

    count: int
    like: str = ""
    cpu: str = ""  #: allocatable, as a Kubernetes quantity
    memory: str = ""  #: allocatable, as a Kubernetes quantity
    pods: int = 110


def add_spot(snapshot: Snapshot, policy: Policy, change: AddSpot) -> None:
    """Add the nodes to *snapshot*, each with copies of the DaemonSet pods of the node that it resembles.

    Raises UsageError if there is no node with that name, or if the labels of spot nodes cannot be determined.
    """
    table = snapshot.nodes
    spot = [node for row in groups(snapshot, policy).spot_rows if (node := table.nodes[row]) is not None]
    spot = [node for node in spot if why_not_target(node) is None]
    model = _model(snapshot, change, spot)
    labels, taints = _common_labels(spot), _common_taints(spot, policy.startup_taints)
    if change.like:
        labels |= model.metadata.labels
        taints = _lasting_taints(model, policy.startup_taints) if model in spot else taints
    if not policy.spot_label.matches(labels):
        labels |= _required_labels(policy.spot_label)
    if not policy.spot_label.matches(labels):
        raise UsageError(
            f"add-spot: expected a spot node in the cluster, from which to copy the labels for {policy.spot_label}"
        )
    zones = [] if change.like else sorted({zone for node in spot if (zone := node.metadata.labels.get(_ZONE))})
    allocatable = model.status.allocatable if change.like else _allocatable(change)
    status = NodeStatus(allocatable=allocatable, images=model.status.images)
    for number, name in enumerate(_free_names(snapshot, change.count)):
        zone = {_ZONE: zones[number % len(zones)]} if zones else {}
        _add(snapshot, name, {**labels, **zone}, taints, status)
        _copy_node_pods(snapshot, model.name, name)


def add_like(snapshot: Snapshot, template: Node, count: int, model: str) -> None:
    """Add *count* nodes like *template*, which is not in *snapshot*.

    Each of them gets copies of the DaemonSet pods of the node *model*.
    """
    for name in _free_names(snapshot, count):
        _add(snapshot, name, template.metadata.labels, template.spec.taints, template.status)
        _copy_node_pods(snapshot, model, name)


def _add(
    snapshot: Snapshot, name: str, labels: Mapping[str, str], taints: tuple[Taint, ...], status: NodeStatus
) -> None:
    meta = ObjectMeta(name=name, labels={**labels, _HOSTNAME: name})
    snapshot.upsert("Node", Node(metadata=meta, spec=NodeSpec(taints=taints), status=status))


def _model(snapshot: Snapshot, change: AddSpot, spot: Sequence[Node]) -> Node:
    """Return the node that new nodes resemble, or an empty node if there is no spot node."""
    if not change.like:
        return spot[0] if spot else Node(metadata=ObjectMeta())
    row = snapshot.nodes.row.get(change.like)
    node = None if row is None else snapshot.nodes.nodes[row]
    if node is None:
        raise UsageError(f"add-spot: there is no node {change.like}")
    return node


def _allocatable(change: AddSpot) -> dict[str, QuantityText]:
    return {"cpu": change.cpu, "memory": change.memory, "pods": str(change.pods)}


def _common_labels(nodes: Iterable[Node]) -> dict[str, str]:
    shared = [set(node.metadata.labels.items()) for node in nodes]
    return dict(sorted(set.intersection(*shared))) if shared else {}


def _lasting_taints(node: Node, starting: Collection[str]) -> tuple[Taint, ...]:
    """Return the taints of *node* that it keeps once its agents have started."""
    return tuple(taint for taint in node.spec.taints if not is_start_up_taint(taint.key, starting))


def _common_taints(nodes: Iterable[Node], starting: Collection[str]) -> tuple[Taint, ...]:
    """Return the taints that all *nodes* have, without those of nodes that are still starting."""
    shared = [{replace(taint, time_added=None) for taint in _lasting_taints(node, starting)} for node in nodes]
    return tuple(sorted(set.intersection(*shared), key=lambda taint: taint.key)) if shared else ()


def _required_labels(selector: NodeLabels) -> dict[str, str]:
    """Return the labels that *selector* requires; "" stands for any value."""
    return {label.key: label.value or "" for label in selector.requirements if not label.negated}


def _free_names(snapshot: Snapshot, count: int) -> list[str]:
    names = (f"added-spot-{number}" for number in itertools.count(1))
    return list(itertools.islice((name for name in names if name not in snapshot.nodes.row), count))


def _copy_node_pods(snapshot: Snapshot, model: str, name: str) -> None:
    """Copy the volume limits of the node *model*, and its DaemonSet and mirror pods, to the node *name*."""
    if isinstance(drivers := snapshot.of("CSINode").get(model), CSINode):
        snapshot.upsert("CSINode", replace(drivers, metadata=ObjectMeta(name=name)))
    for pod in [pod for pod in snapshot.pods_on[model].values() if belongs_to_node(pod)] if model else []:
        copy = f"{pod.name}-{name}"
        snapshot.upsert("Pod", replace(snapshot.bound_to(pod, name), name=copy, uid=f"{pod.uid}-{name}"))
