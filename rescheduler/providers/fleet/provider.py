"""The provider protocol for a fleet, with its deletions; subclasses add templates and prices."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rescheduler import errors
from rescheduler.clock import Clock
from rescheduler.errors import AuthError
from rescheduler.providers.base import (
    ON_CONTROL_PLANE,
    Accepted,
    AlreadyGone,
    CloudProvider,
    Deleted,
    DeleteOutcome,
    Failed,
    Instance,
    MayEnd,
    NodeGroup,
    NodeRef,
    Refusal,
    Refused,
    Turns,
    any_may_end,
    below_minimum,
)
from rescheduler.providers.deleting import delete_until_confirmed
from rescheduler.providers.fleet import MachineSystem, PollIntervals, SystemMachine
from rescheduler.providers.fleet.fleet import FleetObservation, FleetOrder, MachineFleet, Matches
from rescheduler.providers.order_life import OrderResult, result_of, without_answer

# Delete machines: list them, request the deletion, and list them again until it is confirmed.

_ENDED_BY_OTHERS = "its system or another client ended it, and its group may launch another"
_NO_MACHINE = Refused(Refusal.NOT_IN_GROUP, "the group has no machine for this node")


class FleetRemoval:
    """Deletes machines of a fleet. Calls may run concurrently; orders are serialized, each after a new read."""

    def __init__(self, fleet: MachineFleet) -> None:
        self._fleet, self._system, self._clock = fleet, fleet.system, fleet.clock

    def delete(
        self, group: str, nodes: Sequence[NodeRef], *, deadline: float, may_end: MayEnd = any_may_end
    ) -> Mapping[str, DeleteOutcome]:
        """Delete the nodes' machines. Errors other than UnknownGroup, and timeouts, become outcomes."""
        observation: FleetObservation | None = None
        unknown: dict[str, str] = {}  #: why it is not known whether the machines of these nodes still run

        def advance(done: dict[str, DeleteOutcome]) -> None:
            nonlocal observation
            with self._fleet.changing(deadline=deadline):
                observation = self._fleet.read(deadline=deadline)
                left = [node for node in nodes if node.name not in done]
                done |= self._send_due_orders(observation, group, left, unknown, deadline, may_end)

        return delete_until_confirmed(
            nodes,
            advance,
            wait=lambda: self._fleet.wait_poll_interval(deadline),
            give_up=lambda last_error: {
                node.name: self._unconfirmed(node, observation, unknown.get(node.name, ""), last_error)
                for node in nodes
            },
            is_ordered=lambda: any(map(self._was_ordered, nodes)),
        )

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        """Return the nodes that would be refused. Each minimum check assumes that the earlier nodes were deleted."""
        self._fleet.turns.check()
        observation = self._fleet.recent(deadline=deadline)
        minimum = self._fleet.group(observation, group).min_size
        left = self._fleet.healthy_size(observation, group)
        matches = observation.index.match(nodes)
        refused: dict[str, Refused] = {}
        for node in nodes:
            machine = self._machine(node, group, matches)
            if machine is None:
                if self._outcome_if_unlisted(node, deadline) == _NO_MACHINE:
                    refused[node.name] = _NO_MACHINE
            elif isinstance(machine, Refused):
                refused[node.name] = machine
            elif machine.alive and not self._fleet.leaving(machine):
                remaining = left - (not machine.failed)
                refusal = self._refusal(machine, remaining, minimum, deadline)
                if refusal:
                    refused[node.name] = refusal
                else:
                    left = remaining
        return refused

    def _send_due_orders(
        self,
        observation: FleetObservation,
        group: str,
        nodes: Sequence[NodeRef],
        unknown: dict[str, str],
        deadline: float,
        may_end: MayEnd,
    ) -> dict[str, DeleteOutcome]:
        """Send the orders that are due, and return the outcomes that are already known.

        The group of an earlier order may be gone by now. Raises UnknownGroup if none was given.
        """
        if not any(map(self._was_ordered, nodes)):
            self._fleet.group(observation, group)
        matches = observation.index.match(nodes)
        outcomes: dict[str, DeleteOutcome] = {}
        for node in nodes:
            self._note_earlier_order(node, matches)
            try:
                outcome = self._advance(node, observation, group, matches, deadline, may_end)
            except errors.Retryable:
                continue
            except errors.ReschedulerError as error:
                if self._may_be_gone(node, matches):
                    unknown[node.name] = str(error)
                    continue
                outcome = Failed(str(error), retryable=isinstance(error, AuthError))
            if isinstance(outcome, Refused) and self._may_be_ordered(node, matches):
                continue  # the machine may still end, whatever forbids an order now
            if outcome is not None:
                outcomes[node.name] = outcome
        return outcomes

    def _advance(
        self,
        node: NodeRef,
        observation: FleetObservation,
        group: str,
        matches: Matches,
        deadline: float,
        may_end: MayEnd,
    ) -> DeleteOutcome | None:
        machine = self._machine(node, group, matches)
        if machine is None:
            outcome = self._outcome_if_unlisted(node, deadline)
            if isinstance(outcome, AlreadyGone) and group in observation.view.targets and not self._was_ordered(node):
                return replace(outcome, unshrunk=_ENDED_BY_OTHERS)
            return outcome
        if isinstance(machine, Refused):
            return machine
        return self._outcome_if_listed(node, machine, observation, deadline, may_end)

    def _machine(self, node: NodeRef, group: str, matches: Matches) -> SystemMachine | Refused | None:
        if node.on_control_plane or self._system.is_control_plane(node):
            return ON_CONTROL_PLANE
        if ambiguous := matches.ambiguous.get(node.name):
            return Refused(Refusal.AMBIGUOUS, ambiguous)
        machine = matches.machines.get(node.name)
        if machine is None:
            return None
        protected = machine.protected if machine.alive else None  # an order that was accepted is not taken back
        return protected or self._other_group(node, machine, group) or machine

    def _other_group(self, node: NodeRef, machine: SystemMachine, group: str) -> Refused | None:
        if machine.group != group:
            owner = f"group {machine.group}" if machine.group else "no group"
            return Refused(Refusal.NOT_IN_GROUP, f"its machine {machine.key} belongs to {owner}")
        doubt = self._system.contradiction(node, machine)
        return Refused(Refusal.NOT_IN_GROUP, doubt) if doubt else None

    def _outcome_if_unlisted(self, node: NodeRef, deadline: float) -> DeleteOutcome | None:
        """Return the outcome of an unlisted machine: gone if we ordered or the system confirms that, else not ours."""
        ordered = self._fleet.ledger.machine_of(node)
        key = ordered or self._system.key_of(node)
        if not key:
            return _NO_MACHINE
        try:
            exists = self._system.exists(key, deadline=deadline)
        except AuthError:
            if not self._was_ordered(node):
                return _NO_MACHINE  # it may be of another account
            raise
        order = self._fleet.ledger.order(key)
        if exists:
            return None if ordered and order and order.result is OrderResult.DONE else _NO_MACHINE
        if exists is None and not ordered and node.ordered_at is None:
            return _NO_MACHINE
        return _gone(order, "no longer there")

    def _outcome_if_listed(
        self,
        node: NodeRef,
        machine: SystemMachine,
        observation: FleetObservation,
        deadline: float,
        may_end: MayEnd,
    ) -> DeleteOutcome | None:
        order = self._fleet.ledger.order(machine.key)
        if machine.gone or (not machine.alive and self._system.deletion_is_certain):
            return _gone(order, "gone" if machine.gone else "being deleted")
        if not machine.alive:
            if order is None:
                now = self._clock.now()
                unshrunk = _ENDED_BY_OTHERS if machine.group in observation.view.targets else ""
                order = FleetOrder(now, OrderResult.NONE, now, "it was already being deleted", unshrunk=unshrunk)
                self._fleet.ledger.record(machine.key, order, node)
            return None
        if order is not None:
            pause = self._fleet.timeouts.pause(order.result, order.attempts)
            if self._clock.now() < order.at + pause:
                return None
        minimum = self._fleet.group(observation, machine.group).min_size
        refusal = self._refusal(machine, self._remaining_size(observation, machine), minimum, deadline)
        return refusal or self._order_now(node, machine, order, deadline, may_end)

    def _order_now(
        self, node: NodeRef, machine: SystemMachine, last: FleetOrder | None, deadline: float, may_end: MayEnd
    ) -> DeleteOutcome | None:
        """Read the state again, then order. The system has no lock, so others may have changed machines and groups."""
        observation = self._fleet.read(deadline=deadline)
        current = self._machine(node, machine.group, observation.index.match([node]))
        if isinstance(current, Refused):
            return current
        if current is None or current.key != machine.key or not current.alive:
            return None  # the next read decides
        minimum = self._fleet.group(observation, machine.group).min_size
        if refused := self._below_minimum(current, self._remaining_size(observation, current), minimum):
            return refused
        try:
            self._fleet.ask(may_end, node)
        except errors.Withheld as error:
            return Refused(Refusal.WITHHELD, str(error))
        return self._order(node, current, last, deadline)

    def _remaining_size(self, observation: FleetObservation, machine: SystemMachine) -> int:
        """Return the number of healthy machines in the group of *machine*, without *machine*."""
        counted = not (machine.failed or self._fleet.leaving(machine))
        return self._fleet.healthy_size(observation, machine.group) - counted

    def _below_minimum(self, machine: SystemMachine, left: int, minimum: int) -> Refused | None:
        return None if machine.failed else below_minimum(machine.group, minimum, left)

    def _refusal(self, machine: SystemMachine, left: int, minimum: int, deadline: float) -> Refused | None:
        return self._below_minimum(machine, left, minimum) or self._system.deletion_refusal(machine, deadline=deadline)

    def _order(
        self, node: NodeRef, machine: SystemMachine, last: FleetOrder | None, deadline: float
    ) -> DeleteOutcome | None:
        now = self._clock.now()
        earlier = self._pending_since(node, last)
        attempts = last.attempts + 1 if last else 1
        self._fleet.ledger.record(machine.key, FleetOrder(now, OrderResult.PENDING, now, attempts=attempts), node)
        result, failed, error_text = OrderResult.DONE, None, ""
        try:
            self._system.delete(machine, deadline=deadline)
        except errors.ReschedulerError as error:
            result, failed = result_of(error, lambda fault: fault.of_the_system)
            error_text = str(error)
        ended = self._clock.now()
        since = earlier if result.without_effect else ended
        self._fleet.ledger.record(machine.key, FleetOrder(ended, result, since, error_text, attempts), node)
        if result is OrderResult.MISSING:
            return Deleted("gone") if last else AlreadyGone("the machine does not exist")
        return None if earlier else failed

    def _pending_since(self, node: NodeRef, last: FleetOrder | None) -> dt.datetime | None:
        """Return the time of an earlier order, of this or another process, that may still take effect."""
        return self._fleet.timeouts.pending(last.open_since if last else node.ordered_at, self._clock.now())

    def _note_earlier_order(self, node: NodeRef, matches: Matches) -> None:
        """Record the order that an earlier process may have given until a moment ago, if a second one would do harm."""
        machine = matches.machines.get(node.name)
        if self._fleet.pace.idempotent or node.ordered_at is None or machine is None:
            return
        if self._fleet.ledger.order(machine.key) is None:
            now = self._clock.now()
            text = "an earlier process may have given an order"
            self._fleet.ledger.record(machine.key, FleetOrder(now, OrderResult.NONE, now, text), node)

    def _may_be_ordered(self, node: NodeRef, matches: Matches) -> bool:
        """Return whether an earlier order for the node's machine may still take effect."""
        machine = matches.machines.get(node.name)
        key = machine.key if machine else self._fleet.ledger.machine_of(node)
        return self._pending_since(node, self._fleet.ledger.order(key) if key else None) is not None

    def _was_ordered(self, node: NodeRef) -> bool:
        """Return whether this process or an earlier one may have ordered to delete the node's machine."""
        return self._fleet.ledger.machine_of(node) is not None or node.ordered_at is not None

    def _may_be_gone(self, node: NodeRef, matches: Matches) -> bool:
        """Return whether an order may have ended the node's machine, or may still do so."""
        unlisted = node.name not in matches.machines
        return self._may_be_ordered(node, matches) or (unlisted and self._was_ordered(node))

    def _unconfirmed(
        self, node: NodeRef, observation: FleetObservation | None, unknown: str, last_error: str
    ) -> DeleteOutcome:
        """Return the outcome for a machine whose deletion was not confirmed in time."""
        key = self._fleet.ledger.machine_of(node)
        order = self._fleet.ledger.order(key) if key else None
        if order is not None and order.open_since:
            machine = observation.index.get(key) if observation and key else None
            state = f"listed as {machine.state}" if machine else "not listed"
            why = machine.protected.detail if machine and machine.protected else unknown
            response = (
                "the system accepted the order"
                if order.result is OrderResult.DONE
                else f"the order may still take effect: {order.error_text}"
            )
            return Accepted(f"{response}; {state}: {why}" if why else f"{response}; {state}")
        error_text = (order.error_text if order else "") or unknown or last_error
        return without_answer(error_text, ordered=node.ordered_at is not None and order is None)


