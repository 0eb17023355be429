"""Giving machines away: order, look, and order again only where that is safe (see `deletion`)."""

import contextlib
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rescheduler import errors
from rescheduler.backends.base import (
    Accepted,
    AlreadyGone,
    AuthError,
    DeadlineExceeded,
    Deleted,
    DeleteOutcome,
    Failed,
    NodeRef,
    RateLimited,
    Refusal,
    Refused,
)
from rescheduler.backends.cloudpool import deletion
from rescheduler.backends.cloudpool.client import Observation, from_pool
from rescheduler.backends.cloudpool.deletion import Answer, Ending, Limits, Order, Send, Wait
from rescheduler.backends.cloudpool.messages import Machine, Membership
from rescheduler.backends.cloudpool.pool import Pool
from rescheduler.backends.http import Missing, ServerFault, Unsent


@dataclass(frozen=True, slots=True)
class _Target:
    """A node's machine as the pool lists it, `None` if it does not, and the last order for it."""

    machine: Machine | None
    order: Order | None


class Removal:
    """The removals of one pool, all with one *ending*.

    Any number may run at once; orders are given one after the other. *prompt*: a call that gives an order returns when
    the pool has taken it, and a later call waits for the machine's end.
    """

    def __init__(self, pool: Pool, ending: Ending = Ending.SHRINK, *, prompt: bool = False) -> None:
        self._pool, self._clock, self._ending, self._prompt = pool, pool.clock, ending, prompt
        self._ledger = pool.ledger
        self._began = pool.clock.now()
        settle = dt.timedelta(seconds=pool.config.settle_time)
        self._limits = Limits(settle, back_off=dt.timedelta(seconds=pool.config.poll_interval))
        self._ahead: dict[tuple[str, dt.datetime], dt.datetime] = {}  #: times in the future, and when we saw them first

    def delete(self, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, DeleteOutcome]:
        """Never raises: what cannot be known or done in time is an outcome, too."""
        done: dict[str, DeleteOutcome] = {}
        began = self._clock.now()
        view: Observation | None = None
        trouble = "no time left to look at the pool"
        while True:
            try:
                view = self._pool.look(deadline=deadline)
            except errors.ReschedulerError as error:
                trouble = str(error)
                if not isinstance(error, errors.Retryable):
                    break
            else:
                for node, target in self._targets(view, nodes):
                    if node.name not in done and (outcome := self._advance(node, target, view, deadline)):
                        done[node.name] = outcome
            if all(node.name in done or self._is_taken(node, began) for node in nodes):
                break
            try:
                self._pool.pause("time is out", deadline)
            except DeadlineExceeded:
                break
        late = self._give_up(view, nodes, trouble)
        return {node.name: done.get(node.name) or late[node.name] for node in nodes}

    def _is_taken(self, node: NodeRef, began: dt.datetime) -> bool:
        """Whether the pool took an order for the node's machine since *began*, and nobody waits for more."""
        machine = self._ledger.machine_of(node) if self._prompt else None
        order = self._ledger.order(machine) if machine is not None else None
        return order is not None and order.answer is Answer.DONE and order.at >= began

    def refusals(self, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        """What would be refused at once; nodes before a node count against the minimum as if they went."""
        view = self._pool.view(deadline=deadline)
        left = self._pool.desired_size(deadline=deadline) - self._unsettled(view, ())
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
            elif refusal := deletion.protection(machine, self._ending) or self._below_minimum(
                left - self._costs(machine)
            ):
                refused[node.name] = refusal
            else:
                left -= self._costs(machine)
        return refused

    def ordered(self, node: NodeRef) -> bool:
        """Whether this process ordered the node's machine away."""
        return self._ledger.machine_of(node) is not None

    def _targets(
        self, view: Observation, nodes: Sequence[NodeRef]
    ) -> list[tuple[NodeRef, _Target | Refused | Accepted]]:
        found = view.index.match(nodes)
        listed = {machine.id: machine for machine in view.machines}
        return [
            (node, self._target(node, found.machines.get(node.name), found.unsure.get(node.name, ""), listed))
            for node in nodes
        ]

    def _target(
        self, node: NodeRef, machine: Machine | None, unsure: str, listed: Mapping[str, Machine]
    ) -> _Target | Refused | Accepted:
        if node.on_control_plane:
            return Refused(Refusal.CONTROL_PLANE, "the node belongs to the control plane")
        before = None
        if node.ordered_at is not None:
            before = Order(
                self._by_our_clock(node.name, node.ordered_at), Answer.NONE, "ordered by an earlier process", ours=False
            )
        if machine is not None:
            return _Target(machine, self._ledger.order(machine.id) or before)
        remembered = self._ledger.machine_of(node)
        if remembered is not None and not (unsure and remembered not in listed):
            return _Target(listed.get(remembered), self._ledger.order(remembered))
        if unsure and before is not None and self._clock.now() < before.at + self._limits.settle:
            return Accepted(f"{before.words}: {unsure}")
        return Refused(Refusal.AMBIGUOUS, unsure) if unsure else _Target(None, before)

    def _by_our_clock(self, node: str, ordered_at: dt.datetime) -> dt.datetime:
        """When an earlier process ordered; where its clock was ahead of ours, no later than we first heard of it."""
        now = self._clock.now()
        if ordered_at > now:
            return self._ahead.setdefault((node, ordered_at), now)
        return self._ahead.get((node, ordered_at), ordered_at)

    def _advance(
        self, node: NodeRef, target: _Target | Refused | Accepted, view: Observation, deadline: float
    ) -> DeleteOutcome | None:
        """One judgement, and one order where it says so; `None` while the end is open."""
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
        if isinstance(verdict, Wait):
            return None
        if isinstance(verdict, Send) and target.machine is not None:
            return self._order(node, target.machine, target.order, view, deadline)
        if isinstance(verdict, Failed) and target.machine is not None:
            self._ledger.forget(target.machine.id)
        if isinstance(verdict, Deleted | AlreadyGone):
            return self._ended(verdict, target.order, deadline)
        return None if isinstance(verdict, Send) else verdict

    def _ended(self, outcome: Deleted | AlreadyGone, order: Order | None, deadline: float) -> DeleteOutcome:
        """The outcome, with what is to be told of a desired size that was not lowered."""
        if order is None or not order.lost:
            return outcome
        try:
            desired = self._pool.desired_size(deadline=deadline)
        except errors.ReschedulerError as error:
            return replace(outcome, unshrunk=f"whether the pool lowered its desired size is not known: {error}")
        return replace(outcome, unshrunk=deletion.unshrunk(order, desired))

    def _order(
        self, node: NodeRef, machine: Machine, judged: Order | None, view: Observation, deadline: float
    ) -> DeleteOutcome | None:
        try:
            with self._pool.changing(deadline=deadline):
                current = self._ledger.order(machine.id)
                if current is not None and current != judged:
                    return None  # another thread was faster; what it did is judged next
                return self._order_alone(node, machine, judged, view, deadline)
        except DeadlineExceeded as error:
            return Failed(str(error), retryable=True)

    def _order_alone(
        self, node: NodeRef, machine: Machine, last: Order | None, view: Observation, deadline: float
    ) -> DeleteOutcome | None:
        order = (
            replace(last, attempts=last.attempts + 1, ours=True) if last else Order(self._clock.now(), Answer.UNSENT)
        )
        try:
            desired = self._pool.desired_size(deadline=deadline)
        except errors.ReschedulerError as error:
            unsent = replace(order, at=self._clock.now(), answer=Answer.UNSENT, words=str(error))
            self._ledger.record(machine.id, unsent, node)
            return None
        decrement = bool(self._costs(machine)) and desired > 0 and deletion.lowers(machine, last, desired)
        left = desired - decrement - self._unsettled(view, {machine.id})
        if decrement and (refusal := self._below_minimum(left)):
            return refusal
        order = replace(
            order,
            at=self._clock.now(),
            answer=Answer.PENDING,
            desired=desired if order.desired is None else order.desired,
            lowering=order.lowering or decrement,
        )
        self._ledger.record(machine.id, order, node)
        answer, words, outcome = self._send(machine.id, decrement=decrement, deadline=deadline)
        lowered = order.lowered or (decrement and self._is_lowered(answer, desired, deadline))
        lowering = order.lowering if answer is not Answer.UNSENT else last is not None and last.lowering
        ended = replace(order, at=self._clock.now(), answer=answer, words=words, lowering=lowering, lowered=lowered)
        self._ledger.record(machine.id, ended, node)
        return outcome

    def _is_lowered(self, answer: Answer, before: int, deadline: float) -> bool:
        """Whether an order that has ended lowered the desired size, which was *before*.

        A success whose size cannot be read is believed.
        """
        if answer not in {Answer.DONE, Answer.FAULT}:
            return False
        try:
            return self._pool.desired_size(deadline=deadline) < before
        except errors.ReschedulerError:
            return answer is Answer.DONE

    def _send(self, machine: str, *, decrement: bool, deadline: float) -> tuple[Answer, str, Failed | None]:
        """How the order ended, in which words, and the outcome where no further order can help."""
        try:
            if self._ending is Ending.DISPOSE:
                self._dispose(machine, deadline)
            else:
                self._pool.client.terminate(machine, decrement=decrement, deadline=deadline)
        except Missing as error:
            return Answer.MISSING, str(error), None
        except ServerFault as error:
            return (Answer.FAULT if from_pool(error) else Answer.NONE), str(error), None
        except (Unsent, RateLimited, DeadlineExceeded) as error:
            return Answer.UNSENT, str(error), None
        except (errors.Permanent, AuthError) as error:
            failed = Failed(str(error), retryable=isinstance(error, AuthError))
            return Answer.UNSENT, str(error), failed
        except errors.ReschedulerError as error:
            return Answer.NONE, str(error), None
        return Answer.DONE, "", None

    def _dispose(self, machine: str, deadline: float) -> None:
        """The pool ends what is disposable by itself; the termination only hastens it, so its failure is none."""
        client = self._pool.client
        client.set_membership(machine, Membership(active=False, evictable=True), deadline=deadline)
        with contextlib.suppress(errors.ReschedulerError):
            client.terminate(machine, decrement=False, deadline=deadline)

    def _costs(self, machine: Machine) -> int:
        """How much smaller the pool is to be without the machine."""
        return int(self._ending is Ending.SHRINK and machine.active)

    def _below_minimum(self, left: int) -> Refused | None:
        group = self._pool.group
        if left >= group.min_size:
            return None
        return Refused(Refusal.BELOW_MINIMUM, f"group {group.id} must keep {group.min_size}, {left} would be left")

    def _unsettled(self, view: Observation, without: Sequence[str] | set[str]) -> int:
        """How many other orders may still lower the desired size."""
        orders = self._ledger.orders()
        open_ = {Answer.NONE, Answer.PENDING}
        return sum(
            machine.active and machine.id not in without and orders[machine.id].answer in open_
            for machine in view.machines
            if machine.id in orders
        )

    def _give_up(self, view: Observation | None, nodes: Sequence[NodeRef], trouble: str) -> dict[str, DeleteOutcome]:
        if view is None:
            return {node.name: self._unseen(node, trouble) for node in nodes}
        return {
            node.name: target if isinstance(target, Refused | Accepted) else self._unended(node, target, view)
            for node, target in self._targets(view, nodes)
        }

    def _unended(self, node: NodeRef, target: _Target, view: Observation) -> DeleteOutcome:
        """Whoever asks for a machine again that could not be ordered away need not wait out this call's back-off."""
        outcome = deletion.give_up(target.machine, target.order, observed_at=view.observed_at)
        if isinstance(outcome, Failed) and target.machine is not None and target.order is not None:
            self._ledger.record(target.machine.id, replace(target.order, attempts=1), node)
        return outcome

    def _unseen(self, node: NodeRef, trouble: str) -> DeleteOutcome:
        if node.ordered_at is not None or self.ordered(node):
            return Accepted(f"an earlier order may be at work: {trouble}")
        return Failed(trouble, retryable=True)
