"""The actions that a drain requests, as immutable values, and the annotation that a Node gets before each step."""

import enum
import re
from dataclasses import dataclass, field
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

from predicates.objects import Node, OwnerReference, Taint
from predicates.snapshot import DRAIN_TAINT
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt
from rescheduler.planning.outcome import DrainKind, PodRef, Purpose, Surge
from rescheduler.planning.rules.minimum import DRAIN_ANNOTATION

# The annotation that a Node gets before each step of its drain, so that another process can resume or roll back.

ANNOTATION: Final = DRAIN_ANNOTATION

_NOT_IN_LABELS: Final = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_LABEL: Final = 63


class Step(enum.StrEnum):
    """The steps of a drain that are recorded on the Node."""

    DRAINING = "draining"  #: the taint is set, pods may be moving
    REMOVING = "removing"  #: the node is empty, machine termination may have been requested


class SurgeMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """The change of a Deployment's template that lets it roll out, so that another process can follow or undo it."""

    namespace: str
    name: str
    uid: str
    wanted: str  #: the new value of the annotation of its template
    old: str | None = None  #: the value before; None if there was none
    template: str = ""  #: a digest of the template without this annotation
    pods: tuple[str, ...] = ()  #: UIDs of its pods on the node

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Intent:
    """The content of the annotation."""

    holder: str  #: identity of the draining process
    step: Step
    since: datetime  #: start of the step; for REMOVING, before machine termination was requested
    pods: tuple[str, ...] = ()  #: UIDs of the pods to move
    group: str = ""  #: for REMOVING: the provider's node group of the machine
    until: datetime | None = None  #: end of the lease; the holder finishes or renews it before then; None if unknown
    identity: str = ""  #: the installation: namespace and Lease; "" for 0.1.0 and for proxies
    debts: tuple[Debt, ...] = ()  #: pods that the drain owes; empty until they are counted
    evicted: datetime | None = None  #: when the last pod was evicted; None if that is not known
    due: datetime | None = None  #: when the drain fails unless its pods run by then; None if that is not known
    surge: SurgeMark | None = None  #: the roll-out that is about to begin, or in progress
    kind: DrainKind = DrainKind.TO_SPOT

    @property
    def purpose(self) -> Purpose:
        """What the drain is for."""
        return Purpose(self.kind, frozenset(self.pods) if self.kind is DrainKind.MAKES_ROOM else frozenset())

    def dump(self) -> str:
        """Return the annotation's value as JSON."""
        shape = _Shape(
            self.holder,
            self.step,
            _format_time(self.since),
            self.pods,
            self.group,
            _format_time(self.until),
            self.identity,
            self.debts,
            _format_time(self.evicted),
            _format_time(self.due),
            self.surge,
            self.kind,
        )
        return msgspec.json.encode(shape).decode()

    def lapsed(self, now: datetime) -> bool:
        """Return whether the lease has expired, so that the holder must have stopped."""
        return self.until is not None and self.until < now


class _Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    holder: str
    step: Step
    since: str
    pods: tuple[str, ...] = ()
    group: str = ""
    until: str = ""
    identity: str = ""
    debts: tuple[Debt, ...] = ()
    evicted: str = ""
    due: str = ""
    surge: SurgeMark | None = None
    kind: DrainKind = DrainKind.TO_SPOT


#: Created once, at import: see :mod:`rescheduler.decoding`.
_SHAPES: Final = msgspec.json.Decoder(_Shape)


def taint(holder: str) -> Taint:
    """Return the taint of a node that *holder* drains. The value of the taint names the holder for people."""
    value = _NOT_IN_LABELS.sub("-", holder)[:_LONGEST_LABEL].strip("-._")
    return Taint(key=DRAIN_TAINT.key, effect=DRAIN_TAINT.effect, value=value)


def read(node: Node) -> Intent | None:
    """Return the intent on *node*, or None if there is none or it cannot be parsed."""
    text: Any = node.metadata.annotations.get(ANNOTATION)
    return None if text is None else parse(text)


def parse(text: str) -> Intent | None:
    """Return the content of an annotation, or None if it cannot be parsed."""
    try:
        shape = _SHAPES.decode(text)
        since = _read(shape.since)
        until, evicted, due = (_read(text) if text else None for text in (shape.until, shape.evicted, shape.due))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return Intent(
        holder=shape.holder,
        step=shape.step,
        since=since,
        pods=shape.pods,
        group=shape.group,
        until=until,
        identity=shape.identity,
        debts=shape.debts,
        evicted=evicted,
        due=due,
        surge=shape.surge,
        kind=shape.kind,
    )


