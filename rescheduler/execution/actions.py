"""Perform the actions of a drain on the cluster and at the provider. Thread-safe. Separate from the execution,
which has the only thread that changes a state.
"""

import contextlib
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from predicates.objects import Node, OwnerReference
from predicates.snapshot import DRAIN_TAINT
from rescheduler.clock import Clock
from rescheduler.draining import actions
from rescheduler.draining.actions import (
    ANNOTATION,
    AskProvider,
    AskSurge,
    DeleteNode,
    DeletePlaceholder,
    Evict,
    FollowRequest,
    FollowSurge,
    Intent,
    LookAgain,
    Mark,
    OrderRemoval,
    PlanAgain,
    ReadControllers,
    ReadSurge,
    Release,
    Renew,
    RequestAction,
    RevertSurge,
    Step,
    TryEviction,
    Withdraw,
    WrittenMark,
)
from rescheduler.draining.events import (
    Done,
    EvictionAccepted,
    EvictionFailed,
    EvictionOutcome,
    EvictionRefused,
    Outcome,
    RequestOutcome,
    RequestSeen,
    RequestsUnserved,
    RequestWithheld,
)
from rescheduler.errors import MarkLost, NotFound, NotLeading, Permanent, ReschedulerError, is_transient
from rescheduler.execution.context import ActionResult, DrainContext, EvictionRequestApi, StepReading, not_done
from rescheduler.execution.machine_orders import MachineOrders
from rescheduler.execution.rollouts import Rollouts
from rescheduler.kube.cluster import NodeEdit
from rescheduler.observe import events
from rescheduler.observe.events import ErrorKind, InvolvedNode, Trouble
from rescheduler.planning.controllers import ControllerReading
from rescheduler.planning.last_look import Fresh, Objection, OrderTerms, Seen, objection_to_drain
from rescheduler.providers import base


class NodeMarks:
    """Writes and removes the marks of a drain on one Node: our taint, and the intent in an annotation.

    There is no other writer. The marks of another process are respected, except for the annotation that *node* had:
    the caller has decided that this drain may replace it. The first mark of a new drain is written only if the Node, as
    read right before, may still be drained by its own rules: what was watched may be old.
    """

    def __init__(self, access: DrainContext, node: Node) -> None:
        self._access = access
        self._node = node
        self.objection: Objection | None = None  #: to the first mark, of the last :meth:`write`
        self._name, self._uid = node.name, node.metadata.uid
        self._before = node.metadata.annotations.get(ANNOTATION)  # the annotation that the first mark may replace
        self._marked = False  # our mark was written; from then on only our own mark may be changed
        self._step: Step | None = None  # the last step that was written successfully
        self._steps: frozenset[Step | None] = (
            frozenset()
        )  # steps that may be on the node: a failed write may still be applied
        self._since: dict[Step, datetime] = {}  # start of each step

    def write(self, mark: WrittenMark, terms: OrderTerms | None = None) -> bool:
        """Write *mark* in one PATCH. Return whether it is our first one.

        Raises MarkLost if the Node has another mark, or not ours any more, or must not be drained by *terms*, NotFound,
        and other ReschedulerErrors, after which the mark may be on the Node or not.
        """
        clock, access = self._access.clock, self._access
        now = clock.now()
        until = None if access.mark_validity is None else now + access.mark_validity
        since = mark.since or self._since.setdefault(mark.step, now)
        times = (_wall(clock, mark.times.evicted_at), _wall(clock, mark.times.due_at))
        written = Intent(
            access.holder,
            mark.step,
            since,
            mark.pods,
            mark.group,
            until,
            access.identity,
            mark.debts,
            *times,
            mark.surge,
            mark.kind,
        )
        taint = actions.taint(access.holder)
        begins = not self._marked and self._before is None
        why_not = self._why_not_begun(terms or OrderTerms()) if begins else self.why_not_ours
        edit = NodeEdit(taint=(taint,), annotate={ANNOTATION: written.dump()}, only_if=why_not)
        self._steps = frozenset({self._step, mark.step})
        access.cluster.edit_node(self._name, self._uid, edit)
        self._step, self._steps = mark.step, frozenset({mark.step})
        first = not self._marked
        if isinstance(mark, Mark):
            self._marked = True
        return first

    def remove(self) -> None:
        """Remove the marks. Raises as :meth:`write`."""
        edit = NodeEdit(untaint=(DRAIN_TAINT.key,), annotate={ANNOTATION: None}, only_if=self._why_not_removed)
        self._access.cluster.edit_node(self._name, self._uid, edit)

    def _why_not_begun(self, terms: OrderTerms) -> Callable[[Node], str]:
        """Return the condition of the first mark of a new drain."""
        minimum = terms.policy is not None and terms.policy.min_on_demand_nodes > 0
        nodes = self._access.cluster.nodes() if minimum else []

        def why_not(node: Node) -> str:
            seen = Seen(node, nodes=nodes, now=self._access.clock.now())
            self.objection = objection_to_drain(self._node, terms, seen)
            return self.objection.why if self.objection is not None else self.why_not_ours(node)

        return why_not

    def why_not_ours(self, node: Node) -> str:
        """Return why our mark must not be written, or "": another mark is present, or ours was removed."""
        text = node.metadata.annotations.get(ANNOTATION)
        if text == self._before and not self._marked:
            return ""
        written = None if text is None else actions.parse(text)
        ours = self._access.holder, self._access.identity
        if written is not None and (written.holder, written.identity) == ours and written.step in self._steps:
            return ""
        return "our annotation was removed" if text is None else "the annotation belongs to another process"

    def _why_not_removed(self, node: Node) -> str:
        """Return why the marks must not be removed, or "". A taint without an annotation may be removed."""
        text = node.metadata.annotations.get(ANNOTATION)
        return "" if text is None or text == self._before else self.why_not_ours(node)


