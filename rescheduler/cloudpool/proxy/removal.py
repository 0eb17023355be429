"""Remove machines from the pool, node by node, collect the results for one response, and remember failed drains."""

import enum
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec

from rescheduler.clock import Clock
from rescheduler.cloudpool.matching import Machine
from rescheduler.cloudpool.proxy.messages import UpdateFailed
from rescheduler.draining.state import Drain, Why
from rescheduler.errors import ReschedulerError
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import Controllers
from rescheduler.execution.drainer import PendingRemoval
from rescheduler.execution.landings import Landings
from rescheduler.observe.events import Report
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import OpenDebt, owing, without_paid
from rescheduler.planning.last_look import ReadLeases
from rescheduler.planning.memory import Memory
from rescheduler.planning.outcome import Plan, Planning
from rescheduler.planning.waits import Waits
from rescheduler.providers.base import Accepted, AlreadyGone, CloudProvider, Deleted, Failed, MayEnd, NodeRef

ORDERED: Final = "node {}: machine termination requested, not yet confirmed"

#: Cause of a failed drain → HTTP status code; 500 for all other causes.
_STATUS: Final = {
    Why.PROVIDER: 502,
    Why.API_ERROR: 503,
    Why.EVICTION_TIMEOUT: 504,
    Why.TERMINATION_TIMEOUT: 504,
    Why.REPLACEMENT_NOT_BOUND: 504,
    Why.LANDING_TIMEOUT: 504,
}

#: Causes of failed drains that do not affect other nodes.
_OF_THE_NODE: Final = frozenset(
    {
        Why.PLAN_CHANGED,
        Why.PODS_RETURN,
        Why.EVICTION_REFUSED,
        Why.EVICTION_TIMEOUT,
        Why.EVICTION_FAILED,
        Why.TERMINATION_TIMEOUT,
        Why.TARGET_LOST,
    }
)


class VictimOutcome(enum.Enum):
    """The outcome for a victim."""

    GOES = enum.auto()  #: its machine is gone, or termination was requested
    STAYS = enum.auto()  #: its drain failed; another node may be drained instead
    BROKEN = enum.auto()  #: the failure affects other nodes too, or the pool has changed


@dataclass(frozen=True, slots=True)
class RemovalMethod:
    """A way to remove a machine: *drain* drains its node and requests the removal of the machine from *provider*.

    The provider returns as soon as the pool has accepted the order.
    """

    drain: Callable[[Plan], Drain | PendingRemoval | None]
    finish: Callable[[PendingRemoval], Drain]  #: wait for a termination that `drain` has requested
    provider: CloudProvider


@dataclass(frozen=True, slots=True)
class RemovalMethods:
    """The available methods of removing the machine of a drained node."""

    shrink: RemovalMethod  #: terminate it, and lower the desired size by one
    replace: RemovalMethod  #: terminate it, and let the pool launch a replacement
    dispose: RemovalMethod  #: make it disposable, even if protected or inactive: the pool terminates it on its own
    keep: RemovalMethod  #: keep the machine in the pool


class NodeOperations(Protocol):
    """The operations on the cluster that updates need."""

    def why_unusable(self) -> str:
        """Return why the watched state of the cluster is insufficient for decisions; "" if it is sufficient."""
        ...

    def owed(self) -> str:
        """Return why no drain may start: which replacement pods of failed drains are still owed; "" if none are."""
        ...

    def refs(self) -> Sequence[NodeRef]:
        """Return all Nodes."""
        ...

    def refs_now(self) -> Sequence[NodeRef]:
        """Return all Nodes by a consistent read. Raises ReschedulerError."""
        ...

    def leaving(self) -> Collection[str]:
        """Return the nodes for which this process or an earlier one may have requested the machine's termination."""
        ...

    def choose(self, nodes: Sequence[str], limit: int) -> Planning:
        """Choose at most *limit* victims among *nodes*; see `removals.plan_removals`."""
        ...

    def taint(self, nodes: Sequence[str]) -> None:
        """Taint *nodes* to keep new pods away. If this raises ReschedulerError, some nodes may be tainted."""
        ...

    def release(self, nodes: Sequence[str]) -> None:
        """Remove our taint from nodes that were not drained; failures are retried later."""
        ...


