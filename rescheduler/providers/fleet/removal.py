"""Delete machines: list them, request the deletion, and list them again until it is confirmed."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rescheduler import errors
from rescheduler.backoff import Backoff
from rescheduler.errors import AuthError, DeadlineExceeded, RateLimited
from rescheduler.net.http_errors import Missing, RequestRejected, ServerFault, Unsent
from rescheduler.providers.base import (
    ON_CONTROL_PLANE,
    Accepted,
    AlreadyGone,
    Deleted,
    DeleteOutcome,
    Failed,
    NodeRef,
    Refusal,
    Refused,
    below_minimum,
)
from rescheduler.providers.deleting import delete_until_confirmed
from rescheduler.providers.fleet.fleet import FleetObservation, MachineFleet
from rescheduler.providers.fleet.ledger import FleetOrder
from rescheduler.providers.fleet.machine import SystemMachine
from rescheduler.providers.fleet.matching import Matches

_NO_MACHINE = Refused(Refusal.NOT_IN_GROUP, "no machine of the group is its machine")
_LONGEST_BACKOFF = dt.timedelta(seconds=30)


class FleetRemoval:
    """Deletes machines of a fleet. Calls may run concurrently; orders are serialized, each after a new read."""

    def __init__(self, fleet: MachineFleet) -> None:
        self._fleet, self._system, self._clock = fleet, fleet.system, fleet.clock
        self._backoff = Backoff(2 * dt.timedelta(seconds=fleet.pace.poll), _LONGEST_BACKOFF)

    def delete(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, DeleteOutcome]:
        """Delete the nodes' machines. Errors other than UnknownGroup, and timeouts, become outcomes."""
        look: FleetObservation | None = None

        def advance(done: dict[str, DeleteOutcome]) -> None:
            nonlocal look
            with self._fleet.changing(deadline=deadline):
                look = self._fleet.look(deadline=deadline)
                done |= self._pass(look, group, [node for node in nodes if node.name not in done], deadline)

        return delete_until_confirmed(
            nodes,
            advance,
            wait=lambda: self._fleet.rest(deadline),
            give_up=lambda trouble: {node.name: self._late(node, look, trouble) for node in nodes},
            is_ordered=lambda: any(self._fleet.ledger.machine_of(node) for node in nodes),
        )

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        """Return the nodes that would be refused. Each minimum check assumes that the earlier nodes were deleted."""
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

    def _pass(
        self, look: FleetObservation, group: str, nodes: Sequence[NodeRef], deadline: float
    ) -> dict[str, DeleteOutcome]:
        """Send the orders that are due, and return the outcomes that are already known."""
        minimum = self._fleet.group(look, group).min_size
        matches = look.index.match(nodes)
        outcomes: dict[str, DeleteOutcome] = {}
        for node in nodes:
            try:
                outcome = self._judge(node, look, group, minimum, matches, deadline)
            except errors.Retryable:
                continue
            except errors.ReschedulerError as error:
                outcome = Failed(str(error), retryable=isinstance(error, AuthError))
            if outcome is not None:
                outcomes[node.name] = outcome
        return outcomes

    def _judge(
        self, node: NodeRef, look: FleetObservation, group: str, minimum: int, matches: Matches, deadline: float
    ) -> DeleteOutcome | None:
        machine = self._machine(node, group, matches)
        if machine is None:
            return self._of_absent(node, deadline)
        if isinstance(machine, Refused):
            return machine
        return self._of_present(node, machine, look, minimum, deadline)

    def _machine(self, node: NodeRef, group: str, matches: Matches) -> SystemMachine | Refused | None:
        if node.on_control_plane or self._system.controls(node):
            return ON_CONTROL_PLANE
        if unsure := matches.unsure.get(node.name):
            return Refused(Refusal.AMBIGUOUS, unsure)
        machine = matches.machines.get(node.name)
        return machine and (machine.protected or self._outside(node, machine, group) or machine)

    def _outside(self, node: NodeRef, machine: SystemMachine, group: str) -> Refused | None:
        if machine.group != group:
            owner = f"group {machine.group}" if machine.group else "no group"
            return Refused(Refusal.NOT_IN_GROUP, f"its machine {machine.key} belongs to {owner}")
        doubt = self._system.doubts(node, machine)
        return Refused(Refusal.NOT_IN_GROUP, doubt) if doubt else None

    def _of_absent(self, node: NodeRef, deadline: float) -> DeleteOutcome | None:
        """Return the outcome for an unlisted machine: gone if we deleted it or the system confirms that, or not ours."""
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
        self, node: NodeRef, machine: SystemMachine, look: FleetObservation, minimum: int, deadline: float
    ) -> DeleteOutcome | None:
        order = self._fleet.ledger.order(machine.key)
        if machine.gone or (not machine.alive and self._system.going_is_enough):
            how = "gone" if machine.gone else "being deleted"
            return Deleted(how) if order and order.taken else AlreadyGone(how)
        if not machine.alive:
            if order is None:
                now = self._clock.now()
                order = FleetOrder(now, taken=False, open_since=now, words="it was already being deleted")
                self._fleet.ledger.record(machine.key, order, node)
            return None
        if order is not None and self._clock.now() < order.at + self._patience(order):
            return None
        refusal = self._refusal(machine, self._left(look, machine), minimum, deadline)
        return refusal or self._order_now(node, machine, order, minimum, deadline)

    def _order_now(
        self, node: NodeRef, machine: SystemMachine, last: FleetOrder | None, minimum: int, deadline: float
    ) -> DeleteOutcome | None:
        """Read the state again, then order. The system has no lock, so other processes may have deleted machines."""
        look = self._fleet.look(deadline=deadline)
        current = look.index.get(machine.key)
        if current is None or not current.alive:
            return None  # the next read decides
        if refused := self._below_minimum(current, self._left(look, current), minimum):
            return refused
        return self._order(node, current, last, deadline)

    def _left(self, look: FleetObservation, machine: SystemMachine) -> int:
        """Return the number of healthy machines in the group of *machine*, without *machine*."""
        counted = not (machine.failed or self._fleet.leaving(machine))
        return self._fleet.sound(look, machine.group) - counted

    def _below_minimum(self, machine: SystemMachine, left: int, minimum: int) -> Refused | None:
        return None if machine.failed else below_minimum(machine.group, minimum, left)

    def _refusal(self, machine: SystemMachine, left: int, minimum: int, deadline: float) -> Refused | None:
        return self._below_minimum(machine, left, minimum) or self._system.forbids(machine, deadline=deadline)

    def _order(
        self, node: NodeRef, machine: SystemMachine, last: FleetOrder | None, deadline: float
    ) -> DeleteOutcome | None:
        now = self._clock.now()
        earlier = self._at_work(node, last)
        order = FleetOrder(now, taken=False, open_since=now, attempts=last.attempts + 1 if last else 1)
        self._fleet.ledger.record(machine.key, order, node)
        outcome: DeleteOutcome | None = None
        try:
            self._system.end(machine, deadline=deadline)
        except Missing:
            outcome = Deleted("gone") if last else AlreadyGone("the machine does not exist")
        except (Unsent, RateLimited, DeadlineExceeded) as error:
            order = replace(order, open_since=earlier, words=str(error))
        except (RequestRejected, AuthError) as error:
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

    def _at_work(self, node: NodeRef, last: FleetOrder | None) -> dt.datetime | None:
        """Return the time of an earlier order, of this or another process, that may still take effect."""
        given = last.open_since if last else node.ordered_at
        return given if given and given >= self._fleet.settled() else None

    def _patience(self, order: FleetOrder) -> dt.timedelta:
        """Return how long after an order a machine may still be listed as alive before the order is repeated."""
        if order.taken:
            return dt.timedelta(seconds=self._fleet.pace.settle)
        return self._backoff.after(order.attempts)

    def _late(self, node: NodeRef, look: FleetObservation | None, trouble: str) -> DeleteOutcome:
        """Return the outcome for a machine whose deletion was not confirmed in time."""
        key = self._fleet.ledger.machine_of(node)
        order = self._fleet.ledger.order(key) if key else None
        if order is not None and order.open_since:
            machine = look.index.get(key) if look and key else None
            state = f"listed as {machine.state}" if machine else "not listed"
            answer = (
                "the system accepted the order" if order.taken else f"the order may still take effect: {order.words}"
            )
            return Accepted(f"{answer}; {state}")
        if node.ordered_at is not None and order is None:
            return Accepted(f"an earlier order may still take effect: {trouble}")
        return Failed((order.words if order else "") or trouble, retryable=True)
