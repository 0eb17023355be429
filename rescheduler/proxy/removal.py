"""One removal of machines from the pool: done node by node, and told in one answer."""

import enum
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rescheduler.backends.base import Accepted, AlreadyGone, CloudProvider, Deleted, Failed, NodeRef
from rescheduler.backends.cloudpool.messages import Machine
from rescheduler.drainer import Ordered
from rescheduler.draining.state import Drain, Why
from rescheduler.errors import ReschedulerError
from rescheduler.planning.outcome import Plan
from rescheduler.proxy.answers import UpdateFailed
from rescheduler.proxy.victims import Choice

ORDERED: Final = "node {}: machine termination requested, not yet confirmed"

#: A drain's failure: the status of the answer; 500 for all others.
_STATUS: Final = {
    Why.PROVIDER: 502,
    Why.API_ERROR: 503,
    Why.EVICTION_TIMEOUT: 504,
    Why.TERMINATION_TIMEOUT: 504,
    Why.REPLACEMENT_NOT_BOUND: 504,
    Why.LANDING_TIMEOUT: 504,
}

#: Failures that the next node need not have.
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


class Outcome(enum.Enum):
    """What became of a victim."""

    GOES = enum.auto()  #: its machine is gone, or was ordered away
    STAYS = enum.auto()  #: it could not be emptied; another node could be
    BROKEN = enum.auto()  #: what failed would fail for others, too, or has changed the pool


@dataclass(frozen=True, slots=True)
class Way:
    """What becomes of a drained node's machine: *provider* takes it, *drain* empties the node and asks it to.

    The provider is prompt: it answers when the pool has taken an order.
    """

    drain: Callable[[Plan], Drain | Ordered | None]
    finish: Callable[[Ordered], Drain]  #: waits for the end of a machine that `drain` has ordered away
    provider: CloudProvider


@dataclass(frozen=True, slots=True)
class Ways:
    """All that can become of a machine whose node is drained."""

    shrink: Way  #: terminated, and the pool is one smaller
    replace: Way  #: terminated, and the pool makes another one
    dispose: Way  #: made disposable though it is protected or does not count: the pool ends it by itself
    keep: Way  #: not touched


class Nodes(Protocol):
    """The cluster, as far as updates need it."""

    def unfit(self) -> str:
        """Why nothing can be decided from what is known of the cluster; "" where it can."""
        ...

    def owed(self) -> str:
        """Why no drain may begin now: earlier ones failed, and their pods do not run again yet; "" where it may."""
        ...

    def refs(self) -> Sequence[NodeRef]:
        """All Nodes, as they are."""
        ...

    def leaving(self) -> Collection[str]:
        """Nodes whose machines we, or the process before us, may have ordered away."""
        ...

    def choose(self, nodes: Sequence[str], most: int) -> Choice:
        """See `victims.Victims.choose`."""
        ...

    def taint(self, nodes: Sequence[str]) -> None:
        """Keep new pods off *nodes*. Raises ReschedulerError, after which some may be tainted."""
        ...

    def release(self, nodes: Sequence[str]) -> None:
        """Take our taint off nodes that were not drained after all; what fails is tried again later."""
        ...


@dataclass(slots=True)
class Removal:
    """How a removal of one or several machines went so far."""

    gone: int = 0
    ordered: int = 0  #: ordered away, their end was not seen
    failures: list[str] = field(default_factory=list)
    status: int = 500  #: of the first failure

    def failed(self, status: int, why: str) -> None:
        """*why* is a part of the answer, and *status* the answer's if nothing has failed before."""
        self.status = self.status if self.failures else status
        self.failures.append(why)

    def going(self, node: str) -> None:
        """The node's machine was ordered away, and there is no more to do about it."""
        self.ordered += 1
        self.failed(504, ORDERED.format(node))

    def drain_all(self, plans: Sequence[Plan], nodes: Nodes, way: Way, late: Callable[[], bool]) -> list[Outcome]:
        """All are tainted before the first one is drained; none is begun when it is *late*, or pods are owed.

        The ends of the machines are awaited together, after the last drain: each may show in the pool's view only
        when that is refreshed.
        """
        left = {plan.node for plan in plans}
        outcomes: list[Outcome] = []
        ordered: list[Ordered] = []
        try:
            nodes.taint([plan.node for plan in plans])
            for plan in plans:
                ended = way.drain(plan) if self._may_begin(plan.node, nodes, late) else Outcome.BROKEN
                if isinstance(ended, Ordered):
                    ordered.append(ended)
                    left.remove(plan.node)
                    continue
                outcomes.append(ended if isinstance(ended, Outcome) else self._became(plan.node, ended))
                if outcomes[-1] is Outcome.GOES:
                    left.remove(plan.node)
        except ReschedulerError as error:
            self.failed(503, str(error))
            outcomes.append(Outcome.BROKEN)
        finally:
            nodes.release(sorted(left))
            outcomes += [self._became(one.node.name, way.finish(one)) for one in ordered]
        return outcomes

    def _may_begin(self, node: str, nodes: Nodes, late: Callable[[], bool]) -> bool:
        """Whether a drain may; what forbids it is a part of the answer."""
        if late():
            self.failed(504, f"node {node}: the update's time is out")
            return False
        if owed := nodes.owed():
            self.failed(503, f"node {node}: {owed}")
            return False
        return True

    def drain(self, plan: Plan, way: Way) -> Outcome:
        """Empty the plan's node, and let its machine go the way."""
        ended = way.drain(plan)
        return self._became(plan.node, way.finish(ended) if isinstance(ended, Ordered) else ended)

    def _became(self, node: str, drain: Drain | None) -> Outcome:
        """Count what became of *node*; `None`: it went before its drain began."""
        if drain is None:
            self.failed(500, f"node {node}: it is gone")
            return Outcome.BROKEN
        if drain.failure is not None:
            failure = drain.failure
            pods = f" ({', '.join(map(str, failure.pods))})" if failure.pods else ""
            self.failed(_STATUS.get(failure.why, 500), f"node {node}: {failure.why}: {failure.detail}{pods}")
            return Outcome.STAYS if failure.why in _OF_THE_NODE else Outcome.BROKEN
        if drain.removed_by:
            self.failed(500, f"node {node}: {drain.removed_by}: its machine was not ordered away")
            return Outcome.BROKEN
        if drain.handed_over:
            self.going(node)
        else:
            self.gone += 1
        return Outcome.GOES

    def cancel(self, machines: Sequence[Machine], provider: CloudProvider, deadline: float) -> None:
        """Machines without a Node need no drain. All are ordered away before the end of one is awaited."""
        if not machines:
            return
        refs = [NodeRef(one.id, one.id) for one in machines]
        (group,) = provider.groups(deadline=deadline)
        outcomes = dict(provider.delete_nodes(group.id, refs, deadline=deadline))
        ordered = [ref for ref in refs if isinstance(outcomes[ref.name], Accepted)]
        if ordered:
            outcomes |= provider.delete_nodes(group.id, ordered, deadline=deadline)
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
        """Others went in place of all that failed: there is nothing to say about those."""
        self.failures.clear()

    def told(self, wanted: int) -> str:
        """What is left to say; UpdateFailed where nothing was done."""
        why = "; ".join(self.failures)
        if not self.failures:
            return ""
        if not self.gone and not self.ordered:
            raise UpdateFailed(self.status, why)
        if not self.gone:
            raise UpdateFailed(504, why)
        return f"{self.gone} of {wanted} machines were removed: {why}"
