"""What a drain does to the cluster and to the provider: one action after the other. Safe for use by many threads."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final, TypeAlias

from predicates.objects import Node, OwnerReference
from predicates.snapshot import DRAIN_TAINT
from rescheduler.access import Access, Answer
from rescheduler.backends import base
from rescheduler.draining import intent
from rescheduler.draining.intent import ANNOTATION, Intent, Step
from rescheduler.draining.messages import (
    Action,
    AskProvider,
    ControllersUnread,
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
    PlanAgain,
    PodGone,
    ReadControllers,
    Release,
    Released,
    ReleaseFailed,
    Renew,
    TryEviction,
)
from rescheduler.errors import MarkLost, NotFound, NotLeading, ReschedulerError, Retryable, Unauthorized
from rescheduler.kube.eviction import Evicted, Failed, Gone, Outcome, Refused
from rescheduler.kube.node_edit import NodeEdit
from rescheduler.observe import events
from rescheduler.observe.events import ErrorKind, EvictionResult, NodeRef, Trouble
from rescheduler.orders import MachineOrders

#: The same request may succeed later. A token that was just renewed is refused, or a role that was just bound.
_TRANSIENT: Final = (Retryable, Unauthorized)


class Acts:
    """The actions on one node; *rivals* are other Nodes that may be of the same machine, which is nobody's then."""

    def __init__(self, access: Access, node: Node, rivals: tuple[base.NodeRef, ...] = ()) -> None:
        self._access = access
        self._orders = MachineOrders(access, node, rivals)
        self._ref = NodeRef(node.metadata.name, node.metadata.uid)
        self._before = node.metadata.annotations.get(ANNOTATION)  # what our first mark may replace
        self._marked = False  # our mark was written; from then on only ours may be edited
        self._step: Step | None = None  # of our mark, as far as it is known to be written
        self._steps: frozenset[Step | None] = frozenset()  # of our mark: a write that failed may have got through
        self._since: dict[Step, datetime] = {}  # when each step was begun

    def perform(
        self,
        action: Action,
        namespaces: Collection[str] = (),
        siblings: Collection[tuple[str, OwnerReference]] = (),
    ) -> Answer:
        """Perform *action*, and return what came of it.

        *namespaces* of the pods that are to move, for budgets; *siblings*: controllers of other pods. Raises
        NotLeading where nothing may be written any more, and errors of this program.
        """
        match action:
            case ReadControllers():
                return self._read_controllers(action, siblings)
            case LookAgain():
                return self._look(action, namespaces)
            case TryEviction() | Evict():
                return self._evict(action)
            case PlanAgain():
                raise TypeError("plans are made where the snapshot is")
            case _:
                return self._other(action)

    def _other(self, action: AskProvider | Mark | Renew | OrderRemoval | DeleteNode | Release) -> Answer:
        match action:
            case AskProvider():
                return self._orders.ask()
            case Mark() | Renew():
                return self._mark(action)
            case OrderRemoval():
                return self._orders.order(action, self._not_ours)
            case DeleteNode():
                return self._delete_node()
            case Release():
                return self._release()

    def _mark(self, mark: Mark | Renew) -> Answer:
        clock, access = self._access.clock, self._access
        now = clock.now()
        until = None if access.promise is None else now + access.promise
        since = mark.since or self._since.setdefault(mark.step, now)
        written = Intent(access.holder, mark.step, since, mark.pods, mark.group, until, access.identity, mark.debts)
        taint = intent.taint(access.holder)
        edit = NodeEdit(taint=(taint,), annotate={ANNOTATION: written.dump()}, only_if=self._not_ours)
        self._steps = frozenset({self._step, mark.step})
        try:
            access.cluster.edit_node(self._ref.name, self._ref.uid, edit)
        except NotLeading:
            raise
        except NotFound as error:
            return Answer(MarkFailed(str(error), node_gone=True))
        except ReschedulerError as error:
            lost, retryable = isinstance(error, MarkLost), isinstance(error, _TRANSIENT)
            return Answer(MarkFailed(str(error), lost=lost, retryable=retryable))
        self._step, self._steps = mark.step, frozenset({mark.step})
        if isinstance(mark, Renew):
            return Answer(None)
        first, self._marked = not self._marked, True
        return Answer(Marked(), (events.Tainted(self._ref),) if first and mark.step is Step.DRAINING else ())

    def _not_ours(self, annotations: Mapping[str, str]) -> str:
        """Why our mark may not be written: somebody else's is there, or ours was removed."""
        text = annotations.get(ANNOTATION)
        if text == self._before and not self._marked:
            return ""
        written = None if text is None else intent.parse(text)
        ours = self._access.holder, self._access.identity
        if written is not None and (written.holder, written.identity) == ours and written.step in self._steps:
            return ""
        return "our annotation was removed" if text is None else "the annotation is not ours"

    def _look(self, action: LookAgain, namespaces: Collection[str]) -> Answer:
        try:
            return Answer(self._access.cluster.read_fresh(self._ref.name, action.targets, namespaces))
        except ReschedulerError as error:
            return Answer(LookFailed(str(error), retryable=isinstance(error, _TRANSIENT)))

    def _read_controllers(self, action: ReadControllers, siblings: Collection[tuple[str, OwnerReference]]) -> Answer:
        try:
            read = self._access.controllers.read(action.owners, action.controllers, siblings, words=action.words)
        except ReschedulerError as error:
            return Answer(ControllersUnread(str(error), retryable=isinstance(error, _TRANSIENT)))
        return Answer(read)

    def _evict(self, action: Evict | TryEviction) -> Answer:
        pod, dry_run = action.pod, isinstance(action, TryEviction)
        outcome = self._access.cluster.evict(pod.namespace, pod.name, pod.uid, action.grace, dry_run=dry_run)
        event, result, detail = _reading(outcome, pod.uid)
        code = outcome.code if isinstance(outcome, Failed) else None
        if dry_run:
            return Answer(event)
        return Answer(event, (events.EvictionAnswered(self._ref, pod, result, detail, code),))

    def _delete_node(self) -> Answer:
        try:
            self._access.cluster.delete_node(self._ref.name, self._ref.uid)
        except NotLeading:
            raise
        except ReschedulerError as error:
            trouble = Trouble(ErrorKind.WRITE, str(error), self._ref.name)
            return Answer(NodeDeletionFailed(str(error)), (trouble,))
        return Answer(NodeDeleted())

    def _release(self) -> Answer:
        edit = NodeEdit(untaint=(DRAIN_TAINT.key,), annotate={ANNOTATION: None}, only_if=self._not_to_release)
        try:
            self._access.cluster.edit_node(self._ref.name, self._ref.uid, edit)
        except NotLeading:
            raise
        except NotFound:  # nothing of ours is left
            return Answer(Released())
        except MarkLost as error:
            return Answer(ReleaseFailed(str(error), lost=True))
        except ReschedulerError as error:
            trouble = Trouble(ErrorKind.WRITE, f"the taint is still on: {error}", self._ref.name)
            return Answer(ReleaseFailed(str(error)), (trouble,))
        return Answer(Released())

    def _not_to_release(self, annotations: Mapping[str, str]) -> str:
        """Why the marks are not ours to remove. A taint whose annotation was removed is."""
        text = annotations.get(ANNOTATION)
        return "" if text is None or text == self._before else self._not_ours(annotations)


Reading: TypeAlias = tuple[Event, EvictionResult, str]


def _reading(outcome: Outcome, uid: str) -> Reading:
    match outcome:
        case Evicted():
            return EvictionAccepted(uid), EvictionResult.EVICTED, ""
        case Gone():
            return PodGone(uid), EvictionResult.GONE, ""
        case Refused(_, message, retry_after):
            return EvictionRefused(uid, message, retry_after), EvictionResult.REFUSED, message
        case Failed(message, retryable, retry_after, _):
            return EvictionFailed(uid, message, retryable, retry_after), EvictionResult.FAILED, message
