"""What must stay on-demand: ``--min-on-demand-nodes``, and the minimum of each controller's pods."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from predicates.objects import Node, Pod
from predicates.snapshot import DRAIN_TAINT, Snapshot
from predicates.texts import quoted
from rescheduler.planning.forms import count
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Circumstances
from rescheduler.planning.rules.interruptions import signals_on
from rescheduler.planning.rules.pod_traits import belongs_to_node

# The minimum number of on-demand nodes that keep running pods: ``--min-on-demand-nodes``.

#: The annotation that every rescheduler and every cloudpool proxy sets on the nodes that it drains.
DRAIN_ANNOTATION: Final = "spot-rescheduler/drain"


@dataclass(frozen=True, slots=True)
class Minimum:
    """The minimum, and the nodes that count towards it."""

    required: int
    #: Ready on-demand nodes with pods that are neither drained nor about to be removed.
    counted: Collection[str] = frozenset()
    usable: Collection[str] = frozenset()  #: the same, with or without pods

    @property
    def spare(self) -> int:
        """Return how many of the counted nodes may be drained, one after the other."""
        return max(0, len(self.counted) - self.required)

    def blocker(self, node: str, *, in_use: bool, emptied: int = 0) -> Blocker | None:
        """Return a blocker if *node* may not be drained or removed after *emptied* other counted nodes, or None.

        A node that is not *in_use*, because it has no pods and no drain has moved any of them, does not count towards
        the minimum. It may go while as many other nodes can be used, with or without pods.
        """
        counted = self.counted if in_use else self.usable
        others = len(counted) - emptied - (node in counted)
        if others >= self.required:
            return None
        detail = (
            f"--min-on-demand-nodes={self.required}: the drain would leave {count(max(others, 0), 'on-demand node')} "
            "in use (Ready, with pods, neither drained nor removed)"
        )
        return Blocker(Reason.MIN_ON_DEMAND_NODES, detail)


def watched_minimum(
    snapshot: Snapshot, required: int, on_demand: Iterable[str], circumstances: Circumstances
) -> Minimum:
    """Return the minimum and the *on_demand* nodes that count towards it. Nothing is computed if *required* is 0."""
    if not required:
        return Minimum(0)
    on_demand, rows = list(on_demand), snapshot.nodes.row
    staying = (name for name in on_demand if name not in circumstances.ordered | circumstances.ending)
    nodes = (node for name in staying if (node := snapshot.nodes.nodes[rows[name]]) is not None)
    return minimum(required, nodes, keeping(snapshot, on_demand, circumstances))


def minimum(required: int, on_demand: Iterable[Node], names: Collection[str]) -> Minimum:
    """Return the minimum and the *on_demand* nodes that count towards it, of which *names* keep pods."""
    usable = frozenset(node.name for node in on_demand if remains_usable(node))
    return Minimum(required, usable.intersection(names), usable)


def keeping(snapshot: Snapshot, on_demand: Iterable[str], circumstances: Circumstances) -> frozenset[str]:
    """Return the *on_demand* nodes that keep pods, and whose machines are not about to end."""
    leaving = circumstances.ordered | circumstances.ending
    names = (name for name in on_demand if name not in leaving)
    return frozenset(name for name in names if keeps_pods(snapshot.pods_on[name].values()))


def keeps_pods(pods: Iterable[Pod]) -> bool:
    """Return whether any of a node's *pods* is neither terminating, nor a DaemonSet pod, nor a mirror pod."""
    return any(not pod.cls.terminating and not belongs_to_node(pod) for pod in pods)


def remains_usable(node: Node) -> bool:
    """Return whether *node* is Ready, is not being drained and has no signal that its machine will soon be removed."""
    return (
        node.metadata.deletion_timestamp is None
        and node.condition("Ready") in ("True", "")  # absent in some handwritten snapshot files
        and DRAIN_ANNOTATION not in node.metadata.annotations
        and all(taint.key != DRAIN_TAINT.key for taint in node.spec.taints)
        and not signals_on(node)
    )


# Counts of the pods of each controller, and the minimum that must stay on on-demand nodes. Pure.
#
# Pods are counted by the controller that they name, which for a Deployment is the ReplicaSet. Pods that are being
# deleted do not count.

#: Annotation of pods, set in the pod template: how many replicas stay on on-demand nodes, as a number or a percentage.
MIN_ON_DEMAND_REPLICAS: Final = "spot-rescheduler/min-on-demand-replicas"

_AMOUNT: Final = re.compile(r"([0-9]{1,6})(%?)")
_WHOLE: Final = 100

OwnerKey: TypeAlias = tuple[str, str]  #: namespace and UID