def _gone(order: FleetOrder | None, how: str) -> Deleted | AlreadyGone:
    if order and order.result is OrderResult.DONE:
        return Deleted(how)
    return AlreadyGone(how, order.unshrunk if order else "")


class FleetProvider(CloudProvider):
    """A provider in which a node belongs to its machine's group if the match is certain and neither is protected."""

    def __init__(self, system: MachineSystem, clock: Clock, pace: PollIntervals) -> None:
        self.name = system.name
        self._system = system
        self._fleet = MachineFleet(system, clock, pace)
        self._removal = FleetRemoval(self._fleet)

    def refresh(self, *, deadline: float) -> None:
        self._fleet.recent(deadline=deadline)

    def groups(self, *, deadline: float) -> Sequence[NodeGroup]:
        return self._fleet.recent(deadline=deadline).view.groups

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        if node.on_control_plane or self._system.is_control_plane(node):
            return None
        observation = self._fleet.recent(deadline=deadline)
        machine = observation.index.match([node]).machines.get(node.name)
        if machine is None or machine.protected or not machine.group or self._system.contradiction(node, machine):
            return None
        return self._fleet.group(observation, machine.group)

    def target_size(self, group: str, *, deadline: float) -> int:
        observation = self._fleet.recent(deadline=deadline)
        return self._fleet.size(observation, self._fleet.group(observation, group).id)

    def instances(self, group: str, *, deadline: float) -> Sequence[Instance]:
        observation = self._fleet.recent(deadline=deadline)
        return self._fleet.instances(observation, self._fleet.group(observation, group).id)

    def delete_nodes(
        self, group: str, nodes: Sequence[NodeRef], *, deadline: float, may_end: MayEnd = any_may_end
    ) -> Mapping[str, DeleteOutcome]:
        return self._removal.delete(group, nodes, deadline=deadline, may_end=may_end)

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        return self._removal.refusals(group, nodes, deadline=deadline)

    def increase_size(self, group: str, delta: int, *, deadline: float) -> None:
        self._fleet.increase(group, self._positive(delta), deadline=deadline)

    def decrease_target_size(self, group: str, delta: int, *, deadline: float) -> None:
        self._fleet.decrease_unfulfilled(group, self._positive(-delta), deadline=deadline)

    def notices(self, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, dt.datetime]:
        machines = self._fleet.recent(deadline=deadline).index.match(nodes).machines
        terminating = {name: machine.terminates_at for name, machine in machines.items()}
        return {name: moment for name, moment in terminating.items() if moment is not None}

    def has_instance(self, node: NodeRef, *, deadline: float) -> bool | None:
        machine = self.machine(node, deadline=deadline)
        if machine is not None:
            return not machine.gone
        key = self._system.key_of(node)
        try:
            return self._system.exists(key, deadline=deadline) if key else None
        except AuthError:
            return None  # it may be of another account

    def instance_for(self, node: NodeRef, *, deadline: float) -> str | None:
        machine = self.machine(node, deadline=deadline)
        return machine.id if machine is not None else None

    def take_turns(self, turns: Turns) -> None:
        self._fleet.turns = turns

    def close(self) -> None:
        self._fleet.close()

    def machine(self, node: NodeRef, *, deadline: float) -> SystemMachine | None:
        """Return the node's machine; `None` if the match is uncertain."""
        return self._fleet.recent(deadline=deadline).index.match([node]).machines.get(node.name)

    def group(self, name: str, *, deadline: float) -> NodeGroup:
        return self._fleet.group(self._fleet.recent(deadline=deadline), name)

    def _positive(self, delta: int) -> int:
        if delta <= 0:
            raise errors.UsageError(f"{self.name}: a change of size by {delta} has the wrong sign")
        return delta


def hours(start: dt.datetime, end: dt.datetime) -> float:
    return max(0.0, (end - start).total_seconds() / 3600)