class DrainActions:
    """The actions on one node. *rivals* are other Nodes that may represent the same machine."""

    def __init__(self, access: DrainContext, node: Node, rivals: tuple[base.NodeRef, ...] = ()) -> None:
        self._access = access
        self._orders = MachineOrders(access, node, rivals)
        self._ref = InvolvedNode.of(node)
        self._rollouts = Rollouts(access.rollouts, access.clock, self._ref) if access.rollouts is not None else None
        self._marks = NodeMarks(access, node)

    def perform(
        self,
        action: RequestAction,
        namespaces: Collection[str] = (),
        siblings: Collection[tuple[str, OwnerReference]] = (),
        terms: OrderTerms | None = None,
    ) -> ActionResult:
        """Perform *action* and return its result.

        *namespaces* are the namespaces of the pods to evict; their PodDisruptionBudgets are read. *siblings* are owners
        of other pods. *terms* belong to an order or a mark. Raises NotLeading if this replica is not the leader; other
        exceptions are bugs.
        """
        try:
            return self._perform(action, namespaces, siblings, terms or OrderTerms())
        except ReschedulerError as error:
            outcome = not_done(action, error)
        if not isinstance(action, Withdraw | DeleteNode | Release) or outcome.outcome is Outcome.REFUSED:
            return ActionResult(outcome)
        what = "the taint could not be removed: " if isinstance(action, Release) else ""
        return ActionResult(outcome, (Trouble(ErrorKind.WRITE, f"{what}{outcome.why}", self._ref.name),))

    def _perform(
        self,
        action: RequestAction,
        namespaces: Collection[str],
        siblings: Collection[tuple[str, OwnerReference]],
        terms: OrderTerms,
    ) -> ActionResult:
        match action:
            case AskProvider():
                return self._orders.ask()
            case OrderRemoval():
                return self._orders.order(action, self._marks.why_not_ours, terms, siblings)
            case LookAgain() | ReadControllers() | PlanAgain() | FollowRequest():
                return ActionResult(self._read(action, namespaces, siblings))
            case TryEviction() | Evict():
                return self._evict(action)
            case ReadSurge() | AskSurge() | FollowSurge() | RevertSurge() if self._rollouts is not None:
                return self._rollouts.perform(action)
            case ReadSurge() | AskSurge() | FollowSurge() | RevertSurge():
                raise Permanent("this process does not roll out Deployments")
            case WrittenMark():
                return self._mark(action, terms)
            case _:
                return self._write(action)

    @property
    def _requests(self) -> EvictionRequestApi:
        assert self._access.requests is not None, "drains of this process ask for no evictions with EvictionRequests"
        return self._access.requests

    def _read(
        self,
        action: LookAgain | ReadControllers | PlanAgain | FollowRequest,
        namespaces: Collection[str],
        siblings: Collection[tuple[str, OwnerReference]],
    ) -> Fresh | ControllerReading | StepReading | RequestSeen:
        access, name = self._access, self._ref.name
        match action:
            case LookAgain(targets):
                return access.cluster.read_fresh(name, targets, namespaces)
            case ReadControllers(owners, controllers, read_refusals):
                return access.controllers.read(owners, controllers, siblings, read_refusals=read_refusals)
            case PlanAgain(_, targets, owners, controllers):
                fresh = access.cluster.read_fresh(name, targets, namespaces, target_pods=False)
                read = access.controllers.read(owners, controllers, siblings)
                return StepReading(fresh, read, access.controllers.ending(owners))
            case FollowRequest(pod):
                return self._requests.follow(pod)

    def _write(self, action: Withdraw | DeletePlaceholder | DeleteNode | Release) -> ActionResult:
        access, uid = self._access, ""
        reports: tuple[events.Event, ...] = ()
        match action:
            case Withdraw():
                self._requests.withdraw_all()
            case DeletePlaceholder(placeholder, uid):
                if access.placeholders is None:
                    raise Permanent(f"this process does not delete placeholders such as {placeholder}")
                access.placeholders.delete(placeholder)
            case DeleteNode():
                access.cluster.delete_node(self._ref.name, self._ref.uid)
            case Release():
                with contextlib.suppress(NotFound):  # the node is gone, and its marks with it
                    self._marks.remove()
                    reports = self._report_drain(drained=False)
        return ActionResult(Done(type(action), uid), reports)

    def _mark(self, mark: WrittenMark, terms: OrderTerms) -> ActionResult:
        try:
            first = self._marks.write(mark, terms)
        except MarkLost:
            if (objection := self._marks.objection) is None:
                raise
            return ActionResult(RequestWithheld(objection.ground, objection.why))
        if isinstance(mark, Renew):
            return ActionResult(None)
        tainted = (events.Tainted(self._ref),) if first and mark.step is Step.DRAINING else ()
        return ActionResult(Done(Mark), (*tainted, *(self._report_drain(drained=True) if first else ())))

    def _report_drain(self, *, drained: bool) -> tuple[events.Event, ...]:
        """Write or remove the node's condition. A failure is reported, and changes nothing else."""
        access, ref = self._access, self._ref
        if access.conditions is None or not access.report_conditions:
            return ()
        try:
            if drained:
                access.conditions.set(ref.name, ref.uid, access.clock.now())
            else:
                access.conditions.remove(ref.name, ref.uid)
        except NotLeading:
            raise
        except ReschedulerError as error:
            return (Trouble(ErrorKind.WRITE, str(error), ref.name),)
        return ()

    def _evict(self, action: Evict | TryEviction) -> ActionResult:
        pod = action.pod
        if isinstance(action, TryEviction):
            return ActionResult(self._try(action))
        outcome = self._request(action) if action.request else self._evict_now(action)
        detail = outcome.why if isinstance(outcome, EvictionRefused | EvictionFailed | RequestsUnserved) else ""
        code = outcome.code if isinstance(outcome, EvictionFailed) else None
        return ActionResult(outcome, (events.EvictionAnswered(self._ref, pod, outcome.result, detail, code),))

    def _send(self, action: Evict | TryEviction, *, dry_run: bool) -> EvictionOutcome:
        pod = action.pod
        return self._access.cluster.evict(pod.namespace, pod.name, pod.uid, action.grace, dry_run=dry_run)

    def _try(self, action: TryEviction) -> EvictionOutcome:
        """Try both ways in a dry run. Where no EvictionRequests are served, the eviction API suffices for most pods."""
        outcome = self._send(action, dry_run=True)
        if not action.request or not isinstance(outcome, EvictionAccepted):
            return outcome
        match self._requests.create(action.pod, dry_run=True):
            case EvictionFailed() as refused:
                return refused
            case RequestsUnserved(uid, why) if action.must:
                return EvictionFailed(uid, why, retryable=False)
            case _:
                return outcome

    def _request(self, action: Evict) -> EvictionOutcome | RequestOutcome:
        """Ask for the eviction with an EvictionRequest, if the budgets and webhooks would allow it now."""
        outcome = self._send(action, dry_run=True)
        return self._requests.create(action.pod) if isinstance(outcome, EvictionAccepted) else outcome

    def _evict_now(self, action: Evict) -> EvictionOutcome:
        if action.withdraw:
            try:
                self._requests.withdraw(action.pod)
            except NotLeading:
                raise
            except ReschedulerError as error:
                return EvictionFailed(action.pod.uid, str(error), retryable=is_transient(error))
        return self._send(action, dry_run=False)


def _wall(clock: Clock, moment: float | None) -> datetime | None:
    """Return the wall-clock time of *moment*, which is in monotonic seconds."""
    return None if moment is None else clock.now() + timedelta(seconds=moment - clock.monotonic())
