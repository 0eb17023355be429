"""Sets sizes and terminates machines, draining first: the pool's numbers, the planner's victims, the drainer's work."""

import datetime as dt
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from rescheduler import errors
from rescheduler.backends.base import DeadlineExceeded
from rescheduler.backends.cloudpool.client import Observation
from rescheduler.backends.cloudpool.deletion import Answer
from rescheduler.backends.cloudpool.messages import Machine, MachineState, Membership
from rescheduler.backends.cloudpool.pool import Pool
from rescheduler.backends.http import Missing
from rescheduler.planning.outcome import Plan, Rejected
from rescheduler.proxy.answers import UpdateFailed
from rescheduler.proxy.pool import Members, members, surely_nodeless
from rescheduler.proxy.removal import ORDERED, Nodes, Outcome, Removal, Way, Ways

T = TypeVar("T")


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
        """Growing needs no cluster. Shrinking is judged on a view of the pool that is younger than the call.

        The pool is told a smaller number only where it could not get as many machines as it wants: while it launches
        machines, it would find one too many by then, and end one of its own choice.
        """
        deadline, began = self._deadline(), self._pool.clock.now()
        view = self._asked(lambda: self._pool.look(deadline=deadline))
        size = self._asked(lambda: self._pool.desired_size(deadline=deadline))
        if desired < max(view.active, size):
            view, size = self._asked(lambda: self._pool.caught_up(began, deadline=deadline, stop=self._stop))
        if desired >= view.active:
            self._asked(lambda: self._pool.client.set_size(desired, deadline=deadline))
            return ""
        found = self._members(view)
        if size != found.active:
            # Else the pool would grow, or choose victims of its own, while ours are being drained.
            self._asked(lambda: self._pool.client.set_size(found.active, deadline=deadline))
        least = max(desired, self._pool.group.min_size)
        removal = self._shrunk(found, max(0, found.active - least), deadline)
        if desired < least <= found.active:
            removal.failed(500, f"the pool must keep {least}")
        wanted = max(desired, found.active - removal.gone - removal.ordered)
        self._settle(wanted, "; ".join(self._lost(began)), removal, deadline)
        return removal.told(found.active - desired)

    def terminate(self, machine: str, *, decrement: bool) -> str:
        """A machine that is gone, or that was ordered away by us, is terminated already."""
        deadline, began = self._deadline(), self._pool.clock.now()
        found = self._machine(machine, deadline)
        if found is not None and decrement:
            self._keep_minimum(found, deadline)
        removal = Removal(gone=int(found is None))
        self._end(found, self._ways.shrink if decrement else self._ways.replace, removal, deadline)
        order = self._pool.ledger.order(machine)
        if removal.gone and order is not None and order.lost and order.desired is not None:
            words = "; ".join(self._lost(of=machine))
            if order.at >= began:
                self._settle(order.desired - 1, words, removal, deadline)
            elif self._asked(lambda: self._pool.desired_size(deadline=deadline)) >= order.desired:
                removal.failed(502, f"the pool's desired size was not lowered: {words}")
        return removal.told(1)

    def dispose(self, machine: str) -> str:
        """What protects a machine is taken off it when its node is empty, and not before."""
        deadline = self._deadline()
        found = self._machine(machine, deadline, protected=True)
        way = self._ways.replace if found is None or found.membership.evictable else self._ways.dispose
        removal = Removal(gone=int(found is None))
        self._end(found, way, removal, deadline)
        return removal.told(1)

    def detach(self, machine: str, *, decrement: bool) -> str:
        """The node is drained for the moment at which the pool lets go of it; afterwards it takes pods again."""
        deadline = self._deadline()
        found = self._machine(machine, deadline)
        if found is None:
            raise UpdateFailed(404, f"machine {machine} is no member of the pool any more")
        if decrement:
            self._keep_minimum(found, deadline)
        if node := self._node_of(found, deadline):
            removal = Removal()
            removal.drain(self._viable(node), self._ways.keep)
            removal.told(1)
        self._asked(lambda: self._pool.client.detach(machine, decrement=decrement, deadline=deadline), missing=404)
        return ""

    def comes_back(self, machine: str) -> bool:
        """The pool's answers are those of its last look, and the status may have changed since."""
        deadline, began = self._deadline(), self._pool.clock.now()
        view = self._asked(lambda: self._pool.look_since(began, deadline=deadline, stop=self._stop))
        return any(one.id == machine and one.allocated and not one.active for one in view.machines)

    def take_back(self, machine: str, *, evictable: bool) -> str:
        """The desired size grows by the machine, at once after it: a pool with one too many ends one of its choice.

        It grows in any case. Where the machine had no replacement yet, the pool launches one more than before, and
        whoever sets a smaller size has it drained first.
        """
        deadline = self._deadline()
        size = self._asked(lambda: self._pool.desired_size(deadline=deadline))
        status = Membership(active=True, evictable=evictable)
        self._asked(lambda: self._pool.client.set_membership(machine, status, deadline=deadline), missing=404)
        self._asked(lambda: self._pool.client.set_size(size + 1, deadline=deadline))
        return f"machine {machine} counts again, and the pool's desired size was raised from {size} to {size + 1}"

    # -- sizes

    def _shrunk(self, found: Members, excess: int, deadline: float) -> Removal:
        """Remove *excess* machines: count earlier orders, then those without a Node, then drain victims in order.

        Victims that could not be drained are not reported if others were removed instead.
        """
        removal = Removal()
        leaving = sorted(self._nodes.leaving() & found.nodes.keys())
        for node in leaving:
            removal.going(node)
        wanted = max(0, excess - len(leaving))
        removal.cancel(found.nodeless[:wanted], self._ways.shrink.provider, deadline)
        self._drain_some(found, set(leaving), max(0, wanted - len(found.nodeless)), removal, deadline)
        if removal.gone == excess:
            removal.replaced()
        return removal

    def _drain_some(self, found: Members, tried: set[str], wanted: int, removal: Removal, deadline: float) -> None:
        """Take *wanted* nodes; in place of those that cannot be emptied others are tried, each of them once."""
        while wanted:
            if owed := self._nodes.owed():
                removal.failed(503, owed)
                return
            choice = self._nodes.choose(sorted(found.nodes.keys() - tried), wanted)
            outcomes = removal.drain_all(choice.plans, self._nodes, self._ways.shrink, partial(self._late, deadline))
            short = len(choice.plans) < wanted
            wanted -= outcomes.count(Outcome.GOES)
            tried |= {plan.node for plan in choice.plans}
            if Outcome.BROKEN not in outcomes and Outcome.STAYS in outcomes:
                continue
            if short:
                for why in (*_rejections(choice.rejected), *found.reasons):
                    removal.failed(500, why)
            return

    def _settle(self, wanted: int, words: str, removal: Removal, deadline: float) -> None:
        """See that the pool wants *wanted* machines, which is never fewer than are left undrained.

        A pool that wants more did not lower its size with a termination, and launches another machine. Told the
        smaller number, it would choose a victim of its own; so that machine is awaited, and taken away like any other.
        While orders may still be at work, nothing is done about it. *words* are what it said about the terminations.
        """
        try:
            size = self._pool.desired_size(deadline=deadline)
            if size < wanted:
                self._pool.client.set_size(wanted, deadline=deadline)
            elif size > wanted and not removal.ordered:
                self._take_replacements(wanted, words, removal, deadline)
        except errors.ReschedulerError as error:
            removal.failed(502, f"whether the pool wants {wanted} machines is not known: {error}")

    def _take_replacements(self, wanted: int, words: str, removal: Removal, deadline: float) -> None:
        """Take machines away until the pool wants *wanted*; where it does not show them in time, its size stays."""
        began, more = self._pool.clock.now(), Removal()
        try:
            view, size = self._pool.caught_up(began, deadline=deadline, stop=self._stop)
            if view.active > wanted:
                more = self._shrunk(self._members(view), view.active - wanted, deadline)
                size = self._pool.desired_size(deadline=deadline)
        except (errors.ReschedulerError, UpdateFailed) as error:
            more.failed(502, str(error))
            size = self._pool.desired_size(deadline=deadline)
        if size > wanted:
            why = "; ".join(one for one in (words, *more.failures) if one)
            removal.failed(502, f"the pool's desired size is {size} still, not {wanted}: {why}")

    def _lost(self, since: dt.datetime | None = None, of: str = "") -> Iterator[str]:
        """What the pool said about terminations that did not lower its size."""
        for machine, order in self._pool.ledger.orders().items():
            if order.lost and (since is None or order.at >= since) and of in {"", machine}:
                yield f"machine {machine}: {order.words or 'the size was set by another client meanwhile'}"

    def _members(self, view: Observation) -> Members:
        if unfit := self._nodes.unfit():
            raise UpdateFailed(503, unfit)
        return members(view.machines, view.index, self._nodes.refs())

    # -- single machines

    def _end(self, machine: Machine | None, way: Way, removal: Removal, deadline: float) -> None:
        """Drain the machine's node, if it has one, and let the machine go the *way*."""
        if machine is None:
            return
        # What does not count is disposable, or is to become so: it is the pool that ends it.
        way = way if machine.active else self._ways.dispose
        if node := self._node_of(machine, deadline):
            removal.drain(self._viable(node), way)
        else:
            removal.cancel([machine], way.provider, deadline)

    def _keep_minimum(self, machine: Machine, deadline: float) -> None:
        """A pool at its minimum is no failure of a drain: none begins."""
        least = self._pool.group.min_size
        if machine.active and self._asked(lambda: self._pool.desired_size(deadline=deadline)) <= least:
            raise UpdateFailed(500, f"machine {machine.id}: the pool must keep {least}")

    def _machine(self, machine: str, deadline: float, *, protected: bool = False) -> Machine | None:
        """The machine, `None` if it is gone or going; 404 if there is none of that id, 500 if the pool protects it."""
        view = self._asked(lambda: self._pool.look(deadline=deadline))
        found = [one for one in view.machines if one.id == machine]
        if len(found) > 1:
            raise UpdateFailed(500, f"the pool lists machine {machine} {len(found)} times")
        if not found:
            if self._pool.ledger.order(machine) is not None:
                return None
            raise UpdateFailed(404, f"machine {machine} is no member of the pool")
        order = self._pool.ledger.order(machine)
        if order is not None and order.answer is Answer.DONE and view.observed_at < order.at:
            return None  # the pool has taken the order, and its answer is older
        if not (found[0].gone or found[0].membership.evictable or protected):
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
                raise UpdateFailed(504, ORDERED.format(paired[machine.id]))
            return paired[machine.id]
        listed = next((one for one in view.machines if one.id == machine.id), machine)
        launching = listed.machine_state != MachineState.RUNNING
        if launching and surely_nodeless(listed, view.machines, view.index, nodes):
            return None
        raise UpdateFailed(500, f"machine {machine.id}: no node is surely this machine; it may be about to register")

    def _viable(self, node: str) -> Plan:
        if owed := self._nodes.owed():
            raise UpdateFailed(503, owed)
        choice = self._nodes.choose([node], 1)
        if not choice.plans:
            raise UpdateFailed(500, "; ".join(_rejections(choice.rejected)))
        return choice.plans[0]

    def _late(self, deadline: float) -> bool:
        return self._pool.clock.monotonic() >= deadline

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


def _rejections(rejected: Iterable[Rejected]) -> list[str]:
    return [
        f"node {one.node}: {f'pod {blocker.pod}: ' if blocker.pod else ''}{blocker.detail}"
        for one in rejected
        for blocker in one.blockers
    ]
