"""Events of the program, as values. Metrics, logs, Kubernetes Events and the status page listen to them."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self, TypeAlias

from predicates.objects import Node
from rescheduler.draining.events import EvictionResult
from rescheduler.draining.state import Failure
from rescheduler.planning.forms import count
from rescheduler.planning.money.prices import NodeFacts
from rescheduler.planning.money.savings import Savings
from rescheduler.planning.money.worth import Worth
from rescheduler.planning.outcome import Placement, Plan, Planning, PodRef, Rejected
from rescheduler.planning.pools import PoolState
from rescheduler.planning.what_if.overview import Overview

# The objects that events are about.


@dataclass(frozen=True, slots=True)
class InvolvedNode:
    """A node, identified by its UID: a new node with the same name is a different one."""

    name: str
    uid: str

    @classmethod
    def of(cls, node: Node) -> Self:
        return cls(node.metadata.name, node.metadata.uid)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class InvolvedLease:
    """The Lease of this installation."""

    namespace: str
    name: str
    uid: str  #: "" if it does not exist


# Events of the process and of its rounds.


class Waiting(enum.StrEnum):
    """Why a round drains no node; also a metric label."""

    NOT_LEADING = "not-leading"
    NOT_SYNCED = "not-synced"
    ROUND_FAILED = "round-failed"
    CLEANING_UP = "cleaning-up"
    DRAIN_DELAY = "drain-delay"
    PENDING_PODS = "pending-pods"
    RETURNED_PODS = "returned-pods"
    PROVIDER_SILENT = "provider-silent"
    LANDING_PENDING = "landing-pending"
    STALE_WATCH = "stale-watch"
    MEMORY_UNREADABLE = "memory-unreadable"
    SPOT_SETTLING = "spot-settling"
    FAILURE_PAUSE = "failure-pause"
    PAUSED = "paused"
    OUTSIDE_DRAIN_WINDOW = "outside-drain-window"
    MAKING_ROOM = "making-room"
    NO_SPOT_CAPACITY = "no-spot-capacity"


class ErrorKind(enum.StrEnum):
    """The activity in which an error occurred; a metric label."""

    READ = "read"  #: reading the cluster
    WRITE = "write"  #: changing the cluster
    PROVIDER = "provider"
    ROUND = "round"  #: an unexpected error in a round


@dataclass(frozen=True, slots=True)
class Started:
    """The program has started."""

    version: str
    holder: str  #: our identity in node annotations and in the Lease
    address: str  #: address of the metrics and the status page
    dry_run: bool


@dataclass(frozen=True, slots=True)
class LeadershipChanged:
    """The replica became the leader, or is no longer the leader."""

    leading: bool


@dataclass(frozen=True, slots=True)
class PauseChanged:
    """A user started, changed or ended a pause of drains (an annotation of the Lease), or the pause has expired."""

    lease: InvolvedLease
    paused: str  #: a message; "" if drains are no longer paused


@dataclass(frozen=True, slots=True)
class WatchAges:
    """The time since each watch last received data."""

    seconds: Mapping[str, float]  #: by kind: seconds since an event, a bookmark or a list


@dataclass(frozen=True, slots=True)
class Observed:
    """The nodes of this round, and the number of pods on each (without DaemonSet and mirror pods)."""

    at: datetime
    pods: Mapping[str, Mapping[str, int]]  #: by label (as in the flag) and Ready node: number of pods
    all_nodes: frozenset[str]
    cooling: Mapping[str, datetime]  #: by node: the end of its cooldown
    unmatched: tuple[str, ...] = ()  #: labels (as in the flags) that no node matches
    suggestion: str = ""  #: if a label is unmatched: flags with labels that the nodes have, if there are any
    overlapping: tuple[str, ...] = ()  #: nodes that match both labels
    pools: tuple[PoolState, ...] = ()  #: of spot nodes
    lost: Mapping[str, int] = field(default_factory=dict)  #: spot nodes lost since the last round, by pool


@dataclass(frozen=True, slots=True)
class Held:
    """No node is drained in this round."""

    waiting: Waiting
    detail: str
    leader: str = ""  #: the leader, if it is known to be another replica


@dataclass(frozen=True, slots=True)
class Planned:
    """The verdicts of a round."""

    at: datetime
    planning: Planning
    nodes: Mapping[str, InvolvedNode]  #: the nodes of the verdicts
    seconds: float
    complete: bool  #: every on-demand node has a verdict, not only those up to the first that can be drained
    facts: Mapping[str, NodeFacts] = field(default_factory=dict)  #: of the nodes of the verdicts
    worths: Mapping[str, Worth] = field(default_factory=dict)  #: by node with a plan; empty without prices
    currency: str = ""  #: of the worths


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A replica that is not the leader has planned all nodes, only for its status page."""

    planned: Planned


@dataclass(frozen=True, slots=True)
class Overviewed:
    """All drains were planned in sequence, as ``rescheduler plan`` does, only for the status page."""

    at: datetime
    overview: Overview


@dataclass(frozen=True, slots=True)
class Chosen:
    """A cloudpool proxy selected nodes to remove: the selected nodes, and why others were rejected."""

    plans: tuple[Plan, ...]
    rejected: tuple[Rejected, ...]
    nodes: Mapping[str, InvolvedNode]  #: the nodes of the verdicts


