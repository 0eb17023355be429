"""The events that a drain receives, as immutable values: the outcomes of its actions, and the watched state."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar, get_args, get_origin

from rescheduler.draining.actions import SurgeMark
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Debt, Replicas
from rescheduler.planning.last_look import Ground
from rescheduler.planning.outcome import Blocker, PodRef, Verdict
from rescheduler.planning.refusals import KubeletRefusal

# The outcomes of eviction requests, as immutable values. A drain receives them as events.


class EvictionResult(enum.StrEnum):
    """The result of an eviction request; also a metric label."""

    EVICTED = "evicted"
    GONE = "gone"
    REFUSED = "refused"  #: a PodDisruptionBudget does not allow the eviction at present
    FAILED = "failed"
    REQUESTED = "requested"  #: an EvictionRequest asks for it


@dataclass(frozen=True, slots=True)
class EvictionAccepted:
    """The API server accepted the eviction: the pod terminates (in a dry run, it would)."""

    result: ClassVar[EvictionResult] = EvictionResult.EVICTED
    uid: str


@dataclass(frozen=True, slots=True)
class EvictionRefused:
    """A PodDisruptionBudget does not allow the eviction at present (429)."""

    result: ClassVar[EvictionResult] = EvictionResult.REFUSED
    uid: str
    why: str
    retry_after: float | None = None  #: seconds


@dataclass(frozen=True, slots=True)
class EvictionFailed:
    """The eviction request failed for another reason. If *retryable*, the same request may succeed later."""

    result: ClassVar[EvictionResult] = EvictionResult.FAILED
    uid: str
    why: str
    retryable: bool
    retry_after: float | None = None  #: seconds
    code: int | None = None  #: HTTP status; None if there was no response
    #: An admission webhook denied the eviction and answered 429: it may have started to move the pod by itself.
    migrating: bool = False


@dataclass(frozen=True, slots=True)
class EvictionSkipped:
    """The request was not sent: the drain was no longer evicting pods, or its plan was not recent any more."""

    uid: str
    why: str = "a stop was requested"


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod does not exist (404), or another pod has its name."""

    result: ClassVar[EvictionResult] = EvictionResult.GONE
    uid: str


#: The outcome of an eviction request that was sent.
EvictionOutcome: TypeAlias = EvictionAccepted | EvictionRefused | EvictionFailed | PodGone


@dataclass(frozen=True, slots=True)
class EvictionRequested:
    """The pod has an EvictionRequest of ours (``lifecycle.k8s.io``), new or from an earlier process."""

    result: ClassVar[EvictionResult] = EvictionResult.REQUESTED
    uid: str


@dataclass(frozen=True, slots=True)
class RequestsUnserved:
    """The API server serves no EvictionRequests."""

    result: ClassVar[EvictionResult] = EvictionResult.FAILED
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class RequestSeen:
    """The state of an EvictionRequest."""

    uid: str
    taken: bool  #: its controller has observed it
    failed: str = ""  #: why no responder will evict the pod any more; "" if one may
    note: str = ""  #: which responder is active, and its message
    gone: bool = False  #: there is no such request any more


#: The outcome of asking for an eviction with an EvictionRequest.
RequestOutcome: TypeAlias = EvictionRequested | RequestsUnserved | EvictionFailed


# The outcomes of all other actions. What an action reads is an event of its own.


A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Done(Generic[A]):
    """The action was performed."""

    action: type[A]
    uid: str = ""  #: of the pod that the action is about


class Outcome(enum.Enum):
    """How an action ended that is not known to be done."""

    REFUSED = enum.auto()  #: not performed: the provider keeps the machine, or the mark belongs to another process
    GONE = enum.auto()  #: not performed: the node is gone
    FAILED = enum.auto()  #: not performed, and the same request would fail again
    UNKNOWN = enum.auto()  #: performed or not; the same request may succeed later


@dataclass(frozen=True, slots=True)
class NotDone(Generic[A]):
    """The action is not known to be done."""

    action: type[A]
    why: str
    outcome: Outcome = Outcome.FAILED
    uid: str = ""  #: of the pod that the action is about

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.outcome is Outcome.UNKNOWN


def kind_of(event: object) -> type:
    """Return the kind of *event*: its class, and for ``Done`` and ``NotDone`` also the action: ``Done[Mark]``."""
    match event:
        case Done(action):
            return Done[action]  # type: ignore[valid-type]
        case NotDone(action):
            return NotDone[action]  # type: ignore[valid-type]
        case _:
            return type(event)


def kind_name(kind: type) -> str:
    """Return the name of a kind for people: ``Looked``, ``Mark done``, ``Mark not done``."""
    names = [f"{action.__name__} {'done' if get_origin(kind) is Done else 'not done'}" for action in get_args(kind)]
    return names[0] if names else kind.__name__


# What the actions of a drain read.


@dataclass(frozen=True, slots=True)
class ProviderAnswered:
    """The provider's response to :class:`AskProvider`."""

    group: str | None  #: None if no provider can remove the machine; the node is kept
    refusal: str = ""  #: why the provider would not remove the machine