@dataclass(slots=True)
class RemovalProgress:
    """The progress of removing one or more machines."""

    gone: int = 0
    ordered: int = 0  #: terminations requested and not confirmed
    failures: list[str] = field(default_factory=list)
    status: int = 500  #: of the first failure

    def failed(self, status: int, why: str) -> None:
        """Add *why* to the response; the first failure also sets its *status*."""
        self.status = self.status if self.failures else status
        self.failures.append(why)

    def count_terminating(self, node: str) -> None:
        """Count a node whose machine is already being terminated and that needs no further action."""
        self.ordered += 1
        self.failed(504, ORDERED.format(node))

    def drain_all(
        self, plans: Sequence[Plan], nodes: NodeOperations, method: RemovalMethod, is_late: Callable[[], bool]
    ) -> list[VictimOutcome]:
        """Taint the nodes of all plans, then drain them. No drain starts once *is_late* is True or while pods are owed.

        Terminations are confirmed together after the last drain: the pool may show each of them only after its next
        refresh.
        """
        left = {plan.node for plan in plans}
        outcomes: list[VictimOutcome] = []
        ordered: list[PendingRemoval] = []
        try:
            nodes.taint([plan.node for plan in plans])
            for plan in plans:
                ended = method.drain(plan) if self._may_begin(plan.node, nodes, is_late) else VictimOutcome.BROKEN
                if isinstance(ended, PendingRemoval):
                    ordered.append(ended)
                    left.remove(plan.node)
                    continue
                outcomes.append(ended if isinstance(ended, VictimOutcome) else self._count_outcome(plan.node, ended))
                if outcomes[-1] is VictimOutcome.GOES:
                    left.remove(plan.node)
        except ReschedulerError as error:
            self.failed(503, str(error))
            outcomes.append(VictimOutcome.BROKEN)
        finally:
            nodes.release(sorted(left))
            outcomes += [self._count_outcome(request.node.name, method.finish(request)) for request in ordered]
        return outcomes

    def _may_begin(self, node: str, nodes: NodeOperations, is_late: Callable[[], bool]) -> bool:
        """Return whether a drain may start; if not, add the reason to the response."""
        if is_late():
            self.failed(504, f"node {node}: the update timed out")
            return False
        if owed := nodes.owed():
            self.failed(503, f"node {node}: {owed}")
            return False
        return True

    def drain(self, plan: Plan, method: RemovalMethod) -> VictimOutcome:
        """Drain the node of *plan* and remove its machine."""
        ended = method.drain(plan)
        return self._count_outcome(plan.node, method.finish(ended) if isinstance(ended, PendingRemoval) else ended)

    def _count_outcome(self, node: str, drain: Drain | None) -> VictimOutcome:
        """Count the outcome for *node*; a *drain* of `None` means that the node disappeared before its drain began."""
        if drain is None:
            self.failed(500, f"node {node}: it is gone")
            return VictimOutcome.BROKEN
        if drain.failure is not None:
            failure = drain.failure
            pods = f" ({', '.join(map(str, failure.pods))})" if failure.pods else ""
            self.failed(_STATUS.get(failure.why, 500), f"node {node}: {failure.why}: {failure.detail}{pods}")
            return VictimOutcome.STAYS if failure.why in _OF_THE_NODE else VictimOutcome.BROKEN
        if drain.removed_by:
            self.failed(500, f"node {node}: {drain.removed_by}: the termination of its machine was not requested")
            return VictimOutcome.BROKEN
        if drain.handed_over:
            self.count_terminating(node)
        else:
            self.gone += 1
        return VictimOutcome.GOES

    def cancel(self, machines: Sequence[Machine], provider: CloudProvider, deadline: float, may_end: MayEnd) -> None:
        """Terminate machines without a Node, which need no drain. All are ordered before the first wait.

        *may_end* is called before each request, because a machine may join the cluster in the meantime.
        """
        if not machines:
            return
        refs = [NodeRef(machine.id, machine.id) for machine in machines]
        (group,) = provider.groups(deadline=deadline)
        outcomes = dict(provider.delete_nodes(group.id, refs, deadline=deadline, may_end=may_end))
        ordered = [ref for ref in refs if isinstance(outcomes[ref.name], Accepted)]
        if ordered:
            outcomes |= provider.delete_nodes(group.id, ordered, deadline=deadline, may_end=may_end)
        for name, outcome in outcomes.items():
            match outcome:
                case Deleted() | AlreadyGone():
                    self.gone += 1
                case Accepted(detail):
                    self.ordered += 1
                    self.failed(504, f"machine {name}: {detail}")
                case Failed(detail):
                    self.failed(502, f"machine {name}: {detail}")
                case _:
                    self.failed(500, f"machine {name}: {outcome.detail}")

    def replaced(self) -> None:
        """Discard the failures, because other machines were removed instead."""
        self.failures.clear()

    def result_text(self, wanted: int) -> str:
        """Return a message about the part that was not done, or "". Raises UpdateFailed if nothing was done."""
        why = "; ".join(self.failures)
        if not self.failures:
            return ""
        if not self.gone and not self.ordered:
            raise UpdateFailed(self.status, why)
        if not self.gone:
            raise UpdateFailed(504, why)
        return f"{self.gone} of {wanted} machines were removed: {why}"


