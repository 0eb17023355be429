"""Events of the program, as values. Each says which log lines, metric samples and Kubernetes Events it becomes.

What depends on earlier events is in the listeners: metrics, logs, Kubernetes Events and the status page.
"""

import enum
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Self, TypeAlias

from predicates.objects import Node
from rescheduler.draining.events import EvictionResult
from rescheduler.draining.state import Failure
from rescheduler.planning.forms import age, count, utc
from rescheduler.planning.money.prices import NodeFacts
from rescheduler.planning.money.savings import Savings
from rescheduler.planning.money.worth import Worth
from rescheduler.planning.outcome import DrainKind, Placement, Plan, Planning, PodRef, Reason, Rejected
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


# What events become.

#: Log levels, with those of :mod:`logging`. A notice is logged at every verbosity.
DEBUG, DETAIL, INFO, NOTICE, WARNING = 10, 15, 20, 25, 30

RESCHEDULER: Final = "Rescheduler"
RESCHEDULER_FAILED: Final = "ReschedulerFailed"


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the log. The fields are omitted if they are empty."""

    level: int
    text: str
    node: object = ""
    pod: object = ""
    reason: object = ""


@dataclass(frozen=True, slots=True)
class MetricSample:
    """A value for a metric: the amount by which a counter grows, the value of a gauge, or one for a histogram."""

    metric: str  #: without prefix
    value: float = 1
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KubeEvent:
    """A Kubernetes Event."""

    subject: InvolvedNode | InvolvedLease | PodRef | None  #: None: the Lease of this installation
    reason: str
    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class EventTexts:
    """Texts that differ between the daemon and the proxy; `{node}` is the node's name."""

    targets: str = "to spot nodes"
    evicted: str = "evicted from on-demand node {node} to move to another node"


DAEMON_TEXTS: Final = EventTexts()


class Reportable:
    """An event. By default it becomes nothing."""

    __slots__ = ()

    def log_lines(self) -> Iterable[LogLine]:
        """Return the log lines."""
        return ()

    def samples(self) -> Iterable[MetricSample]:
        """Return the values for metrics."""
        return ()

    def kube_events(self, texts: EventTexts) -> Iterable[KubeEvent]:  # noqa: ARG002 - for events that have such texts
        """Return the Kubernetes Events, with the *texts* of this process."""
        return ()


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
class Started(Reportable):
    """The program has started."""

    version: str
    holder: str  #: our identity in node annotations and in the Lease
    address: str  #: address of the metrics and the status page
    dry_run: bool

    def log_lines(self) -> Iterable[LogLine]:
        dry = ", dry run" if self.dry_run else ""
        text = f"spot-rescheduler {self.version} starts as {self.holder}{dry}, serving on http://{self.address}"
        return (LogLine(NOTICE, text),)

    def samples(self) -> Iterable[MetricSample]:
        return (MetricSample("build_info", 1, (self.version, platform.python_version())),)


@dataclass(frozen=True, slots=True)
class LeadershipChanged(Reportable):
    """The replica became the leader, or is no longer the leader."""

    leading: bool

    def log_lines(self) -> Iterable[LogLine]:
        text = "this replica is the leader" if self.leading else "this replica is not the leader: waiting"
        return (LogLine(NOTICE, text),)

    def samples(self) -> Iterable[MetricSample]:
        return (MetricSample("leader", self.leading),)


@dataclass(frozen=True, slots=True)
class PauseChanged(Reportable):
    """A user started, changed or ended a pause of drains (an annotation of the Lease), or the pause has expired."""

    lease: InvolvedLease
    paused: str  #: a message; "" if drains are no longer paused

    def log_lines(self) -> Iterable[LogLine]:
        text = self.paused or "drains are no longer paused"
        return (LogLine(NOTICE, text, reason="paused" if self.paused else ""),)

    def kube_events(self, _: EventTexts) -> Iterable[KubeEvent]:
        reason = "DrainsPaused" if self.paused else "DrainsResumed"
        return (KubeEvent(self.lease, reason, self.paused or "drains are no longer paused"),)


@dataclass(frozen=True, slots=True)
class WatchAges(Reportable):
    """The time since each watch last received data."""

    seconds: Mapping[str, float]  #: by kind: seconds since an event, a bookmark or a list