@dataclass(frozen=True, slots=True)
class OwedChanged:
    """The number of replacement pods owed by earlier drains has changed."""

    pods: int


@dataclass(frozen=True, slots=True)
class OwnerSetAside:
    """The pods of an owner did not run in time after a drain: for a while, they are not moved."""

    name: str  #: ``namespace/Kind/name``, or a namespace after several of its owners
    until: datetime
    failures: int  #: consecutive


@dataclass(frozen=True, slots=True)
class DebtEnded:
    """A debt ended although nothing shows that its pods run: nothing tells how many pods its owner wants."""

    controller: str  #: ``namespace/Kind/name``
    node: str  #: the drained node
    pods: int  #: number of missing pods
    unreadable: str  #: why the owner cannot be read, or ""

    @property
    def text(self) -> str:
        why = self.unreadable or "nothing tells how many pods it wants"
        pods = count(self.pods, "replacement pod")
        return f"{self.controller} still lacks {pods} since the drain of {self.node}, which is given up: {why}"


@dataclass(frozen=True, slots=True)
class MemoryDropped:
    """Entries were dropped from the stored memory because of its limits."""

    entries: Mapping[str, int]  #: by kind
    detail: str  #: which limit, and the namespaces


#: What happens to the records of earlier drains.
HistoryEvent: TypeAlias = OwnerSetAside | DebtEnded | MemoryDropped


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error outside of drains; the operation is retried in the next round."""

    kind: ErrorKind
    detail: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class SavingsCounted:
    """The ledger of savings at the start of a round."""

    total: Savings  #: of all drains in the ledger, up to now


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A round has ended."""

    at: datetime
    seconds: float
    succeeded: bool


# Events of single nodes: their drains, their machines, and the marks of earlier drains.


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
    targets: Mapping[str, str] = field(default_factory=dict)  #: the node of the plan, by pod (``namespace/name``)
    since: Mapping[str, datetime] = field(default_factory=dict)  #: when each pod got its state, by pod


@dataclass(frozen=True, slots=True)
class DrainWaits:
    """A drain still waits for pods; reported every half a minute while it does."""

    at: datetime
    progress: DrainProgressed


@dataclass(frozen=True, slots=True)
class Tainted:
    """The node was tainted and accepts no more pods."""

    node: InvolvedNode


class SurgeResult(enum.StrEnum):
    """How a roll-out ended; also a metric label."""

    DONE = "done"
    ROLLED_BACK = "rolled-back"  #: the template has its old annotation again
    STOPPED = "stopped"  #: another client changed the template or deleted the Deployment, which is left alone


@dataclass(frozen=True, slots=True)
class SurgeStarted:
    """A Deployment rolls out instead of an eviction of its pods on the node."""

    node: InvolvedNode
    deployment: str  #: ``namespace/name``
    pods: int  #: its pods on the node


@dataclass(frozen=True, slots=True)
class SurgeEnded:
    """A roll-out has ended."""

    node: InvolvedNode
    deployment: str  #: ``namespace/name``
    result: SurgeResult


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
    returned: int = 0  #: number of replacement pods on nodes that are not spot
    surged: int = 0  #: how many of `evicted` a rolling update has moved

    @property
    def pods_moved(self) -> str:
        """How many pods were moved, and how: ``3 pods evicted, 1 moved by a rolling update``."""
        evicted = f"{count(len(self.evicted) - self.surged, 'pod')} evicted"
        return f"{evicted}, {self.surged} moved by rolling updates" if self.surged else evicted


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
    outcomes: Mapping[str, int]  #: pods by :class:`rescheduler.planning.outcome.LandingOutcome`
    returned: int  #: pods that returned to nodes that are not spot


# Events of orders of spot room, as values.


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


# :mod:`rescheduler.observe.events` defines the events of the process and of its rounds,
# :mod:`rescheduler.observe.events` those of single nodes. All events can be imported from here.

#: Events of the process, of rounds and of single nodes.
ProcessEvent: TypeAlias = Started | LeadershipChanged | PauseChanged | WatchAges | SavingsCounted
RoundEvent: TypeAlias = (
    ProcessEvent
    | HistoryEvent
    | Observed
    | OwedChanged
    | PlaceholdersObserved
    | Held
    | Planned
    | Chosen
    | Trouble
    | RoundEnded
)
NodeEvent: TypeAlias = (
    DrainStarted
    | Tainted
    | SurgeStarted
    | SurgeEnded
    | EvictionAnswered
    | MachineOrdered
    | OrderWithheld
    | MachineAnswered
    | DrainEnded
    | MachineGone
    | RemovalPostponed
    | Compared
    | CoolingDown
    | Swept
    | RoomOrdered
    | RoomEnded
)
#: Events that only the status page and the log show.
PageEvent: TypeAlias = Surveyed | Overviewed | DrainProgressed | DrainWaits
Event: TypeAlias = RoundEvent | NodeEvent | PageEvent
Report: TypeAlias = Callable[[Event], None]


def tee(*listeners: Report) -> Report:
    """Return a listener that passes every event to all *listeners*, in order."""

    def report(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return report