def _format_time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def _read(text: str) -> datetime:
    """Parse a time; without a zone it is UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if not MINYEAR < moment.year < MAXYEAR:
        raise ValueError(f"time {text} is out of range")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def is_marked(node: Node) -> bool:
    """Return whether *node* has our taint or our annotation, valid or not."""
    return ANNOTATION in node.metadata.annotations or any(
        taint_on_node.key == DRAIN_TAINT.key for taint_on_node in node.spec.taints
    )


# The actions that a drain requests, as immutable values. Each has one outcome: what it read (→), or Done; or NotDone.


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
class WrittenMark:
    """What a drain writes to its node."""

    step: Step
    pods: tuple[str, ...] = ()
    group: str = ""
    since: datetime | None = None  #: start of the step; None means now
    debts: tuple[Debt, ...] = ()
    times: DrainTimes = field(default=NO_TIMES, compare=False)
    surge: SurgeMark | None = None
    kind: DrainKind = DrainKind.TO_SPOT


@dataclass(frozen=True, slots=True)
class Mark(WrittenMark):
    """Write the intent and the taint to the node in one PATCH."""


@dataclass(frozen=True, slots=True)
class Renew(WrittenMark):
    """Renew the lease in the annotation. Only a failure is answered, as that of a Mark."""


@dataclass(frozen=True, slots=True)
class StoreDebts:
    """Store the debts of the drain in the memory, because the Node may be deleted, and its mark with it.

    Before the first eviction these are the expected ones. At the *end*, before the marks are removed or the machine is
    ordered away, they are what is owed.
    """

    end: bool = False


@dataclass(frozen=True, slots=True)
class ReadControllers:
    """Read the controllers of these pods. → :class:`ControllersRead`"""

    owners: frozenset[tuple[str, OwnerReference]] = frozenset()  #: namespaces and controllers of pods
    controllers: frozenset[Controller] = frozenset()
    read_refusals: bool = False  #: also read why the controllers could not create pods, and why pods do not run


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Plan the node again from a state that is not older than this action. → :class:`Looked`"""

    targets: frozenset[str] = frozenset()  #: expected target nodes, which are read as well


@dataclass(frozen=True, slots=True)
class TryEviction:
    """Evict the pod in a dry run. → :class:`EvictionAccepted` and the other eviction events"""

    pod: PodRef
    grace: int | None = None
    request: bool = False  #: also create its EvictionRequest in a dry run
    must: bool = False  #: the pod may not be evicted without an EvictionRequest


@dataclass(frozen=True, slots=True)
class PlanAgain:
    """Check whether the remaining pods and the due replacement pods still fit, and count the pods of all controllers.

    The nodes and controllers that the next step relies on are read first, so that the answer is not older than this
    action. → :class:`PlannedAgain`
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
    #: Ask for the eviction with an EvictionRequest, if the eviction API would allow it now. → also
    #: :class:`EvictionRequested` or :class:`RequestsUnserved`
    request: bool = False
    withdraw: bool = False  #: withdraw the pod's EvictionRequest first


@dataclass(frozen=True, slots=True)
class FollowRequest:
    """Read the EvictionRequest of the pod, and what its responders report. → :class:`RequestSeen`"""

    pod: PodRef


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Withdraw all EvictionRequests of this installation."""


@dataclass(frozen=True, slots=True)
class DeletePlaceholder:
    """Delete the placeholder that reserves room for the pod *uid*. :class:`NodeSeen` shows when it is gone."""

    placeholder: PodRef
    uid: str


@dataclass(frozen=True, slots=True)
class ReadSurge:
    """Read the Deployment of *surge* before it rolls out. → :class:`SurgeRead`"""

    surge: Surge


@dataclass(frozen=True, slots=True)
class AskSurge:
    """Change the template of the Deployment, unless that was done."""

    mark: SurgeMark


@dataclass(frozen=True, slots=True)
class FollowSurge:
    """Read the roll-out. → :class:`SurgeSeen`"""

    mark: SurgeMark


@dataclass(frozen=True, slots=True)
class RevertSurge:
    """Give the template its old annotation back, unless the roll-out is complete or the template is not ours.

    → :class:`SurgeReverted`
    """

    mark: SurgeMark


@dataclass(frozen=True, slots=True)
class OrderRemoval:
    """Request termination of the machine. → :class:`Removed` or :class:`RequestWithheld`

    With *doubt*, the provider is only asked whether an earlier request ended the machine, or may still end it.
    """

    group: str
    since: datetime | None = None  #: when an earlier process may have requested the termination
    again: bool = False  #: not the first request of this drain
    doubt: str = ""  #: why the machine must not end by a new request; "" if it may


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Delete the Node object."""


@dataclass(frozen=True, slots=True)
class Release:
    """Remove the taint and the intent."""


#: The actions that send requests. They are performed on other threads than the state machine.
RequestAction: TypeAlias = (
    AskProvider
    | Mark
    | Renew
    | LookAgain
    | ReadControllers
    | TryEviction
    | PlanAgain
    | Evict
    | FollowRequest
    | Withdraw
    | DeletePlaceholder
    | ReadSurge
    | AskSurge
    | FollowSurge
    | RevertSurge
    | OrderRemoval
    | DeleteNode
    | Release
)
Action: TypeAlias = RequestAction | StoreDebts
