"""Counts of the pods of each controller, and the minimum that must stay on on-demand nodes. Pure.

Pods are counted by the controller that they name, which for a Deployment is the ReplicaSet. Pods that are being deleted
do not count.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from predicates.objects import Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.outcome import Blocker, Reason

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
        self._spot = spot

    def replicas(self, pod: Pod) -> int:
        """Return the number of pods with the same controller as *pod*, including *pod*."""
        return self.all[owner_key(pod)]

    @cached_property
    def all(self) -> Mapping[OwnerKey, int]:
        """The number of pods by controller."""
        return Counter(owner_key(pod) for pod in self._pods())

    @cached_property
    def staying(self) -> Mapping[OwnerKey, int]:
        """The number of pods on nodes that are not spot nodes, by controller."""
        return Counter(owner_key(pod) for pod in self._pods() if pod.node_name and pod.node_name not in self._spot)

    def _pods(self) -> Iterable[Pod]:
        return (pod for pod in self._snapshot.pods.values() if pod.owner is not None and not pod.cls.terminating)


@dataclass(slots=True)
class RemainingReplicas:
    """The replicas that may still leave on-demand nodes while a plan is computed."""

    counts: OwnerCounts
    moved: dict[OwnerKey, int] = field(default_factory=dict)  #: pods of the plan so far, by controller

    def groups(self, pods: Iterable[Pod]) -> dict[OwnerKey, list[Pod]]:
        """Group the *pods* whose controllers have a floor, by controller."""
        annotated = {owner_key(pod) for pod in pods if pod.annotations and MIN_ON_DEMAND_REPLICAS in pod.annotations}
        if not annotated:
            return {}
        groups: dict[OwnerKey, list[Pod]] = {key: [] for key in sorted(annotated)}
        for pod in pods:
            if (group := groups.get(owner_key(pod))) is not None:
                group.append(pod)
        return groups

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
            return [_blocker(pod, f"{MIN_ON_DEMAND_REPLICAS}: {unreadable[0]!r}, {expected}") for pod in pods]
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
