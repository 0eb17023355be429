"""What a drain is told (events) and what it wants done (actions). Frozen values, one class each."""

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
    """Who owns the node's machine, and would it be taken? → :class:`ProviderAnswered`"""


@dataclass(frozen=True, slots=True)
class Mark:
    """Write intent and taint on the node, in one PATCH. → :class:`Marked` or :class:`MarkFailed`"""

    step: Step
    pods: tuple[str, ...] = ()
    group: str = ""
    since: datetime | None = None  #: None: from this moment
    debts: tuple[Debt, ...] = ()


@dataclass(frozen=True, slots=True)
class Renew:
    """Write the same annotation again, with a later promise. → :class:`MarkFailed`, or nothing"""

    step: Step
    pods: tuple[str, ...] = ()
    group: str = ""
    since: datetime | None = None
    debts: tuple[Debt, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadControllers:
    """Read the controllers of these pods. → :class:`ControllersRead` or :class:`ControllersUnread`"""

    owners: frozenset[tuple[str, OwnerReference]] = frozenset()  #: namespace and controller of pods
    controllers: frozenset[Controller] = frozenset()
    words: bool = False  #: also look for what the controllers report about pods that they cannot create


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Plan the node once more, on a state that is not older than this action. → :class:`Looked`"""

    targets: frozenset[str] = frozenset()  #: nodes that the plan is expected to count on: they are read, too


@dataclass(frozen=True, slots=True)
class TryEviction:
    """Ask for the pod's eviction in a dry run. → :class:`EvictionAccepted` and so on, nothing is evicted"""

    pod: PodRef
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class PlanAgain:
    """Do the pods that are left and the replacement pods that are due still fit? → :class:`PlannedAgain`"""

    due: tuple[PodRef, ...]  #: evicted pods whose replacement pods are not bound


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask for the eviction of this very pod. → one of the ``Eviction…`` events, or :class:`PodGone`"""

    pod: PodRef
    grace: int | None = None  #: seconds; None: the pod's own


@dataclass(frozen=True, slots=True)
class OrderRemoval:
    """Order the node's machine away. → :class:`Removed`, :class:`RemovalPending` or :class:`RemovalFailed`"""

    group: str
    since: datetime | None = None  #: when an earlier process may have ordered it
    again: bool = False  #: asked before in this drain


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Delete the Node object. → :class:`NodeDeleted` or :class:`NodeDeletionFailed`"""


@dataclass(frozen=True, slots=True)
class Release:
    """Take taint and intent off. → :class:`Released` or :class:`ReleaseFailed`"""


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
    group: str | None  #: None: nobody takes the machine, the node is left
    refusal: str = ""  #: why the machine would not be given away


@dataclass(frozen=True, slots=True)
class Marked:
    pass


@dataclass(frozen=True, slots=True)
class MarkFailed:
    why: str
    node_gone: bool = False
    lost: bool = False  #: the annotation is not ours any more: nothing was written
    retryable: bool = False  #: the same request may succeed later


@dataclass(frozen=True, slots=True)
class Looked:
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class LookFailed:
    why: str
    node_gone: bool = False
    retryable: bool = False  #: as of :class:`MarkFailed`


@dataclass(frozen=True, slots=True)
class ControllersRead:
    states: Mapping[Controller, ControllerState]
    #: Namespace and UID of the controller that a pod names → its topmost controller.
    topmost: Mapping[tuple[str, str], Controller]
    #: Pods of each controller at this moment; those that this drain has evicted do not count.
    replicas: Mapping[Controller, Replicas] = field(default_factory=dict)
    blockers: tuple[Blocker, ...] = ()  #: why pods that are still to be evicted must stay


@dataclass(frozen=True, slots=True)
class ControllersUnread:
    why: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class PlannedAgain:
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class EvictionAccepted:
    uid: str


@dataclass(frozen=True, slots=True)
class EvictionRefused:
    """Budgets do not allow it at present (429)."""

    uid: str
    why: str
    retry_after: float | None = None  #: seconds


@dataclass(frozen=True, slots=True)
class EvictionFailed:
    uid: str
    why: str
    retryable: bool
    retry_after: float | None = None  #: seconds


@dataclass(frozen=True, slots=True)
class EvictionSkipped:
    """The request was not sent: the drain had left the phase of evictions."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodGone:
    """404, or another pod bears its name."""

    uid: str


@dataclass(frozen=True, slots=True)
class Seen:
    """Time has passed; what the watched state shows."""

    present: frozenset[str]  #: UIDs of the pods on the node, without those that ended
    replicas: Mapping[Controller, Replicas] = field(default_factory=dict)  #: as in :class:`ControllersRead`
    tainted: bool = True  #: our taint and our annotation are on the node
    lost: str = ""  #: which spot node of the plan can no longer be counted on, and why
    stale: bool = False  #: a watch has been silent for so long that nothing may be decided by what it shows
    joined: str = ""  #: that another tool removes the node, and how that is known


@dataclass(frozen=True, slots=True)
class Removed:
    """The machine is going or gone."""

    #: The provider does not know it, and it did not do anything. While the Node is Ready this is not believed at once.
    unproven: bool = False
    unseen: bool = False  #: only the Node is known to be gone; the end of the machine was not seen
    unshrunk: str = ""  #: why another machine comes in its place; "": none does


@dataclass(frozen=True, slots=True)
class RemovalPending:
    """The order may be at work."""

    detail: str


@dataclass(frozen=True, slots=True)
class RemovalFailed:
    """The machine stays, and no order is at work."""

    why: str
    node_gone: bool = False  #: the Node was gone before the first order: nothing was ordered
    refused: bool = False  #: the provider keeps the machine; it did not fail


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    pass


@dataclass(frozen=True, slots=True)
class NodeDeletionFailed:
    why: str


@dataclass(frozen=True, slots=True)
class Released:
    """Off, or the node is gone."""


@dataclass(frozen=True, slots=True)
class ReleaseFailed:
    why: str
    lost: bool = False  #: the marks are not ours any more, and stay


class Cause(enum.Enum):
    TERMINATED = enum.auto()  #: we were told to stop: what was begun is taken back
    LEADERSHIP_LOST = enum.auto()  #: somebody else acts now: nothing more is written


@dataclass(frozen=True, slots=True)
class Stop:
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
