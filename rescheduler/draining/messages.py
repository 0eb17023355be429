"""The events that a drain receives and the actions that it requests, as immutable values."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from predicates.objects import OwnerReference
from rescheduler.draining.intent import Step
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Debt, Replicas
from rescheduler.planning.outcome import Blocker, PodRef, Verdict

# Actions


@dataclass(frozen=True, slots=True)
class AskProvider:
    """Ask the provider which group the machine is in and whether it would remove it. → :class:`ProviderAnswered`"""


@dataclass(frozen=True, slots=True)
class Mark:
    """Write the intent and the taint to the node in one PATCH. → :class:`Marked` or :class:`MarkFailed`"""

    step: Step
    pods: tuple[str, ...] = ()
    group: str = ""
    since: datetime | None = None  #: start of the step; None means now
    debts: tuple[Debt, ...] = ()


@dataclass(frozen=True, slots=True)
class Renew:
    """Write the same annotation with a later end of the lease. → :class:`MarkFailed`, or nothing"""

    step: Step
    pods: tuple[str, ...] = ()
    group: str = ""
    since: datetime | None = None
    debts: tuple[Debt, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadControllers:
    """Read the controllers of these pods. → :class:`ControllersRead` or :class:`ControllersUnread`"""

    owners: frozenset[tuple[str, OwnerReference]] = frozenset()  #: namespaces and controllers of pods
    controllers: frozenset[Controller] = frozenset()
    words: bool = False  #: also read events about pods that the controllers could not create


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Plan the node again, on a state that is not older than this action. → :class:`Looked` or :class:`LookFailed`"""

    targets: frozenset[str] = frozenset()  #: expected target nodes, which are read as well


@dataclass(frozen=True, slots=True)
class TryEviction:
    """Evict the pod in a dry run. → :class:`EvictionAccepted` and the other eviction events"""

    pod: PodRef
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class PlanAgain:
    """Check whether the remaining pods and the due replacement pods still fit. → :class:`PlannedAgain`"""

    due: tuple[PodRef, ...]  #: evicted pods whose replacement pods are not bound


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict the pod with this UID. → one of the ``Eviction…`` events, or :class:`PodGone`"""

    pod: PodRef
    grace: int | None = None  #: grace period in seconds; None means the pod's own


@dataclass(frozen=True, slots=True)
class OrderRemoval:
    """Request termination of the machine. → :class:`Removed`, :class:`RemovalPending` or :class:`RemovalFailed`"""

    group: str
    since: datetime | None = None  #: when an earlier process may have requested it
    again: bool = False  #: not the first request of this drain


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Delete the Node object. → :class:`NodeDeleted` or :class:`NodeDeletionFailed`"""


@dataclass(frozen=True, slots=True)
class Release:
    """Remove the taint and the intent. → :class:`Released` or :class:`ReleaseFailed`"""


Action: TypeAlias = (
    AskProvider
    | Mark
    | Renew
    | LookAgain
    | ReadControllers
    | TryEviction
    | PlanAgain
    | Evict
    | OrderRemoval
    | DeleteNode
    | Release
)

# Events


@dataclass(frozen=True, slots=True)
class ProviderAnswered:
    """The provider's answer to :class:`AskProvider`."""

    group: str | None  #: None if no provider can remove the machine; the node is kept
    refusal: str = ""  #: why the provider would not remove the machine


@dataclass(frozen=True, slots=True)
class Marked:
    pass


@dataclass(frozen=True, slots=True)
class MarkFailed:
    """The mark was not written, or it is unknown whether it was."""

    why: str
    node_gone: bool = False
    lost: bool = False  #: the annotation is no longer ours; nothing was written
    retryable: bool = False  #: the same request may succeed later


