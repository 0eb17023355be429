"""Changes to a cluster or to the settings, as values, and their application to a copy of a snapshot."""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final, TypeAlias

from msgspec.structs import replace as replaced

from predicates.csi import ZONE
from predicates.filters import Filters
from predicates.indexes.domains import HOSTNAME
from predicates.objects import (
    CSINode,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    QuantityText,
    Taint,
)
from predicates.scheduler import Scheduler, UnknownPlugin
from predicates.snapshot import Snapshot
from predicates.texts import did_you_mean
from rescheduler.errors import UsageError
from rescheduler.planning.budgets import Budgets, needs_scale, sync_failure
from rescheduler.planning.controllers import ControllerName, controller_of
from rescheduler.planning.node_info import full_name, similar_node
from rescheduler.planning.node_labels import NodeLabel, NodeLabels
from rescheduler.planning.outcome import Reason
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.candidates import groups, starting_taints, why_not_target
from rescheduler.planning.rules.interruptions import is_start_up_taint
from rescheduler.planning.rules.pod_traits import belongs_to_node
from rescheduler.planning.what_if.lifting import NODE_KEYS, POD_KEYS, lifted, node_without
from rescheduler.planning.what_if.unpinning import Unpinning, demands_of, without_demands

# Hypothetical spot nodes, for plans that show the effect of additional nodes.

#: Labels that new spot nodes have in common with on-demand nodes, if there are no spot nodes yet.
_OF_MACHINES: Final = ("kubernetes.io/os", "kubernetes.io/arch", "topology.kubernetes.io/region")


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
    others = [] if spot else _on_demand(snapshot, policy)
    model = _model(snapshot, change, spot or others)
    common = {key: value for key, value in _common_labels(others).items() if key in _OF_MACHINES}
    starting = starting_taints(snapshot, policy)
    labels, taints = _common_labels(spot) | common, _common_taints(spot, starting)
    if change.like:
        labels |= model.metadata.labels
        taints = _lasting_taints(model, starting) if model in spot else taints
    if not policy.spot_label.matches(labels):
        labels |= _required_labels(policy.spot_label, labels)
    if not policy.spot_label.matches(labels):
        raise UsageError(
            f"add-spot: expected a spot node in the cluster, from which to copy the labels for {policy.spot_label}"
        )
    zones = [] if change.like else sorted({zone for node in spot or others if (zone := node.metadata.labels.get(ZONE))})
    allocatable = model.status.allocatable if change.like else _allocatable(change)
    status = NodeStatus(allocatable=allocatable, images=model.status.images)
    for number, name in enumerate(_free_names(snapshot, change.count)):
        zone = {ZONE: zones[number % len(zones)]} if zones else {}
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
    meta = ObjectMeta(name=name, labels={**labels, HOSTNAME: name})
    snapshot.upsert("Node", Node(metadata=meta, spec=NodeSpec(taints=taints), status=status))


def _on_demand(snapshot: Snapshot, policy: Policy) -> list[Node]:
    """Return the on-demand nodes by name. A cluster without spot nodes gets its first ones in the same zones."""
    nodes = sorted(snapshot.nodes, key=lambda node: node.name)
    return [node for node in nodes if policy.on_demand_label.matches(node.metadata.labels)]


def _model(snapshot: Snapshot, change: AddSpot, spot: Sequence[Node]) -> Node:
    """Return the node that new nodes resemble, or an empty node if there is none."""
    if not change.like:
        return spot[0] if spot else Node(metadata=ObjectMeta())
    row = snapshot.nodes.row.get(full_name(change.like, snapshot.nodes.row))
    node = None if row is None else snapshot.nodes.nodes[row]
    if node is None:
        raise UsageError(f"add-spot: there is no node {change.like}{similar_node(change.like, snapshot.nodes.row)}")
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
    shared = [{replaced(taint, time_added=None) for taint in _lasting_taints(node, starting)} for node in nodes]
    return tuple(sorted(set.intersection(*shared), key=lambda taint: taint.key)) if shared else ()


