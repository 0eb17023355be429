"""The interfaces that a drain uses, and the result of an action."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from predicates.objects import Node, OwnerReference, Pod
from rescheduler.clock import Clock
from rescheduler.draining.actions import (
    AskSurge,
    DeletePlaceholder,
    FollowSurge,
    LookAgain,
    Mark,
    ReadSurge,
    RequestAction,
    RevertSurge,
    WrittenMark,
)
from rescheduler.draining.events import (
    DrainEvent,
    EvictionOutcome,
    NotDone,
    Outcome,
    RequestOutcome,
    RequestSeen,
)
from rescheduler.draining.state import Drain
from rescheduler.errors import (
    Conflict,
    Forbidden,
    MarkLost,
    NotFound,
    NotLeading,
    ReschedulerError,
    is_transient,
)
from rescheduler.kube.client import Client
from rescheduler.kube.cluster import NodeEdit
from rescheduler.kube.deployments import Deployments
from rescheduler.kube.recorder import COMPONENT, Recorder, Subject
from rescheduler.observe import events
from rescheduler.observe.events import InvolvedLease, InvolvedNode
from rescheduler.observe.kube_events import RecordEvent
from rescheduler.planning.controllers import Controller, ControllerReading
from rescheduler.planning.debts import Debt
from rescheduler.planning.last_look import Fresh, NodeLease, PreemptedPod
from rescheduler.planning.outcome import PodRef
from rescheduler.providers.base import CloudProvider

#: Timeout in seconds for a request to the provider. A request that times out is sent again.
PROVIDER_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class StepReading:
    """What a step relies on, as read from the API server right before it."""

    fresh: Fresh
    controllers: ControllerReading
    ending: Mapping[tuple[str, str], str]  #: see :meth:`Controllers.ending`


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of an action: the event for the state machine, and the events to report."""

    event: DrainEvent | Fresh | ControllerReading | StepReading | None
    reports: tuple[events.Event, ...] = ()  #: for logs, metrics, the status page and Kubernetes Events


def not_done(action: RequestAction, error: ReschedulerError) -> NotDone[Any]:
    """Return the outcome of an *action* that *error* ended. Raises NotLeading: nothing more may be sent."""
    if isinstance(error, NotLeading):
        raise error
    kind = Mark if isinstance(action, WrittenMark) else type(action)
    uid = action.uid if isinstance(action, DeletePlaceholder) else ""
    return NotDone(kind, str(error), _outcome(action, error), uid)


def _outcome(action: RequestAction, error: ReschedulerError) -> Outcome:
    match action, error:
        case _, MarkLost():
            return Outcome.REFUSED
        case WrittenMark() | LookAgain(), NotFound():
            return Outcome.GONE
        case RevertSurge(), Forbidden():  # the node is reopened: the roll-out may complete there, and nothing is down
            return Outcome.FAILED
        case ReadSurge() | AskSurge() | FollowSurge() | RevertSurge(), Conflict():
            return Outcome.UNKNOWN
        case _:
            return Outcome.UNKNOWN if is_transient(error) else Outcome.FAILED


class RunState(Protocol):
    """Whether this process may act. Thread-safe."""

    @property
    def leading(self) -> bool: ...

    @property
    def stopping(self) -> bool:
        """Whether the process was told to stop. A drain in progress is then rolled back."""
        ...

    @property
    def paused(self) -> str:
        """Why a user paused drains, or "". A drain in progress is then rolled back before its machine is removed."""
        ...

    def beat(self) -> None:
        """Report that the loop is alive, for the liveness probe."""
        ...


class DebtRecorder(Protocol):
    """Stores the debts of a drain so that they survive this process and the Node."""

    def store(self, drain: Drain, *, end: bool) -> bool:
        """Store the expected debts of *drain*, or, at its *end*, what it did and owes. Return whether it is stored."""
        ...


class ClusterApi(Protocol):
    """The methods of :class:`rescheduler.kube.cluster.KubeCluster` that a drain calls; see there."""

    def edit_node(self, name: str, uid: str, edit: NodeEdit) -> None: ...

    def delete_node(self, name: str, uid: str) -> None: ...

    def node(self, name: str) -> Node: ...

    def nodes(self) -> list[Node]: ...

    def pods(self, node: str, owners: Collection[tuple[str, str]]) -> list[Pod]: ...

    def node_leases(self, names: Collection[str]) -> Mapping[str, NodeLease]: ...

    def preempted(self) -> list[PreemptedPod]: ...

    def read_fresh(
        self, node: str, targets: Collection[str], namespaces: Collection[str], *, target_pods: bool = True
    ) -> Fresh: ...

    def evict(
        self, namespace: str, name: str, uid: str, grace_seconds: int | None = None, *, dry_run: bool = False
    ) -> EvictionOutcome: ...


class PlaceholderApi(Protocol):
    """The methods of :class:`rescheduler.kube.cluster.PlaceholderPods`; see there."""

    def create(self, manifest: dict[str, Any]) -> None: ...

    def delete(self, placeholder: PodRef) -> None: ...


