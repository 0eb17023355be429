"""Giving machines away: look, order, and look again until they are seen to go."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace

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
    UnknownGroup,
)
from rescheduler.backends.fleet.fleet import Fleet, Look
from rescheduler.backends.fleet.ledger import Order
from rescheduler.backends.fleet.machine import Machine
from rescheduler.backends.fleet.matching import Matches
from rescheduler.backends.http import Missing, Rejected, ServerFault, Unsent

_CONTROL_PLANE = Refused(Refusal.CONTROL_PLANE, "the node belongs to the control plane")
_NO_MACHINE = Refused(Refusal.NOT_IN_GROUP, "no machine of the group is its machine")
_MAX_BACK_OFF = 30.0  #: seconds


class Removal:
    """Any number of calls may run at once; orders are given one after the other, each on a look of its own."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._system, self._clock = fleet, fleet.system, fleet.clock

    def delete(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, DeleteOutcome]:
        """UnknownGroup apart, what cannot be known or done in time is an outcome, not an error."""
        done: dict[str, DeleteOutcome] = {}
        look: Look | None = None
        trouble = "there was no time to look at the system"
        while True:
            try:
                with self._fleet.changing(deadline=deadline):
                    look = self._fleet.look(deadline=deadline)
                    done |= self._pass(look, group, [node for node in nodes if node.name not in done], deadline)
                if all(node.name in done for node in nodes):
                    break
                self._fleet.pause("time is out", deadline)
            except DeadlineExceeded as error:
                trouble = str(error)
                break
            except UnknownGroup as error:
                if not any(self._fleet.ledger.machine_of(node) for node in nodes):
                    raise
                trouble = str(error)
                break
            except errors.ReschedulerError as error:
                trouble = str(error)
                if not isinstance(error, errors.Retryable) or not self._rest(deadline):
                    break
        return {node.name: done.get(node.name) or self._late(node, look, trouble) for node in nodes}

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        """What would be refused at once; nodes before a node count against the minimum as if they went."""
        look = self._fleet.recent(deadline=deadline)
        minimum = self._fleet.group(look, group).min_size
        left = self._fleet.sound(look, group)
        matches = look.index.match(nodes)
        refused: dict[str, Refused] = {}
        for node in nodes:
            machine = self._machine(node, group, matches)
            if machine is None:
                if self._of_absent(node, deadline) == _NO_MACHINE:
                    refused[node.name] = _NO_MACHINE
            elif isinstance(machine, Refused):
                refused[node.name] = machine
            elif machine.alive and not self._fleet.leaving(machine):
                rest = left - (not machine.failed)
                refusal = self._refusal(machine, rest, minimum, deadline)
                if refusal:
                    refused[node.name] = refusal
                else:
                    left = rest
        return refused

    def _pass(self, look: Look, group: str, nodes: Sequence[NodeRef], deadline: float) -> dict[str, DeleteOutcome]:
        """One judgement a node, and one order where it says so; a node whose end is open is left out."""
        minimum = self._fleet.group(look, group).min_size
        matches = look.index.match(nodes)
        found: dict[str, DeleteOutcome] = {}
        for node in nodes:
            try:
                outcome = self._judge(node, look, group, minimum, matches, deadline)
            except errors.Retryable:
                continue
            except errors.ReschedulerError as error:
                outcome = Failed(str(error), retryable=isinstance(error, AuthError))
            if outcome is not None:
                found[node.name] = outcome
        return found

    def _judge(
        self, node: NodeRef, look: Look, group: str, minimum: int, matches: Matches, deadline: float
    ) -> DeleteOutcome | None:
        machine = self._machine(node, group, matches)
        if machine is None:
            return self._of_absent(node, deadline)
        if isinstance(machine, Refused):
            return machine
        return self._of_present(node, machine, look, minimum, deadline)

    def _machine(self, node: NodeRef, group: str, matches: Matches) -> Machine | Refused | None:
        if node.on_control_plane or self._system.controls(node):
            return _CONTROL_PLANE
        if unsure := matches.unsure.get(node.name):
            return Refused(Refusal.AMBIGUOUS, unsure)
        machine = matches.machines.get(node.name)
        return machine and (machine.protected or self._outside(node, machine, group) or machine)

    def _outside(self, node: NodeRef, machine: Machine, group: str) -> Refused | None:
        if machine.group != group:
            owner = f"group {machine.group}" if machine.group else "no group"
            return Refused(Refusal.NOT_IN_GROUP, f"its machine {machine.key} is of {owner}")
        doubt = self._system.doubts(node, machine)
        return Refused(Refusal.NOT_IN_GROUP, doubt) if doubt else None

    def _of_absent(self, node: NodeRef, deadline: float) -> DeleteOutcome | None:
        """A machine that is not listed: gone if it was ordered away or the system says so; else never ours."""
        ordered = self._fleet.ledger.machine_of(node)
        key = ordered or self._system.key_of(node)
        if not key:
            return _NO_MACHINE
        exists = self._system.exists(key, deadline=deadline)
        if exists:
            return None if ordered else _NO_MACHINE
        if exists is None and not ordered and node.ordered_at is None:
            return _NO_MACHINE
        order = self._fleet.ledger.order(key)
        return Deleted("no longer there") if order and order.taken else AlreadyGone("no longer there")

    def _of_present(
        self, node: NodeRef, machine: Machine, look: Look, minimum: int, deadline: float
    ) -> DeleteOutcome | None:
        order = self._fleet.ledger.order(machine.key)
        if machine.gone or (not machine.alive and self._system.going_is_enough):
            how = "gone" if machine.gone else "ending"
            return Deleted(how) if order and order.taken else AlreadyGone(how)
        if not machine.alive:
            if order is None:
                now = self._clock.now()
                order = Order(now, taken=False, open_since=now, words="it was ending already")
                self._fleet.ledger.record(machine.key, order, node)
            return None
        if order is not None and self._clock.now() < order.at + self._patience(order):
            return None
        refusal = self._refusal(machine, self._left(look, machine), minimum, deadline)
        return refusal or self._order_now(node, machine, order, minimum, deadline)

    def _order_now(
        self, node: NodeRef, machine: Machine, last: Order | None, minimum: int, deadline: float
    ) -> DeleteOutcome | None:
        """Look once more and order: the system has no lock, and other processes may have ended machines since."""
        look = self._fleet.look(deadline=deadline)
        current = look.index.get(machine.key)
        if current is None or not current.alive:
            return None  # the next look judges it
        if refused := self._below_minimum(current, self._left(look, current), minimum):
            return refused
        return self._order(node, current, last, deadline)

    def _left(self, look: Look, machine: Machine) -> int:
        """How many machines that count its group has without *machine*."""
        counted = not (machine.failed or self._fleet.leaving(machine))
        return self._fleet.sound(look, machine.group) - counted

    def _below_minimum(self, machine: Machine, left: int, minimum: int) -> Refused | None:
        if left >= minimum or machine.failed:
            return None
        detail = f"group {machine.group} must keep {minimum}, {left} would be left"
        return Refused(Refusal.BELOW_MINIMUM, detail)

    def _refusal(self, machine: Machine, left: int, minimum: int, deadline: float) -> Refused | None:
        return self._below_minimum(machine, left, minimum) or self._system.forbids(machine, deadline=deadline)

    def _order(self, node: NodeRef, machine: Machine, last: Order | None, deadline: float) -> DeleteOutcome | None:
        now = self._clock.now()
        earlier = self._at_work(node, last)
        order = Order(now, taken=False, open_since=now, attempts=last.attempts + 1 if last else 1)
        self._fleet.ledger.record(machine.key, order, node)
        outcome: DeleteOutcome | None = None
        try:
            self._system.end(machine, deadline=deadline)
        except Missing:
            outcome = Deleted("gone") if last else AlreadyGone("there is no such machine")
        except (Unsent, RateLimited, DeadlineExceeded) as error:
            order = replace(order, open_since=earlier, words=str(error))
        except (Rejected, AuthError) as error:
            order = replace(order, open_since=earlier, words=str(error))
            outcome = None if earlier else Failed(str(error), retryable=isinstance(error, AuthError))
        except ServerFault as error:
            order = replace(order, open_since=earlier if error.of_the_system else now, words=str(error))
        except errors.ReschedulerError as error:
            order = replace(order, words=str(error))
        else:
            order = replace(order, taken=True)
        ended = self._clock.now()
        since = ended if order.open_since == now else order.open_since
        self._fleet.ledger.record(machine.key, replace(order, at=ended, open_since=since), node)
        return outcome

    def _at_work(self, node: NodeRef, last: Order | None) -> dt.datetime | None:
        """When an order before this one was given that may still be at work, by whichever process."""
        given = last.open_since if last else node.ordered_at
        return given if given and given >= self._fleet.settled() else None

    def _patience(self, order: Order) -> dt.timedelta:
        """How long after an order the machine may still look alive before it is ordered away again."""
        if order.taken:
            return dt.timedelta(seconds=self._fleet.pace.settle)
        return dt.timedelta(seconds=min(self._fleet.pace.poll * 2 ** min(order.attempts, 16), _MAX_BACK_OFF))

    def _rest(self, deadline: float) -> bool:
        """Whether there was time for a pause."""
        try:
            self._fleet.pause("time is out", deadline)
        except DeadlineExceeded:
            return False
        return True

    def _late(self, node: NodeRef, look: Look | None, trouble: str) -> DeleteOutcome:
        """The outcome for a machine whose end was not seen when time ran out."""
        key = self._fleet.ledger.machine_of(node)
        order = self._fleet.ledger.order(key) if key else None
        if order is not None and order.open_since:
            machine = look.index.get(key) if look and key else None
            state = f"listed as {machine.state}" if machine else "not listed"
            said = "the system took the order" if order.taken else f"it may be at work: {order.words}"
            return Accepted(f"{said}; {state}")
        if node.ordered_at is not None and order is None:
            return Accepted(f"an earlier order may be at work: {trouble}")
        return Failed((order.words if order else "") or trouble, retryable=True)