@dataclass(frozen=True, slots=True)
class Looked:
    """The node was planned again."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class ControllersRead:
    """The controllers were read."""

    states: Mapping[Controller, ControllerState]
    #: Topmost controllers, by namespace and UID of the controller in a pod's owner references.
    topmost: Mapping[tuple[str, str], Controller]
    #: Pods of each controller now, without those that this drain has evicted.
    replicas: Mapping[Controller, Replicas] = field(default_factory=dict)
    blockers: tuple[Blocker, ...] = ()  #: why remaining pods may not be evicted
    losable: frozenset[str] = frozenset()  #: UIDs of remaining pods that may be evicted although nothing replaces them


@dataclass(frozen=True, slots=True)
class PlannedAgain:
    """The verdict on moving the remaining pods."""

    verdict: Verdict
    read: ControllersRead | None = None  #: the controllers as read for the step, and their pods now
    #: By namespace and UID of a pod's controller: why it does not replace evicted pods.
    ending: Mapping[tuple[str, str], str] = field(default_factory=dict)


class RolledTemplate(enum.Enum):
    """The template of a Deployment that is to roll out."""

    OURS = enum.auto()  #: it has our annotation, and is otherwise as before
    UNTOUCHED = enum.auto()  #: it is as before
    THEIRS = enum.auto()  #: another client has changed it
    GONE = enum.auto()  #: the Deployment is gone, or another one has its name


@dataclass(frozen=True, slots=True)
class SurgeRead:
    """The Deployment was read before its roll-out."""

    mark: SurgeMark
    fault: str = ""  #: why it cannot roll out now, or ""
    progress_seconds: float = 0.0  #: what its ``progressDeadlineSeconds`` and ``minReadySeconds`` allow in all


@dataclass(frozen=True, slots=True)
class SurgeSeen:
    """The roll-out as read."""

    template: RolledTemplate
    complete: bool = False  #: all pods are of the new template and available
    fault: str = ""  #: why it will not complete, or ""
    refusal: str = ""  #: why new pods cannot be created, or ""
    downtime: str = ""  #: why old pods may end before the new ones are available now, or ""


@dataclass(frozen=True, slots=True)
class SurgeReverted:
    """The template is as before, or not ours, or the roll-out is *complete*."""

    complete: bool = False


@dataclass(frozen=True, slots=True)
class Preemption:
    """Replacement pods of a drain take the place of pods with a lower priority on other nodes."""

    pods: tuple[str, ...]  #: ``namespace/name`` of the preempted pods
    debts: tuple[Debt, ...] = ()  #: what is owed to their controllers


@dataclass(frozen=True, slots=True)
class RefusedPod:
    """A replacement pod of a drain that the kubelet of its node has refused."""

    pod: str  #: ``namespace/name``
    refusal: KubeletRefusal


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """The watched state at the current time."""

    present: frozenset[str]  #: UIDs of the unfinished pods on the node
    replicas: Mapping[Controller, Replicas] = field(default_factory=dict)  #: as in :class:`ControllersRead`
    tainted: bool = True  #: whether our taint and annotation are on the node
    lost: str = ""  #: which target node of the plan was lost, and why
    stale: bool = False  #: a watch has been silent for too long, so its state must not be used for decisions
    removed_by: str = ""  #: the evidence that another tool is removing the node
    placeholders: Mapping[str, PodRef] = field(default_factory=dict)  #: by the UID of the pod they reserve room for
    terminating: frozenset[str] = frozenset()  #: UIDs of those that are being deleted
    preemption: Preemption | None = None
    refused: RefusedPod | None = None
    detaching: Mapping[Controller, str] = field(default_factory=dict)  #: see :attr:`.state.Drain.detaching`


@dataclass(frozen=True, slots=True)
class NodeGone:
    """The watched state no longer contains the node. Sent instead of :class:`NodeSeen`."""

    why: str


@dataclass(frozen=True, slots=True)
class Removed:
    """The machine is terminating or gone."""

    #: The machine is unknown to the provider, which did nothing. If the Node is Ready, the request is repeated.
    unproven: bool = False
    unseen: bool = False  #: the Node is gone, but the termination of the machine was not confirmed
    unshrunk: str = ""  #: why a new machine will replace this one; "" if none will


@dataclass(frozen=True, slots=True)
class RequestWithheld:
    """The node may not be drained, or its machine may not end now, by a fresh read. No request was sent.

    No earlier order can take effect.
    """

    ground: Ground
    why: str


class Cause(enum.Enum):
    """The cause of a stop."""

    TERMINATED = enum.auto()  #: the process is terminating: the drain is rolled back
    LEADERSHIP_LOST = enum.auto()  #: another replica is the leader: nothing more is written
    PAUSED = enum.auto()  #: a user paused drains: the drain is rolled back, unless its machine is being removed


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the drain."""

    cause: Cause
    detail: str = ""  #: the message to report


DrainEvent: TypeAlias = (
    Done[Any]
    | NotDone[Any]
    | ProviderAnswered
    | Looked
    | ControllersRead
    | PlannedAgain
    | EvictionAccepted
    | EvictionRefused
    | EvictionFailed
    | EvictionSkipped
    | PodGone
    | EvictionRequested
    | RequestsUnserved
    | RequestSeen
    | SurgeRead
    | SurgeSeen
    | SurgeReverted
    | Removed
    | RequestWithheld
    | NodeSeen
    | NodeGone
    | Stop
)
