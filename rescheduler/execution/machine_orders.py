"""The requests of a drain to the provider that owns the node's machine, with the look before each and the checks
after.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from predicates.indexes.domains import HOSTNAME
from predicates.objects import Node, OwnerReference, Pod
from rescheduler.clock import Clock
from rescheduler.draining.actions import OrderRemoval
from rescheduler.draining.events import NotDone, Outcome, ProviderAnswered, Removed, RequestWithheld
from rescheduler.durations import Backoff
from rescheduler.errors import NotFound, NotLeading, ReschedulerError, Retryable, Withheld
from rescheduler.execution.context import ActionResult, DrainContext
from rescheduler.observe import events
from rescheduler.observe.events import ErrorKind, InvolvedNode, Trouble
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Debt, count_replicas, ready_for
from rescheduler.planning.last_look import Ground, Objection, OrderTerms, Seen, objection, why_at_risk
from rescheduler.planning.rules.candidates import control_plane_label
from rescheduler.planning.rules.candidates import mates as same_machine
from rescheduler.providers import base
from rescheduler.providers.base import NodeRef

# Convert Nodes to the references that providers receive.


def ref(
    node: Node, *, rivals: tuple[NodeRef, ...] = (), control_plane: bool = False, ordered_at: datetime | None = None
) -> NodeRef:
    """Return the reference to *node* for a provider. For the other arguments see NodeRef."""
    return NodeRef(
        name=node.name,
        provider_id=node.spec.provider_id,
        labels=node.metadata.labels,
        annotations=node.metadata.annotations,
        internal_ips=tuple(address.address for address in node.status.addresses if address.type == "InternalIP"),
        control_plane=control_plane,
        ordered_at=ordered_at,
        rivals=rivals,
    )


def rivals(node: Node, nodes: Iterable[Node]) -> tuple[NodeRef, ...]:
    """Return the *nodes* that may represent the same machine as *node*.

    A kubelet that registers again under another name may leave an old Node behind. The provider decides whether both
    are the same machine, so the result may contain Nodes of other machines.
    """
    ids = _identifiers(node)
    return tuple(ref(rival) for rival in nodes if rival.name != node.name and not ids.isdisjoint(_identifiers(rival)))


def _identifiers(node: Node) -> set[tuple[str, str]]:
    """Return the values by which a provider may identify a machine.

    Only the last part of the provider ID is used, because the rest has several forms.
    """
    instance = node.spec.provider_id.rsplit("/", 1)[-1].lower()
    return {
        *([("provider ID", instance)] if instance else ()),
        *(("address", address.address) for address in node.status.addresses if address.type == "InternalIP"),
        ("name", node.name.lower()),
        ("name", node.metadata.labels.get(HOSTNAME, node.name).lower()),
    }


# Read the cluster consistently before each request that could end a machine.
#
# :mod:`rescheduler.planning.last_look` decides whether the request may be sent.


#: Seconds in which all reads before an order must end: the first of them is that old when the request leaves.
_OLDEST_FACT: Final = 10.0

#: The number of Nodes that are read one by one. If more are needed, all are listed.
_SINGLE_NODES: Final = 16


class LastLook:
    """The checks of one order for the machine of *node*. Providers call it before each request.

    *not_ours* returns why a Node does not carry our mark, or "". *siblings* are owners of other pods; ReplicaSets
    among them may belong to the same controllers.
    """

    def __init__(
        self,
        access: DrainContext,
        node: Node,
        terms: OrderTerms,
        not_ours: Callable[[Node], str],
        siblings: Collection[tuple[str, OwnerReference]],
    ) -> None:
        self._access = access
        self._node = node
        self._terms = terms
        self._not_ours = not_ours
        self._siblings = siblings
        self.allowed = 0  #: how often the order was allowed
        self.objection: Objection | None = None  #: of the last check
        self.unread = ""  #: the error of the last check, if the cluster could not be read
        self.gone = ""  #: why the Node does not exist any more, according to the last check
        self.leadership_lost = False

    def __call__(self, _: NodeRef) -> None:
        """Raise Withheld if the machine may not end now, or the error of a read."""
        self.objection, self.gone, self.unread = None, "", ""
        self._check_leadership()
        began = self._access.clock.monotonic()
        try:
            self.objection = self._object()
            if self.objection is None:
                self._check_age(self._access.clock.monotonic() - began)
        except Withheld:
            raise
        except ReschedulerError as error:
            self.unread = str(error)
            raise
        if self.objection is not None:
            raise Withheld(self.objection.why)
        self._check_leadership()  # the reads may have taken longer than the Lease
        self.allowed += 1

    def _check_leadership(self) -> None:
        if not self._access.leads():
            self.leadership_lost = True
            raise Withheld("this replica does not lead any more")

    def _check_age(self, seconds: float) -> None:
        """Raise Retryable if what was read first may have changed before the last read ended."""
        if seconds > _OLDEST_FACT:
            raise Retryable(f"the reads before the order took {seconds:.0f} s, at most {_OLDEST_FACT:g} s are allowed")

    def _object(self) -> Objection | None:
        cluster, terms, name = self._access.cluster, self._terms.at_present(), self._node.name
        try:
            node = cluster.node(name)
        except NotFound as error:
            self.gone = str(error)
            raise Withheld(self.gone) from error
        if node.metadata.uid != self._node.metadata.uid:
            self.gone = f"node {name} was replaced by another node of the same name"
            raise Withheld(self.gone)
        if why := self._not_ours(node):
            return Objection(Ground.MARK, why)
        if terms.doubt:
            return Objection(Ground.DOUBT, terms.doubt)
        states = self._states(terms.debts)
        minimum = terms.policy is not None and terms.policy.min_on_demand_nodes > 0
        owners = {owner for state in states.values() for owner in state.owners}
        pods = cluster.pods(name, owners)
        hosts = {pod.node_name for pod in pods if pod.owner and (pod.namespace, pod.owner.uid) in owners} - {""}
        nodes = {each.name: each for each in self._nodes(hosts, everything=minimum)}
        mates = list(self._mates(node, {*terms.mates(), *same_machine(nodes.values()).get(name, ())}))
        leases, now = cluster.node_leases(hosts), self._access.clock.now()
        if self._access.clock.monotonic() > terms.proved_at + _OLDEST_FACT:
            terms = replace(terms, with_other_places=frozenset())
        terms = replace(terms, ending=self._ending(each for name, each in nodes.items() if name in hosts))
        at_risk = partial(why_at_risk, terms, leases, now)
        times = ready_for(now, self._access.clock.monotonic(), terms.became_ready)
        return objection(
            self._node,
            terms,
            Seen(
                node=node,
                now=now,
                pods=[pod for pod in pods if pod.node_name == name],
                nodes=list(nodes.values()),
                states=states,
                replicas=count_replicas(pods, states.values(), name, (), terms.evicted, times, nodes.get, at_risk),
                mates=mates,
            ),
        )

    def _nodes(self, names: Collection[str], *, everything: bool) -> list[Node]:
        """Read the Nodes *names* that exist; all Nodes if *everything* is needed, or if they are many."""
        if everything or len(names) > _SINGLE_NODES:
            return self._access.cluster.nodes()
        found = []
        for name in sorted(names):
            with contextlib.suppress(NotFound):
                found.append(self._access.cluster.node(name))
        return found

    def _ending(self, hosts: Iterable[Node]) -> frozenset[str]:
        """Return which *hosts* of moved pods the provider has announced to reclaim by now."""
        refs, deadline = [ref(host) for host in hosts], self._access.clock.monotonic() + _OLDEST_FACT
        return frozenset(self._access.provider.notices(refs, deadline=deadline)) if refs else frozenset()

    def _mates(self, node: Node, names: Collection[str]) -> Iterator[tuple[Node, list[Pod]]]:
        """Yield the Nodes *names* that are of the machine of *node*, with their pods."""
        for name in sorted(names):
            with contextlib.suppress(NotFound):
                mate = self._access.cluster.node(name)
                if mate.spec.provider_id == node.spec.provider_id:
                    yield mate, [pod for pod in self._access.cluster.pods(name, ()) if pod.node_name == name]

    def _states(self, debts: Collection[Debt]) -> dict[Controller, ControllerState]:
        controllers = frozenset(debt.controller for debt in debts)
        if not controllers:
            return {}
        self._access.controllers.recall(debts)
        states = dict(self._access.controllers.read((), controllers, self._siblings).states)
        for debt in debts:
            state = states[debt.controller]
            states[debt.controller] = replace(state, owner_uids=state.owner_uids.union(debt.owner_uids))
        return states


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
            return ActionResult(ProviderAnswered(None, base.said(name, error)), self._provider_error(error))
        return ActionResult(ProviderAnswered(group, f"{name}: {refused}" if refused else ""))

    def inquire(self) -> tuple[str | None, base.Refused | None]:
        """Return the group that owns the machine, and why the provider would not remove it. Raises ReschedulerError.

        A control plane machine has no group: it is never removed. Some providers refuse nodes without a group.
        """
        if control_plane_label(self._node):
            return None, None
        provider, node = self._access.provider, ref(self._node, rivals=self._rivals)
        provider.refresh(deadline=self._deadline())
        group = provider.group_for(node, deadline=self._deadline())
        if group is None:
            return None, provider.refusal_without_group(node, deadline=self._deadline())
        return group.id, provider.refusals(group.id, [node], deadline=self._deadline()).get(node.name)

    def order(
        self,
        action: OrderRemoval,
        not_ours: Callable[[Node], str],
        terms: OrderTerms,
        siblings: Collection[tuple[str, OwnerReference]],
    ) -> ActionResult:
        """Request termination of the machine, if it may end at the moment of each request; see :class:`LastLook`.

        *not_ours* returns why a Node does not carry our mark, or "". Raises NotLeading.
        """
        if (forbidden := self._forbidden(action, not_ours)) is not None:
            return forbidden
        provider = self._access.provider
        node = ref(self._node, rivals=self._rivals, ordered_at=action.since)
        look = LastLook(self._access, self._node, terms, not_ours, siblings)
        try:
            outcomes = provider.delete_nodes(action.group, [node], deadline=self._deadline(), may_end=look)
        except Retryable as error:  # nothing was requested: retry
            return ActionResult(_pending(str(error)), self._provider_error(error))
        except ReschedulerError as error:
            return ActionResult(NotDone(OrderRemoval, base.said(provider.name, error)), self._provider_error(error))
        if look.leadership_lost:
            raise NotLeading("request termination of the machine: this replica does not lead any more")
        outcome = outcomes[node.name]
        return self._withheld(action, outcome, look) or self._answer(action, outcome)

    def _withheld(self, action: OrderRemoval, outcome: base.DeleteOutcome, look: LastLook) -> ActionResult | None:
        """Return the result if the last check did not allow the order, and no earlier order can take effect."""
        unsent = not (look.allowed or action.again)
        if isinstance(outcome, base.Deleted | base.AlreadyGone) or (isinstance(outcome, base.Accepted) and not unsent):
            return None
        if look.gone:
            return self._node_gone(action, look.gone)
        if look.objection is None:  # an earlier order may still take effect, so what could not be read is no failure
            return ActionResult(_pending(look.unread), self._unread(look.unread)) if look.unread else None
        if look.objection.ground is Ground.MARK:
            return ActionResult(RequestWithheld(Ground.MARK, look.objection.why))
        withheld = events.OrderWithheld(self._ref, look.objection.why)
        return ActionResult(RequestWithheld(look.objection.ground, look.objection.why), (withheld,))

    def _unread(self, why: str) -> tuple[Trouble]:
        return (Trouble(ErrorKind.READ, why, self._ref.name),)

    def _answer(self, action: OrderRemoval, outcome: base.DeleteOutcome) -> ActionResult:
        name = self._access.provider.name
        detail = base.without_name(name, outcome.error if isinstance(outcome, base.Failed) else outcome.detail)
        ordered = events.MachineOrdered(self._ref, name, action.group)
        answered = events.MachineAnswered(self._ref, name, outcome.result, detail)
        match outcome:
            case base.Deleted(unshrunk=unshrunk):
                return ActionResult(Removed(unshrunk=unshrunk), (ordered, answered, *self._unshrunk(unshrunk)))
            case base.AlreadyGone(unshrunk=unshrunk):
                removed = Removed(unproven=self._is_ready(), unshrunk=unshrunk)
                return ActionResult(removed, (ordered, answered, *self._unshrunk(unshrunk)))
            case base.Accepted():
                return ActionResult(_pending(detail), (ordered, answered))
            case base.Refused():  # nothing was requested
                return ActionResult(NotDone(OrderRemoval, f"{name}: {outcome}", Outcome.REFUSED), (answered,))
            case base.Failed():
                return ActionResult(NotDone(OrderRemoval, base.said(name, detail)), (ordered, answered))

    def _unshrunk(self, why: str) -> tuple[Trouble, ...]:
        """Return the warning that the size of the group was not reduced."""
        if not why:
            return ()
        name = self._access.provider.name
        text = f"the machine is gone, but the group size was not reduced: {base.without_name(name, why)}"
        return (Trouble(ErrorKind.PROVIDER, base.said(name, text), self._ref.name),)

    def _forbidden(self, action: OrderRemoval, not_ours: Callable[[Node], str]) -> ActionResult | None:
        """Return the result if the machine must not be removed now, for example if the mark is lost; otherwise None."""
        try:
            node = self._access.cluster.node(self._ref.name)
        except NotFound as error:
            return self._node_gone(action, str(error))
        except ReschedulerError as error:
            return ActionResult(_pending(str(error)), self._unread(str(error)))
        if node.metadata.uid != self._ref.uid:
            return self._node_gone(action, f"node {self._ref.name} was replaced by another node of the same name")
        if why := not_ours(node):
            return ActionResult(RequestWithheld(Ground.MARK, why))
        if not self._access.leads():
            raise NotLeading("request termination of the machine: this replica does not lead any more")
        return None

    def _node_gone(self, action: OrderRemoval, why: str) -> ActionResult:
        return ActionResult(Removed(unseen=True) if action.again else NotDone(OrderRemoval, why, Outcome.GONE))

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
        return (Trouble(ErrorKind.PROVIDER, base.said(self._access.provider.name, error), self._ref.name),)


def _pending(why: str) -> NotDone[OrderRemoval]:
    """Return the outcome of an order that may take effect, or that may succeed later."""
    return NotDone(OrderRemoval, why, Outcome.UNKNOWN)


# The schedule of checks for machines whose termination was requested but not confirmed.

#: The interval between checks of a machine whose termination is not confirmed.
CHECKS: Final = Backoff(timedelta(seconds=10), timedelta(minutes=5))


@dataclass(frozen=True, slots=True)
class PendingCheck:
    """The next check of a machine."""

    check_at: float
    checks: int  #: number of checks so far
    absent: bool  #: the machine was unknown to the provider at the last request


class RemovalChecks:
    """The pending checks, by UID of the Node.

    A check takes seconds, and no drain starts during it. A sweep therefore contains at most one check, so that many
    machines that do not terminate do not prevent the drains of other nodes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: dict[str, PendingCheck] = {}
        self._checked = False  #: in this sweep

    def begin_sweep(self, uids: Collection[str]) -> None:
        """Start a sweep of the nodes *uids*. Drop all other nodes."""
        now = self._clock.monotonic()
        unknown = PendingCheck(now, checks=0, absent=False)
        self._pending = {uid: self._pending.get(uid, unknown) for uid in uids}
        self._checked = False

    def due_at(self, uid: str) -> float:
        """Return when the check of a node of this sweep is due."""
        return self._pending[uid].check_at

    def begin(self, uid: str, *, absent: bool) -> None:
        """Schedule the first check after a drain that requested the termination."""
        self._schedule(uid, checks=0, absent=absent)

    def due(self, uid: str, *, ignore_intervals: bool) -> PendingCheck | None:
        """Return the check of a machine if it is due or *ignore_intervals* is set, otherwise None.

        If the machine was unknown to the provider, the interval is always respected.
        """
        check = self._pending[uid]
        if ignore_intervals and not check.absent:
            return check
        waits = self._clock.monotonic() < check.check_at
        return None if waits or self._checked else check

    def repeat(self, uid: str, check: PendingCheck, *, absent: bool) -> None:
        """Schedule the check that follows *check*."""
        self._checked = True
        self._schedule(uid, checks=check.checks + 1, absent=absent)

    def _schedule(self, uid: str, *, checks: int, absent: bool) -> None:
        check_at = self._clock.monotonic() + CHECKS.seconds_after(checks)
        self._pending[uid] = PendingCheck(check_at, checks, absent)
