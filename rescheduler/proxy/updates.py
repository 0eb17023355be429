"""Sets sizes and terminates machines, draining first: the pool's numbers, the planner's victims, the drainer's work."""

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from rescheduler import errors
from rescheduler.backends.base import Accepted, AlreadyGone, CloudProvider, DeadlineExceeded, Deleted, Failed, NodeRef
from rescheduler.backends.cloudpool.client import Observation
from rescheduler.backends.cloudpool.messages import Machine, MachineState, Membership
from rescheduler.backends.cloudpool.pool import Pool
from rescheduler.backends.http import Missing
from rescheduler.draining.state import Drain, Why
from rescheduler.planning.outcome import Plan, Rejected
from rescheduler.proxy.answers import UpdateFailed
from rescheduler.proxy.pool import Members, members
from rescheduler.proxy.victims import Choice

T = TypeVar("T")

#: A drain's failure: the status of the answer; 500 for all others.
_STATUS: Final = {Why.PROVIDER: 502, Why.API_ERROR: 503, Why.EVICTION_TIMEOUT: 504, Why.TERMINATION_TIMEOUT: 504}

_ORDERED: Final = "node {}: its machine was ordered away, and is not gone yet"


class Nodes(Protocol):
    """The cluster, as far as updates need it."""

    def unfit(self) -> str:
        """Why nothing can be decided from what is known of the cluster; "" where it can."""
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


@dataclass(frozen=True, slots=True)
class Way:
    """What becomes of a drained node's machine: *provider* takes it, *drain* empties the node and asks it to."""

    drain: Callable[[Plan], Drain | None]
    provider: CloudProvider


@dataclass(frozen=True, slots=True)
class Ways:
    shrink: Way  #: terminated, and the pool is one smaller
    replace: Way  #: terminated, and the pool makes another one
    keep: Way  #: not touched


@dataclass(slots=True)
class _Tally:
    """How a removal of several machines went."""

    gone: int = 0
    ordered: int = 0  #: ordered away, their end was not seen
    failures: list[str] = field(default_factory=list)
    status: int = 500  #: of the first failure

    def failed(self, status: int, why: str) -> None:
        self.status = self.status if self.failures else status
        self.failures.append(why)


