"""Test that the planning timeout includes the time to apply watched changes."""

from typing import Any, Final

import pytest

from predicates.snapshot import Snapshot
from rescheduler.planning.outcome import Planning
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.housekeeping.world import LoopWorld, world
from tests.planning.builders import ON_DEMAND, node

WATCHED: Final = 0.5  #: seconds that it takes to apply the watched changes


class SlowState:
    """A watched state that applies changes when it is first read."""

    def __init__(self, here: LoopWorld) -> None:
        self._here = here
        self._applied = False

    def snapshot(self) -> Snapshot:
        if not self._applied:
            self._applied = True
            self._here.pass_time(WATCHED)
        return self._here.cluster


def test_the_planning_timeout_includes_the_time_to_apply_watched_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []
    first_plan = Planner.first_plan

    def measured(planner: Planner, *arguments: Any, **options: Any) -> Planning:
        left.append(options["seconds_left"]())
        return first_plan(planner, *arguments, **options)

    monkeypatch.setattr(Planner, "first_plan", measured)
    with world(node("od-1", ON_DEMAND), node("spot-1")) as here:
        monkeypatch.setattr(here, "snapshot", SlowState(here).snapshot)
        loop = here.loop()
        for _ in range(2):
            loop.round()
    timeout = Policy().planning_timeout
    assert left == [pytest.approx(0.9 * timeout - WATCHED), pytest.approx(0.9 * timeout)]
