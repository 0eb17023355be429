"""The conditions of a pod, decoded from JSON or protobuf."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from predicates.requests import RESIZE_PENDING


class PodCondition(Protocol):
    """The fields of a pod condition that are read, in either encoding."""

    @property
    def type(self) -> str: ...

    @property
    def status(self) -> str: ...

    @property
    def reason(self) -> str: ...


C = TypeVar("C", bound=PodCondition)


def conditions(
    pod_conditions: Iterable[C], since_of: Callable[[C], str | None]
) -> tuple[bool, str | None, str | None, str | None, bool]:
    """Return (ready, ready since, unschedulable since, resize reason, preempted) of a pod.

    ``ready`` is False only if there is a Ready condition that is not True. The times are the last transitions of the
    Ready condition and of PodScheduled with reason Unschedulable, or None. The resize reason is that of
    PodResizePending, or None. ``preempted`` is whether DisruptionTarget has the reason PreemptionByScheduler
    (``pkg/scheduler/framework/preemption/executor.go``). *since_of* returns the last transition time of a condition.
    """
    ready, ready_since, unschedulable_since, resize, preempted = True, None, None, None, False
    for condition in pod_conditions:
        kind = condition.type
        if kind == "Ready":
            ready = condition.status == "True"
            ready_since = since_of(condition) if ready else None
        elif kind == "PodScheduled":
            if condition.status == "False" and condition.reason == "Unschedulable":
                unschedulable_since = since_of(condition) or ""
        elif kind == RESIZE_PENDING and resize is None:
            resize = condition.reason
        elif kind == "DisruptionTarget":
            preempted = condition.status == "True" and condition.reason == "PreemptionByScheduler"
    return ready, ready_since, unschedulable_since, resize, preempted