@dataclass(frozen=True, slots=True)
class Observed(Reportable):
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
class Held(Reportable):
    """No node is drained in this round."""

    waiting: Waiting
    detail: str
    leader: str = ""  #: the leader, if it is known to be another replica


@dataclass(frozen=True, slots=True)
class Planned(Reportable):
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
class Surveyed(Reportable):
    """A replica that is not the leader has planned all nodes, only for its status page."""

    planned: Planned


@dataclass(frozen=True, slots=True)
class Overviewed(Reportable):
    """All drains were planned in sequence, as ``rescheduler plan`` does, only for the status page."""

    at: datetime
    overview: Overview


@dataclass(frozen=True, slots=True)
class Chosen(Reportable):
    """A cloudpool proxy selected nodes to remove: the selected nodes, and why others were rejected."""

    plans: tuple[Plan, ...]
    rejected: tuple[Rejected, ...]
    nodes: Mapping[str, InvolvedNode]  #: the nodes of the verdicts


@dataclass(frozen=True, slots=True)
class OwedChanged(Reportable):
    """The number of replacement pods owed by earlier drains has changed."""

    pods: int

    def samples(self) -> Iterable[MetricSample]:
        return (MetricSample("owed_replacements", self.pods),)


@dataclass(frozen=True, slots=True)
class OwnerSetAside(Reportable):
    """The pods of an owner did not run in time after a drain: for a while, they are not moved."""

    name: str  #: ``namespace/Kind/name``, or a namespace after several of its owners
    until: datetime
    failures: int  #: consecutive

    def log_lines(self) -> Iterable[LogLine]:
        times = "" if self.failures == 1 else f" {self.failures} times in a row"
        text = f"pods of {self.name} did not run in time after a drain{times}; they are not moved before "
        return (LogLine(WARNING, f"{text}{utc(self.until)}", reason=Reason.NOT_RECOVERED),)


@dataclass(frozen=True, slots=True)
class DebtEnded(Reportable):
    """A debt ended although nothing shows that its pods run: nothing tells how many pods its owner wants."""

    controller: str  #: ``namespace/Kind/name``
    node: str  #: the drained node
    pods: int  #: number of missing pods
    unreadable: str  #: why the owner cannot be read, or ""

    def log_lines(self) -> Iterable[LogLine]:
        return (LogLine(WARNING, self.text),)

    def samples(self) -> Iterable[MetricSample]:
        return (MetricSample("owed_replacements_given_up", self.pods),)

    def kube_events(self, _: EventTexts) -> Iterable[KubeEvent]:
        return (KubeEvent(None, "DebtEnded", self.text, warning=True),)

    @property
    def text(self) -> str:
        why = self.unreadable or "nothing tells how many pods it wants"
        pods = count(self.pods, "replacement pod")
        return f"{self.controller} still lacks {pods} since the drain of {self.node}, which is given up: {why}"


@dataclass(frozen=True, slots=True)
class MemoryDropped(Reportable):
    """Entries were dropped from the stored memory because of its limits."""

    entries: Mapping[str, int]  #: by kind
    detail: str  #: which limit, and the namespaces

    def log_lines(self) -> Iterable[LogLine]:
        return (LogLine(WARNING, f"the memory dropped entries: {self.detail}"),)

    def samples(self) -> Iterable[MetricSample]:
        return (MetricSample("memory_entries_dropped", dropped, (kind,)) for kind, dropped in self.entries.items())

    def kube_events(self, _: EventTexts) -> Iterable[KubeEvent]:
        return (KubeEvent(None, "MemoryDropped", f"the memory dropped entries: {self.detail}", warning=True),)


@dataclass(frozen=True, slots=True)
class Trouble(Reportable):
    """An error outside of drains; the operation is retried in the next round."""

    kind: ErrorKind
    detail: str
    node: str = ""

    def samples(self) -> Iterable[MetricSample]:
        return (MetricSample("errors", 1, (self.kind,)),)


@dataclass(frozen=True, slots=True)
class SavingsCounted(Reportable):
    """The ledger of savings at the start of a round."""

    total: Savings  #: of all drains in the ledger, up to now


