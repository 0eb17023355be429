"""The actions that a drain requests, as immutable values. An arrow (→) precedes the events that answer an action."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from predicates.objects import OwnerReference
from rescheduler.draining.intent import Step
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt
from rescheduler.planning.outcome import PodRef


@dataclass(frozen=True, slots=True)
class AskProvider:
    """Ask the provider which group the machine is in and whether it would remove it. → :class:`ProviderAnswered`"""


@dataclass(frozen=True, slots=True)
class DrainTimes:
    """The times of a drain that are stored with its mark, in monotonic seconds, so that the next process goes on."""

    evicted_at: float | None = None  #: when the last pod was evicted
    due_at: float | None = None  #: when the drain fails unless its pods run by then


NO_TIMES: Final = DrainTimes()


@dataclass(frozen=True, slots=True)
class Mark:
    """Write the intent and the taint to the node in one PATCH. → :class:`Marked` or :class:`MarkFailed`"""

    step: Step
    pods: tuple[str, ...] = ()
    group: str = ""
    since: datetime | None = None  #: start of the step; None means now
    debts: tuple[Debt, ...] = ()
    times: DrainTimes = field(default=NO_TIMES, compare=False)


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew the lease in the annotation. → :class:`MarkFailed`, or nothing"""

    step: Step
    pods: tuple[str, ...] = ()
    group: str = ""
    since: datetime | None = None
    debts: tuple[Debt, ...] = ()
    times: DrainTimes = field(default=NO_TIMES, compare=False)


@dataclass(frozen=True, slots=True)
class ReadControllers:
    """Read the controllers of these pods. → :class:`ControllersRead` or :class:`ControllersUnread`"""

    owners: frozenset[tuple[str, OwnerReference]] = frozenset()  #: namespaces and controllers of pods
    controllers: frozenset[Controller] = frozenset()
    read_refusals: bool = False  #: also read events about pods that the controllers could not create


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Plan the node again from a state that is not older than this action. → :class:`Looked` or :class:`LookFailed`"""

    targets: frozenset[str] = frozenset()  #: expected target nodes, which are read as well


@dataclass(frozen=True, slots=True)
class TryEviction:
    """Evict the pod in a dry run. → :class:`EvictionAccepted` and the other eviction events"""

    pod: PodRef
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class PlanAgain:
    """Check whether the remaining pods and the due replacement pods still fit, and count the pods of all controllers.

    The nodes and controllers that the next step relies on are read first, so that the answer is not older than this
    action. → :class:`PlannedAgain` or :class:`PlanFailed`
    """

    due: tuple[PodRef, ...]  #: evicted pods whose replacement pods are not bound
    targets: frozenset[str] = field(default=frozenset(), compare=False)  #: expected target nodes of the step
    #: Namespaces and controllers of the pods in the step.
    owners: frozenset[tuple[str, OwnerReference]] = field(default=frozenset(), compare=False)
    controllers: frozenset[Controller] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict the pod with this UID. → one of the ``Eviction…`` events, or :class:`PodGone`"""

    pod: PodRef
    grace: int | None = None  #: grace period in seconds; None means the pod's own


@dataclass(frozen=True, slots=True)
class DeletePlaceholder:
    """Delete the placeholder that reserves room for the pod *uid*.

    → :class:`PlaceholderDeleted` or :class:`PlaceholderNotDeleted`
    """

    placeholder: PodRef
    uid: str


@dataclass(frozen=True, slots=True)
class OrderRemoval:
    """Request termination of the machine. → :class:`Removed` and the other removal events.

    :class:`MarkFailed` if the mark is lost: nothing was requested. With *doubt*, the provider is only asked whether an
    earlier request ended the machine, or may still end it.
    """

    group: str
    since: datetime | None = None  #: when an earlier process may have requested the termination
    again: bool = False  #: not the first request of this drain
    doubt: str = ""  #: why the machine must not end by a new request; "" if it may


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
    | DeletePlaceholder
    | OrderRemoval
    | DeleteNode
    | Release
)
