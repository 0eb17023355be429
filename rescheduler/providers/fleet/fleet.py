"""The groups of a system: cached views, sizes, matched Nodes, and requests for more or fewer machines. Separate
from the provider, whose subclasses see only groups and machines.
"""

import datetime as dt
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from rescheduler.clock import Clock
from rescheduler.durations import Backoff
from rescheduler.net.http_errors import Missing
from rescheduler.providers import deleting
from rescheduler.providers.base import (
    AboveMaximum,
    BelowMinimum,
    Instance,
    InstanceState,
    NodeGroup,
    NodeRef,
    UnknownGroup,
    with_rivals,
)
from rescheduler.providers.deleting import PolledSystem
from rescheduler.providers.fleet import MachineSystem, PollIntervals, SystemMachine, SystemView
from rescheduler.providers.order_life import LONGEST_BACKOFF, OrderResult, OrderTimeouts

# The deletion orders of this process, and the machines that it requested until the system lists them.


@dataclass(frozen=True, slots=True)
class FleetOrder:
    """The last order to delete a machine."""

    at: dt.datetime
    result: OrderResult
    open_since: dt.datetime | None  #: when this order, or an earlier one that may still take effect, was given
    error_text: str = ""  #: the error
    attempts: int = 1
    unshrunk: str = ""  #: why a new machine may replace this one; "" if none will


class FleetLedger(deleting.Ledger[FleetOrder]):
    """The deletion orders, and the requested machines that are not listed yet."""

    def __init__(self) -> None:
        super().__init__()
        self._expected: OrderedDict[str, tuple[str, dt.datetime]] = OrderedDict()

    def expect(self, key: str, group: str, now: dt.datetime) -> None:
        """Record that the system is creating the machine and may not list it yet."""
        with self._lock:
            self._expected[key] = (group, now)

    def mark_listed(self, keys: Iterable[str], since: dt.datetime) -> None:
        """Stop expecting the machines *keys*, which the system lists, and machines requested before *since*."""
        listed = frozenset(keys)
        with self._lock:
            for key, (_, requested_at) in list(self._expected.items()):
                if key in listed or requested_at < since:
                    del self._expected[key]

    def expected(self, group: str) -> list[str]:
        with self._lock:
            return [key for key, (owner, _) in self._expected.items() if owner == group]


# Match Nodes to machines by the ID on the Node, otherwise by a private address, otherwise by name. No I/O.


@dataclass(frozen=True, slots=True)
class Matches:
    """Matches by node name; a node in neither mapping has no machine."""

    machines: Mapping[str, SystemMachine] = field(default_factory=dict)
    ambiguous: Mapping[str, str] = field(default_factory=dict)  #: why the match is uncertain


class Index:
    """The machines of a view, indexed by key, address and name."""

    def __init__(self, machines: Sequence[SystemMachine], key_of: Callable[[NodeRef], str | None]) -> None:
        self._key_of = key_of
        self._by_key = {machine.key: machine for machine in machines}
        self._by_address = _grouped((address, machine) for machine in machines for address in machine.addresses)
        self._by_name = _grouped((name, machine) for machine in machines for name in machine.names)

    def get(self, key: str) -> SystemMachine | None:
        return self._by_key.get(key)

    def match(self, nodes: Sequence[NodeRef]) -> Matches:
        """Match *nodes* and their rivals. If several nodes match a machine and one has no ID, none of them gets it."""
        matched: dict[str, SystemMachine] = {}
        ambiguous: dict[str, str] = {}
        claims: dict[str, list[NodeRef]] = defaultdict(list)
        for node in with_rivals(nodes):
            candidates = self._candidates(node)
            if len(candidates) > 1:
                keys = ", ".join(sorted(machine.key for machine in candidates))
                ambiguous[node.name] = f"several machines match the node: {keys}"
            for machine in candidates[:1] if len(candidates) == 1 else ():
                matched[node.name] = machine
                claims[machine.key].append(node)
        for key, claimants in claims.items():
            names = sorted({node.name for node in claimants})
            if len(names) > 1 and not all(self._key_of(node) for node in claimants):
                for name in names:
                    del matched[name]
                    ambiguous[name] = f"machine {key} could be that of {', '.join(names)}"
        return Matches(matched, ambiguous)

    def _candidates(self, node: NodeRef) -> Sequence[SystemMachine]:
        key = self._key_of(node)
        if key:
            machine = self._by_key.get(key)
            return [machine] if machine else []
        if key is None:
            return []
        machines = (machine for address in node.internal_ips for machine in self._by_address.get(address, ()))
        by_address = {machine.key: machine for machine in machines}
        return list(by_address.values()) or self._by_name.get(node.name.lower(), [])


def _grouped(pairs: Iterable[tuple[str, SystemMachine]]) -> dict[str, list[SystemMachine]]:
    machines: dict[str, list[SystemMachine]] = defaultdict(list)
    for name, machine in pairs:
        machines[name].append(machine)
    return machines


@dataclass(frozen=True, slots=True)
class FleetObservation:
    """A view and its index; *at* is the ``monotonic()`` time at which the view was requested."""

    view: SystemView
    index: Index
    at: float


class MachineFleet(PolledSystem):
    """A system with a cached view. Views are immutable: another thread may replace the view while one is in use."""

    def __init__(self, system: MachineSystem, clock: Clock, pace: PollIntervals) -> None:
        super().__init__(system.name, clock, pace.poll, pace.settle)
        self.system, self.pace = system, pace
        backoff = Backoff(dt.timedelta(seconds=2 * pace.poll), LONGEST_BACKOFF)
        self.timeouts = OrderTimeouts(dt.timedelta(seconds=pace.settle), backoff, pace.idempotent)
        self.ledger = FleetLedger()
        self._last: FleetObservation | None = None
        self._seen: FleetObservation | None = None  #: the last view, also if a change has made it obsolete
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
        self._seen = observation
        if self._changes == changes:  # otherwise the view may show the state before the change
            self._last = observation
        return observation

    def forget(self) -> None:
        """Drop the cached view after a change, so that the next reader gets a new one."""
        self._changes += 1
        self._last = None

    def in_doubt(self) -> bool:
        """Return whether a machine was listed as alive although its deletion may still take effect."""
        machines = self._seen.view.machines if self._seen is not None else ()
        return any(machine.alive and self.leaving(machine) for machine in machines)

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
        """Return the target size, if the system has one, otherwise the number of machines (see `_counted`)."""
        target = observation.view.targets.get(group)
        return self._counted(observation, group) if target is None else target

    def _counted(self, observation: FleetObservation, group: str) -> int:
        """Count the machines that exist or are being created, except those whose deletion was ordered."""
        return len(self._staying(observation, group)) + len(self._unlisted(observation, group))

    def healthy_size(self, observation: FleetObservation, group: str) -> int:
        """Count the machines that have not failed, at most the target size: the system may end those above it."""
        failed = sum(machine.failed for machine in self._staying(observation, group))
        return min(self.size(observation, group), self._counted(observation, group)) - failed

    def _staying(self, observation: FleetObservation, group: str) -> list[SystemMachine]:
        """Return the listed machines that exist or are being created, except those whose deletion was ordered."""
        return [machine for machine in observation.view.members(group) if machine.alive and not self.leaving(machine)]

    def leaving(self, machine: SystemMachine) -> bool:
        """Return whether an order to delete the machine may still take effect, even if it is listed as alive."""
        order = self.ledger.order(machine.key)
        return order is not None and self.timeouts.pending(order.open_since, self.clock.now()) is not None

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
                self.ledger.record(machine.key, FleetOrder(now, OrderResult.DONE, now))
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
