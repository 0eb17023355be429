"""Events of single nodes: their drains, their machines, and the marks of earlier drains."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from rescheduler.draining.eviction_outcomes import EvictionResult
from rescheduler.draining.failures import Failure
from rescheduler.observe.involved import InvolvedNode
from rescheduler.planning.outcome import Placement, Plan, PodRef


@dataclass(frozen=True, slots=True)
class DrainStarted:
    """A drain was started or resumed."""

    node: InvolvedNode
    plan: Plan | None  #: None for a drain that another process started and this one resumes


class PodProgress(enum.StrEnum):
    """The progress of a drain for one of the pods that it moves."""

    WAITING = "waiting"  #: its eviction is not requested yet
    EVICTING = "evicting"  #: its eviction is requested, but not accepted yet
    EVICTED = "evicted"  #: its eviction was accepted; its replacement pod is not bound to a node yet
    BOUND = "bound"  #: its replacement pod is bound to a node
    READY = "ready"  #: its replacement pod is Ready
    GONE = "gone"  #: it was gone before it was evicted


@dataclass(frozen=True, slots=True)
class DrainProgressed:
    """The progress of the running drain; reported when it changes."""

    node: InvolvedNode
    phase: str  #: the phase of the drain, in lower case
    pods: tuple[tuple[PodRef, PodProgress], ...]  #: all pods to move


@dataclass(frozen=True, slots=True)
class Tainted:
    """The node was tainted and accepts no more pods."""

    node: InvolvedNode


@dataclass(frozen=True, slots=True)
class EvictionAnswered:
    """The result of an eviction request."""

    node: InvolvedNode
    pod: PodRef
    result: EvictionResult
    detail: str = ""
    code: int | None = None  #: HTTP status of a failure; None if there was no response


@dataclass(frozen=True, slots=True)
class OrderWithheld:
    """The machine of an empty node was not ordered away, because it may not end now."""

    node: InvolvedNode
    why: str


@dataclass(frozen=True, slots=True)
class MachineOrdered:
    """Termination of the empty node's machine was requested."""

    node: InvolvedNode
    provider: str
    group: str


@dataclass(frozen=True, slots=True)
class MachineAnswered:
    """The provider's response to a termination request."""

    node: InvolvedNode
    provider: str
    outcome: str  #: a metric label: deleted, alreadygone, accepted, refused, failed
    detail: str


@dataclass(frozen=True, slots=True)
class DrainEnded:
    """A drain has ended."""

    at: datetime
    node: InvolvedNode
    placements: tuple[Placement, ...]  #: all pods to move and their forecast nodes
    evicted: tuple[PodRef, ...]
    failure: Failure | None
    seconds: float
    removed: bool = False  #: the machine is terminating or gone, and the Node was deleted
    unshrunk: str = ""  #: why a new machine will replace the removed one; "" if none will
    handed_over: bool = False  #: machine termination requested, not yet confirmed
    tainted: bool = False  #: our taint could not be removed, or was left for another replica
    #: From the last eviction until all owed pods ran again; None if they did not.
    landing_seconds: float | None = None
    removed_by: str = ""  #: the evidence that another tool is removing the node


@dataclass(frozen=True, slots=True)
class MachineGone:
    """A machine whose termination an earlier drain requested is terminating or gone, and its Node was deleted."""

    node: InvolvedNode


@dataclass(frozen=True, slots=True)
class RemovalPostponed:
    """A termination that may have been requested before is not requested again for now; nothing was evicted."""

    node: InvolvedNode
    failure: Failure  #: the reason


@dataclass(frozen=True, slots=True)
class CoolingDown:
    """The node's drain failed *failures* times in a row; it is not drained for a while."""

    node: InvolvedNode
    until: datetime
    failures: int


class Sweep(enum.StrEnum):
    """How the marks of an earlier drain on a node were handled."""

    RESUMED = "resumed"
    ROLLED_BACK = "rolled-back"


@dataclass(frozen=True, slots=True)
class Swept:
    """Marks of an earlier drain were found on a node and handled."""

    node: InvolvedNode
    holder: str  #: identity of the process that set the marks; "" if it cannot be read
    done: Sweep


@dataclass(frozen=True, slots=True)
class Compared:
    """The replacement pods of a drained node, compared with the forecast."""

    node: str
    outcomes: Mapping[str, int]  #: pods by :class:`rescheduler.planning.landing.LandingOutcome`
    returned: int  #: pods that returned to nodes that are not spot
