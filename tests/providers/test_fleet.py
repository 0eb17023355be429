"""Cached observations of a fleet."""

from collections.abc import Callable
from typing import Any

from rescheduler.providers.base import InstanceState, NodeGroup
from rescheduler.providers.fleet import PollIntervals, SystemMachine, SystemView
from rescheduler.providers.fleet.fleet import MachineFleet
from tests.providers.clocks import StepClock

GROUP = NodeGroup("g", 0, 9)


class Cloud:
    """Machines by name; `meanwhile` runs during `read`, after the machines were read."""

    name = "cloud"

    def __init__(self) -> None:
        self.machines = ["a", "b"]
        self.looks = 0
        self.meanwhile: Callable[[], None] = lambda: None

    def read(self, **_: float) -> SystemView:
        self.looks += 1
        view = SystemView(
            [GROUP], [SystemMachine(machine, machine, GROUP.id, InstanceState.RUNNING) for machine in self.machines]
        )
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return view

    def key_of(self, _: object) -> None:
        return None


def fleet(cloud: Any, clock: StepClock) -> MachineFleet:
    return MachineFleet(cloud, clock, PollIntervals(refresh=60, poll=1, settle=60))


def test_a_view_requested_before_a_change_is_discarded() -> None:
    cloud, clock = Cloud(), StepClock()
    machines = fleet(cloud, clock)

    def change() -> None:
        with machines.changing(deadline=60):
            cloud.machines = ["b"]

    cloud.meanwhile = change
    assert machines.size(machines.recent(deadline=60), GROUP.id) == 2
    assert machines.size(machines.recent(deadline=60), GROUP.id) == 1


def test_the_age_of_a_view_counts_from_its_request() -> None:
    cloud, clock = Cloud(), StepClock()
    machines = fleet(cloud, clock)
    cloud.meanwhile = lambda: clock.advance(59)
    machines.recent(deadline=600)
    machines.recent(deadline=600)
    assert cloud.looks == 1
    clock.advance(1)
    machines.recent(deadline=600)
    assert cloud.looks == 2