class OwnerCounts:
    """The number of pods of each controller in a snapshot, counted on first use."""

    def __init__(self, snapshot: Snapshot, spot: Collection[str]) -> None:
        """Prepare to count the pods of *snapshot*. *spot* are the names of the spot nodes."""
        self._snapshot = snapshot
        self.spot = spot

    def replicas(self, pod: Pod) -> int:
        """Return the number of pods with the same controller as *pod*, including *pod*."""
        return self.all[owner_key(pod)]

    @cached_property
    def all(self) -> Mapping[OwnerKey, int]:
        """The number of pods by controller."""
        return Counter(owner_key(pod) for pod in owned_pods(self._snapshot))

    @cached_property
    def staying(self) -> Mapping[OwnerKey, int]:
        """The number of pods on nodes that are not spot nodes, by controller."""
        pods = (pod for pod in owned_pods(self._snapshot) if pod.node_name and pod.node_name not in self.spot)
        return Counter(map(owner_key, pods))


@dataclass(slots=True)
class RemainingReplicas:
    """The replicas that may still leave on-demand nodes while a plan is computed."""

    counts: OwnerCounts
    moved: dict[OwnerKey, int] = field(default_factory=dict)  #: pods of the plan so far, by controller

    def groups(self, pods: Iterable[Pod]) -> dict[OwnerKey, list[Pod]]:
        """Group the *pods* whose controllers have a floor, by controller. Pods on spot nodes do not count for it."""
        annotated = {owner_key(pod) for pod in pods if pod.annotations and MIN_ON_DEMAND_REPLICAS in pod.annotations}
        if not annotated:
            return {}
        groups: dict[OwnerKey, list[Pod]] = {key: [] for key in sorted(annotated)}
        for pod in pods:
            if (group := groups.get(owner_key(pod))) is not None and pod.node_name not in self.counts.spot:
                group.append(pod)
        return {key: group for key, group in groups.items() if group}

    def blockers(self, groups: Mapping[OwnerKey, list[Pod]]) -> list[Blocker]:
        """Return the blockers if the pods of all *groups* were to leave on-demand nodes together."""
        return [blocker for key, pods in groups.items() for blocker in self._of_controller(key, pods)]

    def take(self, groups: Mapping[OwnerKey, list[Pod]]) -> None:
        """Count the pods of *groups* as moved."""
        for key, pods in groups.items():
            self.moved[key] = self.moved.get(key, 0) + len(pods)

    def copy(self) -> "RemainingReplicas":
        """Return an independent copy."""
        return RemainingReplicas(self.counts, dict(self.moved))

    def _of_controller(self, key: OwnerKey, pods: list[Pod]) -> list[Blocker]:
        total, on_demand = self.counts.all.get(key, 0), self.counts.staying.get(key, 0) - self.moved.get(key, 0)
        values = {pod.annotations[MIN_ON_DEMAND_REPLICAS] for pod in pods if MIN_ON_DEMAND_REPLICAS in pod.annotations}
        floors = {value: floor_of(value, total) for value in values}
        if unreadable := sorted(value for value, floor in floors.items() if floor is None):
            expected = "expected a number such as 2 or a percentage such as 50%"
            return [_blocker(pod, f"{MIN_ON_DEMAND_REPLICAS}: {quoted(unreadable[0])}, {expected}") for pod in pods]
        value, floor = max(((value, floor or 0) for value, floor in floors.items()), key=lambda item: item[1])
        movable = max(0, on_demand - floor)
        detail = (
            f"{MIN_ON_DEMAND_REPLICAS}: {value} keeps {floor} of {total} replicas on on-demand nodes; "
            f"{on_demand} are there, and {len(pods)} would move with this node"
        )
        return [_blocker(pod, detail) for pod in pods[movable:]]


def floor_of(value: str, total: int) -> int | None:
    """Return how many of *total* replicas *value* keeps; percentages are rounded up. None if *value* is invalid."""
    amount = _AMOUNT.fullmatch(value.strip())
    if amount is None:
        return None
    number = int(amount[1])
    if not amount[2]:
        return number
    return -(-number * total // _WHOLE) if number <= _WHOLE else None


def owned_pods(snapshot: Snapshot) -> Iterable[Pod]:
    """Return the pods that a controller replaces."""
    return (pod for pod in snapshot.pods.values() if pod.owner is not None and not pod.cls.terminating)


def owner_key(pod: Pod) -> OwnerKey:
    """Return the key of the controller of *pod*, or of the pod itself if it has no controller."""
    return pod.namespace, pod.owner.uid if pod.owner is not None else pod.uid


def single_replica(pod: Pod, counts: OwnerCounts) -> Blocker | None:
    """Return a blocker if *pod* is the only pod of its controller."""
    if pod.owner is None or counts.replicas(pod) > 1:
        return None
    detail = (
        f"it is the only replica of {pod.owner.kind} {pod.owner.name}; more replicas, or "
        "--skip-single-replicas=false, allow eviction"
    )
    return Blocker(Reason.SINGLE_REPLICA, detail)


def _blocker(pod: Pod, detail: str) -> Blocker:
    return Blocker(Reason.MIN_ON_DEMAND_REPLICAS, detail, pod.key)
