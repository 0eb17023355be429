"""Updates of the pool: set its size, choose machines, and remove them after draining their nodes. Separate from
the service, because it decides about one request and knows no sweeps.
"""

import datetime as dt
import http
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from rescheduler import errors
from rescheduler.cloudpool import matching
from rescheduler.cloudpool.client import PoolObservation
from rescheduler.cloudpool.matching import Machine, MachineIndex, MachineState, Membership, moment
from rescheduler.cloudpool.pool import CloudPool
from rescheduler.cloudpool.proxy.messages import UpdateFailed
from rescheduler.cloudpool.proxy.removal import (
    ORDERED,
    KeptMemory,
    NodeOperations,
    RemovalMethod,
    RemovalMethods,
    RemovalProgress,
    VictimOutcome,
)
from rescheduler.errors import DeadlineExceeded
from rescheduler.net.http_errors import Missing
from rescheduler.planning.memory import Reactivation
from rescheduler.planning.outcome import Plan, Rejected
from rescheduler.providers.base import NodeRef
from rescheduler.providers.order_life import OrderResult

# The active machines of a pool, matched to Nodes, and their order of removal. No I/O, no clock.

_ORDER = {MachineState.REQUESTED: 0, MachineState.PENDING: 1, MachineState.RUNNING: 2}


@dataclass(frozen=True, slots=True)
class Members:
    """The active machines of a pool, matched to Nodes."""

    active: int
    nodeless: Sequence[Machine]  #: evictable machines that certainly have no Node, in the order of removal
    nodes: Mapping[str, Machine]  #: Node name → its evictable machine
    reasons: Sequence[str]  #: why the other machines are not removed


def members(machines: Sequence[Machine], index: MachineIndex, nodes: Sequence[NodeRef]) -> Members:
    """Match machines and Nodes. A machine that could belong to an unmatched Node is kept, as its pods are unknown."""
    matching = index.match(nodes)
    unpaired = [node for node in nodes if node.name not in matching.machines]
    paired = {machine.id: name for name, machine in matching.machines.items()}
    nodeless: list[Machine] = []
    of_nodes: dict[str, Machine] = {}
    reasons: list[str] = []
    for position, machine in enumerate(machines):
        if not machine.active:
            continue
        if not machine.membership.evictable:
            reasons.append(f"machine {machine.id}: its membership status is not evictable")
        elif machine.id in paired:
            of_nodes[paired[machine.id]] = machine
        elif position in matching.claimed or not _differs(machine, unpaired):
            reasons.append(f"machine {machine.id}: its node is unknown")
        else:
            nodeless.append(machine)
    reasons += [f"node {name}: {why}" for name, why in sorted(matching.ambiguous.items())]
    active = sum(machine.active for machine in machines)
    return Members(active, sorted(nodeless, key=_giving_up), of_nodes, reasons)


def surely_nodeless(
    machine: Machine, machines: Sequence[Machine], index: MachineIndex, nodes: Sequence[NodeRef]
) -> bool:
    """Return whether *machine*, which is one of *machines*, certainly belongs to none of *nodes*."""
    matching = index.match(nodes)
    claimed = any(machines[position].id == machine.id for position in matching.claimed)
    return not claimed and _differs(machine, [node for node in nodes if node.name not in matching.machines])


def _differs(machine: Machine, unpaired: Collection[NodeRef]) -> bool:
    """Return whether the machine is not launched yet or certainly differs from every unmatched Node."""
    if machine.machine_state == MachineState.REQUESTED:
        return True
    own = matching.machine_identity(machine)
    return all(_differ(own, matching.of_provider_id(node.provider_id)) for node in unpaired)


def _differ(own: matching.Identity | None, other: matching.Identity | None) -> bool:
    return own is not None and other is not None and other.cloud in matching.CLOUDS and own != other


def _giving_up(machine: Machine) -> tuple[int, float, str]:
    """Return the sort key for removal: requested machines first, then pending ones, then the youngest."""
    launched = moment(machine.launch_time)
    return _ORDER[MachineState(machine.machine_state)], -launched.timestamp() if launched else 0.0, machine.id


# Lower the size of a pool: choose machines, drain their nodes, and correct the pool's desired size.


