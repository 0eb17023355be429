"""What a drain asks of the provider that owns the node's machine."""

from collections.abc import Callable, Mapping

from predicates.objects import Node
from rescheduler import refs
from rescheduler.access import Access, Answer
from rescheduler.backends import base
from rescheduler.draining.messages import (
    MarkFailed,
    OrderRemoval,
    ProviderAnswered,
    RemovalFailed,
    RemovalPending,
    Removed,
)
from rescheduler.errors import NotFound, NotLeading, ReschedulerError, Retryable
from rescheduler.observe import events
from rescheduler.observe.events import ErrorKind, NodeRef, Trouble
from rescheduler.planning.candidates import control_plane_label


class MachineOrders:
    """Of one node; *rivals* are other Nodes that may be of the same machine, which is nobody's then."""

    def __init__(self, access: Access, node: Node, rivals: tuple[base.NodeRef, ...]) -> None:
        self._access = access
        self._node = node
        self._rivals = rivals
        self._ref = NodeRef(node.metadata.name, node.metadata.uid)

    def ask(self) -> Answer:
        """Who owns the machine, and would it be taken? A machine of the control plane never is."""
        name = self._access.provider.name
        try:
            group, refused = self.inquire()
        except ReschedulerError as error:
            return Answer(ProviderAnswered(None, f"{name}: {error}"), self._trouble(error))
        return Answer(ProviderAnswered(group, f"{name}: {refused.reason}: {refused.detail}" if refused else ""))

    def inquire(self) -> tuple[str | None, base.Refused | None]:
        """The group that owns the machine, and why it would not be given away. Raises ReschedulerError.

        A machine of the control plane is nobody's.
        """
        if control_plane_label(self._node):
            return None, None
        provider, node = self._access.provider, refs.ref(self._node, rivals=self._rivals)
        provider.refresh(deadline=self._deadline())
        group = provider.group_for(node, deadline=self._deadline())
        if group is None:
            return None, None
        twins = [one.name for one in self._rivals if one.provider_id and one.provider_id == node.provider_id]
        if twins:
            who = ", ".join(twins)
            why = f"its provider ID is that of {who} too: it cannot be told whose machine would go"
            return group.id, base.Refused(base.Refusal.AMBIGUOUS, why)
        return group.id, provider.refusals(group.id, [node], deadline=self._deadline()).get(node.name)

    def order(self, action: OrderRemoval, not_ours: Callable[[Mapping[str, str]], str]) -> Answer:
        """Request termination of the machine if the Node still carries our mark.

        *not_ours* returns why annotations do not carry our mark, or "". Raises NotLeading.
        """
        if (forbidden := self._forbidden(action, not_ours)) is not None:
            return forbidden
        provider = self._access.provider
        node = refs.ref(self._node, rivals=self._rivals, ordered_at=action.since)
        try:
            outcomes = provider.delete_nodes(action.group, [node], deadline=self._deadline())
        except Retryable as error:  # nothing was ordered: ask again
            return Answer(RemovalPending(str(error)), self._trouble(error))
        except ReschedulerError as error:
            return Answer(RemovalFailed(f"{provider.name}: {error}"), self._trouble(error))
        return self._answer(action, outcomes[node.name])

    def _answer(self, action: OrderRemoval, outcome: base.DeleteOutcome) -> Answer:
        name = self._access.provider.name
        detail = outcome.error if isinstance(outcome, base.Failed) else outcome.detail
        told = events.MachineOrdered(self._ref, name, action.group)
        answered = events.MachineAnswered(self._ref, name, type(outcome).__name__.lower(), detail)
        match outcome:
            case base.Deleted(unshrunk=unshrunk):
                return Answer(Removed(unshrunk=unshrunk), (told, answered, *self._unshrunk(unshrunk)))
            case base.AlreadyGone(unshrunk=unshrunk):
                removed = Removed(unproven=self._is_ready(), unshrunk=unshrunk)
                return Answer(removed, (told, answered, *self._unshrunk(unshrunk)))
            case base.Accepted():
                return Answer(RemovalPending(detail), (told, answered))
            case base.Refused(reason):  # nothing was ordered
                return Answer(RemovalFailed(f"{name}: {reason}: {detail}", refused=True), (answered,))
            case base.Failed():
                return Answer(RemovalFailed(f"{name}: {detail}"), (told, answered))

    def _unshrunk(self, why: str) -> tuple[Trouble, ...]:
        """The warning that the group is not smaller."""
        if not why:
            return ()
        text = f"{self._access.provider.name}: its machine is gone, but the group is not smaller: {why}"
        return (Trouble(ErrorKind.PROVIDER, text, self._ref.name),)

    def _forbidden(self, action: OrderRemoval, not_ours: Callable[[Mapping[str, str]], str]) -> Answer | None:
        """The answer where no order may leave: the Node does not carry our mark now."""
        try:
            node = self._access.cluster.node(self._ref.name)
        except NotFound as error:
            return self._gone(action, str(error))
        except ReschedulerError as error:
            return Answer(RemovalPending(str(error)), (Trouble(ErrorKind.READ, str(error), self._ref.name),))
        if node.metadata.uid != self._ref.uid:
            return self._gone(action, f"node {self._ref.name} was replaced by another one of that name")
        if why := not_ours(node.metadata.annotations):
            return Answer(MarkFailed(why, lost=True))
        if not self._access.leads():
            raise NotLeading("order the machine: another replica leads")
        return None

    def _gone(self, action: OrderRemoval, why: str) -> Answer:
        return Answer(Removed(unseen=True) if action.again else RemovalFailed(why, node_gone=True))

    def _is_ready(self) -> bool:
        """Whether the Node's kubelet still reports; also where that cannot be told."""
        try:
            return self._access.cluster.node(self._ref.name).condition("Ready") == "True"
        except NotFound:
            return False
        except ReschedulerError:
            return True

    def _deadline(self) -> float:
        return self._access.clock.monotonic() + self._access.provider_seconds

    def _trouble(self, error: ReschedulerError) -> tuple[Trouble]:
        return (Trouble(ErrorKind.PROVIDER, f"{self._access.provider.name}: {error}", self._ref.name),)
