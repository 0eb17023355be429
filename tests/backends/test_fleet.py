"""What a fleet remembers of its looks."""

from collections.abc import Callable
from typing import Any

from rescheduler.backends.base import InstanceState, NodeGroup
from rescheduler.backends.fleet.fleet import Fleet
from rescheduler.backends.fleet.machine import Machine, Pace, View
from tests.backends.clocks import StepClock

GROUP = NodeGroup("g", 0, 9)


class Cloud:
    """Machines by name; `meanwhile` happens after a look has read them and before it returns."""

    name = "cloud"

    def __init__(self) -> None:
        self.machines = ["a", "b"]
        self.looks = 0
        self.meanwhile: Callable[[], None] = lambda: None

    def look(self, **_: float) -> View:
        self.looks += 1
        view = View([GROUP], [Machine(one, one, GROUP.id, InstanceState.RUNNING) for one in self.machines])
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return view

    def key_of(self, _: object) -> None:
        return None


def fleet(cloud: Any, clock: StepClock) -> Fleet:
    return Fleet(cloud, clock, Pace(refresh=60, poll=1, settle=60))


def test_a_look_that_began_before_a_change_is_not_kept() -> None:
    cloud, clock = Cloud(), StepClock()
    found = fleet(cloud, clock)

    def change() -> None:
        with found.changing(deadline=60):
            cloud.machines = ["b"]

    cloud.meanwhile = change
    assert found.size(found.recent(deadline=60), GROUP.id) == 2
    assert found.size(found.recent(deadline=60), GROUP.id) == 1


def test_a_look_serves_from_its_beginning() -> None:
    cloud, clock = Cloud(), StepClock()
    found = fleet(cloud, clock)
    cloud.meanwhile = lambda: clock.advance(59)
    found.recent(deadline=600)
    found.recent(deadline=600)
    assert cloud.looks == 1
    clock.advance(1)
    found.recent(deadline=600)
    assert cloud.looks == 2
