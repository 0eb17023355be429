"""Events of the process and of its rounds."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from rescheduler.observe.involved import InvolvedLease, InvolvedNode
from rescheduler.planning.money.prices import NodeFacts
from rescheduler.planning.money.savings import Savings
from rescheduler.planning.outcome import Plan, Planning, Rejected
from rescheduler.planning.units import count


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


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A replica that is not the leader has planned all nodes, only for its status page."""

    planned: Planned


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