class EvictionRequestApi(Protocol):
    """The methods of :class:`rescheduler.kube.eviction_requests.EvictionRequests`; see there."""

    def create(self, pod: PodRef, *, dry_run: bool = False) -> RequestOutcome: ...

    def follow(self, pod: PodRef) -> RequestSeen: ...

    def withdraw(self, pod: PodRef) -> None: ...

    def withdraw_all(self) -> None: ...


class NodeConditionApi(Protocol):
    """The methods of :class:`rescheduler.kube.cluster.NodeConditions`; see there."""

    def set(self, name: str, uid: str, now: datetime) -> None: ...

    def remove(self, name: str, uid: str) -> None: ...


class Controllers(Protocol):
    """Reads controllers; see :class:`rescheduler.kube.controllers.ControllerReader`."""

    def read(
        self,
        owners: Collection[tuple[str, OwnerReference]],
        controllers: Collection[Controller] = (),
        siblings: Collection[tuple[str, OwnerReference]] = (),
        *,
        read_refusals: bool = False,
    ) -> ControllerReading:
        """Return the states of *controllers* and of the topmost controllers of *owners*.

        *siblings* are owners of other pods; ReplicaSets among them may belong to the same controllers. With
        *read_refusals*, also read why pods cannot be created or do not run. Raises ReschedulerError, and Forbidden if
        a permission is missing.
        """
        ...

    def recall(self, debts: Iterable[Debt]) -> None:
        """Learn from *debts*, which may be those of another process, what is above their controllers."""
        ...

    def ending(self, owners: Collection[tuple[str, OwnerReference]]) -> Mapping[tuple[str, str], str]:
        """Return the *owners* that do not replace their pods, and why, by namespace and UID.

        Each is read itself, not only the topmost controller above it. Raises the errors of :meth:`read`.
        """
        ...


@dataclass(frozen=True, slots=True)
class DrainContext:
    """The dependencies and settings that all drains share."""

    cluster: ClusterApi
    provider: CloudProvider
    clock: Clock
    holder: str  #: the name of this process in node annotations
    controllers: Controllers
    identity: str = ""  #: the installation, as namespace and Lease; "" for a proxy
    #: How long the node annotation is valid. The process renews it before it expires.
    mark_validity: timedelta | None = timedelta(minutes=3)
    leads: Callable[[], bool] = lambda: True  #: whether this replica leads; called right before a machine is removed
    provider_seconds: float = PROVIDER_SECONDS  #: timeout for a request to the provider
    placeholders: PlaceholderApi | None = None  #: None for a proxy, which has none of its own; so are the next three
    requests: EvictionRequestApi | None = None
    rollouts: Deployments | None = None
    conditions: NodeConditionApi | None = None
    report_conditions: bool = (
        False  #: whether drained nodes get a condition; conditions that are left are removed anyway
    )


# Threads for requests, so that the loop does not block.

#: Maximum number of concurrent eviction requests.
EVICTIONS: Final = 16


@dataclass(frozen=True, slots=True)
class Threads:
    """The executors for requests."""

    evictions: Executor
    others: Executor  #: one thread, for all other requests


@contextlib.contextmanager
def running(clock: Clock) -> Iterator[Threads]:
    """Run the threads within the block. At its end, queued requests are dropped.

    Requests in progress are completed: the Lease must not be released while a write may still be in flight.
    """
    evictions, others = clock.executor("evict", EVICTIONS), clock.executor("write", 1)
    try:
        yield Threads(evictions, others)
    finally:
        for wait in (False, True):  # first drop all queued requests, then wait for the requests in progress
            for pool in (others, evictions):
                pool.shutdown(wait=wait, cancel_futures=True)


@contextlib.contextmanager
def querying(clock: Clock) -> Iterator[Executor]:
    """Run a thread for queries whose results are not awaited, not even at the end of the block."""
    pool = clock.executor("query", 1)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


# Write Kubernetes Events about nodes and pods.


@contextlib.contextmanager
def recording(
    client: Client, clock: Clock, component: str = COMPONENT, new_recorder: Callable[..., Recorder] = Recorder
) -> Iterator[RecordEvent]:
    """Start a thread that writes Events as *component*. Queued Events are written when the block ends."""
    recorder = new_recorder(client, clock, component)
    recorder.start()

    def record(
        subject: InvolvedNode | InvolvedLease | PodRef, reason: str, message: str, *, warning: bool = False
    ) -> None:
        recorder.record(_subject_of(subject), reason, message, "Warning" if warning else "Normal")

    try:
        yield record
    finally:
        recorder.close()


def _subject_of(subject: InvolvedNode | InvolvedLease | PodRef) -> Subject:
    match subject:
        case PodRef(namespace=namespace, name=name, uid=uid):
            return Subject("Pod", name, uid, namespace)
        case InvolvedLease(namespace, name, uid):
            return Subject("Lease", name, uid, namespace, "coordination.k8s.io/v1")
        case InvolvedNode(name, uid):
            return Subject("Node", name, uid)
