"""Events of orders of spot room, as values."""

import enum
from dataclasses import dataclass
from datetime import datetime

from rescheduler.observe.involved import InvolvedNode


class RoomEnding(enum.StrEnum):
    """The end of an order of spot room; a metric label."""

    FILLED = "filled"  #: the node was drained
    DRAIN_FAILED = "drain-failed"
    TIMED_OUT = "timed-out"  #: placeholders did not run on spot nodes in time
    UNUSED = "unused"  #: placeholders ran, but the node could not be drained in time
    WITHDRAWN = "withdrawn"  #: drains are paused, or the node no longer has pods to move
    REFUSED = "refused"  #: the API server rejects placeholders


@dataclass(frozen=True, slots=True)
class RoomOrdered:
    """Placeholders were created for the pods of a node, or spot nodes were requested from the provider."""

    node: InvolvedNode
    pods: int
    nodes: int  #: expected spot nodes
    template: str  #: the node that they are expected to resemble
    worth: str  #: the resources or the money that the order frees and adds
    until: datetime  #: when placeholders that do not run are removed, or nodes that are not Ready given back
    group: str = ""  #: of the provider; "" for placeholders


@dataclass(frozen=True, slots=True)
class RoomEnded:
    """An order of spot room has ended; its placeholders are being deleted."""

    node: InvolvedNode
    ending: RoomEnding
    detail: str


@dataclass(frozen=True, slots=True)
class PlaceholdersObserved:
    """The number of placeholders at the start of a round."""

    running: int
    pending: int