@dataclass(frozen=True, slots=True)
class RoundEnded(Reportable):
    """A round has ended."""

    at: datetime
    seconds: float
    succeeded: bool

    def log_lines(self) -> Iterable[LogLine]:
        return (LogLine(DEBUG, f"round {'ended' if self.succeeded else 'aborted'} after {self.seconds:.3f} s"),)

    def samples(self) -> Iterable[MetricSample]:
        yield MetricSample("loop_duration_seconds", self.seconds)
        yield MetricSample("drains_in_progress", 0)  # also if an error aborted a drain
        if self.succeeded:
            yield MetricSample("last_success_timestamp_seconds", self.at.timestamp())


# Events of single nodes: their drains, their machines, and the marks of earlier drains.


@dataclass(frozen=True, slots=True)
class DrainStarted(Reportable):
    """A drain was started or resumed."""

    node: InvolvedNode
    plan: Plan | None  #: None for a drain that another process started and this one resumes

    def log_lines(self) -> Iterable[LogLine]:
        if self.plan is None:
            return (LogLine(NOTICE, "resuming the drain", self.node),)
        moves = ", ".join(f"{placement.pod} to {placement.node}" for placement in self.plan.placements)
        begun = "draining" if self.plan.empties else "making room for pods that must not run on spot nodes"
        text = f"{begun}; moving {count(len(self.plan.placements), 'pod')}: {moves or 'none'}"
        return (LogLine(NOTICE, text, self.node),)

    def samples(self) -> Iterable[MetricSample]:
        return (MetricSample("drains_in_progress", 1),)

    def kube_events(self, texts: EventTexts) -> Iterable[KubeEvent]:
        if self.plan is None:
            return ()
        where = ", ".join(f"{placement.pod} → {placement.node}" for placement in self.plan.placements)
        targets = f"{texts.targets} and to on-demand nodes that stay" if self.plan.leftovers else texts.targets
        text = f"moving {count(len(self.plan.placements), 'pod')} {targets}: {where}"
        if not self.plan.empties:
            text += "; the node stays, and makes room for pods that must not run on spot nodes"
        return (KubeEvent(self.node, "DrainPlanned", text),)


class PodProgress(enum.StrEnum):
    """The progress of a drain for one of the pods that it moves."""

    WAITING = "waiting"  #: its eviction is not requested yet
    EVICTING = "evicting"  #: its eviction is requested, but not accepted yet
    EVICTED = "evicted"  #: its eviction was accepted; its replacement pod is not bound to a node yet
    BOUND = "bound"  #: its replacement pod is bound to a node
    READY = "ready"  #: its replacement pod is Ready
    GONE = "gone"  #: it was gone before it was evicted


@dataclass(frozen=True, slots=True)
class DrainProgressed(Reportable):
    """The progress of the running drain; reported when it changes."""

    node: InvolvedNode
    phase: str  #: the phase of the drain, in lower case
    pods: tuple[tuple[PodRef, PodProgress], ...]  #: all pods to move
    targets: Mapping[str, str] = field(default_factory=dict)  #: the node of the plan, by pod (``namespace/name``)
    since: Mapping[str, datetime] = field(default_factory=dict)  #: when each pod got its state, by pod


#: What a drain waits for, by the state of a pod.
_WAITS_FOR: Final = {
    PodProgress.EVICTING: "its eviction",
    PodProgress.EVICTED: "its replacement to be bound to a node",
    PodProgress.BOUND: "its replacement to be Ready",
}


@dataclass(frozen=True, slots=True)
class DrainWaits(Reportable):
    """A drain still waits for pods; reported every half a minute while it does."""

    at: datetime
    progress: DrainProgressed

    def log_lines(self) -> Iterable[LogLine]:
        """Return one line for each pod that the drain waits for."""
        progress = self.progress
        for pod, state in progress.pods:
            if (what := _WAITS_FOR.get(state)) is not None:
                since, target = progress.since.get(str(pod)), progress.targets.get(str(pod))
                long = f" for {age(utc(since), self.at)}" if since is not None else ""
                planned = f"; planned to {target}" if target else ""
                yield LogLine(INFO, f"waiting{long} for {what}{planned}", progress.node, pod)


