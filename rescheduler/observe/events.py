"""What happened, as values. Whoever wants to know listens: metrics, logs, Kubernetes Events, the status page."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from rescheduler.draining.state import Failure
from rescheduler.planning.outcome import Placement, Plan, Planning, PodRef, Rejected


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A node as it was: another one of the same name has another UID."""

    name: str
    uid: str

    def __str__(self) -> str:
        return self.name


class Waiting(enum.StrEnum):
    """Why a round drains nothing; also a label of metrics."""

    NOT_LEADING = "not-leading"
    NOT_SYNCED = "not-synced"
    DRAIN_DELAY = "drain-delay"
    PENDING_PODS = "pending-pods"
    RETURNED_PODS = "returned-pods"
    PROVIDER_SILENT = "provider-silent"
    LANDING_PENDING = "landing-pending"
    STALE_WATCH = "stale-watch"
    MEMORY_UNREADABLE = "memory-unreadable"
    SPOT_SETTLING = "spot-settling"
    FAILURE_PAUSE = "failure-pause"


class EvictionResult(enum.StrEnum):
    EVICTED = "evicted"
    GONE = "gone"
    REFUSED = "refused"  #: by a budget, for now
    FAILED = "failed"


class ErrorKind(enum.StrEnum):
    """Where something went wrong; a label of metrics."""

    READ = "read"  #: reading the cluster
    WRITE = "write"  #: changing it
    PROVIDER = "provider"
    ROUND = "round"  #: what nobody expected


class Sweep(enum.StrEnum):
    """What is done about a node that carries marks of an earlier drain."""

    RESUMED = "resumed"
    ROLLED_BACK = "rolled-back"


@dataclass(frozen=True, slots=True)
class Started:
    version: str
    holder: str  #: our name on nodes and on the Lease
    address: str  #: where metrics and the status page are served
    dry_run: bool


@dataclass(frozen=True, slots=True)
class LeadershipChanged:
    leading: bool


@dataclass(frozen=True, slots=True)
class WatchAges:
    """How long ago each watch last brought something."""

    seconds: Mapping[str, float]  #: by kind, since an event, a bookmark or a list


@dataclass(frozen=True, slots=True)
class Observed:
    """The nodes of this round, and how many pods that count (no DaemonSet, no mirror pod) each one runs."""

    at: datetime
    pods: Mapping[str, Mapping[str, int]]  #: label string of the flag → Ready node → pods
    all_nodes: frozenset[str]
    cooling: Mapping[str, datetime]  #: node → until when it is left alone
    unmatched: tuple[str, ...] = ()  #: label strings of flags that no node matches


@dataclass(frozen=True, slots=True)
class KeptByGuards:
    """Nodes stay that k8s-spot-rescheduler would drain: told once, after the start."""

    nodes: Mapping[str, int]  #: by the reason code of the guard
    complete: bool = True  #: False: there may be more


@dataclass(frozen=True, slots=True)
class Held:
    """Nothing is drained in this round."""

    waiting: Waiting
    detail: str


@dataclass(frozen=True, slots=True)
class Planned:
    at: datetime
    planning: Planning
    nodes: Mapping[str, NodeRef]  #: those of the verdicts
    seconds: float
    complete: bool  #: every on-demand node was judged, not only those before the first that can be emptied


@dataclass(frozen=True, slots=True)
class Chosen:
    """A cloudpool proxy looked for nodes that its pool can do without: those it takes, and why others stay."""

    plans: tuple[Plan, ...]
    rejected: tuple[Rejected, ...]
    nodes: Mapping[str, NodeRef]  #: those of the verdicts


@dataclass(frozen=True, slots=True)
class DrainStarted:
    node: NodeRef
    plan: Plan | None  #: None: somebody else began it, it is gone on with


@dataclass(frozen=True, slots=True)
class Tainted:
    """The node takes no more pods from here on."""

    node: NodeRef


@dataclass(frozen=True, slots=True)
class EvictionAnswered:
    node: NodeRef
    pod: PodRef
    result: EvictionResult
    detail: str = ""
    code: int | None = None  #: the HTTP status of a failure; None: there was no answer


@dataclass(frozen=True, slots=True)
class MachineOrdered:
    """The emptied node's machine was ordered away."""

    node: NodeRef
    provider: str
    group: str


@dataclass(frozen=True, slots=True)
class MachineAnswered:
    node: NodeRef
    provider: str
    outcome: str  #: the outcome's class in lower case: deleted, alreadygone, accepted, refused, failed
    detail: str


@dataclass(frozen=True, slots=True)
class DrainEnded:
    at: datetime
    node: NodeRef
    placements: tuple[Placement, ...]  #: all pods that were to move, and where to, by forecast
    evicted: tuple[PodRef, ...]
    failure: Failure | None
    seconds: float
    removed: bool = False  #: the machine is going or gone, the Node is deleted
    unshrunk: str = ""  #: why another machine comes in place of the removed one; "": none does
    handed_over: bool = False  #: the machine is ordered away, its end was not seen
    tainted: bool = False  #: our taint could not be taken off, or was left for another replica
    #: From the last eviction until every pod that was owed ran again; None where it did not come to that.
    landing_seconds: float | None = None
    removed_by: str = ""  #: another tool removes the node: how that is known


@dataclass(frozen=True, slots=True)
class MachineGone:
    """A machine that an earlier drain ordered is going or gone, and its Node is deleted."""

    node: NodeRef


@dataclass(frozen=True, slots=True)
class RemovalPostponed:
    """A machine that may have been ordered away is not ordered again for now; nothing was evicted."""

    node: NodeRef
    failure: Failure  #: why


@dataclass(frozen=True, slots=True)
class OwedChanged:
    """How many replacement pods are owed by drains that have ended."""

    pods: int


@dataclass(frozen=True, slots=True)
class CoolingDown:
    """The node's drain failed *failures* times in a row; it is left alone for a while."""

    node: NodeRef
    until: datetime
    failures: int


@dataclass(frozen=True, slots=True)
class Swept:
    node: NodeRef
    holder: str  #: who left the marks; "" where that cannot be read
    done: Sweep


@dataclass(frozen=True, slots=True)
class Compared:
    """The pods of a drained node came up again: how that compares with the forecast."""

    node: str
    outcomes: Mapping[str, int]  #: outcome (:class:`rescheduler.landing.Outcome`) → pods
    returned: int  #: those that came back to nodes that are not spot


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something went wrong that is no failed drain; it is tried again in the next round."""

    kind: ErrorKind
    detail: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class RoundEnded:
    at: datetime
    seconds: float
    succeeded: bool


#: What concerns this process, what a round tells, and what becomes of single nodes.
ProcessEvent: TypeAlias = Started | LeadershipChanged | WatchAges | KeptByGuards
RoundEvent: TypeAlias = ProcessEvent | Observed | OwedChanged | Held | Planned | Chosen | Trouble | RoundEnded
NodeEvent: TypeAlias = (
    DrainStarted
    | Tainted
    | EvictionAnswered
    | MachineOrdered
    | MachineAnswered
    | DrainEnded
    | MachineGone
    | RemovalPostponed
    | Compared
    | CoolingDown
    | Swept
)
Event: TypeAlias = RoundEvent | NodeEvent
Report: TypeAlias = Callable[[Event], None]


def tee(*listeners: Report) -> Report:
    """One listener that passes every event on to *listeners*, in order."""

    def report(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return report
