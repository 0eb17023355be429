"""Placeholders in the cluster: their names, labels and annotations, and the progress of their order.

The annotations contain all data about an order, so that any replica can continue or cancel it.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from predicates.objects import Pod
from rescheduler.planning.forms import instant
from rescheduler.planning.outcome import PodRef

#: The node that is to be drained, and its UID.
FOR_NODE: Final = "spot-rescheduler/placeholder-for-node"
FOR_NODE_UID: Final = "spot-rescheduler/placeholder-for-node-uid"
#: The pod for which the placeholder reserves room, as ``namespace/name``, and its UID.
FOR_POD: Final = "spot-rescheduler/placeholder-for-pod"
FOR_POD_UID: Final = "spot-rescheduler/placeholder-for-pod-uid"
#: When the order times out, as an RFC 3339 time.
UNTIL: Final = "spot-rescheduler/placeholder-until"
#: The installation, as namespace and Lease.
INSTALLATION: Final = "spot-rescheduler/placeholder-installation"

_NO_TIME: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder in the cluster."""

    ref: PodRef
    for_node: str
    for_node_uid: str
    for_pod: str  #: ``namespace/name``
    for_pod_uid: str
    until: datetime  #: when its order times out; a time in the past if the annotation is missing
    installation: str
    node: str = ""  #: where it is bound; "" if it is not
    running: bool = False
    leaving: bool = False  #: it is being deleted
    finished: bool = False  #: its container has ended, so it reserves no room


def name_for(pod: Pod) -> str:
    """Return the name of the placeholder for *pod*. It is always the same, so that a retry creates no second one."""
    return f"room-{pod.uid}"


def annotations_for(pod: Pod, node_uid: str, until: datetime, installation: str) -> dict[str, str]:
    """Return the annotations of the placeholder for *pod*, whose node has the UID *node_uid*."""
    return {
        FOR_NODE: pod.node_name,
        FOR_NODE_UID: node_uid,
        FOR_POD: pod.key,
        FOR_POD_UID: pod.uid,
        UNTIL: f"{until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        INSTALLATION: installation,
    }


def read(pod: Pod) -> Placeholder:
    """Return the placeholder *pod*. Missing annotations are empty."""
    annotations: Mapping[str, str] = pod.annotations
    return Placeholder(
        PodRef.of(pod),
        annotations.get(FOR_NODE, ""),
        annotations.get(FOR_NODE_UID, ""),
        annotations.get(FOR_POD, ""),
        annotations.get(FOR_POD_UID, ""),
        instant(annotations.get(UNTIL)) or _NO_TIME,
        annotations.get(INSTALLATION, ""),
        pod.node_name,
        running=pod.phase == "Running" and pod.ready,
        leaving=pod.deletion_timestamp is not None,
        finished=pod.finished,
    )


def of_installation(placeholders: Iterable[Placeholder], installation: str) -> list[Placeholder]:
    """Return the placeholders of *installation* and those without a readable installation, by name."""
    selected = (placeholder for placeholder in placeholders if placeholder.installation in ("", installation))
    return sorted(selected, key=lambda placeholder: placeholder.ref.name)


# The progress of an order, from its placeholders, the pods of its node, and the time.


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