@dataclass(frozen=True, slots=True)
class Tainted(Reportable):
    """The node was tainted and accepts no more pods."""

    node: InvolvedNode

    def log_lines(self) -> Iterable[LogLine]:
        return (LogLine(INFO, "tainted: it accepts no more pods", self.node),)

    def kube_events(self, _: EventTexts) -> Iterable[KubeEvent]:
        return (KubeEvent(self.node, RESCHEDULER, "marked the node as draining: it accepts no more pods"),)


class SurgeResult(enum.StrEnum):
    """How a roll-out ended; also a metric label."""

    DONE = "done"
    ROLLED_BACK = "rolled-back"  #: the template has its old annotation again
    STOPPED = "stopped"  #: another client changed the template or deleted the Deployment, which is left alone


@dataclass(frozen=True, slots=True)
class SurgeStarted(Reportable):
    """A Deployment rolls out instead of an eviction of its pods on the node."""

    node: InvolvedNode
    deployment: str  #: ``namespace/name``
    pods: int  #: its pods on the node

    def log_lines(self) -> Iterable[LogLine]:
        text = f"rolling out Deployment {self.deployment} to move {count(self.pods, 'pod')}"
        return (LogLine(NOTICE, text, self.node),)

    def kube_events(self, _: EventTexts) -> Iterable[KubeEvent]:
        text = f"rolling out Deployment {self.deployment} to move {count(self.pods, 'pod')}"
        return (KubeEvent(self.node, "SurgeStarted", text),)


@dataclass(frozen=True, slots=True)
class SurgeEnded(Reportable):
    """A roll-out has ended."""

    node: InvolvedNode
    deployment: str  #: ``namespace/name``
    result: SurgeResult

    def log_lines(self) -> Iterable[LogLine]:
        level = NOTICE if self.result is SurgeResult.DONE else WARNING
        text = f"the roll-out of Deployment {self.deployment} has ended: {self.result}"
        return (LogLine(level, text, self.node, reason=self.result),)

    def samples(self) -> Iterable[MetricSample]:
        return (MetricSample("surges", 1, (self.result,)),)

    def kube_events(self, _: EventTexts) -> Iterable[KubeEvent]:
        what, warning = f"Deployment {self.deployment}", self.result is not SurgeResult.DONE
        reason, text = {
            SurgeResult.DONE: ("SurgeDone", f"{what} has rolled out: its pods run elsewhere"),
            SurgeResult.ROLLED_BACK: ("SurgeRolledBack", f"{what} has its former template again"),
            SurgeResult.STOPPED: ("SurgeStopped", f"another client changed {what}: it is left alone"),
        }[self.result]
        return (KubeEvent(self.node, reason, text, warning),)


#: The HTTP status of an eviction request, by its result.
CODES: Final = {
    EvictionResult.EVICTED: "201",
    EvictionResult.GONE: "404",
    EvictionResult.REFUSED: "429",
    EvictionResult.REQUESTED: "201",
}


@dataclass(frozen=True, slots=True)
class EvictionAnswered(Reportable):
    """The result of an eviction request."""

    node: InvolvedNode
    pod: PodRef
    result: EvictionResult
    detail: str = ""
    code: int | None = None  #: HTTP status of a failure; None if there was no response

    @property
    def labels(self) -> tuple[str, str]:
        """The labels ``result`` and ``code`` of the metric. A failed request has its own status, or none."""
        return self.result, CODES.get(self.result) or str(self.code or "")

    def log_lines(self) -> Iterable[LogLine]:
        level = WARNING if self.result is EvictionResult.FAILED else DETAIL
        detail = f": {self.detail}" if self.detail else ""
        return (LogLine(level, f"eviction {self.result}{detail}", self.node, self.pod, self.result),)

    def samples(self) -> Iterable[MetricSample]:
        evicted = self.result is EvictionResult.EVICTED
        return MetricSample("evictions", 1, self.labels), MetricSample("evicted_pods", evicted)

    def kube_events(self, texts: EventTexts) -> Iterable[KubeEvent]:
        if self.result is EvictionResult.EVICTED:
            yield KubeEvent(self.pod, RESCHEDULER, texts.evicted.format(node=self.node))
        elif self.result is EvictionResult.FAILED:  # others are retried, or the pod is gone or not evicted yet
            yield KubeEvent(self.pod, RESCHEDULER_FAILED, f"not evicted: {self.detail}", warning=True)