# The replacement pods that drains of a proxy still owe, also those of a process before this one.


_UNKNOWN: Final = "cannot check the debts of earlier drains"


class KeptMemory(Protocol):
    """The memory of the proxy, which is stored in the cluster: `housekeeping.synced_memory.SyncedMemory`."""

    memory: Memory
    trouble: str  #: why the memory cannot be read or stored, or ""

    def refresh(self) -> None:
        """Read what is stored, and merge unsaved changes into it. Raises ReschedulerError."""
        ...

    def save(self) -> bool:
        """Store the changes. Return whether all are stored."""
        ...


class FailedDrains:
    """The debts of failed drains, and the owners that are set aside because of them. Not thread-safe."""

    def __init__(
        self,
        view: ClusterView,
        controllers: Controllers,
        clock: Clock,
        report: Report,
        patience: timedelta,
        read_leases: ReadLeases,
        ledger: KeptMemory,
        *,
        ready: bool,
        waive: str,
    ) -> None:
        """Create the record of the debts in *ledger*. *patience* is the landing timeout.

        *read_leases* reads the Leases of Nodes. Without *ready*, replacement pods only need to be bound. *waive* is
        advice on waiving a debt.
        """
        self._clock, self._ledger = clock, ledger
        self._landings = Landings(
            view, controllers, self, report, clock, patience, read_leases, ready=ready, waive=waive
        )

    @property
    def debts(self) -> tuple[OpenDebt, ...]:
        """What is owed."""
        return self.memory.debts

    @property
    def memory(self) -> Memory:
        """What is owed, which owners wait, and what kubelets have refused, as the memory of a daemon."""
        kept = self._ledger.memory
        return Memory(debts=kept.debts, settled=kept.settled, not_recovered=kept.not_recovered, refusals=kept.refusals)

    @property
    def settled(self) -> tuple[OpenDebt, ...]:
        """What failed drains have paid, while their nodes are there."""
        return self.memory.settled

    def set_aside(self, owner: Controller, since: datetime | None = None) -> None:
        """Do not move the pods of *owner* for a while, because they lack *since* a time."""
        before = self._ledger.memory.not_recovered
        self._note(not_recovered=before.failed(owner, self._clock.now(), Waits().recovery, since))

    def judged(self, debts: tuple[OpenDebt, ...], settled: tuple[OpenDebt, ...]) -> None:
        """Replace the open *debts*, and those that are *settled*."""
        self._note(debts=debts, settled=settled)

    def store(self, drain: Drain, *, end: bool) -> bool:
        """Store the debts of *drain* before it evicts, and at its *end* what it owes. Return whether all is stored."""
        if end:
            self._owe(drain)
        else:
            self._note(debts=owing(self.debts, drain.node, drain.debts.values(), self._clock.now()))
        return self._ledger.save()

    def note(self, drain: Drain) -> None:
        """Record the result of *drain*, which has ended."""
        self._owe(drain)
        why = drain.failure or drain.postponed
        if why is not None and why.refusal is not None:
            self._note(refusals=self._ledger.memory.refusals.noted(why.refusal))
        self._ledger.save()
        self._landings.evicted(drain.evicted)

    def _owe(self, drain: Drain) -> None:
        """Record what *drain* owes at its end."""
        failed = drain.failure is not None or drain.rolled_back
        begun = drain.begun or drain.resumed or drain.rolled_back
        owed = drain.leaves_owed
        paid = [debt for controller, debt in drain.debts.items() if controller not in owed]
        now, stays = self._clock.now(), paid if failed and begun else ()
        ledger, settled = without_paid(self.debts, drain.node, paid), owing(self.settled, drain.node, stays, now)
        self._note(debts=owing(ledger, drain.node, owed.values(), now, now), settled=settled)

    def _note(self, **changes: object) -> None:
        self._ledger.memory = msgspec.structs.replace(self._ledger.memory, **changes)

    def owed(self) -> str:
        """Return the owed replacement pods, because of which no drain may start; "" if nothing is owed."""
        if why := self.unknown():
            return why
        try:
            held = self._landings.settle()
        except ReschedulerError as error:
            return f"{_UNKNOWN}: {error}"
        self._ledger.save()
        return self._trouble() or ("" if held is None else held.detail)

    def unknown(self) -> str:
        """Read what is stored. Return why that is not possible, or ""."""
        try:
            self._ledger.refresh()
        except ReschedulerError as error:
            return f"{_UNKNOWN}: {error}"
        return self._trouble()

    def _trouble(self) -> str:
        return f"{_UNKNOWN}: {self._ledger.trouble}" if self._ledger.trouble else ""