def look_for_node(pool: CloudPool, nodes: NodeOperations, deadline: float, machine: NodeRef) -> None:
    """Raise Withheld if *machine*, which had no Node, may have one by now: its pods would end without an eviction."""
    view = pool.view(deadline=deadline)
    for listed in view.machines:
        if listed.id == machine.name and not surely_nodeless(listed, view.machines, view.index, nodes.refs_now()):
            raise errors.Withheld("it may have joined the cluster as a node in the meantime")


class PoolShrinking:
    """Removes machines that the proxy chooses. Once *stop* is set, waits for the pool end."""

    def __init__(self, pool: CloudPool, nodes: NodeOperations, methods: RemovalMethods, stop: threading.Event) -> None:
        self._pool, self._nodes, self._methods, self._stop = pool, nodes, methods, stop

    def shrink(self, members: Members, excess: int, deadline: float) -> RemovalProgress:
        """Remove *excess* machines: count earlier orders, then remove machines without a Node, then drain victims.

        Victims that could not be drained are not reported if others were removed instead.
        """
        removal = RemovalProgress()
        leaving = sorted(self._nodes.leaving() & members.nodes.keys())
        for node in leaving:
            removal.count_terminating(node)
        wanted = max(0, excess - len(leaving))
        look = partial(look_for_node, self._pool, self._nodes, deadline)
        removal.cancel(members.nodeless[:wanted], self._methods.shrink.provider, deadline, look)
        self._drain_some(members, set(leaving), max(0, wanted - len(members.nodeless)), removal, deadline)
        if removal.gone == excess:
            removal.replaced()
        return removal

    def _drain_some(
        self, members: Members, tried: set[str], wanted: int, removal: RemovalProgress, deadline: float
    ) -> None:
        """Drain *wanted* nodes. After each failed drain, try another node; each node is tried once."""
        while wanted:
            if owed := self._nodes.owed():
                removal.failed(503, owed)
                return
            choice = self._nodes.choose(sorted(members.nodes.keys() - tried), wanted)
            outcomes = removal.drain_all(
                choice.plans, self._nodes, self._methods.shrink, lambda: self._pool.clock.monotonic() >= deadline
            )
            short = len(choice.plans) < wanted
            wanted -= outcomes.count(VictimOutcome.GOES)
            tried |= {plan.node for plan in choice.plans}
            if VictimOutcome.BROKEN not in outcomes and VictimOutcome.STAYS in outcomes:
                continue
            if short:
                for why in (*rejection_texts(choice.rejected), *members.reasons):
                    removal.failed(500, why)
            return

    def correct_size(self, wanted: int, pool_errors: str, removal: RemovalProgress, deadline: float) -> None:
        """Ensure that the pool's desired size is *wanted*, which is never less than the number of undrained machines.

        If the size is larger, the pool did not lower it with a termination and launches another machine. If the size
        were set, the pool would choose its own victim, so this method waits for the new machine and removes it. While
        orders may still take effect, nothing is done. *pool_errors* are the pool's errors about the terminations.
        """
        try:
            size = self._pool.desired_size(deadline=deadline)
            if size < wanted:
                self._pool.client.set_size(wanted, deadline=deadline)
            elif size > wanted and not removal.ordered:
                self._remove_replacements(wanted, pool_errors, removal, deadline)
        except errors.ReschedulerError as error:
            removal.failed(502, f"unknown whether the pool's desired size is {wanted}: {error}")

    def _remove_replacements(self, wanted: int, pool_errors: str, removal: RemovalProgress, deadline: float) -> None:
        """Remove machines until the desired size is *wanted*, or until the pool fails to list them in time."""
        began, more = self._pool.clock.now(), RemovalProgress()
        try:
            view, size = self._pool.caught_up(began, deadline=deadline, stop=self._stop)
            if view.active > wanted:
                more = self.shrink(self.members(view), view.active - wanted, deadline)
                size = self._pool.desired_size(deadline=deadline)
        except (errors.ReschedulerError, UpdateFailed) as error:
            more.failed(502, str(error))
            size = self._pool.desired_size(deadline=deadline)
        if size > wanted:
            why = "; ".join(failure for failure in (pool_errors, *more.failures) if failure)
            removal.failed(502, f"the pool's desired size is still {size}, not {wanted}: {why}")

    def unlowered_errors(self, since: dt.datetime | None = None, machine_id: str = "") -> Iterator[str]:
        """Yield the pool's errors about terminations since *since* that did not lower its desired size."""
        for machine, order in self._pool.ledger.orders().items():
            if order.decrement_lost and (since is None or order.at >= since) and machine_id in {"", machine}:
                yield f"machine {machine}: {order.error_text or 'another client set the size in the meantime'}"

    def members(self, view: PoolObservation) -> Members:
        """Return the machines of the pool with their Nodes. Raises UpdateFailed if the cluster is not readable."""
        if reason := self._nodes.why_unusable():
            raise UpdateFailed(503, reason)
        return members(view.machines, view.index, self._nodes.refs())