@dataclass(frozen=True, slots=True)
class OrderWithheld(Reportable):
    """The machine of an empty node was not ordered away, because it may not end now."""

    node: InvolvedNode
    why: str

    def log_lines(self) -> Iterable[LogLine]:
        return (LogLine(WARNING, f"the termination of the machine was not requested: {self.why}", self.node),)

    def kube_events(self, _: EventTexts) -> Iterable[KubeEvent]:
        return (KubeEvent(self.node, "MachineKept", f"the machine was not ordered away: {self.why}", warning=True),)


@dataclass(frozen=True, slots=True)
class MachineOrdered(Reportable):
    """Termination of the empty node's machine was requested."""

    node: InvolvedNode
    provider: str
    group: str

    def log_lines(self) -> Iterable[LogLine]:
        return (LogLine(NOTICE, f"empty: {self._text}", self.node),)

    def kube_events(self, _: EventTexts) -> Iterable[KubeEvent]:
        return (KubeEvent(self.node, "MachineRemovalOrdered", self._text),)

    @property
    def _text(self) -> str:
        return f"requested termination of the machine in group {self.group} from {self.provider}"


@dataclass(frozen=True, slots=True)
class MachineAnswered(Reportable):
    """The provider's response to a termination request."""

    node: InvolvedNode
    provider: str
    outcome: str  #: a metric label: deleted, alreadygone, accepted, refused, failed
    detail: str

    def log_lines(self) -> Iterable[LogLine]:
        detail = f": {self.detail}" if self.detail else ""
        return (LogLine(NOTICE, f"{self.provider}: {self.outcome}{detail}", self.node),)

    def samples(self) -> Iterable[MetricSample]:
        return (MetricSample("node_removals", 1, (self.provider, self.outcome)),)


@dataclass(frozen=True, slots=True)
class DrainEnded(Reportable):
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
    kind: DrainKind = DrainKind.TO_SPOT

    @property
    def pods_moved(self) -> str:
        """How many pods were moved, and how: ``3 pods evicted, 1 moved by a rolling update``."""
        evicted = f"{count(len(self.evicted) - self.surged, 'pod')} evicted"
        return f"{evicted}, {self.surged} moved by rolling updates" if self.surged else evicted

    def log_lines(self) -> Iterable[LogLine]:
        after, moved = f"after {self.seconds:.1f} s", self._moved
        if self.failure is not None:
            taint = "the taint is still set" if self.tainted else "the taint was removed"
            text = f"drain failed {after}, {taint}: {self.failure.detail}"
            pod = self.failure.pods[0] if self.failure.pods else ""
            yield LogLine(WARNING, text, self.node, pod, self.failure.why)
        elif self.handed_over:
            yield LogLine(NOTICE, f"drained {after}; machine termination requested, not yet confirmed", self.node)
        elif self.unshrunk:
            text = f"drained {after}, {moved}; a new machine will replace it: {self.unshrunk}"
            yield LogLine(WARNING, text, self.node)
        else:
            gone = "its machine is terminating or gone, and the Node was deleted"
            end = self.removed_by or (gone if self.removed else "it accepts pods again")
            done = "made room" if self.kind is DrainKind.MAKES_ROOM else "drained"
            yield LogLine(WARNING if self.returned else NOTICE, f"{done} {after}, {moved}; {end}", self.node)

    @property
    def _moved(self) -> str:
        pods, returned = len(self.evicted), self.returned
        if not returned:
            return f"moved {count(pods, 'pod')}"
        stay = f"moved {count(pods - returned, 'pod')}, but " if returned < pods else ""
        return f"{stay}{returned} of {count(pods, 'pod')} returned to nodes that are not spot (see --manage-soft-taint)"

    def samples(self) -> Iterable[MetricSample]:
        yield MetricSample("drains_in_progress", 0)
        yield MetricSample("drain_duration_seconds", self.seconds)
        if self.landing_seconds is not None:
            yield MetricSample("landing_duration_seconds", self.landing_seconds)
        yield MetricSample("drains", 1, ("failure" if self.failure else "success",))
        if self.failure is not None:
            yield MetricSample("drain_failures", 1, (self.failure.why,))

    def kube_events(self, _: EventTexts) -> Iterable[KubeEvent]:
        if (failure := self.failure) is None:
            yield from self._succeeded()
            return
        yield KubeEvent(self.node, "DrainFailed", f"{failure.why}: {failure.detail}", warning=True)
        yield KubeEvent(self.node, RESCHEDULER_FAILED, f"failed to drain the node: {failure.why}", warning=True)
        for pod in failure.pods:
            yield KubeEvent(pod, RESCHEDULER_FAILED, f"still on {self.node}: {failure.why}", warning=True)

    def _succeeded(self) -> Iterator[KubeEvent]:
        gone = "its machine is terminated" if self.removed or self.handed_over else self.removed_by
        gone = f"a new machine will replace it: {self.unshrunk}" if self.unshrunk else gone
        back = f", {self.returned} of them back on nodes that are not spot" if self.returned else ""
        if self.kind is DrainKind.MAKES_ROOM:
            text = f"made room in {self.seconds:.0f} s, {self.pods_moved}{back}; the node accepts pods again"
            yield KubeEvent(self.node, "RoomMade", text)
            return
        text = f"drained in {self.seconds:.0f} s, {self.pods_moved}{back}{gone and f'; {gone}'}"
        yield KubeEvent(self.node, "NodeDrained", text)
        state = "its pods are evicted, another tool is removing it" if self.removed_by else "its pods run elsewhere"
        yield KubeEvent(self.node, RESCHEDULER, f"drained the node: {state}")


