"""Lower the size of a pool: choose machines, drain their nodes, and correct the pool's desired size."""

import datetime as dt
import threading
from collections.abc import Iterable, Iterator

from rescheduler import errors
from rescheduler.planning.outcome import Rejected
from rescheduler.providers.cloudpool.client import PoolObservation
from rescheduler.providers.cloudpool.pool import CloudPool
from rescheduler.proxy.pool import Members, members
from rescheduler.proxy.proxy_responses import UpdateFailed
from rescheduler.proxy.removal import NodeOperations, RemovalMethods, RemovalProgress, VictimOutcome


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
        removal.cancel(members.nodeless[:wanted], self._methods.shrink.provider, deadline)
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
