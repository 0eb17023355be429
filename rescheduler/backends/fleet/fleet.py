"""The groups of a system: looks at it, sizes, and machines asked for or given up."""

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rescheduler.backends.base import (
    AboveMaximum,
    BelowMinimum,
    Instance,
    InstanceState,
    NodeGroup,
    UnknownGroup,
)
from rescheduler.backends.fleet.ledger import Ledger, Order
from rescheduler.backends.fleet.machine import Machine, Pace, System, View
from rescheduler.backends.fleet.matching import Index
from rescheduler.backends.http import Missing
from rescheduler.backends.waiting import Waiting
from rescheduler.clock import Clock


@dataclass(frozen=True, slots=True)
class Look:
    """A view and its index; *at* a moment of ``monotonic()`` the look began."""

    view: View
    index: Index
    at: float


class Fleet(Waiting):
    """Looks are values: readers keep what they were given while another thread looks again."""

    def __init__(self, system: System, clock: Clock, pace: Pace) -> None:
        super().__init__(system.name, clock, pace.poll)
        self.system, self.pace = system, pace
        self.ledger = Ledger()
        self._look: Look | None = None
        self._changes = 0

    def close(self) -> None:
        self.closed.set()
        self.system.close()

    def recent(self, *, deadline: float) -> Look:
        """The system as seen at most a refresh interval ago."""
        known = self._look
        if known is not None and self.clock.monotonic() - known.at < self.pace.refresh:
            return known
        return self.look(deadline=deadline)

    def look(self, *, deadline: float) -> Look:
        """The system as it is; a failure leaves the last look in place."""
        at, changes = self.clock.monotonic(), self._changes
        view = self.system.look(deadline=deadline)
        self.ledger.seen((machine.key for machine in view.machines), self.settled())
        look = Look(view, Index(view.machines, self.system.key_of), at)
        if self._changes == changes:  # otherwise it may show what was before the change
            self._look = look
        return look

    def forget(self) -> None:
        """Something was changed: the next reader looks again."""
        self._changes += 1
        self._look = None

    @contextmanager
    def changing(self, *, deadline: float) -> Iterator[None]:
        """One change at a time, after which the next reader looks again."""
        with super().changing(deadline=deadline):
            try:
                yield
            finally:
                self.forget()

    def group(self, look: Look, name: str) -> NodeGroup:
        for group in look.view.groups:
            if group.id == name:
                return group
        known = ", ".join(group.id for group in look.view.groups) or "none"
        raise UnknownGroup(f"{self.system.name}: no group {name!r}; the groups are {known}")

    def size(self, look: Look, group: str) -> int:
        """Machines that are there or on their way, less those that were ordered away."""
        alive = [one for one in look.view.members(group) if one.alive and not self.leaving(one)]
        return len(alive) + len(self._unlisted(look, group))

    def sound(self, look: Look, group: str) -> int:
        """Of the size, what has not failed: a machine that will never run does not keep the minimum."""
        failed = [one for one in look.view.members(group) if one.alive and one.failed and not self.leaving(one)]
        return self.size(look, group) - len(failed)

    def leaving(self, machine: Machine) -> bool:
        """Whether an order to end the machine may be at work, however alive it looks."""
        return self.ledger.open(machine.key, self.settled())

    def instances(self, look: Look, group: str) -> Sequence[Instance]:
        return [machine.instance for machine in look.view.members(group)]

    def increase(self, name: str, delta: int, *, deadline: float) -> None:
        with self.changing(deadline=deadline):
            look = self.look(deadline=deadline)
            group = self.group(look, name)
            wanted = self.size(look, name) + delta
            if wanted > group.max_size:
                raise AboveMaximum(f"{self.system.name}: group {name}: {wanted} is above {group.max_size}")
            self.system.create(
                group, delta, lambda key: self.ledger.expect(key, name, self.clock.now()), deadline=deadline
            )

    def decrease_unfulfilled(self, name: str, delta: int, *, deadline: float) -> None:
        """Give up *delta* machines that are being made: those that failed first, then the newest.

        BelowMinimum where there are fewer; those are given up.
        """
        with self.changing(deadline=deadline):
            look = self.look(deadline=deadline)
            group = self.group(look, name)
            size = self.size(look, name)
            unfinished = [one for one in look.view.members(name) if self._unfinished(one)]
            unfinished.sort(key=lambda one: one.error is None)
            floor = max(group.min_size, size - len(unfinished))
            given_up = min(delta, max(0, size - floor))
            for machine in unfinished[:given_up]:
                with suppress(Missing):
                    self.system.end(machine, deadline=deadline)
                now = self.clock.now()
                self.ledger.record(machine.key, Order(now, taken=True, open_since=now))
            if given_up < delta:
                why = f"{size - delta} is below {floor}, which run or must be; {given_up} of {delta} are given up"
                raise BelowMinimum(f"{self.system.name}: group {name}: {why}")

    def settled(self) -> dt.datetime:
        """Whatever was ordered before shows by now."""
        return self.clock.now() - dt.timedelta(seconds=self.pace.settle)

    def _unfinished(self, machine: Machine) -> bool:
        creating = machine.state is InstanceState.CREATING and not machine.protected
        return creating and machine.alive and not self.leaving(machine)

    def _unlisted(self, look: Look, group: str) -> list[str]:
        return [key for key in self.ledger.expected(group) if look.index.get(key) is None]
