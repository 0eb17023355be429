"""What a drain does to the cluster and to the provider: one request an action. Safe for use by many threads."""

import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol, TypeAlias

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from predicates.objects import Node
from predicates.snapshot import DRAIN_TAINT
from rescheduler import refs
from rescheduler.backends import base
from rescheduler.backends.base import CloudProvider
from rescheduler.clock import Clock
from rescheduler.draining import intent
from rescheduler.draining.intent import ANNOTATION, Intent, Step
from rescheduler.draining.messages import (
    Action,
    AskProvider,
    DeleteNode,
    Event,
    Evict,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    LookAgain,
    LookFailed,
    Mark,
    Marked,
    MarkFailed,
    NodeDeleted,
    NodeDeletionFailed,
    OrderRemoval,
    PodGone,
    ProviderAnswered,
    Release,
    Released,
    ReleaseFailed,
    RemovalFailed,
    RemovalPending,
    Removed,
)
from rescheduler.errors import NotFound, ReschedulerError, Retryable
from rescheduler.kube.cluster import PodOnNode
from rescheduler.kube.eviction import Evicted, Failed, Gone, Outcome, Refused
from rescheduler.kube.node_edit import NodeEdit
from rescheduler.observe import events
from rescheduler.observe.events import ErrorKind, EvictionResult, NodeRef, Trouble

#: A request to the provider may take so long; what takes longer is asked again.
PROVIDER_SECONDS: Final = 30.0

_READS: Final = 4


@dataclass(frozen=True, slots=True)
class Listed:
    """The pods (UIDs) that the API server has on the node, ended ones left out."""

    present: frozenset[str]


@dataclass(frozen=True, slots=True)
class Answer:
    event: Event | Listed
    told: tuple[events.Event, ...] = ()  #: for those who listen


class Cluster(Protocol):
    """The writes of :class:`rescheduler.kube.cluster.Cluster`, which says what they mean and raise."""

    def edit_node(self, name: str, uid: str, edit: NodeEdit) -> None: ...

    def delete_node(self, name: str, uid: str) -> None: ...

    def pods_on(self, node: str) -> tuple[PodOnNode, ...]: ...

    def evict(self, namespace: str, name: str, uid: str, grace_seconds: int | None = None) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class Access:
    """What all drains act with."""

    cluster: Cluster
    provider: CloudProvider
    clock: Clock
    holder: str  #: our name on nodes
    #: Within it we have ended, or written our marks anew; None where something else tells whether we live.
    promise: timedelta | None = None


