"""The provider protocol for a fleet; subclasses add templates and prices."""

import datetime as dt
from collections.abc import Mapping, Sequence

from rescheduler import errors
from rescheduler.clock import Clock
from rescheduler.providers.base import (
    CloudProvider,
    DeleteOutcome,
    Instance,
    MayEnd,
    NodeGroup,
    NodeRef,
    Refused,
    any_may_end,
)
from rescheduler.providers.fleet.fleet import MachineFleet
from rescheduler.providers.fleet.machine import MachineSystem, PollIntervals, SystemMachine
from rescheduler.providers.fleet.removal import FleetRemoval


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
        return self._system.exists(key, deadline=deadline) if key else None

    def instance_for(self, node: NodeRef, *, deadline: float) -> str | None:
        machine = self.machine(node, deadline=deadline)
        return machine.id if machine is not None else None

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