@dataclass(frozen=True, slots=True)
class Looked:
    """The node was planned again."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class LookFailed:
    """The node could not be planned again."""

    why: str
    node_gone: bool = False
    retryable: bool = False  #: as of :class:`MarkFailed`


@dataclass(frozen=True, slots=True)
class ControllersRead:
    """The controllers were read."""

    states: Mapping[Controller, ControllerState]
    #: Topmost controllers, by namespace and UID of the controller in a pod's owner references.
    topmost: Mapping[tuple[str, str], Controller]
    #: Pods of each controller now, without those that this drain has evicted.
    replicas: Mapping[Controller, Replicas] = field(default_factory=dict)
    blockers: tuple[Blocker, ...] = ()  #: why remaining pods may not be evicted


@dataclass(frozen=True, slots=True)
class ControllersUnread:
    """The controllers could not be read."""

    why: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class PlannedAgain:
    """The verdict on the remaining pods."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class EvictionAccepted:
    """The API server accepted the eviction."""

    uid: str


@dataclass(frozen=True, slots=True)
class EvictionRefused:
    """A PodDisruptionBudget does not allow the eviction at present (429)."""

    uid: str
    why: str
    retry_after: float | None = None  #: seconds


@dataclass(frozen=True, slots=True)
class EvictionFailed:
    """The eviction request failed."""

    uid: str
    why: str
    retryable: bool
    retry_after: float | None = None  #: seconds


@dataclass(frozen=True, slots=True)
class EvictionSkipped:
    """The request was not sent, because the drain was no longer evicting pods."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod does not exist (404), or another pod has its name."""

    uid: str


@dataclass(frozen=True, slots=True)
class Seen:
    """The watched state at the current time."""

    present: frozenset[str]  #: UIDs of the unfinished pods on the node
    replicas: Mapping[Controller, Replicas] = field(default_factory=dict)  #: as in :class:`ControllersRead`
    tainted: bool = True  #: whether our taint and annotation are on the node
    lost: str = ""  #: which target node of the plan was lost, and why
    stale: bool = False  #: a watch has been silent for too long, so its state must not be used for decisions
    joined: str = ""  #: the evidence that another tool is removing the node


@dataclass(frozen=True, slots=True)
class Removed:
    """The machine is terminating or gone."""

    #: The provider does not know the machine and did nothing. If the Node is Ready, the provider is asked again.
    unproven: bool = False
    unseen: bool = False  #: only the Node is known to be gone; the machine's end was not confirmed
    unshrunk: str = ""  #: why a new machine will replace it; "" if none will


@dataclass(frozen=True, slots=True)
class RemovalPending:
    """The termination may be in progress."""

    detail: str


@dataclass(frozen=True, slots=True)
class RemovalFailed:
    """The machine stays, and no termination is in progress."""

    why: str
    node_gone: bool = False  #: the Node was gone before termination was requested
    refused: bool = False  #: the provider keeps the machine; it did not fail


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    pass


@dataclass(frozen=True, slots=True)
class NodeDeletionFailed:
    """The Node was not deleted."""

    why: str


@dataclass(frozen=True, slots=True)
class Released:
    """The marks were removed, or the node is gone."""


@dataclass(frozen=True, slots=True)
class ReleaseFailed:
    """The marks were not removed."""

    why: str
    lost: bool = False  #: the marks are no longer ours, and stay


class Cause(enum.Enum):
    """The cause of a stop."""

    TERMINATED = enum.auto()  #: the process is terminating: the drain is rolled back
    LEADERSHIP_LOST = enum.auto()  #: another replica is the leader: nothing more is written


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the drain."""

    cause: Cause


Event: TypeAlias = (
    ProviderAnswered
    | Marked
    | MarkFailed
    | Looked
    | LookFailed
    | ControllersRead
    | ControllersUnread
    | PlannedAgain
    | EvictionAccepted
    | EvictionRefused
    | EvictionFailed
    | EvictionSkipped
    | PodGone
    | Seen
    | Removed
    | RemovalPending
    | RemovalFailed
    | NodeDeleted
    | NodeDeletionFailed
    | Released
    | ReleaseFailed
    | Stop
)