class Acts:
    """The actions on one node; *rivals* are other Nodes that may be of the same machine, which is nobody's then."""

    def __init__(self, access: Access, node: Node, rivals: tuple[base.NodeRef, ...] = ()) -> None:
        self._access = access
        self._node = node
        self._rivals = rivals
        self._ref = NodeRef(node.metadata.name, node.metadata.uid)

    def perform(self, action: Action) -> Answer:  # noqa: PLR0911 - one line an action
        """Do it, and tell what came of it. Raises nothing that was to be expected."""
        match action:
            case AskProvider():
                return self._ask_provider()
            case Mark():
                return self._mark(action)
            case LookAgain():
                return self._list()
            case Evict():
                return self._evict(action)
            case OrderRemoval():
                return self._order(action)
            case DeleteNode():
                return self._delete_node()
            case Release():
                return self._release()

    def _ask_provider(self) -> Answer:
        provider, node = self._access.provider, refs.ref(self._node, rivals=self._rivals)
        try:
            provider.refresh(deadline=self._deadline())
            group = provider.group_for(node, deadline=self._deadline())
            if group is None:
                return Answer(ProviderAnswered(None))
            refused = provider.refusals(group.id, [node], deadline=self._deadline()).get(node.name)
        except ReschedulerError as error:
            return Answer(ProviderAnswered(None, f"{provider.name}: {error}"), self._trouble(error))
        twins = [one.name for one in self._rivals if one.provider_id and one.provider_id == node.provider_id]
        if twins:
            who = ", ".join(twins)
            why = f"its provider ID is that of {who} too: it cannot be told whose machine would go"
            return Answer(ProviderAnswered(group.id, why))
        if refused is not None:
            return Answer(ProviderAnswered(group.id, f"{provider.name}: {refused.reason}: {refused.detail}"))
        return Answer(ProviderAnswered(group.id))

    def _mark(self, mark: Mark) -> Answer:
        clock, holder = self._access.clock, self._access.holder
        now, promise = clock.now(), self._access.promise
        until = None if promise is None else now + promise
        written = Intent(holder, mark.step, mark.since or now, mark.pods, mark.group, until)
        edit = NodeEdit(taint=(intent.taint(holder),), annotate={ANNOTATION: written.dump()})
        try:
            self._access.cluster.edit_node(self._ref.name, self._ref.uid, edit)
        except NotFound as error:
            return Answer(MarkFailed(str(error), node_gone=True))
        except ReschedulerError as error:
            return Answer(MarkFailed(str(error)))
        return Answer(Marked(), (events.Tainted(self._ref),) if mark.step is Step.DRAINING else ())

    def _list(self) -> Answer:
        try:
            pods = self._pods()
        except ReschedulerError as error:
            return Answer(LookFailed(str(error)))
        return Answer(Listed(frozenset(one.uid for one in pods if not one.finished)))

    def _pods(self) -> tuple[PodOnNode, ...]:
        clock, never = self._access.clock, threading.Event()
        reading = Retrying(
            retry=retry_if_exception_type(Retryable),
            stop=stop_after_attempt(_READS),
            wait=wait_exponential(multiplier=0.5, max=4),
            sleep=lambda seconds: void(clock.wait(seconds, never)),
            reraise=True,
        )
        return reading(self._access.cluster.pods_on, self._ref.name)

    def _evict(self, action: Evict) -> Answer:
        pod = action.pod
        outcome = self._access.cluster.evict(pod.namespace, pod.name, pod.uid, action.grace)
        event, result, detail = _read(outcome, pod.uid)
        code = outcome.code if isinstance(outcome, Failed) else None
        return Answer(event, (events.EvictionAnswered(self._ref, pod, result, detail, code),))

    def _order(self, action: OrderRemoval) -> Answer:
        provider = self._access.provider
        node = refs.ref(self._node, rivals=self._rivals, ordered_at=action.since)
        told = events.MachineOrdered(self._ref, provider.name, action.group)
        try:
            outcomes = provider.delete_nodes(action.group, [node], deadline=self._deadline())
        except Retryable as error:  # nothing was ordered: ask again
            return Answer(RemovalPending(str(error)), self._trouble(error))
        except ReschedulerError as error:
            return Answer(RemovalFailed(f"{provider.name}: {error}"), self._trouble(error))
        outcome = outcomes[node.name]
        detail = outcome.error if isinstance(outcome, base.Failed) else outcome.detail
        answered = events.MachineAnswered(self._ref, provider.name, type(outcome).__name__.lower(), detail)
        match outcome:
            case base.Deleted() | base.AlreadyGone():
                return Answer(Removed(), (told, answered))
            case base.Accepted():
                return Answer(RemovalPending(detail), (told, answered))
            case base.Refused(reason):  # nothing was ordered
                return Answer(RemovalFailed(f"{provider.name}: {reason}: {detail}"), (answered,))
            case base.Failed():
                return Answer(RemovalFailed(f"{provider.name}: {detail}"), (told, answered))

    def _delete_node(self) -> Answer:
        try:
            self._access.cluster.delete_node(self._ref.name, self._ref.uid)
        except ReschedulerError as error:
            trouble = Trouble(ErrorKind.WRITE, str(error), self._ref.name)
            return Answer(NodeDeletionFailed(str(error)), (trouble,))
        return Answer(NodeDeleted())

    def _release(self) -> Answer:
        edit = NodeEdit(untaint=(DRAIN_TAINT.key,), annotate={ANNOTATION: None})
        try:
            self._access.cluster.edit_node(self._ref.name, self._ref.uid, edit)
        except NotFound:
            return Answer(Released())
        except ReschedulerError as error:
            trouble = Trouble(ErrorKind.WRITE, f"the taint is still on: {error}", self._ref.name)
            return Answer(ReleaseFailed(str(error)), (trouble,))
        return Answer(Released())

    def _deadline(self) -> float:
        return self._access.clock.monotonic() + PROVIDER_SECONDS

    def _trouble(self, error: ReschedulerError) -> tuple[Trouble]:
        return (Trouble(ErrorKind.PROVIDER, f"{self._access.provider.name}: {error}", self._ref.name),)


Reading: TypeAlias = tuple[Event, EvictionResult, str]


def _read(outcome: Outcome, uid: str) -> Reading:
    match outcome:
        case Evicted():
            return EvictionAccepted(uid), EvictionResult.EVICTED, ""
        case Gone():
            return PodGone(uid), EvictionResult.GONE, ""
        case Refused(_, message, retry_after):
            return EvictionRefused(uid, message, retry_after), EvictionResult.REFUSED, message
        case Failed(message, retryable, retry_after, _):
            return EvictionFailed(uid, message, retryable, retry_after), EvictionResult.FAILED, message


def void(_: object) -> None:
    """Drop a result where none is wanted."""
