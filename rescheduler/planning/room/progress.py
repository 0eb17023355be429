"""The progress of an order, from its placeholders, the pods of its node, and the time."""

import enum
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from predicates.objects import Pod
from rescheduler.planning.room.placeholders import Placeholder


class OrderState(enum.Enum):
    """The state of an order."""

    WAITING = enum.auto()  #: not every placeholder runs on a spot node yet
    READY = enum.auto()  #: every pod of the node has a placeholder that runs on a spot node
    TIMED_OUT = enum.auto()  #: placeholders did not run in time
    UNUSED = enum.auto()  #: all placeholders run, but the node could not be drained in time
    ENDED = enum.auto()  #: the node is gone, or has no pods to move


@dataclass(frozen=True, slots=True)
class OrderProgress:
    """The state of an order, and the placeholders to create and to delete."""

    node: str
    state: OrderState
    until: datetime  #: when it times out
    running: int = 0  #: placeholders that run on a spot node
    total: int = 0  #: pods that need one
    missing: tuple[Pod, ...] = ()  #: pods without a placeholder
    surplus: tuple[Placeholder, ...] = ()  #: placeholders that have finished, or whose pods are no longer on the node

    @property
    def open(self) -> bool:
        """Return whether the order continues."""
        return self.state in (OrderState.WAITING, OrderState.READY)

    def __str__(self) -> str:
        return f"{self.running} of {self.total} placeholders for the pods of node {self.node} run on spot nodes"


def progress(
    placeholders: Collection[Placeholder],
    node_uid: str | None,
    pods: Collection[Pod],
    is_target: Callable[[str], bool],
    now: datetime,
    timeout: timedelta,
) -> OrderProgress:
    """Return the progress of the order that has *placeholders*: at least one, and all for the same node.

    *node_uid* is the current UID of the node, None if it is gone. *pods* are the pods that must move. *is_target*
    returns whether a node is a spot node that accepts pods. An order whose placeholders run is kept for another
    *timeout*.
    """
    first = min(placeholders, key=lambda placeholder: placeholder.until)
    name, until = first.for_node, first.until
    if node_uid != first.for_node_uid or not pods:
        return OrderProgress(name, OrderState.ENDED, until, surplus=tuple(placeholders))
    live = {
        placeholder.for_pod_uid: placeholder
        for placeholder in placeholders
        if not (placeholder.leaving or placeholder.finished)
    }
    pod_uids = {pod.uid for pod in pods}
    running = sum(
        placeholder.running and is_target(placeholder.node) for uid, placeholder in live.items() if uid in pod_uids
    )
    missing = tuple(pod for pod in pods if pod.uid not in live)
    state = OrderState.READY if running == len(pods) else OrderState.WAITING
    if state is OrderState.WAITING and now >= until:
        state = OrderState.TIMED_OUT
    elif now >= until + timeout:
        state = OrderState.UNUSED
    surplus = tuple(
        placeholder for placeholder in placeholders if placeholder.finished or placeholder.for_pod_uid not in pod_uids
    )
    return OrderProgress(name, state, until, running, len(pods), missing, surplus)