class PoolUpdates:
    """The updates of one pool, one at a time (see `app.Updates`); each may take *patience* seconds.

    Once *stop* is set, they wait for the pool no longer.
    """

    def __init__(
        self, pool: Pool, nodes: Nodes, ways: Ways, patience: float, stop: threading.Event | None = None
    ) -> None:
        self._pool, self._nodes, self._ways, self._patience = pool, nodes, ways, patience
        self._stop = stop or pool.closed

    def set_size(self, desired: int) -> str:
        """Growing needs no cluster. Shrinking is judged on a view of the pool that is younger than the call."""
        deadline, began = self._deadline(), self._pool.clock.now()
        view = self._asked(lambda: self._pool.look(deadline=deadline))
        size = self._asked(lambda: self._pool.desired_size(deadline=deadline))
        if desired < max(_active(view), size):
            view = self._asked(lambda: self._pool.look_since(began, deadline=deadline, stop=self._stop))
        if desired >= _active(view):
            self._asked(lambda: self._pool.client.set_size(desired, deadline=deadline))
            return ""
        found = self._members(view)
        if size != found.active:
            # Else the pool would grow, or choose victims of its own, while ours are being drained.
            self._asked(lambda: self._pool.client.set_size(found.active, deadline=deadline))
        tally = self._shrunk(found, found.active - desired, deadline)
        self._settle(desired, found.active - tally.gone - tally.ordered, tally, deadline)
        return _told(tally, found.active - desired)

    def terminate(self, machine: str, *, decrement: bool) -> str:
        """A machine that is gone, or that was ordered away by us, is terminated already."""
        deadline = self._deadline()
        found = self._machine(machine, deadline)
        if found is None:
            return ""
        way = self._ways.shrink if decrement else self._ways.replace
        tally = _Tally()
        if node := self._node_of(found, deadline):
            self._drain(self._viable(node), way, tally)
        else:
            self._cancel([found], way, tally, deadline)
        return _told(tally, 1)

    def detach(self, machine: str, *, decrement: bool) -> str:
        """The node is drained for the moment at which the pool lets go of it; afterwards it takes pods again."""
        deadline = self._deadline()
        found = self._machine(machine, deadline)
        if found is None:
            raise UpdateFailed(404, f"machine {machine} is no member of the pool any more")
        least = self._pool.group.min_size
        if decrement and found.active and _active(self._asked(lambda: self._pool.look(deadline=deadline))) <= least:
            raise UpdateFailed(500, f"machine {machine}: the pool must keep {least}")
        if node := self._node_of(found, deadline):
            tally = _Tally()
            self._drain(self._viable(node), self._ways.keep, tally)
            _told(tally, 1)
        self._asked(lambda: self._pool.client.detach(machine, decrement=decrement, deadline=deadline), missing=404)
        return ""

    def comes_back(self, machine: str) -> bool:
        view = self._asked(lambda: self._pool.look(deadline=self._deadline()))
        return any(one.id == machine and one.allocated and not one.active for one in view.machines)

    def take_back(self, machine: str, *, evictable: bool) -> str:
        """The desired size grows by the machine, at once after it: a pool with one too many ends the youngest."""
        deadline = self._deadline()
        view = self._asked(lambda: self._pool.look(deadline=deadline))
        size, least = self._asked(lambda: self._pool.desired_size(deadline=deadline)), _active(view) + 1
        status = Membership(active=True, evictable=evictable)
        self._asked(lambda: self._pool.client.set_membership(machine, status, deadline=deadline), missing=404)
        if size >= least:
            return ""
        self._asked(lambda: self._pool.client.set_size(least, deadline=deadline))
        return f"machine {machine} counts again, and the pool's desired size was raised from {size} to {least}"

    # -- sizes

    def _shrunk(self, found: Members, excess: int, deadline: float) -> _Tally:
        """What was ordered away before counts; machines without a Node go first, then victims one after the other.

        All victims are tainted before the first one is drained.
        """
        tally = _Tally()
        leaving = sorted(self._nodes.leaving() & found.nodes.keys())
        for node in leaving:
            tally.ordered += 1
            tally.failed(504, _ORDERED.format(node))
        wanted = max(0, excess - len(leaving))
        self._cancel(found.nodeless[:wanted], self._ways.shrink, tally, deadline)
        wanted = max(0, wanted - len(found.nodeless))
        if not wanted:
            return tally
        choice = self._nodes.choose(sorted(found.nodes.keys() - set(leaving)), wanted)
        left = [plan.node for plan in choice.plans]
        try:
            self._nodes.taint(left)
            left = [plan.node for plan in choice.plans if not self._drained_in_time(plan, tally, deadline)]
        except errors.ReschedulerError as error:
            tally.failed(503, str(error))
        finally:
            self._nodes.release(left)
        if len(choice.plans) < wanted:
            for why in (*_rejections(choice.rejected), *found.reasons):
                tally.failed(500, why)
        return tally

    def _settle(self, desired: int, left: int, tally: _Tally, deadline: float) -> None:
        """See that the pool wants what there is, or what was asked for: never fewer than are left undrained.

        While it counts a machine that was ordered away, it is told nothing: the order may not have come through, and
        the pool would choose another one.
        """
        wanted = max(desired, left)
        try:
            active = _active(self._pool.look(deadline=deadline))
            if active <= wanted != self._pool.desired_size(deadline=deadline):
                self._pool.client.set_size(wanted, deadline=deadline)
        except errors.ReschedulerError as error:
            tally.failed(502, f"the desired size could not be set to {wanted}: {error}")

    def _members(self, view: Observation) -> Members:
        if unfit := self._nodes.unfit():
            raise UpdateFailed(503, unfit)
        return members(view.machines, view.index, self._nodes.refs())

    # -- single machines

    def _machine(self, machine: str, deadline: float) -> Machine | None:
        """The machine, `None` if it is gone or going; 404 if there is none of that id."""
        view = self._asked(lambda: self._pool.look(deadline=deadline))
        found = [one for one in view.machines if one.id == machine]
        if len(found) > 1:
            raise UpdateFailed(500, f"the pool lists machine {machine} {len(found)} times")
        if not found:
            if self._pool.ledger.order(machine) is not None:
                return None
            raise UpdateFailed(404, f"machine {machine} is no member of the pool")
        if not found[0].gone and not found[0].membership.evictable:
            raise UpdateFailed(500, f"machine {machine}: its membership status says that it is not evictable")
        return None if found[0].gone else found[0]

    def _node_of(self, machine: Machine, deadline: float) -> str | None:
        """The machine's Node; `None` for one that is not launched wholly, on a view that is young enough to say so."""
        began = self._pool.clock.now()
        if machine.machine_state != MachineState.RUNNING:
            view = self._asked(lambda: self._pool.look_since(began, deadline=deadline, stop=self._stop))
        else:
            view = self._asked(lambda: self._pool.view(deadline=deadline))
        if unfit := self._nodes.unfit():
            raise UpdateFailed(503, unfit)
        nodes = self._nodes.refs()
        paired = {one.id: name for name, one in view.index.match(nodes).machines.items()}
        if machine.id in paired:
            if paired[machine.id] in self._nodes.leaving():
                raise UpdateFailed(504, _ORDERED.format(paired[machine.id]))
            return paired[machine.id]
        found = members(view.machines, view.index, nodes)
        launching = [one for one in found.nodeless if one.machine_state != MachineState.RUNNING]
        if machine.id in [one.id for one in launching]:
            return None
        raise UpdateFailed(500, f"machine {machine.id}: no node is surely this machine; it may be about to register")

    def _viable(self, node: str) -> Plan:
        choice = self._nodes.choose([node], 1)
        if not choice.plans:
            raise UpdateFailed(500, "; ".join(_rejections(choice.rejected)))
        return choice.plans[0]

    def _drained_in_time(self, plan: Plan, tally: _Tally, deadline: float) -> bool:
        if self._pool.clock.monotonic() < deadline:
            return self._drain(plan, self._ways.shrink, tally)
        tally.failed(504, f"node {plan.node}: the update's time is out")
        return False

    def _drain(self, plan: Plan, way: Way, tally: _Tally) -> bool:
        """Whether the machine is gone, or is going."""
        drain = way.drain(plan)
        if drain is None:
            tally.failed(500, f"node {plan.node}: it is gone")
        elif drain.failure is not None:
            failure = drain.failure
            pods = f" ({', '.join(map(str, failure.pods))})" if failure.pods else ""
            tally.failed(_STATUS.get(failure.why, 500), f"node {plan.node}: {failure.why}: {failure.detail}{pods}")
        elif drain.handed_over:
            tally.ordered += 1
            tally.failed(504, _ORDERED.format(plan.node))
        else:
            tally.gone += 1
        return drain is not None and drain.failure is None

    def _cancel(self, machines: Sequence[Machine], way: Way, tally: _Tally, deadline: float) -> None:
        """Machines without a Node need no drain."""
        if not machines:
            return
        refs = [NodeRef(one.id, one.id) for one in machines]
        outcomes = way.provider.delete_nodes(self._pool.group.id, refs, deadline=deadline)
        for name, outcome in outcomes.items():
            match outcome:
                case Deleted() | AlreadyGone():
                    tally.gone += 1
                case Accepted(detail):
                    tally.ordered += 1
                    tally.failed(504, f"machine {name}: {detail}")
                case Failed(detail):
                    tally.failed(502, f"machine {name}: {detail}")
                case _:
                    tally.failed(500, f"machine {name}: {outcome.detail}")

    def _deadline(self) -> float:
        return self._pool.clock.monotonic() + self._patience

    def _asked(self, call: Callable[[], T], *, missing: int = 502) -> T:
        """What the backend says; its failures are the answer's."""
        try:
            return call()
        except DeadlineExceeded as error:
            raise UpdateFailed(504, str(error)) from error
        except errors.ReschedulerError as error:
            raise UpdateFailed(missing if isinstance(error, Missing) else 502, str(error)) from error


def _active(view: Observation) -> int:
    return sum(machine.active for machine in view.machines)


def _rejections(rejected: Iterable[Rejected]) -> list[str]:
    return [
        f"node {one.node}: {f'pod {blocker.pod}: ' if blocker.pod else ''}{blocker.detail}"
        for one in rejected
        for blocker in one.blockers
    ]


def _told(tally: _Tally, wanted: int) -> str:
    """What is left to say; UpdateFailed where nothing was done."""
    why = "; ".join(tally.failures)
    if not tally.failures:
        return ""
    if not tally.gone and not tally.ordered:
        raise UpdateFailed(tally.status, why)
    if not tally.gone:
        raise UpdateFailed(504, why)
    return f"{tally.gone} of {wanted} machines were removed: {why}"
