"""The groups of a system: cached views, sizes, and requests for more or fewer machines."""

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rescheduler.clock import Clock
from rescheduler.net.http_errors import Missing
from rescheduler.providers.base import AboveMaximum, BelowMinimum, Instance, InstanceState, NodeGroup, UnknownGroup
from rescheduler.providers.fleet.ledger import FleetLedger, FleetOrder
from rescheduler.providers.fleet.machine import MachineSystem, PollIntervals, SystemMachine, SystemView
from rescheduler.providers.fleet.matching import Index
from rescheduler.providers.waiting import PolledSystem


@dataclass(frozen=True, slots=True)
class FleetObservation:
    """A view and its index; *at* is the ``monotonic()`` time at which the view was requested."""

    view: SystemView
    index: Index
    at: float


class MachineFleet(PolledSystem):
    """A system with a cached view. Views are immutable: another thread may replace the view while one is in use."""

    def __init__(self, system: MachineSystem, clock: Clock, pace: PollIntervals) -> None:
        super().__init__(system.name, clock, pace.poll)
        self.system, self.pace = system, pace
        self.ledger = FleetLedger()
        self._last: FleetObservation | None = None
        self._changes = 0

    def close(self) -> None:
        self.closed.set()
        self.system.close()

    def recent(self, *, deadline: float) -> FleetObservation:
        """Return the last view if it is newer than the refresh interval, otherwise a new one."""
        known = self._last
        if known is not None and self.clock.monotonic() - known.at < self.pace.refresh:
            return known
        return self.read(deadline=deadline)

    def read(self, *, deadline: float) -> FleetObservation:
        """Read the current state of the system; if that fails, keep the last view."""
        at, changes = self.clock.monotonic(), self._changes
        view = self.system.read(deadline=deadline)
        self.ledger.mark_listed((machine.key for machine in view.machines), self.settled_before())
        observation = FleetObservation(view, Index(view.machines, self.system.key_of), at)
        if self._changes == changes:  # otherwise the view may show the state before the change
            self._last = observation
        return observation

    def forget(self) -> None:
        """Drop the cached view after a change, so that the next reader gets a new one."""
        self._changes += 1
        self._last = None

    @contextmanager
    def changing(self, *, deadline: float) -> Iterator[None]:
        """Allow one change at a time; the next reader gets a new view."""
        with super().changing(deadline=deadline):
            try:
                yield
            finally:
                self.forget()

    def group(self, observation: FleetObservation, name: str) -> NodeGroup:
        for group in observation.view.groups:
            if group.id == name:
                return group
        known = ", ".join(group.id for group in observation.view.groups) or "none"
        raise UnknownGroup(f"{self.system.name}: no group {name!r}; the groups are {known}")

    def size(self, observation: FleetObservation, group: str) -> int:
        """Count the machines that exist or are being created, except those whose deletion was ordered."""
        alive = [machine for machine in observation.view.members(group) if machine.alive and not self.leaving(machine)]
        return len(alive) + len(self._unlisted(observation, group))

    def healthy_size(self, observation: FleetObservation, group: str) -> int:
        """Count the machines of `size` that have not failed. Failed machines do not count towards the minimum."""
        alive = [machine for machine in observation.view.members(group) if machine.alive and not self.leaving(machine)]
        return self.size(observation, group) - sum(machine.failed for machine in alive)

    def leaving(self, machine: SystemMachine) -> bool:
        """Return whether an order to delete the machine may still take effect, even if it is listed as alive."""
        return self.ledger.may_take_effect(machine.key, self.settled_before())

    def instances(self, observation: FleetObservation, group: str) -> Sequence[Instance]:
        return [machine.instance for machine in observation.view.members(group)]

    def increase(self, name: str, delta: int, *, deadline: float) -> None:
        with self.changing(deadline=deadline):
            observation = self.read(deadline=deadline)
            group = self.group(observation, name)
            wanted = self.size(observation, name) + delta
            if wanted > group.max_size:
                raise AboveMaximum(f"{self.system.name}: group {name}: {wanted} is above {group.max_size}")
            self.system.create(
                group, delta, lambda key: self.ledger.expect(key, name, self.clock.now()), deadline=deadline
            )

    def decrease_unfulfilled(self, name: str, delta: int, *, deadline: float) -> None:
        """Delete *delta* machines that are being created: failed ones first, then the newest.

        If there are fewer, those are deleted and BelowMinimum is raised.
        """
        with self.changing(deadline=deadline):
            observation = self.read(deadline=deadline)
            group = self.group(observation, name)
            size = self.size(observation, name)
            unfinished = [machine for machine in observation.view.members(name) if self._is_unfinished(machine)]
            unfinished.sort(key=lambda machine: machine.error is None)
            floor = max(group.min_size, size - len(unfinished))
            given_up = min(delta, max(0, size - floor))
            for machine in unfinished[:given_up]:
                with suppress(Missing):
                    self.system.delete(machine, deadline=deadline)
                now = self.clock.now()
                self.ledger.record(machine.key, FleetOrder(now, accepted=True, open_since=now))
            if given_up < delta:
                why = f"{size - delta} is less than the {floor} machines that are running or required"
                raise BelowMinimum(f"{self.system.name}: group {name}: {why}; {given_up} of {delta} were canceled")

    def settled_before(self) -> dt.datetime:
        """Return the latest time of orders that have certainly taken effect by now."""
        return self.clock.now() - dt.timedelta(seconds=self.pace.settle)

    def _is_unfinished(self, machine: SystemMachine) -> bool:
        creating = machine.state is InstanceState.CREATING and not machine.protected
        return creating and machine.alive and not self.leaving(machine)

    def _unlisted(self, observation: FleetObservation, group: str) -> list[str]:
        return [key for key in self.ledger.expected(group) if observation.index.get(key) is None]
