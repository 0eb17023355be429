"""Updates of the pool: set its size, and remove machines after draining their nodes."""

import threading
from collections.abc import Callable
from typing import TypeVar

from rescheduler import errors
from rescheduler.errors import DeadlineExceeded
from rescheduler.net.http_errors import Missing
from rescheduler.planning.outcome import Plan
from rescheduler.providers.cloudpool.deletion import OrderResult
from rescheduler.providers.cloudpool.messages import Machine, MachineState, Membership
from rescheduler.providers.cloudpool.pool import CloudPool
from rescheduler.proxy.pool import surely_nodeless
from rescheduler.proxy.proxy_responses import UpdateFailed
from rescheduler.proxy.removal import ORDERED, NodeOperations, RemovalMethod, RemovalMethods, RemovalProgress
from rescheduler.proxy.shrinking import PoolShrinking, rejection_texts

T = TypeVar("T")


class PoolUpdates:
    """The updates of a pool, one at a time (see `app.Updates`). Each one times out after *patience* seconds.

    Once *stop* is set, they no longer wait for the pool.
    """

    def __init__(
        self,
        pool: CloudPool,
        nodes: NodeOperations,
        methods: RemovalMethods,
        patience: float,
        stop: threading.Event | None = None,
    ) -> None:
        self._pool, self._nodes, self._methods, self._patience = pool, nodes, methods, patience
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
        before; if a client then sets a smaller size, a node is drained first.
        """
        deadline = self._deadline()
        size = self._call_backend(lambda: self._pool.desired_size(deadline=deadline))
        status = Membership(active=True, evictable=evictable)
        self._call_backend(lambda: self._pool.client.set_membership(machine, status, deadline=deadline), missing=404)
        self._call_backend(lambda: self._pool.client.set_size(size + 1, deadline=deadline))
        return f"machine {machine} is active again; the pool's desired size was raised from {size} to {size + 1}"

    def _end(self, machine: Machine | None, method: RemovalMethod, removal: RemovalProgress, deadline: float) -> None:
        """Drain the machine's node, if it has one, and remove the machine."""
        if machine is None:
            return
        # An inactive machine is disposable or about to be: the pool terminates it.
        method = method if machine.active else self._methods.dispose
        if node := self._node_of(machine, deadline):
            removal.drain(self._viable(node), method)
        else:
            removal.cancel([machine], method.provider, deadline)

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
        paired = {matched.id: name for name, matched in view.index.match(nodes).machines.items()}
        if machine.id in paired:
            if paired[machine.id] in self._nodes.leaving():
                raise UpdateFailed(504, ORDERED.format(paired[machine.id]))
            return paired[machine.id]
        listed = next((member for member in view.machines if member.id == machine.id), machine)
        launching = listed.machine_state != MachineState.RUNNING
        if launching and surely_nodeless(listed, view.machines, view.index, nodes):
            return None
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