@dataclass(frozen=True, slots=True)
class MachineGone(Reportable):
    """A machine whose termination an earlier drain requested is terminating or gone, and its Node was deleted."""

    node: InvolvedNode

    def log_lines(self) -> Iterable[LogLine]:
        return (LogLine(NOTICE, "the machine is terminating or gone, and the Node was deleted", self.node),)

    def kube_events(self, _: EventTexts) -> Iterable[KubeEvent]:
        text = "the machine is terminating or gone, and the Node was deleted"
        return (KubeEvent(self.node, "MachineRemoved", text),)


@dataclass(frozen=True, slots=True)
class RemovalPostponed(Reportable):
    """A termination that may have been requested before is not requested again for now."""

    node: InvolvedNode
    failure: Failure  #: the reason

    def log_lines(self) -> Iterable[LogLine]:
        return (LogLine(WARNING, self._text, self.node, reason=self.failure.why),)

    def kube_events(self, _: EventTexts) -> Iterable[KubeEvent]:
        return (KubeEvent(self.node, "MachineRemovalPostponed", self._text, warning=True),)

    @property
    def _text(self) -> str:
        text = "machine termination may have been requested before; not requested again for now"
        return f"{text}: {self.failure.detail}"


@dataclass(frozen=True, slots=True)
class CoolingDown(Reportable):
    """The node's drain failed *failures* times in a row; it is not drained for a while."""

    node: InvolvedNode
    until: datetime
    failures: int

    def log_lines(self) -> Iterable[LogLine]:
        return (LogLine(NOTICE, self._text, self.node, reason="cooling-down"),)

    def kube_events(self, _: EventTexts) -> Iterable[KubeEvent]:
        return (KubeEvent(self.node, "DrainCoolDown", self._text),)

    @property
    def _text(self) -> str:
        return f"no new attempt before {utc(self.until)} after {self.failures} consecutive failed drains"


class Sweep(enum.StrEnum):
    """How the marks of an earlier drain on a node were handled."""

    RESUMED = "resumed"
    ROLLED_BACK = "rolled-back"


@dataclass(frozen=True, slots=True)
class Swept(Reportable):
    """Marks of an earlier drain were found on a node and handled."""

    node: InvolvedNode
    holder: str  #: identity of the process that set the marks; "" if it cannot be read
    done: Sweep

    def log_lines(self) -> Iterable[LogLine]:
        text = f"found marks of a drain by {self.holder or 'an unknown holder'}: {self.done}"
        return (LogLine(NOTICE, text, self.node, reason=self.done),)

    def kube_events(self, _: EventTexts) -> Iterable[KubeEvent]:
        text = f"a drain by {self.holder or 'an unknown holder'} was {self.done}"
        return (KubeEvent(self.node, "DrainSwept", text),)


