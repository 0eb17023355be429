"""Placeholders in the cluster: their names, labels and annotations.

The annotations contain all data about an order, so that any replica can continue or cancel it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from predicates.objects import Pod
from rescheduler.planning.outcome import PodRef
from rescheduler.planning.timestamps import instant

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
        PodRef(pod.namespace, pod.name, pod.uid),
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
