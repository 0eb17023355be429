"""Changes to a cluster or to the settings, as values, and their application to a copy of a snapshot."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, TypeAlias

from msgspec.structs import replace as replaced

from predicates.filters import Filters
from predicates.objects import Pod, PodDisruptionBudget
from predicates.scheduler import Scheduler, UnknownPlugin
from predicates.snapshot import Snapshot
from predicates.texts import did_you_mean
from rescheduler.errors import UsageError
from rescheduler.planning.budgets import Budgets, needs_scale, sync_failure
from rescheduler.planning.controllers import ControllerName, controller_of
from rescheduler.planning.node_info import node_named
from rescheduler.planning.node_labels import NodeLabel
from rescheduler.planning.outcome import Reason
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.candidates import groups
from rescheduler.planning.what_if.added_spot import AddSpot, add_spot
from rescheduler.planning.what_if.lifting import OF_NODES, WITH_KEY, lifted, node_without
from rescheduler.planning.what_if.unpinning import Unpinning, demands_of, without_demands


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
    """Allow the eviction of the pods of a controller despite *reason*, one of ``lifting.OF_PODS``."""

    controller: ControllerName
    reason: Reason


@dataclass(frozen=True, slots=True)
class LiftNode:
    """Remove the annotation or label because of which a node may not be drained."""

    node: str
    reason: Reason  #: one of ``lifting.OF_NODES``


@dataclass(frozen=True, slots=True)
class LiftAll:
    """Remove the annotation or label of all pods and nodes that have it."""

    reason: Reason  #: one of ``lifting.WITH_KEY`` or ``lifting.OF_NODES``


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
                copy.upsert("Node", node_without(node_named(copy, name, "allow"), reason))
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


def _lift_all(snapshot: Snapshot, policy: Policy, reason: Reason) -> None:
    pods = [(pod, lifted(pod, reason, policy)) for pod in snapshot.pods.values()] if reason in WITH_KEY else []
    nodes = [(node, node_without(node, reason)) for node in snapshot.nodes] if reason in OF_NODES else []
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