@dataclass(frozen=True, slots=True)
class Compared(Reportable):
    """The replacement pods of a drained node, compared with the forecast."""

    node: str
    outcomes: Mapping[str, int]  #: pods by :class:`rescheduler.planning.outcome.LandingOutcome`
    returned: int  #: pods that returned to nodes that are not spot

    def log_lines(self) -> Iterable[LogLine]:
        counts = ", ".join(f"{pods} {outcome}" for outcome, pods in sorted(self.outcomes.items()) if pods)
        return (LogLine(INFO, f"replacement pods compared with the forecast: {counts}", self.node),)

    def samples(self) -> Iterable[MetricSample]:
        for outcome, pods in self.outcomes.items():
            yield MetricSample("placement_predictions", pods, (outcome,))
        yield MetricSample("returned_pods", self.returned)


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
class RoomOrdered(Reportable):
    """Placeholders were created for the pods of a node, or spot nodes were requested from the provider."""

    node: InvolvedNode
    pods: int
    nodes: int  #: expected spot nodes
    template: str  #: the node that they are expected to resemble
    worth: str  #: the resources or the money that the order frees and adds
    until: datetime  #: when placeholders that do not run are removed, or nodes that are not Ready given back
    group: str = ""  #: of the provider; "" for placeholders

    def log_lines(self) -> Iterable[LogLine]:
        added = f"{count(self.nodes, 'new spot node')} like {self.template}"
        text = f"created placeholders for {count(self.pods, 'pod')}: expecting {added}"
        if self.group:
            text = f"requested {added} in group {self.group} from the provider for {count(self.pods, 'pod')}"
        end = "nodes that are not Ready" if self.group else "placeholders that are not running"
        action = "given back" if self.group else "removed"
        text = f"{text}; the order {self.worth}; {end} by {utc(self.until)} are {action}"
        return (LogLine(NOTICE, text, self.node),)

    def kube_events(self, _: EventTexts) -> Iterable[KubeEvent]:
        added = f"{count(self.nodes, 'new spot node')} like {self.template}"
        text = f"created {count(self.pods, 'placeholder')}: expecting {added}"
        if self.group:
            added = count(self.nodes, "spot node")
            text = f"requested {added} in group {self.group} from the provider for {count(self.pods, 'pod')}"
        return (KubeEvent(self.node, "SpotRoomOrdered", f"{text} by {utc(self.until)}"),)


@dataclass(frozen=True, slots=True)
class RoomEnded(Reportable):
    """An order of spot room has ended; its placeholders are being deleted."""

    node: InvolvedNode
    ending: RoomEnding
    detail: str

    def log_lines(self) -> Iterable[LogLine]:
        level = NOTICE if self._expected else WARNING
        text = f"the order of spot room has ended{self.detail and f': {self.detail}'}"
        return (LogLine(level, text, self.node, reason=self.ending),)

    def samples(self) -> Iterable[MetricSample]:
        return (MetricSample("room_orders", 1, (self.ending,)),)

    def kube_events(self, _: EventTexts) -> Iterable[KubeEvent]:
        if self.ending is RoomEnding.TIMED_OUT:
            text = f"no room was made in time: {self.detail}"
            return (KubeEvent(self.node, "NoSpotCapacity", text, warning=True),)
        text = f"{self.ending}{self.detail and f': {self.detail}'}"
        return (KubeEvent(self.node, "SpotRoomEnded", text, warning=not self._expected),)

    @property
    def _expected(self) -> bool:
        return self.ending in (RoomEnding.FILLED, RoomEnding.WITHDRAWN)


@dataclass(frozen=True, slots=True)
class PlaceholdersObserved(Reportable):
    """The number of placeholders at the start of a round."""

    running: int
    pending: int

    def samples(self) -> Iterable[MetricSample]:
        yield MetricSample("placeholders", self.running, ("running",))
        yield MetricSample("placeholders", self.pending, ("pending",))


Event: TypeAlias = Reportable
Report: TypeAlias = Callable[[Event], None]


def tee(*listeners: Report) -> Report:
    """Return a listener that passes every event to all *listeners*, in order."""

    def report(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return report
