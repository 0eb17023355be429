"""The requests of a drain to the provider that owns the node's machine."""

from collections.abc import Callable, Collection, Mapping

from predicates.objects import Node, OwnerReference
from rescheduler.draining.actions import OrderRemoval
from rescheduler.draining.events import (
    MarkFailed,
    OrderWithheld,
    ProviderAnswered,
    RemovalFailed,
    RemovalPending,
    Removed,
)
from rescheduler.errors import NotFound, NotLeading, ReschedulerError, Retryable
from rescheduler.execution import node_refs
from rescheduler.execution.context import ActionResult, DrainContext
from rescheduler.execution.last_look import LastLook
from rescheduler.observe import events
from rescheduler.observe.events import ErrorKind, InvolvedNode, Trouble
from rescheduler.planning.last_look import Ground, OrderTerms
from rescheduler.planning.rules.candidates import control_plane_label
from rescheduler.providers import base


class MachineOrders:
    """The requests about the machine of one node. *rivals* are other Nodes that may represent the same machine."""

    def __init__(self, access: DrainContext, node: Node, rivals: tuple[base.NodeRef, ...]) -> None:
        self._access = access
        self._node = node
        self._rivals = rivals
        self._ref = InvolvedNode.of(node)

    def ask(self) -> ActionResult:
        """Request the group of the machine from the provider, and whether the machine would be removed."""
        name = self._access.provider.name
        try:
            group, refused = self.inquire()
        except ReschedulerError as error:
            return ActionResult(ProviderAnswered(None, f"{name}: {error}"), self._provider_error(error))
        return ActionResult(ProviderAnswered(group, f"{name}: {refused}" if refused else ""))

    def inquire(self) -> tuple[str | None, base.Refused | None]:
        """Return the group that owns the machine, and why the provider would not remove it. Raises ReschedulerError.

        A control plane machine has no group: it is never removed.
        """
        if control_plane_label(self._node):
            return None, None
        provider, node = self._access.provider, node_refs.ref(self._node, rivals=self._rivals)
        provider.refresh(deadline=self._deadline())
        group = provider.group_for(node, deadline=self._deadline())
        if group is None:
            return None, None
        duplicates = [
            rival.name for rival in self._rivals if rival.provider_id and rival.provider_id == node.provider_id
        ]
        if duplicates:
            names = ", ".join(duplicates)
            why = f"the provider ID is the same as that of {names}: it is unclear which machine would be removed"
            return group.id, base.Refused(base.Refusal.AMBIGUOUS, why)
        return group.id, provider.refusals(group.id, [node], deadline=self._deadline()).get(node.name)

    def order(
        self,
        action: OrderRemoval,
        not_ours: Callable[[Mapping[str, str]], str],
        terms: OrderTerms,
        siblings: Collection[tuple[str, OwnerReference]],
    ) -> ActionResult:
        """Request termination of the machine, if it may end at the moment of each request; see :class:`LastLook`.

        *not_ours* returns why annotations do not carry our mark, or "". Raises NotLeading.
        """
        if (forbidden := self._forbidden(action, not_ours)) is not None:
            return forbidden
        provider = self._access.provider
        node = node_refs.ref(self._node, rivals=self._rivals, ordered_at=action.since)
        look = LastLook(self._access, self._node, terms, not_ours, siblings)
        try:
            outcomes = provider.delete_nodes(action.group, [node], deadline=self._deadline(), may_end=look)
        except Retryable as error:  # nothing was requested: retry
            return ActionResult(RemovalPending(str(error)), self._provider_error(error))
        except ReschedulerError as error:
            return ActionResult(RemovalFailed(f"{provider.name}: {error}"), self._provider_error(error))
        if look.leadership_lost:
            raise NotLeading("request termination of the machine: another replica leads")
        outcome = outcomes[node.name]
        return self._withheld(action, outcome, look) or self._answer(action, outcome)

    def _withheld(self, action: OrderRemoval, outcome: base.DeleteOutcome, look: LastLook) -> ActionResult | None:
        """Return the result if the last check did not allow the order, and no earlier order can take effect."""
        unsent = not (look.allowed or action.again)
        if isinstance(outcome, base.Deleted | base.AlreadyGone) or (isinstance(outcome, base.Accepted) and not unsent):
            return None
        if look.gone:
            return self._node_gone(action, look.gone)
        if look.objection is None:
            pending = unsent and look.unread
            return ActionResult(RemovalPending(look.unread), self._unread(look.unread)) if pending else None
        if look.objection.ground is Ground.MARK:
            return ActionResult(MarkFailed(look.objection.why, lost=True))
        withheld = events.OrderWithheld(self._ref, look.objection.why)
        return ActionResult(OrderWithheld(look.objection.ground, look.objection.why), (withheld,))

    def _unread(self, why: str) -> tuple[Trouble]:
        return (Trouble(ErrorKind.READ, why, self._ref.name),)

    def _answer(self, action: OrderRemoval, outcome: base.DeleteOutcome) -> ActionResult:
        name = self._access.provider.name
        detail = outcome.error if isinstance(outcome, base.Failed) else outcome.detail
        ordered = events.MachineOrdered(self._ref, name, action.group)
        answered = events.MachineAnswered(self._ref, name, outcome.result, detail)
        match outcome:
            case base.Deleted(unshrunk=unshrunk):
                return ActionResult(Removed(unshrunk=unshrunk), (ordered, answered, *self._unshrunk(unshrunk)))
            case base.AlreadyGone(unshrunk=unshrunk):
                removed = Removed(unproven=self._is_ready(), unshrunk=unshrunk)
                return ActionResult(removed, (ordered, answered, *self._unshrunk(unshrunk)))
            case base.Accepted():
                return ActionResult(RemovalPending(detail), (ordered, answered))
            case base.Refused():  # nothing was requested
                return ActionResult(RemovalFailed(f"{name}: {outcome}", refused=True), (answered,))
            case base.Failed():
                return ActionResult(RemovalFailed(f"{name}: {detail}"), (ordered, answered))

    def _unshrunk(self, why: str) -> tuple[Trouble, ...]:
        """Return the warning that the size of the group was not reduced."""
        if not why:
            return ()
        text = f"{self._access.provider.name}: the machine is gone, but the group size was not reduced: {why}"
        return (Trouble(ErrorKind.PROVIDER, text, self._ref.name),)

    def _forbidden(self, action: OrderRemoval, not_ours: Callable[[Mapping[str, str]], str]) -> ActionResult | None:
        """Return the result if the machine must not be removed now, for example if the mark is lost; otherwise None."""
        try:
            node = self._access.cluster.node(self._ref.name)
        except NotFound as error:
            return self._node_gone(action, str(error))
        except ReschedulerError as error:
            return ActionResult(RemovalPending(str(error)), (Trouble(ErrorKind.READ, str(error), self._ref.name),))
        if node.metadata.uid != self._ref.uid:
            return self._node_gone(action, f"node {self._ref.name} was replaced by another node of the same name")
        if why := not_ours(node.metadata.annotations):
            return ActionResult(MarkFailed(why, lost=True))
        if not self._access.leads():
            raise NotLeading("request termination of the machine: another replica leads")
        return None

    def _node_gone(self, action: OrderRemoval, why: str) -> ActionResult:
        return ActionResult(Removed(unseen=True) if action.again else RemovalFailed(why, node_gone=True))

    def _is_ready(self) -> bool:
        """Return whether the Node is Ready; True if the Node cannot be read."""
        try:
            return self._access.cluster.node(self._ref.name).condition("Ready") == "True"
        except NotFound:
            return False
        except ReschedulerError:
            return True

    def _deadline(self) -> float:
        return self._access.clock.monotonic() + self._access.provider_seconds

    def _provider_error(self, error: ReschedulerError) -> tuple[Trouble]:
        return (Trouble(ErrorKind.PROVIDER, f"{self._access.provider.name}: {error}", self._ref.name),)
