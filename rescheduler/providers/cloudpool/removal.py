"""Terminate machines of a pool: send orders (`ordering`), and repeat them only if that is safe (`deletion`)."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rescheduler import errors
from rescheduler.backoff import Backoff
from rescheduler.providers.base import (
    ON_CONTROL_PLANE,
    Accepted,
    AlreadyGone,
    Deleted,
    DeleteOutcome,
    Failed,
    MayEnd,
    NodeRef,
    Refusal,
    Refused,
    any_may_end,
)
from rescheduler.providers.cloudpool import deletion
from rescheduler.providers.cloudpool.client import PoolObservation
from rescheduler.providers.cloudpool.deletion import (
    Ending,
    KeepWaiting,
    OrderResult,
    OrderTimeouts,
    Send,
    TerminationOrder,
)
from rescheduler.providers.cloudpool.messages import Machine
from rescheduler.providers.cloudpool.ordering import PoolOrders
from rescheduler.providers.cloudpool.pool import CloudPool
from rescheduler.providers.deleting import delete_until_confirmed

_LONGEST_BACKOFF = dt.timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class _Target:
    """A node's machine, `None` if the pool does not list it, and the last order for it."""

    machine: Machine | None
    order: TerminationOrder | None


class PoolRemoval:
    """The removals of a pool, all with the same *ending*.

    Calls may run concurrently; orders are serialized. With *prompt*, a call that gives an order returns when the pool
    has accepted it, and a later call waits for the termination.
    """

    def __init__(self, pool: CloudPool, ending: Ending = Ending.SHRINK, *, prompt: bool = False) -> None:
        self._pool, self._clock, self._ending, self._prompt = pool, pool.clock, ending, prompt
        self._ledger = pool.ledger
        self._orders = PoolOrders(pool, ending)
        self._began = pool.clock.now()
        settle = dt.timedelta(seconds=pool.config.settle_time)
        backoff = Backoff(dt.timedelta(seconds=pool.config.poll_interval), _LONGEST_BACKOFF)
        self._limits = OrderTimeouts(settle, backoff)
        #: intent times in the future → when they were first seen
        self._ahead: dict[tuple[str, dt.datetime], dt.datetime] = {}

    def delete(
        self, nodes: Sequence[NodeRef], *, deadline: float, may_end: MayEnd = any_may_end
    ) -> Mapping[str, DeleteOutcome]:
        """Remove the nodes' machines. Never raises: errors and timeouts become outcomes."""
        began = self._clock.now()
        view: PoolObservation | None = None

        def advance(done: dict[str, DeleteOutcome]) -> None:
            nonlocal view
            view = self._pool.read(deadline=deadline)
            for node, target in self._targets(view, nodes):
                if node.name not in done and (outcome := self._advance(node, target, view, deadline, may_end)):
                    done[node.name] = outcome

        return delete_until_confirmed(
            nodes,
            advance,
            wait=lambda: self._pool.wait_poll_interval(deadline),
            give_up=lambda last_error: self._give_up(view, nodes, last_error),
            is_accepted=lambda node: self._is_accepted(node, began),
        )

    def _is_accepted(self, node: NodeRef, began: dt.datetime) -> bool:
        """Return whether, with *prompt*, the pool accepted an order for the node's machine since *began*."""
        machine = self._ledger.machine_of(node) if self._prompt else None
        order = self._ledger.order(machine) if machine is not None else None
        return order is not None and order.result is OrderResult.DONE and order.at >= began

    def refusals(self, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        """Return the nodes that would be refused. Each minimum check assumes that the earlier nodes were removed."""
        view = self._pool.view(deadline=deadline)
        left = self._pool.desired_size(deadline=deadline) - self._orders.unsettled(view)
        refused: dict[str, Refused] = {}
        for node, target in self._targets(view, nodes):
            if isinstance(target, Refused):
                refused[node.name] = target
                continue
            if isinstance(target, Accepted):
                continue
            machine = target.machine
            if target.order is not None or (machine is not None and machine.gone):
                continue
            if machine is None:
                refused[node.name] = Refused(Refusal.NOT_IN_GROUP, deletion.NO_MACHINE)
            elif refusal := deletion.protection(machine, self._ending) or self._orders.below_minimum(
                left - self._orders.cost(machine)
            ):
                refused[node.name] = refusal
            else:
                left -= self._orders.cost(machine)
        return refused

    def ordered(self, node: NodeRef) -> bool:
        """Return whether this process ordered the termination of the node's machine."""
        return self._ledger.machine_of(node) is not None

    def _targets(
        self, view: PoolObservation, nodes: Sequence[NodeRef]
    ) -> list[tuple[NodeRef, _Target | Refused | Accepted]]:
        matching = view.index.match(nodes)
        listed = {machine.id: machine for machine in view.machines}
        return [
            (node, self._target(node, matching.machines.get(node.name), matching.ambiguous.get(node.name, ""), listed))
            for node in nodes
        ]

    def _target(
        self, node: NodeRef, machine: Machine | None, ambiguous: str, listed: Mapping[str, Machine]
    ) -> _Target | Refused | Accepted:
        if node.on_control_plane:
            return ON_CONTROL_PLANE
        before = None
        if node.ordered_at is not None:
            before = TerminationOrder(
                self._by_our_clock(node.name, node.ordered_at),
                OrderResult.NONE,
                "ordered by an earlier process",
                ours=False,
            )
        if machine is not None:
            return _Target(machine, self._ledger.order(machine.id) or before)
        remembered = self._ledger.machine_of(node)
        if remembered is not None and not (ambiguous and remembered not in listed):
            return _Target(listed.get(remembered), self._ledger.order(remembered))
        if ambiguous and before is not None and self._clock.now() < before.at + self._limits.settle:
            return Accepted(f"{before.error_text}: {ambiguous}")
        return Refused(Refusal.AMBIGUOUS, ambiguous) if ambiguous else _Target(None, before)

    def _by_our_clock(self, node: str, ordered_at: dt.datetime) -> dt.datetime:
        """Return the time of an earlier process's order, or when we first saw it if that process's clock was ahead."""
        now = self._clock.now()
        if ordered_at > now:
            return self._ahead.setdefault((node, ordered_at), now)
        return self._ahead.get((node, ordered_at), ordered_at)

    def _advance(
        self,
        node: NodeRef,
        target: _Target | Refused | Accepted,
        view: PoolObservation,
        deadline: float,
        may_end: MayEnd,
    ) -> DeleteOutcome | None:
        """Give an order if one is due; return `None` while the termination is not confirmed."""
        if isinstance(target, Refused | Accepted):
            return target
        verdict = deletion.judge(
            target.machine,
            target.order,
            observed_at=view.observed_at,
            not_before=self._began,
            now=self._clock.now(),
            limits=self._limits,
            ending=self._ending,
        )
        if isinstance(verdict, KeepWaiting):
            return None
        if isinstance(verdict, Send) and target.machine is not None:
            return self._orders.order(node, target.machine, target.order, view, deadline, may_end)
        if isinstance(verdict, Failed) and target.machine is not None:
            self._ledger.forget(target.machine.id)
        if isinstance(verdict, Deleted | AlreadyGone):
            return self._with_size_warning(verdict, target.order, deadline)
        return None if isinstance(verdict, Send) else verdict

    def _with_size_warning(
        self, outcome: Deleted | AlreadyGone, order: TerminationOrder | None, deadline: float
    ) -> DeleteOutcome:
        """Return the outcome, with the reason if the desired size was not lowered."""
        if order is None or not order.decrement_lost:
            return outcome
        try:
            desired = self._pool.desired_size(deadline=deadline)
        except errors.ReschedulerError as error:
            return replace(outcome, unshrunk=f"unknown whether the pool lowered its desired size: {error}")
        return replace(outcome, unshrunk=deletion.unshrunk(order, desired))

    def _give_up(
        self, view: PoolObservation | None, nodes: Sequence[NodeRef], last_error: str
    ) -> dict[str, DeleteOutcome]:
        if view is None:
            return {node.name: self._outcome_without_view(node, last_error) for node in nodes}
        return {
            node.name: target if isinstance(target, Refused | Accepted) else self._give_up_order(node, target, view)
            for node, target in self._targets(view, nodes)
        }

    def _give_up_order(self, node: NodeRef, target: _Target, view: PoolObservation) -> DeleteOutcome:
        """Return the outcome, and reset the back-off of a failed order for the next call."""
        outcome = deletion.give_up(target.machine, target.order, observed_at=view.observed_at)
        if isinstance(outcome, Failed) and target.machine is not None and target.order is not None:
            self._ledger.record(target.machine.id, replace(target.order, attempts=1), node)
        return outcome

    def _outcome_without_view(self, node: NodeRef, last_error: str) -> DeleteOutcome:
        if node.ordered_at is not None or self.ordered(node):
            return Accepted(f"an earlier order may still take effect: {last_error}")
        return Failed(last_error, retryable=True)