def _required_labels(selector: NodeLabels, present: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that *selector* requires; "" stands for any value.

    Of its alternatives, the one that uses most keys of the labels *present* counts.
    """
    nearest = max(selector.alternatives, key=lambda group: sum(label.key in present for label in group))
    return {label.key: next(iter(label.values), "") for label in nearest if not label.negated}


def _free_names(snapshot: Snapshot, count: int) -> list[str]:
    names = (f"added-spot-{number}" for number in itertools.count(1))
    return list(itertools.islice((name for name in names if name not in snapshot.nodes.row), count))


def _copy_node_pods(snapshot: Snapshot, model: str, name: str) -> None:
    """Copy the volume limits of the node *model*, and its DaemonSet and mirror pods, to the node *name*."""
    if isinstance(drivers := snapshot.of("CSINode").get(model), CSINode):
        snapshot.upsert("CSINode", replaced(drivers, metadata=ObjectMeta(name=name)))
    for pod in [pod for pod in snapshot.pods_on[model].values() if belongs_to_node(pod)] if model else []:
        copy = f"{pod.name}-{name}"
        snapshot.upsert("Pod", replaced(snapshot.bound_to(pod, name), name=copy, uid=f"{pod.uid}-{name}"))


@dataclass(frozen=True, slots=True)
class Unpin:
    """Remove the rules that keep the pods of a controller off the spot nodes.

    The change to nodeSelector, required node affinity and tolerations is the smallest after which a spot node could
    accept the pods. If a spot node could accept them anyway, all rules about nodes are removed.
    """

    controller: ControllerName


@dataclass(frozen=True, slots=True)
class UnpinSelector:
    """Let all pods run without what they demand of a node's labels, by node selector or required node affinity."""

    demands: tuple[NodeLabel, ...]


@dataclass(frozen=True, slots=True)
class Lift:
    """Allow the eviction of the pods of a controller despite *reason*, one of ``lifting.LIFTABLE``."""

    controller: ControllerName
    reason: Reason


@dataclass(frozen=True, slots=True)
class LiftNode:
    """Remove the annotation or label because of which a node may not be drained."""

    node: str
    reason: Reason  #: one of ``lifting.NODE_KEYS``


@dataclass(frozen=True, slots=True)
class LiftAll:
    """Remove the annotation or label of all pods and nodes that have it."""

    reason: Reason  #: one of ``lifting.POD_KEYS`` or ``lifting.NODE_KEYS``


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """Set ``maxUnavailable`` or ``minAvailable`` of a PodDisruptionBudget."""

    budget: str  #: ``namespace/name``
    field: str  #: ``maxUnavailable`` or ``minAvailable``
    value: int | str  #: a number, or a percentage such as ``30%``


@dataclass(frozen=True, slots=True)
class Untaint:
    """Remove the taints with a key from all spot nodes."""

    key: str


@dataclass(frozen=True, slots=True)
class SettingChange:
    """Set a field of the policy."""

    field: str
    value: Any


@dataclass(frozen=True, slots=True)
class OtherScheduler:
    """Judge by the rules of another scheduler."""

    rules: Callable[[Scheduler], Scheduler]  #: returns the other scheduler, given the present one
    profiles: tuple[str, ...] = ()  #: of its configuration
    unknown: tuple[UnknownPlugin, ...] = ()  #: plugins whose rules are not known


#: The changes that :func:`changed` applies.
Change: TypeAlias = (
    Unpin
    | UnpinSelector
    | Untaint
    | Lift
    | LiftNode
    | LiftAll
    | BudgetChange
    | SettingChange
    | AddSpot
    | OtherScheduler
)


def copied(snapshot: Snapshot) -> Snapshot:
    """Return an independent snapshot with the same objects."""
    copy = Snapshot(snapshot.scheduler)
    copy.replace("Node", snapshot.nodes)
    for kind, objects in snapshot.objects.items():
        copy.replace(kind, objects.values())
    copy.replace("Pod", snapshot.pods.values())
    copy.unreadable, copy.learned = snapshot.unreadable, snapshot.learned
    return copy


def changed(snapshot: Snapshot, policy: Policy, changes: Iterable[Change]) -> tuple[Snapshot, Policy]:
    """Return the snapshot and the policy after *changes*, applied in order. The originals are not changed.

    Raises UsageError if a change names a controller, taint, budget or node that does not exist.
    """
    copy = copied(snapshot)
    for change in changes:
        match change:
            case Unpin():
                _unpin(copy, policy, change.controller)
            case UnpinSelector():
                _unpin_selector(copy, change)
            case Untaint(key):
                _untaint(copy, policy, key)
            case Lift():
                for pod in _pods_of(copy, change.controller):
                    copy.upsert("Pod", lifted(pod, change.reason, policy))
            case LiftAll(reason):
                _lift_all(copy, policy, reason)
            case LiftNode(name, reason):
                copy.upsert("Node", node_without(_node_named(copy, name), reason))
            case BudgetChange():
                copy.upsert("PodDisruptionBudget", _with_budget(copy, change))
            case SettingChange():
                policy = replace(policy, **{change.field: change.value})
            case AddSpot():
                add_spot(copy, policy, change)
            case OtherScheduler(rules, profiles, unknown):
                copy.use(rules(copy.scheduler))
                policy = replace(policy, profiles=profiles, unknown_plugins=unknown)
    return copy, policy


def _pods_of(snapshot: Snapshot, controller: ControllerName) -> list[Pod]:
    """Return the pods of *controller*, whose kind may be in lower case."""
    path = controller.path
    pods = [pod for pod in snapshot.pods.values() if controller_of(pod).path == path]
    if not pods:
        known = sorted({controller_of(pod).path for pod in snapshot.pods.values()})
        expected = "expected namespace/kind/name, such as shop/deployment/cart"
        raise UsageError(f"no pod of {path}: {expected}{did_you_mean(path, known)}")
    return pods


def _node_named(snapshot: Snapshot, name: str) -> Node:
    row = snapshot.nodes.row.get(full_name(name, snapshot.nodes.row))
    node = None if row is None else snapshot.nodes.nodes[row]
    if node is None:
        raise UsageError(f"allow: there is no node {name}{similar_node(name, snapshot.nodes.row)}")
    return node


def _lift_all(snapshot: Snapshot, policy: Policy, reason: Reason) -> None:
    pods = [(pod, lifted(pod, reason, policy)) for pod in snapshot.pods.values()] if reason in POD_KEYS else []
    nodes = [(node, node_without(node, reason)) for node in snapshot.nodes] if reason in NODE_KEYS else []
    changed_pods = [after for before, after in pods if after != before]
    changed_nodes = [after for before, after in nodes if after != before]
    if not changed_pods and not changed_nodes:
        raise UsageError(f"allow all {reason}: no pod or node has this annotation or label")
    for pod in changed_pods:
        snapshot.upsert("Pod", pod)
    for node in changed_nodes:
        snapshot.upsert("Node", node)


def _unpin(snapshot: Snapshot, policy: Policy, controller: ControllerName) -> None:
    pods = _pods_of(snapshot, controller)
    unpinning = Unpinning(snapshot, Filters(snapshot, kubelets=True), groups(snapshot, policy).spot)
    classes = {pod.cls: unpinning.freed(pod.cls) for pod in pods}
    for pod in pods:
        snapshot.upsert("Pod", replaced(pod, cls=classes[pod.cls]))


def _unpin_selector(snapshot: Snapshot, change: UnpinSelector) -> None:
    pods = [(pod, without_demands(pod.cls, change.demands)) for pod in snapshot.pods.values()]
    unpinned = [(pod, cls) for pod, cls in pods if cls is not pod.cls]
    if not unpinned:
        text = ",".join(map(str, change.demands))
        near = did_you_mean(text, {str(demand) for pod, _ in pods for demand in demands_of(pod.cls)})
        raise UsageError(f"unpin selector: no pod demands the label {text} of a node{near}")
    for pod, cls in unpinned:
        snapshot.upsert("Pod", replaced(pod, cls=cls))


def _untaint(snapshot: Snapshot, policy: Policy, key: str) -> None:
    table = snapshot.nodes
    spot = [node for row in groups(snapshot, policy).spot_rows if (node := table.nodes[row]) is not None]
    tainted = [node for node in spot if any(taint.key == key for taint in node.spec.taints)]
    if not tainted:
        known = ", ".join(sorted({taint.key for node in spot for taint in node.spec.taints})) or "none"
        raise UsageError(f"untaint: no spot node has the taint {key}; taints of the spot nodes: {known}")
    for node in tainted:
        taints = tuple(taint for taint in node.spec.taints if taint.key != key)
        snapshot.upsert("Node", replaced(node, spec=replaced(node.spec, taints=taints)))


def _with_budget(snapshot: Snapshot, change: BudgetChange) -> PodDisruptionBudget:
    """Return the changed budget with the status that the disruption controller would compute for it.

    If it cannot count the pods of this budget, it still cannot for a percentage or ``maxUnavailable``.
    """
    budget = snapshot.of("PodDisruptionBudget").get(change.budget)
    if not isinstance(budget, PodDisruptionBudget):
        near = did_you_mean(change.budget, snapshot.of("PodDisruptionBudget"))
        raise UsageError(f"no PodDisruptionBudget {change.budget}: expected namespace/name{near}")
    budgets = Budgets(snapshot)
    pods = [pod for pod in snapshot.pods.values() if change.budget in budgets.of(pod)]
    status, failed = budget.status, sync_failure(budget) is not None
    expected = (0 if failed else status.expected_pods) or len(pods)
    amount = _scaled(change.value, expected)
    is_max = change.field == "maxUnavailable"
    desired = max(0, expected - amount) if is_max else amount
    healthy = sum(pod.ready and not pod.cls.terminating for pod in pods) if failed else status.current_healthy
    allowed = max(0, healthy - desired) if expected else 0
    spec = replaced(
        budget.spec,
        max_unavailable=change.value if is_max else None,
        min_available=None if is_max else change.value,
    )
    after = replaced(budget, spec=spec)
    if failed and needs_scale(after):
        return after
    status = replaced(
        status,
        observed_generation=budget.metadata.generation,
        current_healthy=healthy,
        desired_healthy=desired,
        disruptions_allowed=allowed,
    )
    return replaced(after, status=replaced(status, expected_pods=expected, conditions=()))


def _scaled(value: int | str, expected: int) -> int:
    """Resolve a number or a percentage of *expected* to a number of pods, rounded up as in Kubernetes."""
    return value if isinstance(value, int) else ceil(int(value.removesuffix("%")) * expected / 100)