def rejection_texts(rejected: Iterable[Rejected]) -> list[str]:
    """Return one line for each blocker of the *rejected* nodes."""
    return [f"node {rejection.node}: {blocker.text}" for rejection in rejected for blocker in rejection.blockers]


T = TypeVar("T")


class PoolUpdates:
    """The updates of a pool, one at a time (see `app.Updates`). Each one times out after *patience* seconds.

    What takes two requests to the pool is stored in *ledger* before: this process may be killed between them.
    Once *stop* is set, they no longer wait for the pool.
    """

    def __init__(
        self,
        pool: CloudPool,
        nodes: NodeOperations,
        methods: RemovalMethods,
        patience: float,
        ledger: KeptMemory,
        stop: threading.Event | None = None,
    ) -> None:
        self._pool, self._nodes, self._methods, self._patience = pool, nodes, methods, patience
        self._ledger = ledger
        self._finished = ""  # the machine that :meth:`finish` has made active
        self._stop = stop or pool.closed
        self._shrinking = PoolShrinking(pool, nodes, methods, self._stop)

    def set_size(self, desired: int) -> str:
        """Set the desired size. Growing does not read the cluster; shrinking reads the pool again first.

        The pool's own size is only lowered directly if the pool could not get as many machines as desired: while it
        launches machines, it would later find a surplus and terminate a machine of its choice.
        """
        deadline, began = self._deadline(), self._pool.clock.now()
        view = self._call_backend(lambda: self._pool.read(deadline=deadline))
        size = self._call_backend(lambda: self._pool.desired_size(deadline=deadline))
        if desired < max(view.active, size):
            view, size = self._call_backend(lambda: self._pool.caught_up(began, deadline=deadline, stop=self._stop))
        if desired >= view.active:
            self._call_backend(lambda: self._pool.client.set_size(desired, deadline=deadline))
            return ""
        members = self._shrinking.members(view)
        if size != members.active:
            # Otherwise the pool would grow, or choose its own victims, while our victims are being drained.
            self._call_backend(lambda: self._pool.client.set_size(members.active, deadline=deadline))
        least = max(desired, self._pool.group.min_size)
        removal = self._shrinking.shrink(members, max(0, members.active - least), deadline)
        if desired < least <= members.active:
            removal.failed(500, f"the pool must keep {least}")
        wanted = max(desired, members.active - removal.gone - removal.ordered)
        self._shrinking.correct_size(wanted, "; ".join(self._shrinking.unlowered_errors(began)), removal, deadline)
        return removal.result_text(members.active - desired)

    def terminate(self, machine: str, *, decrement: bool) -> str:
        """Terminate a machine. One that is gone, or whose termination we have requested, counts as terminated."""
        deadline, began = self._deadline(), self._pool.clock.now()
        listed = self._machine(machine, deadline)
        if listed is not None and decrement:
            self._keep_minimum(listed, deadline)
        removal = RemovalProgress(gone=int(listed is None))
        self._end(listed, self._methods.shrink if decrement else self._methods.replace, removal, deadline)
        order = self._pool.ledger.order(machine)
        if removal.gone and order is not None and order.decrement_lost and order.desired is not None:
            pool_errors = "; ".join(self._shrinking.unlowered_errors(machine_id=machine))
            if order.at >= began:
                self._shrinking.correct_size(order.desired - 1, pool_errors, removal, deadline)
            elif self._call_backend(lambda: self._pool.desired_size(deadline=deadline)) >= order.desired:
                removal.failed(502, f"the pool's desired size was not lowered: {pool_errors}")
        return removal.result_text(1)

    def dispose(self, machine: str) -> str:
        """Dispose of a machine; its protection is removed only when its node is empty."""
        deadline = self._deadline()
        listed = self._machine(machine, deadline, protected=True)
        method = self._methods.replace if listed is None or listed.membership.evictable else self._methods.dispose
        removal = RemovalProgress(gone=int(listed is None))
        self._end(listed, method, removal, deadline)
        return removal.result_text(1)

    def detach(self, machine: str, *, decrement: bool) -> str:
        """Drain the node, detach its machine from the pool, and make the node schedulable again."""
        deadline = self._deadline()
        listed = self._machine(machine, deadline)
        if listed is None:
            raise UpdateFailed(404, f"machine {machine} is no longer a member of the pool")
        if decrement:
            self._keep_minimum(listed, deadline)
        if node := self._node_of(listed, deadline):
            removal = RemovalProgress()
            removal.drain(self._viable(node), self._methods.keep)
            removal.result_text(1)
        self._call_backend(
            lambda: self._pool.client.detach(machine, decrement=decrement, deadline=deadline), missing=404
        )
        return ""

    def is_inactive(self, machine: str) -> bool:
        """Return whether the machine is allocated and inactive, according to a fresh view of the pool."""
        deadline, began = self._deadline(), self._pool.clock.now()
        view = self._call_backend(lambda: self._pool.read_since(began, deadline=deadline, stop=self._stop))
        return any(member.id == machine and member.allocated and not member.active for member in view.machines)

    def reactivate(self, machine: str, *, evictable: bool) -> str:
        """Make the machine active again and raise the desired size at once, so that the pool has no surplus.

        The size is raised in any case. If the machine had no replacement yet, the pool launches one more machine than
        before; if a client then sets a smaller size, a node is drained first. If the size cannot be raised, the machine
        is made inactive again, and the client may repeat its request.

        A pool updates itself after each change of its size, so the size cannot be raised first: it would launch a
        machine, and end another one once this machine is active. What was begun is stored, and :meth:`finish` ends it,
        also before the next reactivation: there is never more than one.
        """
        self.finish()
        if machine == self._finished and not self.is_inactive(machine):
            return f"machine {machine} is active again: an earlier request was completed"
        deadline = self._deadline()
        size = self._call_backend(lambda: self._pool.desired_size(deadline=deadline))
        if not self._store(begun := Reactivation(machine, evictable, size)):
            why = self._ledger.trouble or "it could not be read"
            self._store(None)
            raise UpdateFailed(503, f"what is begun cannot be stored in the memory: {why}")
        try:
            self._reactivate(begun, deadline)
        except UpdateFailed as failure:
            if failure.status == http.HTTPStatus.NOT_FOUND or self._is_undone(begun):
                self._store(None)
            raise
        self._store(None)
        return f"machine {machine} is active again; the pool's desired size was raised from {size} to {size + 1}"

    def finish(self) -> None:
        """Repeat the reactivation that was begun, perhaps by an earlier process, unless it has ended.

        Raises UpdateFailed.
        """
        if (begun := self._ledger.memory.reactivation) is None:
            return
        deadline = self._deadline()
        try:
            if self._call_backend(lambda: self._pool.desired_size(deadline=deadline)) == begun.size:
                self._reactivate(begun, deadline)
                self._finished = begun.machine
        except UpdateFailed as failure:
            if failure.status != http.HTTPStatus.NOT_FOUND:
                raise
        self._store(None)

    def _reactivate(self, begun: Reactivation, deadline: float) -> None:
        client, status = self._pool.client, Membership(active=True, evictable=begun.evictable)
        self._call_backend(lambda: client.set_membership(begun.machine, status, deadline=deadline), missing=404)
        self._call_backend(lambda: client.set_size(begun.size + 1, deadline=deadline))

    def _is_undone(self, begun: Reactivation) -> bool:
        """Make the machine inactive again. Return whether the pool has accepted that."""
        inactive, later = Membership(active=False, evictable=False), self._deadline()
        try:
            self._pool.client.set_membership(begun.machine, inactive, deadline=later)
        except errors.ReschedulerError:
            return False
        return True

    def _store(self, begun: Reactivation | None) -> bool:
        """Store which reactivation has begun, or that it has ended. Return whether that is stored."""
        self._ledger.memory = msgspec.structs.replace(self._ledger.memory, reactivation=begun)
        return self._ledger.save()

    def _end(self, machine: Machine | None, method: RemovalMethod, removal: RemovalProgress, deadline: float) -> None:
        """Drain the machine's node, if it has one, and remove the machine."""
        if machine is None:
            return
        # An inactive machine is disposable or about to be: the pool terminates it.
        method = method if machine.active else self._methods.dispose
        if node := self._node_of(machine, deadline):
            removal.drain(self._viable(node), method)
        else:
            look = partial(look_for_node, self._pool, self._nodes, deadline)
            removal.cancel([machine], method.provider, deadline, look)

    def _keep_minimum(self, machine: Machine, deadline: float) -> None:
        """Reject the removal of an active machine from a pool at its minimum, before a drain starts."""
        least = self._pool.group.min_size
        if machine.active and self._call_backend(lambda: self._pool.desired_size(deadline=deadline)) <= least:
            raise UpdateFailed(500, f"machine {machine.id}: the pool must keep {least}")

    def _machine(self, machine: str, deadline: float, *, protected: bool = False) -> Machine | None:
        """Return the machine; `None` if it is gone. Raises UpdateFailed (404: unknown machine, 500: protected one)."""
        view = self._call_backend(lambda: self._pool.read(deadline=deadline))
        listed = [member for member in view.machines if member.id == machine]
        if len(listed) > 1:
            raise UpdateFailed(500, f"the pool lists machine {machine} {len(listed)} times")
        if not listed:
            if self._pool.ledger.order(machine) is not None:
                return None
            raise UpdateFailed(404, f"machine {machine} is not a member of the pool")
        order = self._pool.ledger.order(machine)
        if order is not None and order.result is OrderResult.DONE and view.observed_at < order.at:
            return None  # the pool has accepted the order since it listed the machine
        if not (listed[0].gone or listed[0].membership.evictable or protected):
            raise UpdateFailed(500, f"machine {machine}: its membership status is not evictable")
        return None if listed[0].gone else listed[0]

    def _node_of(self, machine: Machine, deadline: float) -> str | None:
        """Return the machine's Node; `None` if a fresh view shows that the machine has not fully launched."""
        began = self._pool.clock.now()
        if machine.machine_state != MachineState.RUNNING:
            view = self._call_backend(lambda: self._pool.read_since(began, deadline=deadline, stop=self._stop))
        else:
            view = self._call_backend(lambda: self._pool.view(deadline=deadline))
        if reason := self._nodes.why_unusable():
            raise UpdateFailed(503, reason)
        nodes = self._nodes.refs()
        matching = view.index.match(nodes)
        paired = {matched.id: name for name, matched in matching.machines.items()}
        if machine.id in paired:
            if paired[machine.id] in self._nodes.leaving():
                raise UpdateFailed(504, ORDERED.format(paired[machine.id]))
            return paired[machine.id]
        listed = next((member for member in view.machines if member.id == machine.id), machine)
        launching = listed.machine_state != MachineState.RUNNING
        if launching and surely_nodeless(listed, view.machines, view.index, nodes):
            return None
        claiming = (names for index, names in matching.claimed.items() if view.machines[index].id == machine.id)
        if names := sorted({name for each in claiming for name in each}):
            raise UpdateFailed(
                500, f"machine {machine.id}: it is uncertain to which node it belongs: {', '.join(names)}"
            )
        raise UpdateFailed(500, f"machine {machine.id}: its node is unknown; it may be about to register")

    def _viable(self, node: str) -> Plan:
        if owed := self._nodes.owed():
            raise UpdateFailed(503, owed)
        choice = self._nodes.choose([node], 1)
        if not choice.plans:
            raise UpdateFailed(500, "; ".join(rejection_texts(choice.rejected)))
        return choice.plans[0]

    def _deadline(self) -> float:
        return self._pool.clock.monotonic() + self._patience

    def _call_backend(self, call: Callable[[], T], *, missing: int = 502) -> T:
        """Call the backend and convert its errors to UpdateFailed."""
        try:
            return call()
        except DeadlineExceeded as error:
            raise UpdateFailed(504, str(error)) from error
        except errors.ReschedulerError as error:
            raise UpdateFailed(missing if isinstance(error, Missing) else 502, str(error)) from error
